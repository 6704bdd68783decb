//! Completions: the scripts that clap generates, with additions for each shell.
//!
//! bash and fish complete the command after `--`, as clap's script for zsh does. fish also completes the values of
//! positional arguments.

use clap::Command;
use clap_complete::Shell;

/// Completes the command after `--` as if it stood alone.
const BASH: &str = r#"
_thruway_or_command() {
    local place
    for ((place = 1; place < COMP_CWORD; place++)); do
        [[ ${COMP_WORDS[place]} == -- ]] || continue
        if declare -F _comp_command_offset >/dev/null; then
            _comp_command_offset $((place + 1))
        elif declare -F _command_offset >/dev/null; then
            _command_offset $((place + 1))
        elif ((place + 1 == COMP_CWORD)); then
            COMPREPLY=($(compgen -c -- "${COMP_WORDS[COMP_CWORD]}"))
        else
            COMPREPLY=()
        fi
        return
    done
    _thruway "$@"
}

complete -F _thruway_or_command -o bashdefault -o default thruway
"#;

const FISH: &str = r#"
function __fish_thruway_has_command
    contains -- -- (commandline -opc)
end

function __fish_thruway_command
    set -l words (commandline -opc)
    set -l place (contains -i -- -- $words)
    set -e words[1..$place]
    complete -C (string join ' ' -- (string escape -- $words) (commandline -ct))
end

complete -c thruway -n __fish_thruway_has_command -x -a '(__fish_thruway_command)'
"#;

/// Returns the script for a shell. `thruway` is the command with the verbs that users see.
pub(super) fn script(shell: Shell, thruway: &mut Command) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, thruway, "thruway", &mut script);
    match shell {
        Shell::Bash => script.extend_from_slice(BASH.as_bytes()),
        Shell::Fish => {
            script.extend_from_slice(FISH.as_bytes());
            script.extend_from_slice(fish_values(thruway).as_bytes());
        }
        _ => (),
    }
    script
}

/// Returns the values of positional arguments, one line per argument.
fn fish_values(thruway: &Command) -> String {
    let mut lines = String::new();
    for verb in thruway.get_subcommands() {
        let values = verb.get_positionals().flat_map(|argument| argument.get_possible_values());
        let values: Vec<_> = values.map(|value| value.get_name().to_owned()).collect();
        if !values.is_empty() {
            let (verb, values) = (verb.get_name(), values.join(" "));
            lines.push_str(&format!(
                "complete -c thruway -n \"__fish_thruway_using_subcommand {verb}\" -f -a \"{values}\"\n"
            ));
        }
    }
    lines
}
