//! The report as JSON: the sums on the first line, then a line a group.

use serde::Serialize;
use thruway_trace::analysis::Report;

use crate::output::Failure;

/// What a line is about, and what there is to say.
#[derive(Serialize)]
struct Group<'a, T> {
    group: &'static str,
    #[serde(flatten)]
    content: &'a T,
}

pub(super) fn lines(report: &Report) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    write(&mut text, "totals", std::slice::from_ref(&report.totals))?;
    write(&mut text, "advice", &report.advice)?;
    write(&mut text, "search", &report.searches)?;
    write(&mut text, "call", &report.calls)?;
    write(&mut text, "folder", &report.folders)?;
    write(&mut text, "suffix", &report.suffixes)?;
    write(&mut text, "repeated", &report.repeated)?;
    write(&mut text, "program", &report.programs)?;
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
