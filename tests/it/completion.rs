//! Completions in the shells themselves.

use std::process::Command;

use thruway_testing::skipped;

use crate::{stderr, stdout};

const THRUWAY: &str = env!("CARGO_BIN_EXE_thruway");

/// Lines that a user has begun, each with a completion of its last word.
const LINES: [(&str, &str); 5] = [
    ("thruway man exp", "expand"),
    ("thruway doc", "doctor"),
    ("thruway completions zs", "zsh"),
    ("thruway run -- enviro", "environment-of-a-test"),
    ("thruway load --pip", "--pipeline"),
];

/// A folder with a command of its own, at the end of `PATH`.
fn path() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("environment-of-a-test");
    std::os::unix::fs::symlink("/usr/bin/env", program).expect("it is linked");
    let rest = std::env::var("PATH").expect("there is one");
    let path = format!("{rest}:{}", folder.path().display());
    (folder, path)
}

/// Returns the output of a shell's script, or `None` if the shell is not installed.
fn answer(shell: &str, arguments: &[&str], script: &str, line: &str) -> Option<String> {
    let (_folder, path) = path();
    let mut command = Command::new(shell);
    command.args(arguments).args(["-c", script]).env("PATH", path).env("TERM", "dumb");
    match command.env("THRUWAY", THRUWAY).env("LINE", line).output() {
        Ok(output) => Some(format!("{}{}", stdout(&output), stderr(&output))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            skipped(format_args!("{shell} is not installed"));
            None
        }
        Err(error) => panic!("{shell}: {error}"),
    }
}

fn offers(shell: &str, arguments: &[&str], script: &str) {
    for (line, wanted) in LINES {
        let Some(said) = answer(shell, arguments, script, line) else { return };
        assert!(
            said.split_whitespace().any(|word| word.trim_end_matches('=') == wanted),
            "{shell}: {line}: {said}"
        );
    }
}

#[test]
fn bash_completes_verbs_options_values_and_commands() {
    let script = r#"eval "$("$THRUWAY" completions bash)"
        COMP_WORDS=($LINE); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _thruway_or_command thruway "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    offers("bash", &["--norc"], script);
}

#[test]
fn fish_completes_verbs_options_values_and_commands() {
    let script = "$THRUWAY completions fish | source; complete -C \"$LINE\"";
    offers("fish", &["--no-config"], script);
}

/// zsh completes only in a terminal, so the script runs zsh in one and shows the line after a tab. The terminal echoes
/// the typed text, so the text to wait for is quoted where it is typed.
#[test]
fn zsh_completes_verbs_options_values_and_commands() {
    let script = r#"zmodload zsh/zpty
        zpty terminal "TERM=dumb zsh -f -i"
        zpty -w terminal 'PROMPT=; RPROMPT=; unsetopt zle_bracketed_paste 2>/dev/null'
        zpty -w terminal 'autoload -U compinit; compinit -u -D; eval "$($THRUWAY completions zsh)"'
        zpty -w terminal 'zle -N show; bindkey "^T" show'
        zpty -w terminal 'show() { print -r -- "line: $BUFFER :"end; }; print begin":"now'
        zpty -r terminal said '*begin:now*'
        zpty -n -w terminal "$LINE"$'\t'$'\x14'
        zpty -r terminal said '*:end*'
        print -r -- "$said"
        zpty -d terminal"#;
    offers("zsh", &["-f"], script);
}
