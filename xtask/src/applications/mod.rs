//! `cargo x applications DIR`: compares whole applications, plain and with Thruway: results and bytes must be the same.
//!
//! Reading order: `application` (a copy of the application, and how its commands start), `boots` and `suite` (the state
//! after each kind of boot, and the results of the tests), `pages` (the responses of Puma and of Thruway), `report`.

mod application;
mod boots;
mod client;
mod copy;
mod crawl;
mod mask;
mod pages;
mod report;
mod running;
mod snapshot;
mod start;
mod suite;
mod way;

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};

use application::{Application, Programs};
use report::Report;

/// Compare applications plain and with Thruway: their boots, tests and pages
///
/// Everything runs in copies in target/applications. The exit status is 1 if anything differs.
#[derive(Debug, Args)]
pub(crate) struct Applications {
    /// Folders of applications, each with a config.ru
    #[arg(required = true)]
    folders: Vec<PathBuf>,

    /// Compare only this part; may be given again
    #[arg(long, value_name = "PART")]
    only: Vec<Part>,

    /// The number of pages to compare
    #[arg(long, default_value_t = 50, value_name = "N")]
    pages: usize,

    /// A path from which links are followed; may be given again
    #[arg(long = "path", default_value = "/", value_name = "PATH")]
    paths: Vec<String>,

    /// A header field of each request, such as `Cookie: a=b`; may be given again
    #[arg(long = "header", value_name = "FIELD")]
    headers: Vec<String>,

    /// The environment of boots and pages; tests run in `test`
    #[arg(long, default_value = "production", value_name = "NAME")]
    environment: String,

    /// A shell command that prepares a copy [default: bin/rails db:prepare, in that environment and in `test`]
    #[arg(long, value_name = "COMMAND")]
    prepare: Option<String>,

    /// The command that runs the tests, its words separated by spaces [default: bin/rails test, or rspec if there is a
    /// folder spec]
    #[arg(long, value_name = "COMMAND")]
    tests: Option<String>,

    /// The folder of an existing build, such as target/release [default: target/debug, built anew]
    #[arg(long, value_name = "FOLDER")]
    build: Option<PathBuf>,
}

/// A part of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// The state of the application after its boot
    Boot,
    /// The results of its own tests
    Tests,
    /// Responses under Puma and under Thruway
    Pages,
}

impl Applications {
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        let around = root.join("target/applications");
        let sources = self.folders.iter().map(|folder| application::Source::named(folder, &around));
        let sources = sources.collect::<Result<Vec<_>, _>>()?;
        let headers = self.headers.iter().map(|field| client::field(field));
        let headers = headers.collect::<Result<Vec<_>, _>>()?;
        let build = self.build(root)?;
        let mut reports = Vec::new();
        for source in sources {
            println!("{}: {}", source.name, source.folder.display());
            let programs = Programs { root: root.to_owned(), build: build.clone() };
            let application = Application::copied(programs, &around, source, self.choice())?;
            let report = self.report(&application, &headers);
            application.stop_templates();
            reports.push(report.map_err(|error| format!("{}: {error}", application.name))?);
        }
        println!();
        reports.iter().for_each(|report| println!("{}\n", report.text()));
        let differences: usize = reports.iter().map(Report::differences).sum();
        if differences == 0 {
            Ok(())
        } else {
            Err(format!("{differences} differences, named above"))
        }
    }

    /// Returns the folder of the build, made if none was named.
    fn build(&self, root: &Path) -> Result<PathBuf, String> {
        let Some(folder) = &self.build else {
            crate::command::succeed(Command::new(crate::command::own_program()).arg("gem"))?;
            return Ok(root.join("target/debug"));
        };
        let folder = std::path::absolute(folder).map_err(|error| error.to_string())?;
        let missing = ["thruway", "gem"]
            .into_iter()
            .find(|name| std::fs::metadata(folder.join(name)).is_err());
        match missing {
            None => Ok(folder),
            Some(name) => Err(format!(
                "{} has no {name}\n\nhint: name a folder in which `cargo x gem` has built",
                folder.display()
            )),
        }
    }

    fn choice(&self) -> application::Choice<'_> {
        application::Choice {
            environment: &self.environment,
            prepare: self.prepare.as_deref(),
            tests: self.tests.as_deref(),
        }
    }

    fn report(
        &self,
        application: &Application,
        headers: &[client::Field],
    ) -> Result<Report, String> {
        let mut report = Report::new(&application.name);
        let wanted = |part| self.only.is_empty() || self.only.contains(&part);
        if wanted(Part::Boot) {
            for environment in application.environments() {
                boots::compare(application, environment, &mut report)?;
            }
        }
        if wanted(Part::Tests) {
            suite::compare(application, &mut report)?;
        }
        if wanted(Part::Pages) {
            let wish = pages::Wish { pages: self.pages, paths: &self.paths, headers };
            pages::compare(application, &wish, &mut report)?;
        }
        Ok(report)
    }
}
