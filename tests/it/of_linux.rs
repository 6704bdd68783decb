//! Verbs of Linux on other systems: one line, and an exit status that scripts can tell from a failure.

use super::run;

const VERBS: [&str; 9] =
    ["mount", "unmount", "serve", "ctl", "certificates", "trace", "load", "preload", "init"];

#[test]
fn a_verb_of_linux_says_so_in_one_line_with_a_status_of_its_own() {
    for verb in VERBS {
        let lines = [&[verb][..], &[verb, "--any", "thing"], &["help", verb], &["man", verb]];
        for words in lines {
            let output = run(words);
            let errors = String::from_utf8(output.stderr).unwrap();
            assert_eq!(errors, format!("thruway: {verb} works on Linux only\n"), "{words:?}");
            assert!(output.stdout.is_empty(), "{words:?}");
            assert_eq!(output.status.code(), Some(3), "{words:?}");
        }
    }
}

#[test]
fn an_option_of_linux_says_how_to_do_without() {
    let output = run(&["run", "--preload", "--", "no-such-program"]);
    let errors = String::from_utf8(output.stderr).unwrap();
    let hint = "hint: without it, the command boots from its pack";
    // Before that, the program may say that it finds no gem.
    let expected = format!("thruway: --preload works on Linux only\n\n{hint}\n");
    assert!(errors.ends_with(&expected), "{errors}");
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn other_words_are_not_taken_for_verbs_of_linux() {
    for words in [&["help", "which"][..], &["man", "run"], &["which", "mount"], &["help"]] {
        assert_ne!(run(words).status.code(), Some(3), "{words:?}");
    }
}
