//! The verbs, one file each. Systems other than Linux have the verbs that find names and the verbs that boot Ruby.

#[cfg(target_os = "linux")]
mod certificates;
#[cfg(target_os = "linux")]
mod ctl;
mod doctor;
mod expand;
#[cfg(target_os = "linux")]
mod init;
#[cfg(target_os = "linux")]
mod load;
mod manual;
#[cfg(target_os = "linux")]
pub(crate) mod mount;
mod pack;
#[cfg(target_os = "linux")]
mod preload;
#[cfg(not(target_os = "linux"))]
#[path = "preload/none.rs"]
mod preload;
mod run;
#[cfg(target_os = "linux")]
mod serve;
#[cfg(target_os = "linux")]
mod trace;
mod which;

use std::ffi::OsString;

use clap::builder::PossibleValuesParser;
use clap::{Command, CommandFactory, Parser, Subcommand};

use crate::output::Answer;
#[cfg(not(target_os = "linux"))]
use crate::output::Failure;

/// From a name to its bytes with no stops.
///
/// Finds the file-system work that programs and servers waste between a name and its bytes, and
/// removes it. Its rule: decide once, at open; then let the kernel move the bytes.
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
    #[cfg(target_os = "linux")]
    Ctl(ctl::Ctl),
    #[cfg(target_os = "linux")]
    Certificates(certificates::Certificates),
    Expand(expand::Expand),
    #[cfg(target_os = "linux")]
    Trace(trace::Trace),
    Which(which::Which),
    #[cfg(target_os = "linux")]
    Load(Box<load::Load>),
    Run(run::Run),
    Pack(pack::Pack),
    #[cfg(target_os = "linux")]
    Preload(preload::Preload),
    #[cfg(target_os = "linux")]
    Init(init::Init),
    Doctor(doctor::Doctor),
    Completions(manual::Completions),
    Man(manual::Man),
    #[cfg(target_os = "linux")]
    #[command(name = thruway_mount::INNER_VERB, hide = true)]
    MountProcess(mount::MountProcess),
    #[cfg(target_os = "linux")]
    #[command(name = serve::AGENT_VERB, hide = true)]
    CertificateAgent(certificates::CertificateAgent),
}

/// The command line of `thruway run`. It is typed all day, and the options of all verbs take 1.3 MB more.
#[derive(Debug, Parser)]
#[command(name = "thruway", version, max_term_width = 100)]
struct OnlyRun {
    #[command(subcommand)]
    verb: RunVerb,
}

#[derive(Debug, Subcommand)]
enum RunVerb {
    Run(run::Run),
}

/// The verbs that only Linux has.
#[cfg(not(target_os = "linux"))]
const OF_LINUX: [&str; 9] =
    ["mount", "unmount", "serve", "ctl", "certificates", "trace", "load", "preload", "init"];

/// Returns a failure if a command line is about a verb that exists on Linux only: to run the verb, or to read of it.
#[cfg(not(target_os = "linux"))]
pub(crate) fn unsupported_verb(words: &[OsString]) -> Option<Failure> {
    let mut words = words.iter().skip(1).skip_while(|word| *word == "help" || *word == "man");
    let verb = words.next().filter(|word| OF_LINUX.iter().any(|verb| word == verb))?;
    Some(Failure::of_linux(verb.display()))
}

impl Thruway {
    /// Parses the words of a command line.
    ///
    /// # Errors
    /// The words are not a valid command, or ask for help.
    pub(crate) fn parsed(words: Vec<OsString>) -> Result<Self, clap::Error> {
        if words.get(1).is_some_and(|verb| verb == "run") {
            let RunVerb::Run(run) = parsed_as::<OnlyRun>(words)?.verb;
            return Ok(Self { verb: Verb::Run(run) });
        }
        #[cfg(target_os = "linux")]
        if words.get(1).is_some_and(|verb| verb == "serve") {
            return parsed_as::<Self>(words).map_err(serve::advise);
        }
        parsed_as(words)
    }

    pub(crate) fn run(self) -> Answer {
        match self.verb {
            #[cfg(target_os = "linux")]
            Verb::Mount(verb) => verb.run(),
            #[cfg(target_os = "linux")]
            Verb::Unmount(verb) => verb.run(),
            #[cfg(target_os = "linux")]
            Verb::Serve(verb) => verb.run(),
            #[cfg(target_os = "linux")]
            Verb::Ctl(verb) => verb.run(),
            #[cfg(target_os = "linux")]
            Verb::Certificates(verb) => verb.run(),
            Verb::Expand(verb) => verb.run(),
            #[cfg(target_os = "linux")]
            Verb::Trace(verb) => verb.run(),
            Verb::Which(verb) => verb.run(),
            #[cfg(target_os = "linux")]
            Verb::Load(verb) => verb.run(),
            Verb::Run(verb) => verb.run(),
            Verb::Pack(verb) => verb.run(),
            #[cfg(target_os = "linux")]
            Verb::Preload(verb) => verb.run(),
            #[cfg(target_os = "linux")]
            Verb::Init(verb) => verb.run(),
            Verb::Doctor(verb) => verb.run(),
            Verb::Completions(verb) => verb.run(offered()),
            Verb::Man(verb) => verb.run(Thruway::command()),
            #[cfg(target_os = "linux")]
            Verb::MountProcess(verb) => verb.run(),
            #[cfg(target_os = "linux")]
            Verb::CertificateAgent(verb) => verb.run(),
        }
    }
}

/// Parses the words of a command line.
fn parsed_as<P: Parser>(words: Vec<OsString>) -> Result<P, clap::Error> {
    let mut matches = with_negative_numbers(P::command()).try_get_matches_from(words)?;
    P::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut P::command()))
}

/// Takes a negative number after an option for its value, so that the error names the option and its range. By itself,
/// clap takes the number for an unknown option.
fn with_negative_numbers(command: Command) -> Command {
    command
        .mut_args(|argument| {
            let takes_value = !argument.is_positional() && argument.get_action().takes_values();
            argument.allow_negative_numbers(takes_value)
        })
        .mut_subcommands(with_negative_numbers)
}

/// Returns the command as shells complete it: without hidden verbs, and with the names of all other verbs for `man`.
fn offered() -> Command {
    let thruway = Thruway::command();
    let verbs: Vec<_> =
        thruway.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned().collect();
    let names: Vec<_> = verbs.iter().map(|verb| verb.get_name().to_owned()).collect();
    Command::new("thruway")
        .version(env!("CARGO_PKG_VERSION"))
        .args(thruway.get_arguments().cloned())
        .subcommands(verbs)
        .mut_subcommand("man", |man| {
            man.mut_arg("verb", |verb| verb.value_parser(PossibleValuesParser::new(names)))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_well_formed() {
        Thruway::command().debug_assert();
        offered().debug_assert();
    }
}
