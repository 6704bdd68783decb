//! The report as JSON: the sums on the first line, then a line for each group.

use serde::Serialize;
use thruway_trace::analysis::{Report, Totals};

use crate::output::Failure;

/// The group of a line, and its fields.
#[derive(Serialize)]
struct Group<'a, T> {
    group: &'static str,
    #[serde(flatten)]
    content: &'a T,
}

/// The fields of the first line: the version of the format, and the sums.
#[derive(Serialize)]
struct First<'a> {
    version: u32,
    #[serde(flatten)]
    totals: &'a Totals,
}

/// A limit on calls, and whether it was kept.
#[derive(Serialize)]
struct Budget {
    limit: u64,
    calls: u64,
    is_over: bool,
}

/// The version of the lines, incremented when a field is removed or changes its meaning.
pub(super) const VERSION: u32 = 3;

pub(super) fn lines(report: &Report, limits: &[u64]) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    write(&mut text, "totals", &[First { version: VERSION, totals: &report.totals }])?;
    let calls = report.totals.calls;
    let budget = |limit: &u64| Budget { limit: *limit, calls, is_over: calls > *limit };
    write(&mut text, "budget", &limits.iter().map(budget).collect::<Vec<_>>())?;
    write(&mut text, "advice", &report.advice)?;
    write(&mut text, "absent_command", &report.absent_commands)?;
    write(&mut text, "search", &report.searches)?;
    write(&mut text, "call", &report.calls)?;
    write(&mut text, "folder", &report.folders)?;
    write(&mut text, "suffix", &report.suffixes)?;
    write(&mut text, "repeated", &report.repeated)?;
    write(&mut text, "stack", &report.stacks)?;
    write(&mut text, "program", &report.programs)?;
    write(&mut text, "cut", &report.cuts)?;
    Ok(text)
}

fn write<T: Serialize>(text: &mut Vec<u8>, group: &'static str, all: &[T]) -> Result<(), Failure> {
    for content in all {
        serde_json::to_writer(&mut *text, &Group { group, content })
            .map_err(|error| Failure::new(format_args!("cannot write JSON: {error}")))?;
        text.push(b'\n');
    }
    Ok(())
}
