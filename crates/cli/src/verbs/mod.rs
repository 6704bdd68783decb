//! The verbs, one file each.

mod expand;
mod load;
mod manual;
pub(crate) mod mount;
#[cfg(target_os = "linux")]
mod pack;
#[cfg(target_os = "linux")]
mod run;
mod serve;
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
    Mount(mount::Mount),
    Unmount(mount::Unmount),
    Serve(serve::Serve),
    Expand(expand::Expand),
    Which(which::Which),
    Load(load::Load),
    #[cfg(target_os = "linux")]
    Run(run::Run),
    #[cfg(target_os = "linux")]
    Pack(pack::Pack),
    Completions(manual::Completions),
    Man(manual::Man),
    #[command(name = thruway_mount::INNER_VERB, hide = true)]
    MountProcess(mount::MountProcess),
}

impl Thruway {
    pub(crate) fn run(self) -> Answer {
        match self.verb {
            Verb::Mount(verb) => verb.run(),
            Verb::Unmount(verb) => verb.run(),
            Verb::Serve(verb) => verb.run(),
            Verb::Expand(verb) => verb.run(),
            Verb::Which(verb) => verb.run(),
            Verb::Load(verb) => verb.run(),
            #[cfg(target_os = "linux")]
            Verb::Run(verb) => verb.run(),
            #[cfg(target_os = "linux")]
            Verb::Pack(verb) => verb.run(),
            Verb::Completions(verb) => verb.run(),
            Verb::Man(verb) => verb.run(),
            Verb::MountProcess(verb) => verb.run(),
        }
    }
}
