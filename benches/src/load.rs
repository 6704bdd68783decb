//! `thruway load` against wrk: the requests per second that each gets from nginx.

use std::process::Command;

use super::serve::arena::{Arena, Scenario};
use super::serve::server::App;
use crate::context::BenchContext;
use crate::measure::{Contender, Series, interleave};

/// Both use ten connections from one thread.
const CONNECTIONS: &str = "10";

pub(super) fn run(context: &BenchContext) -> Result<String, String> {
    let arena = Arena::new(context)?;
    let scenario = Scenario {
        app: App::Folder,
        workers: 1,
        threads: 1,
        path: "/10k",
        options: &["-c", CONNECTIONS],
    };
    let nginx = arena.servers(App::Folder).find(|contender| contender.name == "nginx");
    let contender = nginx.ok_or("nginx is not at hand")?;
    let nginx = arena.start(contender, scenario)?.ok_or("nginx does not start")?;
    let seconds = arena.seconds(1.0);
    let options = ["-c", CONNECTIONS, "-d", &seconds];
    let series = interleave(
        context.rounds,
        &mut [
            Contender {
                name: "thruway load",
                run: Box::new(|| {
                    let run = arena.load(&nginx, Scenario { options: &options, ..scenario })?;
                    Ok(run.requests_per_second())
                }),
            },
            Contender { name: "wrk", run: Box::new(|| wrk(&nginx.url("/10k"), &seconds)) },
        ],
    )?;
    Ok(table(&series))
}

/// Requests per second, from wrk's output. wrk accepts whole seconds only.
fn wrk(url: &str, seconds: &str) -> Result<f64, String> {
    let seconds = format!("-d{:.0}", seconds.parse::<f64>().unwrap_or(1.0).ceil());
    let output = Command::new("wrk").args(["-t1", "-c", CONNECTIONS, &seconds, url]).output();
    let output = output.map_err(|error| format!("cannot start wrk: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("Requests/sec:"));
    line.and_then(|rate| rate.trim().parse().ok()).ok_or_else(|| format!("wrk said: {text}"))
}

fn table(series: &[Series]) -> String {
    let peer = series.last().map_or(f64::NAN, Series::median);
    let mut rows = String::from(
        "| 10 KB from nginx, one worker, 10 connections | requests/s | ± | ÷ wrk |\n| --- | --- | --- | --- |\n",
    );
    for one in series {
        let (median, spread) = (one.median(), one.spread() * 100.0);
        let ratio = median / peer;
        rows.push_str(&format!("| {} | {median:.0} | {spread:.0} % | {ratio:.2} |\n", one.name));
    }
    rows
}
