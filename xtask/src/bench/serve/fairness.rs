//! Jain's index over ten connections, the worst of many runs: how connections are spread is luck.

use std::path::Path;

use super::super::Setting;
use super::arena::{Arena, Scenario};
use super::server::{App, Server};
use super::table::{Table, at_least};

/// Runs a round: five rounds make the ten runs that facts about chance need.
const RUNS_PER_ROUND: usize = 2;

/// A kind of request, and how the server is started for it.
struct Column {
    name: &'static str,
    path: &'static str,
    workers: u32,
    threads: u32,
}

const COLUMNS: [Column; 6] = [
    Column { name: "short, `-w 1`", path: "/", workers: 1, threads: 2 },
    Column { name: "5 ms of CPU, `-w 1`", path: "/cpu", workers: 1, threads: 2 },
    Column { name: "sleep(50 ms), `-w 1`", path: "/sleep", workers: 1, threads: 8 },
    Column { name: "short, `-w 2`", path: "/", workers: 2, threads: 2 },
    Column { name: "5 ms of CPU, `-w 2`", path: "/cpu", workers: 2, threads: 2 },
    Column { name: "sleep(50 ms), `-w 2`", path: "/sleep", workers: 2, threads: 8 },
];

/// The least index that thruway is to have, by its number of workers.
const DEMANDS: [(u32, f64); 2] = [(1, 0.99), (2, 0.97)];

/// The worst index and the starved connections of one server in one column.
struct Worst {
    index: f64,
    starved: f64,
}

pub(in crate::bench) fn worst(setting: &Setting) -> Result<String, String> {
    let arena = Arena::new(setting)?;
    let runs = setting.rounds * RUNS_PER_ROUND;
    let names = COLUMNS.iter().map(|column| column.name);
    let heads: Vec<_> = ["server"].into_iter().chain(names).chain(["starved"]).collect();
    let title = format!("Jain's index, worst of {runs} runs, 10 connections");
    let mut table = Table::new(&title, &heads);
    let mut ours = None;
    for (server, program) in arena.servers(App::Rack) {
        let cells = COLUMNS.iter().map(|column| worst_of(&arena, server, program, column, runs));
        let Some(cells) = cells.collect::<Result<Option<Vec<_>>, _>>()? else { continue };
        table.row(server.name, &row(&cells));
        if server.name == "thruway" {
            ours = Some(cells);
        }
    }
    judge(&mut table, ours.as_deref());
    Ok(table.text())
}

fn row(cells: &[Worst]) -> Vec<String> {
    let starved = cells.iter().map(|cell| cell.starved).sum::<f64>();
    let indices = cells.iter().map(|cell| format!("{:.3}", cell.index));
    indices.chain([format!("{starved:.0}")]).collect()
}

fn judge(table: &mut Table, ours: Option<&[Worst]>) {
    for (workers, least) in DEMANDS {
        let index = ours.map(|cells| {
            let columns = COLUMNS.iter().zip(cells);
            let of_workers = columns.filter(|(column, _)| column.workers == workers);
            of_workers.map(|(_, cell)| cell.index).fold(1.0, f64::min)
        });
        table.target(&format!("worst index with `-w {workers}` ≥ {least}"), at_least(index, least));
    }
    let starved = ours.map(|cells| cells.iter().map(|cell| cell.starved).sum::<f64>());
    table.target("no connection starved", starved.map(|starved| (starved, starved == 0.0)));
}

/// New connections each time, to a server that runs on: who gets which process is drawn again.
fn worst_of(
    arena: &Arena<'_>,
    server: &Server,
    program: &Path,
    column: &Column,
    runs: usize,
) -> Result<Option<Worst>, String> {
    let seconds = arena.seconds(0.5);
    let Column { path, workers, threads, .. } = *column;
    let options = ["-c", "10", "-d", &seconds];
    let scenario = Scenario { app: App::Rack, workers, threads, path, options: &options };
    let Some(running) = arena.start(server, program, scenario)? else { return Ok(None) };
    let mut worst = Worst { index: 1.0, starved: 0.0 };
    for _ in 0..runs {
        let run = arena.load(&running, scenario)?;
        worst.index = worst.index.min(run.jain());
        worst.starved += run.starved();
    }
    Ok(Some(worst))
}
