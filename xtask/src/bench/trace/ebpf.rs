//! Programs in the kernel beside the stub: whole commands, and what a call costs.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::workload::{Workload, workloads};
use crate::bench::context::BenchContext;
use crate::bench::measure::{Contender, Series, interleave, wall};
use crate::bench::table::Table;

/// The back ends that are compared.
const BACKENDS: [&str; 2] = ["stub", "ebpf"];

/// A command by each back end, and a call by each and beside them.
pub(super) fn run(context: &BenchContext, thruway: &str, folder: &Path) -> Result<String, String> {
    let commands = commands(context, thruway, &workloads(&context.root, folder)?)?;
    Ok(format!("{commands}\n\n{}", calls(context, thruway)?))
}

fn commands(
    context: &BenchContext,
    thruway: &str,
    workloads: &[Workload],
) -> Result<String, String> {
    let columns = ["", "untraced, ms", "stub ÷ untraced", "ebpf ÷ untraced"];
    let mut table =
        Table::new("A command, noted by itself and by programs in the kernel", &columns);
    for workload in workloads {
        let mut contenders = vec![timed("untraced", workload.runs, workload.command(&[]))];
        for backend in BACKENDS {
            let tracer = [thruway, "trace", "--backend", backend, "--"];
            contenders.push(timed(backend, workload.runs, workload.command(&tracer)));
        }
        // Once for the caches.
        interleave(1, &mut contenders)?;
        let series = interleave(context.rounds, &mut contenders)?;
        let untraced = series[0].median();
        let ratio = |series: &Series| {
            format!("{:.2} ± {:.0} %", series.median() / untraced, series.spread() * 100.0)
        };
        let alone = format!("{untraced:.0} ± {:.0} %", series[0].spread() * 100.0);
        table.row(workload.title, &[alone, ratio(&series[1]), ratio(&series[2])]);
    }
    table.note(
        "The start of a trace is a part of it: programs in the kernel take 60 ms and more to load.",
    );
    Ok(table.text())
}

/// Milliseconds of one run.
fn timed(name: &'static str, runs: u32, mut command: Command) -> Contender<'static> {
    let run = move || {
        let times = (0..runs).map(|_| wall(&mut command));
        let sum = times.sum::<Result<Duration, _>>()?;
        Ok(sum.as_secs_f64() * 1e3 / f64::from(runs))
    };
    Contender { name, run: Box::new(run) }
}

const CALLS: u32 = 1_000_000;
/// Prints how many nanoseconds one of many calls takes.
const PROGRAM: &str = "n = 1_000_000; clock = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) }; \
    start = clock.call; n.times { File.exist?('/usr/lib/none') }; print (clock.call - start) / n";

fn calls(context: &BenchContext, thruway: &str) -> Result<String, String> {
    let own = |name, tracer: &[&str]| {
        let mut command = ruby(tracer);
        Contender { name, run: Box::new(move || nanoseconds(&mut command)) }
    };
    let beside = || {
        let other = Beside::start(thruway)?;
        let nanoseconds = nanoseconds(&mut ruby(&[]));
        other.end()?;
        nanoseconds
    };
    let by = |backend| [thruway, "trace", "--backend", backend, "--"];
    let mut contenders = [
        own("untraced", &[]),
        own("noted by the stub", &by("stub")),
        own("noted by programs in the kernel", &by("ebpf")),
        Contender { name: "untraced, while those note another command", run: Box::new(beside) },
    ];
    let series = interleave(context.rounds, &mut contenders)?;
    let title = format!("One call of {CALLS} for a file that is not there, from Ruby");
    let mut table = Table::new(&title, &["", "ns"]);
    for series in series {
        let cell = format!("{:.0} ± {:.0} %", series.median(), series.spread() * 100.0);
        table.row(series.name, &[cell]);
    }
    Ok(table.text())
}

fn ruby(tracer: &[&str]) -> Command {
    let mut words = tracer.iter().copied().chain(["ruby", "--disable-gems", "-e", PROGRAM]);
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).env_remove("RUBYOPT");
    command
}

/// What the program prints.
fn nanoseconds(command: &mut Command) -> Result<f64, String> {
    let output = command.output().map_err(|error| format!("cannot start {command:?}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.trim().parse().map_err(|_| format!("{command:?} printed {text:?}"))
}

/// A traced command that does nothing until its input ends.
struct Beside(Child);

impl Beside {
    fn start(thruway: &str) -> Result<Self, String> {
        let mut command = Command::new(thruway);
        command.args(["trace", "--backend", "ebpf", "--", "sh", "-c", "echo; read line"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child =
            command.spawn().map_err(|error| format!("cannot start {command:?}: {error}"))?;
        let mut ready = [0];
        let output = child.stdout.as_mut().ok_or("a child without a pipe")?;
        std::io::Read::read_exact(output, &mut ready)
            .map_err(|error| format!("{command:?}: {error}"))?;
        Ok(Self(child))
    }

    fn end(mut self) -> Result<(), String> {
        drop(self.0.stdin.take());
        self.0.wait().map(|_| ()).map_err(|error| error.to_string())
    }
}
