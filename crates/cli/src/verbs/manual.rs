//! `thruway completions` and `thruway man`: made from the one definition of the arguments.

use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::output::{Answer, Failure, print};

/// Print the completion script for a shell
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    /// Of `thruway`, the command as it is offered to users.
    pub(crate) fn run(self, mut thruway: Command) -> Answer {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut thruway, "thruway", &mut script);
        print(&script)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Print the manual page of thruway, or of one verb
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The verb [default: thruway itself]
    verb: Option<String>,
}

impl Man {
    /// Of `thruway`, the whole command.
    pub(crate) fn run(self, thruway: Command) -> Answer {
        let command = page(thruway, self.verb.as_deref())?;
        let mut manual = Vec::new();
        clap_mangen::Man::new(command)
            .render(&mut manual)
            .map_err(|error| Failure::new(format_args!("cannot render the manual: {error}")))?;
        print(&manual)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn page(mut thruway: Command, verb: Option<&str>) -> Result<Command, Failure> {
    thruway.build();
    let Some(verb) = verb else { return Ok(thruway) };
    thruway.find_subcommand(verb).cloned().ok_or_else(|| {
        Failure::new(format_args!("no verb named {verb}")).hint("thruway help lists the verbs")
    })
}
