//! The cost of tracing, compared with strace's; and a recording of ten million calls.

mod long;
mod workload;

use std::path::Path;

use crate::context::BenchContext;
use crate::measure::{Contender, Series, interleave, wall};
use crate::table::{Table, at_most, ratio};
use workload::{Workload, workloads};

/// The fastest strace: counts alone, and only the chosen calls stop.
const STRACE: [&str; 7] =
    ["strace", "-f", "--seccomp-bpf", "-c", "-e", "trace=%file", "--output=/dev/null"];
/// The maximum cost of tracing, as a share of the cost of strace.
const ADDED_MAX: f64 = 0.125;

pub(super) fn slowdown(context: &BenchContext) -> Result<String, String> {
    let thruway = thruway(context)?;
    let folder = folder(context)?;
    let columns =
        ["", "untraced, ms", "thruway ÷ untraced", "strace ÷ untraced", "added, ÷ strace's"];
    let mut table = Table::new("A command under a tracer", &columns);
    for workload in workloads(&context.root, &folder)? {
        let [untraced, ours, strace] = measure(context, &workload, &thruway)?;
        let [slowdown, theirs] = [&ours, &strace].map(|series| series.median() / untraced.median());
        let added = ratio(Some(slowdown - 1.0), Some(theirs - 1.0));
        let cell =
            |ratio: f64, series: &Series| format!("{ratio:.2} ± {:.0} %", series.spread() * 100.0);
        table.row(
            workload.title,
            &[
                format!("{:.0} ± {:.0} %", untraced.median(), untraced.spread() * 100.0),
                cell(slowdown, &ours),
                cell(theirs, &strace),
                added.map_or(String::new(), |added| format!("{added:.2}")),
            ],
        );
        let Workload { title, slowdown_max, .. } = workload;
        let within = at_most(Some(slowdown), slowdown_max);
        table.target(&format!("{title}: ≤ {slowdown_max} × untraced"), within);
        let within = at_most(added, ADDED_MAX);
        table.target(&format!("{title}: adds ≤ 1/8 of what strace adds"), within);
    }
    Ok(table.text())
}

/// Records and reports ten million calls.
pub(super) fn long(context: &BenchContext) -> Result<String, String> {
    long::run(&thruway(context)?, &folder(context)?)
}

/// Milliseconds of one run: untraced, under thruway, and under strace.
fn measure(
    context: &BenchContext,
    workload: &Workload,
    thruway: &str,
) -> Result<[Series; 3], String> {
    let traced = [thruway, "trace", "--"];
    let contender = |name, tracer: &[&str]| {
        let mut command = workload.command(tracer);
        let run = move || {
            let times = (0..workload.runs).map(|_| wall(&mut command));
            let sum = times.sum::<Result<std::time::Duration, _>>()?;
            Ok(sum.as_secs_f64() * 1e3 / f64::from(workload.runs))
        };
        Contender { name, run: Box::new(run) }
    };
    let mut contenders =
        [contender("untraced", &[]), contender("thruway", &traced), contender("strace", &STRACE)];
    // One run warms the caches.
    interleave(1, &mut contenders)?;
    let series = interleave(context.rounds, &mut contenders)?;
    series.try_into().map_err(|_| "three contenders have three series".to_owned())
}

/// Builds the binary.
fn thruway(context: &BenchContext) -> Result<String, String> {
    let mut build = std::process::Command::new(xtask::command::cargo());
    let arguments = ["build", "--release", "--quiet", "--package=thruway-cli"];
    xtask::command::succeed(build.current_dir(&context.root).args(arguments))?;
    Ok(context.root.join("target/release/thruway").display().to_string())
}

fn folder(context: &BenchContext) -> Result<std::path::PathBuf, String> {
    let folder = context.root.join("target/bench/trace");
    let made = |folder: &Path| std::fs::create_dir_all(folder);
    made(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}
