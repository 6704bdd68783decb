use crate::{run, stderr, stdout};

/// The verbs that `thruway --help` lists.
fn verbs() -> Vec<String> {
    let help = run(&["--help"]);
    let listed = stdout(&help).lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty());
    let verbs: Vec<_> = listed.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(verbs.contains(&"load") && verbs.last() == Some(&"help"), "{verbs:?}");
    verbs.into_iter().filter(|verb| *verb != "help").map(str::to_owned).collect()
}

#[test]
fn every_shell_completes_every_verb_and_no_hidden_one() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = run(&["completions", shell]);
        let script = stdout(&output);
        for verb in verbs() {
            assert!(script.contains(&verb), "{shell}: {verb}");
        }
        assert!(script.contains("per-connection"), "{shell}");
        assert!(!script.contains("mount-process"), "{shell} offers what users never start");
    }
}

#[test]
fn bash_completes_the_options_of_a_verb() {
    let script = "eval \"$(\"$0\" completions bash)\"; COMP_WORDS=(thruway load --pip); COMP_CWORD=2; \
                  _thruway thruway --pip load; echo \"${COMPREPLY[@]}\"";
    let mut bash = std::process::Command::new("bash");
    let output =
        bash.args(["-c", script, env!("CARGO_BIN_EXE_thruway")]).output().expect("bash starts");
    assert_eq!((stdout(&output), stderr(&output)), ("--pipeline\n", ""));
}

#[test]
fn bash_completes_the_verb_whose_manual_is_wanted() {
    let script = "eval \"$(\"$0\" completions bash)\"; COMP_WORDS=(thruway man exp); COMP_CWORD=2; \
                  _thruway thruway exp man; echo \"${COMPREPLY[@]}\"";
    let mut bash = std::process::Command::new("bash");
    let output =
        bash.args(["-c", script, env!("CARGO_BIN_EXE_thruway")]).output().expect("bash starts");
    assert_eq!((stdout(&output), stderr(&output)), ("expand\n", ""));
}

#[test]
fn every_verb_has_help_and_a_manual_page() {
    assert!(stdout(&run(&["man"])).contains(".TH thruway 1"));
    for verb in verbs() {
        let help = run(&["help", &verb]);
        assert!(stdout(&help).contains(&format!("\nUsage: thruway {verb}")), "{help:?}");
        let page = run(&["man", &verb]);
        assert!(stdout(&page).contains(&format!(".TH thruway-{verb} 1")), "{page:?}");
    }
}

#[test]
fn every_page_says_how_it_ends_and_gives_examples() {
    for verb in verbs() {
        let page = run(&["man", &verb]);
        for section in ["EXIT STATUS", "EXAMPLES", "SEE ALSO"] {
            assert!(stdout(&page).contains(&format!("\n.SH {section:?}\n")), "{verb}: {section}");
        }
        let is_empty = |pair: &[&str]| pair.iter().all(|line| line.starts_with(".SH"));
        let lines: Vec<_> = stdout(&page).lines().collect();
        assert!(!lines.windows(2).any(is_empty), "{verb} has a section without a line");
    }
    let serve = run(&["man", "serve"]);
    for section in [".SH \"ENVIRONMENT\"\n", ".SH \"FILES\"\n"] {
        assert!(stdout(&serve).contains(section), "{section}");
    }
}

#[test]
fn a_wrong_argument_is_told_in_our_name() {
    let output = run(&["load", "127.0.0.1:80", "--connection-count", "3"]);
    assert!(
        stderr(&output).starts_with("thruway: unexpected argument '--connection-count' found\n")
    );
    assert!(stderr(&output).contains("\nUsage: thruway load "));
    assert_eq!((output.status.code(), stdout(&output)), (Some(2), ""));
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
