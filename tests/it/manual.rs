use crate::{run, stderr, stdout};

#[test]
fn every_shell_gets_a_completion_script() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        assert!(stdout(&run(&["completions", shell])).contains("thruway"), "{shell}");
    }
}

#[test]
fn a_verb_has_a_manual_page() {
    assert!(stdout(&run(&["man"])).contains(".TH thruway 1"));
    assert!(stdout(&run(&["man", "expand"])).contains(".TH thruway-expand 1"));
}

#[test]
fn a_failure_names_the_thing_and_the_cure() {
    let output = run(&["man", "fly"]);
    assert_eq!(
        stderr(&output),
        "thruway: no verb named fly\n\nhint: thruway help lists the verbs\n"
    );
    assert_eq!(output.status.code(), Some(2));
}
