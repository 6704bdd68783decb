//! The verbs, one file each. On Windows there are those that find names.

mod expand;
#[cfg(target_os = "linux")]
mod load;
mod manual;
#[cfg(target_os = "linux")]
pub(crate) mod mount;
#[cfg(target_os = "linux")]
mod pack;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod serve;
#[cfg(target_os = "linux")]
mod trace;
mod which;

use clap::{Parser, Subcommand};

use crate::output::Answer;

/// From a name to its bytes with no stops.
///
/// Finds the file-system work that programs and servers waste between a name and its bytes, and
/// removes it: decide once, at open; then let the kernel move the bytes.
#[derive(Debug, Parser)]
#[command(name = "thruway", version, max_term_width = 100)]
pub(crate) struct Thruway {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    #[cfg(target_os = "linux")]
    Mount(mount::Mount),
    #[cfg(target_os = "linux")]
    Unmount(mount::Unmount),
    #[cfg(target_os = "linux")]
    Serve(serve::Serve),
    Expand(expand::Expand),
    #[cfg(target_os = "linux")]
    Trace(trace::Trace),
    Which(which::Which),
    #[cfg(target_os = "linux")]
    Load(load::Load),
    #[cfg(target_os = "linux")]
    Run(run::Run),
    #[cfg(target_os = "linux")]
    Pack(pack::Pack),
    Completions(manual::Completions),
    Man(manual::Man),
    #[cfg(target_os = "linux")]
    #[command(name = thruway_mount::INNER_VERB, hide = true)]
    MountProcess(mount::MountProcess),
}

impl Thruway {
    pub(crate) fn run(self) -> Answer {
        match self.verb {
            #[cfg(target_os = "linux")]
            Verb::Mount(verb) => verb.run(),
            #[cfg(target_os = "linux")]
            Verb::Unmount(verb) => verb.run(),
            #[cfg(target_os = "linux")]
            Verb::Serve(verb) => verb.run(),
            Verb::Expand(verb) => verb.run(),
            #[cfg(target_os = "linux")]
            Verb::Trace(verb) => verb.run(),
            Verb::Which(verb) => verb.run(),
            #[cfg(target_os = "linux")]
            Verb::Load(verb) => verb.run(),
            #[cfg(target_os = "linux")]
            Verb::Run(verb) => verb.run(),
            #[cfg(target_os = "linux")]
            Verb::Pack(verb) => verb.run(),
            Verb::Completions(verb) => verb.run(),
            Verb::Man(verb) => verb.run(),
            #[cfg(target_os = "linux")]
            Verb::MountProcess(verb) => verb.run(),
        }
    }
}
