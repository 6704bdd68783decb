//! Jain's index over ten connections, the worst of many runs: how connections are spread is luck.

use super::super::Setting;
use super::arena::{Arena, Scenario};
use super::load::Run;
use super::server::{App, Server};
use super::table::{Table, at_least};

/// Runs a round: five rounds make the ten runs that facts about chance need.
const RUNS_PER_ROUND: usize = 2;

/// A kind of request, with the threads that suit it.
struct Kind {
    name: &'static str,
    path: &'static str,
    threads: u32,
}

const KINDS: [Kind; 3] = [
    Kind { name: "short", path: "/", threads: 2 },
    Kind { name: "5 ms of CPU", path: "/cpu", threads: 2 },
    Kind { name: "sleep(50 ms)", path: "/sleep", threads: 8 },
];

/// What a column demands of thruway, by the number of workers.
const DEMANDS: [(u32, f64); 2] = [(1, 0.99), (2, 0.97)];

/// The worst index and the starved connections of one server in one column.
struct Worst {
    index: f64,
    starved: f64,
}

pub(in crate::bench) fn worst(setting: &Setting) -> Result<String, String> {
    let arena = Arena::new(setting)?;
    let runs = setting.rounds * RUNS_PER_ROUND;
    let mut heads = vec!["server".to_owned()];
    for (workers, _) in DEMANDS {
        heads.extend(KINDS.iter().map(|kind| format!("{}, `-w {workers}`", kind.name)));
    }
    heads.push("starved".to_owned());
    let heads: Vec<_> = heads.iter().map(String::as_str).collect();
    let mut table =
        Table::new(&format!("Jain's index, worst of {runs} runs, 10 connections"), &heads);
    let mut ours = None;
    for (server, program) in arena.servers(App::Rack) {
        let mut cells = Vec::new();
        for (workers, _) in DEMANDS {
            for kind in &KINDS {
                let scenario = Scenario {
                    app: App::Rack,
                    workers,
                    threads: kind.threads,
                    path: kind.path,
                    options: &[],
                };
                cells.extend(worst_of(&arena, server, program, scenario, runs)?);
            }
        }
        if cells.len() < DEMANDS.len() * KINDS.len() {
            continue;
        }
        table.row(server.name, &row(&cells));
        if server.name == "thruway" {
            ours = Some(cells);
        }
    }
    for (place, (workers, least)) in DEMANDS.into_iter().enumerate() {
        let cells =
            ours.as_ref().map(|cells| &cells[place * KINDS.len()..(place + 1) * KINDS.len()]);
        let index = cells.map(|cells| cells.iter().map(|cell| cell.index).fold(1.0, f64::min));
        table.target(&format!("worst index with `-w {workers}` ≥ {least}"), at_least(index, least));
    }
    let starved = ours.map(|cells| cells.iter().map(|cell| cell.starved).sum::<f64>());
    table.target("no connection starved", starved.map(|starved| (starved, starved == 0.0)));
    Ok(table.text())
}

fn row(cells: &[Worst]) -> Vec<String> {
    let starved = cells.iter().map(|cell| cell.starved).sum::<f64>();
    let indices = cells.iter().map(|cell| format!("{:.3}", cell.index));
    indices.chain([format!("{starved:.0}")]).collect()
}

/// New connections each time, to a server that runs on: who gets which process is drawn again.
fn worst_of(
    arena: &Arena<'_>,
    server: &Server,
    program: &std::path::Path,
    scenario: Scenario<'_>,
    runs: usize,
) -> Result<Option<Worst>, String> {
    let seconds = arena.seconds(0.5);
    let scenario = Scenario { options: &["-c", "10", "-d", &seconds], ..scenario };
    let Some(running) = arena.start(server, program, scenario)? else { return Ok(None) };
    let mut worst = Worst { index: 1.0, starved: 0.0 };
    for _ in 0..runs {
        let run: Run = arena.load(&running, scenario)?;
        worst.index = worst.index.min(run.jain());
        worst.starved += run.starved();
    }
    Ok(Some(worst))
}
