//! `thruway preload status` and `thruway preload stop`.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use thruway_preload::client;
use thruway_preload::history::{History, Miss};
use thruway_preload::template::IDLE_MAX;
use thruway_preload::template_folder::{KeyFile, TemplateFolder};

use crate::output::{Answer, Failure, print, print_report};
use crate::units::time;

/// Show or stop templates: booted applications that commands are forked from
#[derive(Debug, Args)]
pub(crate) struct Preload {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List this user's templates, and the reasons why recent commands booted without one
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Stop the templates of the application in this folder; running commands continue
    Stop {
        /// Stop the templates of all applications
        #[arg(long)]
        all: bool,
    },
}

/// The report of a template: names and values.
type Report = Map<String, Value>;

impl Preload {
    pub(crate) fn run(self) -> Answer {
        let place = TemplateFolder::of_user(|name| std::env::var_os(name));
        let place = place.map_err(|error| {
            Failure::new(format_args!("no folder for the sockets of templates: {error}"))
        })?;
        match self.action {
            Action::Status { json } => status(&place, json),
            Action::Stop { all } => stop(&place, all),
        }
    }
}

/// Returns the reports of all templates, and of all commands that recently ran without one.
fn reports(place: &TemplateFolder) -> Vec<(u128, Report)> {
    let mut reports: Vec<(u128, Report)> = Vec::new();
    for key in place.keys(KeyFile::Socket) {
        let template = client::status(place, key).ok().flatten().map(|fields| report(&fields));
        reports.extend(template.map(|template| (key, template)));
    }
    let waits: Vec<_> = reports.iter().map(|(key, _)| *key).collect();
    for (key, report) in &mut reports {
        report.insert("state".to_owned(), "waits".into());
        add_history(report, History::of(place, *key).unwrap_or_default());
    }
    for key in place.keys(KeyFile::History).into_iter().filter(|key| !waits.contains(key)) {
        let recent = |history: &History| history.misses.last().is_some_and(is_recent);
        reports
            .extend(History::of(place, key).filter(recent).map(|history| (key, without(history))));
    }
    reports
}

/// Whether a miss is recent enough for a report.
fn is_recent(miss: &Miss) -> bool {
    miss.age() < IDLE_MAX
}

/// Returns the report of a command without a template.
fn without(history: History) -> Report {
    let mut report = Report::new();
    report.insert("state".to_owned(), "none".into());
    report.insert("command".to_owned(), history.command.clone().into());
    report.insert("application".to_owned(), history.folder.clone().into());
    add_history(&mut report, history);
    report
}

fn add_history(report: &mut Report, history: History) {
    let miss = |miss: Miss| json!({ "age_seconds": miss.age().as_secs(), "reason": miss.reason });
    report.insert("misses".to_owned(), history.count.into());
    report.insert("last_misses".to_owned(), history.misses.into_iter().map(miss).collect());
}

fn report(fields: &[Vec<u8>]) -> Report {
    let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
    let pair = |pair: &[Vec<u8>]| {
        let value = text(pair.get(1)?);
        let name = text(&pair[0]);
        let (name, unit) = match name.as_str() {
            // A template says these in the units of the system.
            "memory_kib" => ("memory_bytes".to_owned(), 1024),
            "compared_us" => ("compared_ns".to_owned(), 1000),
            _ => (name, 1),
        };
        let number = value.parse::<u64>().map(|number| number.saturating_mul(unit));
        Some((name, number.map_or(Value::String(value), Value::from)))
    };
    fields.chunks(2).filter_map(pair).collect()
}

fn status(place: &TemplateFolder, json: bool) -> Answer {
    let reports: Vec<_> = reports(place).into_iter().map(|(_, report)| report).collect();
    if json {
        let versioned = |mut report: Report| {
            report.insert("version".to_owned(), 2.into());
            Value::Object(report)
        };
        let reports = reports.into_iter().map(versioned).collect();
        print(format!("{:#}\n", Value::Array(reports)).as_bytes())?;
    } else {
        print_report(&reports.iter().map(line).collect::<String>())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Formats a template or a command without one, and the reason why the last command was not a fork.
fn line(report: &Report) -> String {
    let number = |name| report.get(name).and_then(Value::as_u64).unwrap_or(0);
    let text = |name| report.get(name).and_then(Value::as_str).unwrap_or_default();
    let what = format!("{} in {}", text("command"), text("application"));
    let template = match text("state") {
        "waits" => format!(
            "{} {what}: {} forks, {} s old, {} MB, {} questions compared in {}",
            number("process"),
            number("forks"),
            number("age_seconds"),
            number("memory_bytes") >> 20,
            number("questions"),
            time(number("compared_ns")),
        ),
        _ => format!("no template: {what}"),
    };
    format!("{template}{}\n", last_miss(report).unwrap_or_default())
}

fn last_miss(report: &Report) -> Option<String> {
    let count = report.get("misses")?.as_u64()?;
    let last = report.get("last_misses")?.as_array()?.last()?;
    let (age, reason) = (last.get("age_seconds")?.as_u64()?, last.get("reason")?.as_str()?);
    Some(format!("; {count} booted, the last one {age} s ago: {reason}"))
}

fn stop(place: &TemplateFolder, all: bool) -> Answer {
    let here = std::env::current_dir().ok();
    let here = here.as_ref().and_then(|folder| folder.to_str());
    for (key, report) in reports(place) {
        let application = report.get("application").and_then(Value::as_str);
        if all || application == here {
            client::stop_template(place, key)
                .map_err(|error| Failure::new(format_args!("cannot stop a template: {error}")))?;
            // A new template has to be learned from the start.
            place.forget(key);
        }
    }
    Ok(ExitCode::SUCCESS)
}
