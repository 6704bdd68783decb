//! `thruway completions` and `thruway man`: generated from the single definition of the arguments.

mod completions;
mod page;
mod sections;

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
    /// Prints the completions of `thruway`, the command with the verbs that users see.
    pub(crate) fn run(self, mut thruway: Command) -> Answer {
        print(&completions::script(self.shell, &mut thruway))?;
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
    /// Prints the manual of `thruway`, the whole command.
    pub(crate) fn run(self, thruway: Command) -> Answer {
        let command = command(thruway, self.verb.as_deref())?;
        let manual = page::render(command, self.verb.is_none())
            .map_err(|error| Failure::new(format_args!("cannot render the manual: {error}")))?;
        print(&manual)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn command(mut thruway: Command, verb: Option<&str>) -> Result<Command, Failure> {
    thruway.build();
    let Some(verb) = verb else { return Ok(thruway) };
    thruway.find_subcommand(verb).cloned().ok_or_else(|| {
        Failure::new(format_args!("no verb named {verb}")).hint("thruway help lists the verbs")
    })
}

/// Only Linux has every verb that has sections.
#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::collections::BTreeSet;

    use clap::{CommandFactory, Parser};

    use super::sections;
    use crate::verbs::Thruway;

    /// The page with the exit statuses: a row for each verb and status.
    const PAGE: &str = include_str!("../../../../docs/reference/exit_status.md");

    #[test]
    fn every_verb_has_its_sections() {
        let thruway = Thruway::command();
        let verbs = thruway.get_subcommands().filter(|verb| !verb.is_hide_set());
        let verbs: BTreeSet<_> = verbs.map(|verb| verb.get_name()).collect();
        let described = sections::ALL.iter().map(|sections| sections.verb);
        assert_eq!(described.filter(|verb| !verb.is_empty()).collect::<BTreeSet<_>>(), verbs);
    }

    #[test]
    fn every_example_can_be_typed() {
        for (example, _) in sections::ALL.iter().flat_map(|sections| sections.examples) {
            let words = example.split_whitespace().map(|word| word.trim_matches('\''));
            assert!(Thruway::try_parse_from(words).is_ok(), "{example}");
        }
    }

    #[test]
    fn the_page_of_exit_statuses_says_what_the_manual_says() {
        for sections in sections::ALL {
            let verb = if sections.verb.is_empty() { "every verb" } else { sections.verb };
            for (status, when) in sections.statuses {
                let row = format!("| {verb} | {status} | {when} |");
                assert!(PAGE.lines().any(|line| line == row), "{row}");
            }
        }
        let rows = sections::ALL.iter().map(|sections| sections.statuses.len()).sum::<usize>();
        assert_eq!(PAGE.lines().filter(|line| line.starts_with("| ")).count(), rows + 2);
    }
}
