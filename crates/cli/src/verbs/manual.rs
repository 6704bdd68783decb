//! `thruway completions` and `thruway man`: made from the one definition of the arguments.

use std::process::ExitCode;

use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;

use super::Thruway;
use crate::output::{Answer, Failure, print};

/// Print the completion script for a shell
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Answer {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut offered(), "thruway", &mut script);
        print(&script)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The command without its hidden verbs, which the scripts would offer.
fn offered() -> Command {
    let thruway = Thruway::command();
    let verbs = thruway.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned();
    Command::new("thruway")
        .version(env!("CARGO_PKG_VERSION"))
        .args(thruway.get_arguments().cloned())
        .subcommands(verbs.collect::<Vec<_>>())
}

/// Print the manual page of thruway, or of one verb
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The verb [default: thruway itself]
    verb: Option<String>,
}

impl Man {
    pub(crate) fn run(self) -> Answer {
        let command = page(self.verb.as_deref())?;
        let mut manual = Vec::new();
        clap_mangen::Man::new(command)
            .render(&mut manual)
            .map_err(|error| Failure::new(format_args!("cannot render the manual: {error}")))?;
        print(&manual)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn page(verb: Option<&str>) -> Result<Command, Failure> {
    let mut thruway = Thruway::command();
    thruway.build();
    let Some(verb) = verb else { return Ok(thruway) };
    thruway.find_subcommand(verb).cloned().ok_or_else(|| {
        Failure::new(format_args!("no verb named {verb}")).hint("thruway help lists the verbs")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_well_formed() {
        Thruway::command().debug_assert();
    }
}
