//! Options of Puma's command that `thruway serve` lacks, and their substitutes.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Options, and the advice on their substitutes.
const OPTIONS: [(&[&str], &str); 16] = [
    (&["--dir"], "name the folder: thruway serve DIR"),
    (&["--no-config"], "use -C -"),
    (&["--preload"], "leave it out: an application is loaded before workers are forked"),
    (&["-q", "--quiet"], "leave it out: requests are not logged by default"),
    (&["--debug"], "leave it out: errors are logged without it"),
    (&["-s", "--silent"], "redirect the standard output"),
    (&["-I", "--include"], "name the folder in RUBYLIB"),
    (&["--idle-timeout"], "leave it out: the server keeps running when idle; a signal stops it"),
    (
        &["--prune-bundler", "--extra-runtime-dependencies"],
        "leave it out: the server needs no gem beside the application's",
    ),
    (&["--control-url", "--control-token"], "set activate_control_app in config/puma.rb"),
    (&["--bind-to-activated-sockets"], "set bind_to_activated_sockets in config/puma.rb"),
    (&["-f", "--fork-worker"], "set fork_worker in config/puma.rb"),
    (&["-v", "--log-requests"], "set log_requests in config/puma.rb"),
    (&["-R", "--restart-cmd"], "set restart_command in config/puma.rb"),
    (
        &["--redirect-stdout", "--redirect-stderr", "--redirect-append", "--no-redirect-append"],
        "set stdout_redirect in config/puma.rb",
    ),
    (
        &["-S", "--state", "--plugin", "--early-hints", "--tag"],
        "set it in config/puma.rb: state_path, plugin, early_hints, tag",
    ),
];

/// Adds the substitute of an option of Puma's command to the error about the option.
pub(crate) fn advise(mut error: clap::Error) -> clap::Error {
    let unknown = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option)) if error.kind() == ErrorKind::UnknownArgument => option,
        _ => return error,
    };
    let found = OPTIONS.iter().find(|(options, _)| options.contains(&unknown.as_str()));
    if let Some((_, advice)) = found {
        let advice = ContextValue::StyledStrs(vec![StyledStr::from(*advice)]);
        error.insert(ContextKind::Suggested, advice);
    }
    error
}
