//! `thruway completions` and `thruway man`: made from the one definition of the arguments.

use std::process::ExitCode;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
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
    #[arg(value_parser = VerbName, hide_possible_values = true)]
    verb: Option<String>,
}

/// The name of a verb, for the shells' completions. Which verbs there are is asked when it is needed: the
/// command that knows them holds this parser itself.
#[derive(Debug, Clone)]
struct VerbName;

impl TypedValueParser for VerbName {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue>>> {
        let thruway = offered();
        let names: Vec<_> = thruway
            .get_subcommands()
            .map(|verb| PossibleValue::new(verb.get_name().to_owned()))
            .collect();
        Some(Box::new(names.into_iter()))
    }
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
