//! Jain's index over ten connections, the worst of many runs: the distribution of connections is
//! random.

use super::arena::{Arena, Scenario};
use super::contender::Contender;
use super::server::App;
use crate::context::BenchContext;
use crate::table::{Table, at_least};

/// The runs per round: five rounds give the ten runs that statements about chance need.
const RUNS_PER_ROUND: usize = 2;

/// A kind of request, and the number of threads of each worker for it.
struct Column {
    name: &'static str,
    path: &'static str,
    threads: u32,
    /// The duration of a run, as a multiple of the context's seconds: with few requests per second,
    /// more time is needed, or single requests decide the index.
    share: f64,
}

const COLUMNS: [Column; 3] = [
    Column { name: "short, `-t 2`", path: "/", threads: 2, share: 0.25 },
    Column { name: "5 ms of CPU, `-t 2`", path: "/cpu", threads: 2, share: 1.0 },
    Column { name: "sleep(50 ms), `-t 8`", path: "/sleep", threads: 8, share: 1.0 },
];

/// The worst index and the starved connections of one server in one column.
struct Worst {
    index: f64,
    starved: f64,
}

/// Measures fairness within one process.
pub(crate) fn within(context: &BenchContext) -> Result<String, String> {
    worst(context, 1, 0.99)
}

/// Measures fairness across two processes, which the kernel may treat unequally.
pub(crate) fn across(context: &BenchContext) -> Result<String, String> {
    worst(context, 2, 0.97)
}

/// Measures the worst index; `least` is thruway's target.
fn worst(context: &BenchContext, workers: u32, least: f64) -> Result<String, String> {
    let arena = Arena::new(context)?;
    let runs = context.rounds * RUNS_PER_ROUND;
    let names = COLUMNS.iter().map(|column| column.name);
    let heads: Vec<_> = ["server"].into_iter().chain(names).chain(["starved"]).collect();
    let title = format!("Jain's index, worst of {runs} runs, 10 connections, `-w {workers}`");
    let mut table = Table::new(&title, &heads);
    let mut ours = None;
    for contender in arena.servers(App::Rack) {
        let worst = |column| worst_of(&arena, contender, workers, column, runs);
        let cells = COLUMNS.iter().map(worst).collect::<Result<Option<Vec<_>>, _>>()?;
        let Some(cells) = cells else { continue };
        table.row(contender.name, &row(&cells));
        if contender.name == "thruway" {
            ours = Some(cells);
        }
    }
    judge(&mut table, least, ours.as_deref());
    Ok(table.text())
}

fn row(cells: &[Worst]) -> Vec<String> {
    let starved = cells.iter().map(|cell| cell.starved).sum::<f64>();
    let indices = cells.iter().map(|cell| format!("{:.3}", cell.index));
    indices.chain([format!("{starved:.0}")]).collect()
}

fn judge(table: &mut Table, least: f64, ours: Option<&[Worst]>) {
    let index = ours.map(|cells| cells.iter().map(|cell| cell.index).fold(1.0, f64::min));
    table.target(&format!("worst index ≥ {least}"), at_least(index, least));
    let starved = ours.map(|cells| cells.iter().map(|cell| cell.starved).sum::<f64>());
    table.target("no connection starved", starved.map(|starved| (starved, starved == 0.0)));
}

/// Opens new connections in each run to a server that runs on: the distribution over its processes
/// is drawn again.
fn worst_of(
    arena: &Arena<'_>,
    contender: &Contender,
    workers: u32,
    column: &Column,
    runs: usize,
) -> Result<Option<Worst>, String> {
    let Column { path, threads, share, .. } = *column;
    let seconds = arena.seconds(share);
    let options = ["-c", "10", "-d", &seconds];
    let scenario = Scenario { workers, threads, ..Scenario::rack(path, &options) };
    let Some(running) = arena.start(contender, scenario)? else { return Ok(None) };
    let mut worst = Worst { index: 1.0, starved: 0.0 };
    for _ in 0..runs {
        let run = arena.load(&running, scenario)?;
        worst.index = worst.index.min(run.jain());
        worst.starved += run.starved();
    }
    Ok(Some(worst))
}
