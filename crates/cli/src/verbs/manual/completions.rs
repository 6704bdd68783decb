//! Completions: what clap generates, and what it leaves out in each shell.
//!
//! bash and fish get the commands after `--`, which clap knows for zsh alone; fish gets the values of arguments
//! without a name.

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

/// The script for a shell, of `thruway`, the command as it is offered to users.
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

/// The values of arguments without a name, a line each.
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
