//! `thruway preload status` and `thruway preload stop`.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Map, Value};
use thruway_preload::client;
use thruway_preload::place::{Part, Place};

use crate::output::{Answer, Failure, print};

/// Look at booted applications that commands are forked from, or end them
#[derive(Debug, Args)]
pub(crate) struct Preload {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List this user's templates
    Status {
        /// Machine-readable
        #[arg(long)]
        json: bool,
    },
    /// End the templates of the application in this folder; commands that run go on
    Stop {
        /// Those of all applications
        #[arg(long)]
        all: bool,
    },
}

/// A template's report: names and values.
type Report = Map<String, Value>;

impl Preload {
    pub(crate) fn run(self) -> Answer {
        let place = Place::of_user(|name| std::env::var_os(name));
        let place =
            place.map_err(|error| Failure::new(format_args!("no place for templates: {error}")))?;
        match self.action {
            Action::Status { json } => status(&place, json),
            Action::Stop { all } => stop(&place, all),
        }
    }
}

fn reports(place: &Place) -> Vec<(u128, Report)> {
    let report = |key| Some((key, report(&client::status(place, key).ok()??)));
    place.keys(Part::Socket).into_iter().filter_map(report).collect()
}

fn report(fields: &[Vec<u8>]) -> Report {
    let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
    let pair = |pair: &[Vec<u8>]| {
        let value = text(pair.get(1)?);
        let value = value.parse::<u64>().map_or(Value::String(value), Value::from);
        Some((text(&pair[0]), value))
    };
    fields.chunks(2).filter_map(pair).collect()
}

fn status(place: &Place, json: bool) -> Answer {
    let reports: Vec<_> = reports(place).into_iter().map(|(_, report)| report).collect();
    let text = if json {
        let reports = reports.into_iter().map(Value::Object).collect();
        format!("{:#}\n", Value::Array(reports))
    } else {
        reports.iter().map(line).collect()
    };
    print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// One template: what it is, and how it fares.
fn line(report: &Report) -> String {
    let number = |name| report.get(name).and_then(Value::as_u64).unwrap_or(0);
    let text = |name| report.get(name).and_then(Value::as_str).unwrap_or_default();
    format!(
        "{} {} in {}: {} forks, {} s old, {} MB, {} questions compared in {} µs\n",
        number("process"),
        text("command"),
        text("application"),
        number("forks"),
        number("age_seconds"),
        number("memory_kib") / 1024,
        number("questions"),
        number("compared_us"),
    )
}

fn stop(place: &Place, all: bool) -> Answer {
    let here = std::env::current_dir().ok();
    let here = here.as_ref().and_then(|folder| folder.to_str());
    for (key, report) in reports(place) {
        let application = report.get("application").and_then(Value::as_str);
        if all || application == here {
            client::stop_template(place, key)
                .map_err(|error| Failure::new(format_args!("cannot stop a template: {error}")))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
