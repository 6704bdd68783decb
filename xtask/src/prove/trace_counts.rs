//! `cargo x prove trace-counts`: common commands, each under strace and under `thruway trace`. For each system call,
//! both must count the same calls and the same failures.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::trace_place::{COMMANDS, TracePlace};

/// Commands that look up so many names that nearly none of their calls may stop.
const WITHOUT_STOPS: [&str; 2] = ["find /usr", "du -s /usr"];
/// The number of pairs of runs in which the counts may differ, because a command does not repeat itself exactly.
const PAIRS_MAX: u32 = 5;

/// The calls and the failures of each system call.
type Counts = BTreeMap<String, (u64, u64)>;

/// The counts of one run under `thruway trace`.
struct TracedRun {
    counts: Counts,
    calls: u64,
    stops: u64,
}

pub(super) fn prove(root: &Path) -> Result<(), String> {
    let comparison = Comparison(TracePlace::new(root)?);
    let (mut equal, mut missing, mut different) = (0, 0, Vec::new());
    for command in COMMANDS.lines() {
        if !comparison.0.is_installed(command) {
            println!("    not installed                     {command}");
            missing += 1;
            continue;
        }
        match comparison.compare(command)? {
            Ok(TracedRun { calls, stops, .. }) => {
                println!("{calls:>9} calls  {stops:>7} stops  equal  {command}");
                equal += 1;
            }
            Err(difference) => {
                println!("{difference}  DIFFERENT  {command}");
                different.push(command);
            }
        }
    }
    println!("{equal} commands equal, {} different, {missing} not installed", different.len());
    if different.is_empty() { Ok(()) } else { Err(format!("{} commands differ", different.len())) }
}

/// Runs commands under both tracers.
struct Comparison<'a>(TracePlace<'a>);

impl Comparison<'_> {
    /// Runs a command under both until one pair of runs has equal counts. The inner error is the difference of the last
    /// pair.
    fn compare(&self, command: &str) -> Result<Result<TracedRun, String>, String> {
        // The first run warms the caches.
        self.0.run(&mut Command::new("sh"), command)?;
        let mut difference = String::new();
        for _ in 0..PAIRS_MAX {
            let (expected, traced) = (self.strace(command)?, self.trace(command)?);
            if expected != traced.counts {
                difference = first_difference(&expected, &traced.counts);
            } else if WITHOUT_STOPS.contains(&command) && traced.stops * 100 > traced.calls {
                difference = format!("{} stops for {} calls", traced.stops, traced.calls);
            } else {
                return Ok(Ok(traced));
            }
        }
        Ok(Err(difference))
    }

    fn strace(&self, command: &str) -> Result<Counts, String> {
        let log = self.0.folder.path().join("strace");
        let mut strace = Command::new("strace");
        strace.args(["-f", "-c", "-U", "name,calls,errors", "-e", "trace=%file", "-o"]).arg(&log);
        self.0.run(strace.arg("sh"), command)?;
        let log = fs::read_to_string(&log).map_err(|error| format!("strace's log: {error}"))?;
        Ok(parsed(&log))
    }

    fn trace(&self, command: &str) -> Result<TracedRun, String> {
        let report = self.0.folder.path().join("report");
        let mut trace = self.0.thruway();
        trace.args(["trace", "--quiet", &format!("--json={}", report.display()), "--", "sh"]);
        self.0.run(&mut trace, command)?;
        let text = fs::read_to_string(&report).map_err(|error| format!("the report: {error}"))?;
        traced(&text).ok_or_else(|| format!("not a report of thruway trace: {text}"))
    }
}

/// The rows of strace's summary: the name, the calls, and the failures if there are any.
fn parsed(log: &str) -> Counts {
    let mut counts = Counts::new();
    for line in log.lines() {
        let columns: Vec<_> = line.split_whitespace().collect();
        let [name, calls, errors @ ..] = columns.as_slice() else { continue };
        let Ok(calls) = calls.parse::<u64>() else { continue };
        if *name != "total" {
            let failed = errors.first().and_then(|errors| errors.parse().ok()).unwrap_or(0);
            let count = counts.entry((*name).to_owned()).or_default();
            *count = (count.0 + calls, count.1 + failed);
        }
    }
    counts
}

fn traced(report: &str) -> Option<TracedRun> {
    let lines: Vec<Value> =
        report.lines().map(|line| serde_json::from_str(line).ok()).collect::<Option<_>>()?;
    let totals = lines.first()?;
    let is_counted =
        |line: &&Value| line["group"] == "call" && line["is_file_class"] == Value::Bool(true);
    let count = |line: &Value| {
        let (calls, failed) = (line["calls"].as_u64()?, line["failed"].as_u64()?);
        Some((line["call"].as_str()?.to_owned(), (calls, failed)))
    };
    let counts = lines.iter().filter(is_counted).map(count).collect::<Option<_>>()?;
    Some(TracedRun { counts, calls: totals["calls"].as_u64()?, stops: totals["stops"].as_u64()? })
}

/// The first call whose counts differ.
fn first_difference(strace: &Counts, thruway: &Counts) -> String {
    let of = |counts: &Counts, name: &str| counts.get(name).copied().unwrap_or_default();
    let names = strace.keys().chain(thruway.keys());
    let mut different = names.filter(|name| of(strace, name) != of(thruway, name));
    let Some(name) = different.next() else { return String::new() };
    let ((calls, failed), (ours, our_failed)) = (of(strace, name), of(thruway, name));
    format!("{name}: strace {calls} ({failed} failed), thruway {ours} ({our_failed} failed)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_and_a_report_of_the_same_run_are_equal() {
        let log = "syscall    calls    errors\n------- ------ ------\nopenat 5 2\nstat 1\n\
                   ------- ------ ------\ntotal 6 2\n";
        let report = "{\"group\":\"totals\",\"calls\":6,\"stops\":3}\n\
            {\"group\":\"call\",\"call\":\"openat\",\"is_file_class\":true,\"calls\":5,\"failed\":2}\n\
            {\"group\":\"call\",\"call\":\"stat\",\"is_file_class\":true,\"calls\":1,\"failed\":0}\n\
            {\"group\":\"call\",\"call\":\"getdents64\",\"is_file_class\":false,\"calls\":1,\"failed\":0}\n";
        let (strace, mut thruway) = (parsed(log), traced(report).expect("a report"));
        assert_eq!(strace, thruway.counts);
        thruway.counts.insert("stat".to_owned(), (2, 1));
        let difference = first_difference(&strace, &thruway.counts);
        assert_eq!(difference, "stat: strace 1 (0 failed), thruway 2 (1 failed)");
    }
}
