//! Files: from a Rack application with `to_path` and X-Sendfile, and from a folder.

use super::arena::{Arena, Scenario, ServerRuns, median_of};
use super::load::Run;
use super::rack::requests_table;
use super::server::App;
use crate::context::BenchContext;
use crate::table::{Table, at_least, ratio};

/// Measures 9 MB from the application and from a folder.
pub(crate) fn large(context: &BenchContext) -> Result<String, String> {
    let arena = Arena::new(context)?;
    let seconds = arena.seconds(1.0);
    let options = ["-c", "10", "-d", &seconds];
    let scenario = |app, path| Scenario { app, ..Scenario::rack(path, &options) };
    let from_app = arena.rounds(scenario(App::Rack, "/file"))?;
    let from_folder = arena.rounds(scenario(App::Folder, "/9m"))?;
    let columns = ["server", "from", "GB/s", "±", "CPU ms a request", "Jain", "lost"];
    let mut table = Table::new("9 MB file, 10 connections, `-w 2 -t 2`", &columns);
    rows(&mut table, "`to_path`", &from_app);
    rows(&mut table, "folder", &from_folder);
    let nginx = median_of(&from_folder, "nginx", gigabytes);
    let by_path = ratio(median_of(&from_app, "thruway", gigabytes), nginx);
    table.target("by `to_path` ≥ 1.1 × nginx from a folder", at_least(by_path, 1.1));
    let by_folder = ratio(median_of(&from_folder, "thruway", gigabytes), nginx);
    table.target("from a folder ≥ 1.1 × nginx", at_least(by_folder, 1.1));
    Ok(table.text())
}

/// Measures 10 KB from a folder.
pub(crate) fn small(context: &BenchContext) -> Result<String, String> {
    let arena = Arena::new(context)?;
    let seconds = arena.seconds(1.0);
    let options = ["-c", "10", "-d", &seconds];
    let all = arena.rounds(Scenario { app: App::Folder, ..Scenario::rack("/10k", &options) })?;
    let title = "10 KB file from a folder, 10 connections, 2 workers";
    let mut table = requests_table(title, &all);
    let speed = |name| median_of(&all, name, Run::requests_per_second);
    let against = ratio(speed("thruway"), speed("nginx"));
    table.target("requests/s ≥ .9 × nginx", at_least(against, 0.9));
    Ok(table.text())
}

fn gigabytes(run: &Run) -> f64 {
    run.total("/bytes_per_second") / 1e9
}

fn rows(table: &mut Table, from: &str, all: &[ServerRuns]) {
    for measured in all {
        let speed = measured.series(gigabytes);
        table.row(
            measured.name,
            &[
                from.to_owned(),
                format!("{:.2}", speed.median()),
                format!("{:.0} %", speed.spread() * 100.0),
                format!("{:.2}", measured.median(Run::cpu_us) / 1e3),
                format!("{:.3}", measured.median(Run::jain)),
                format!("{:.0}", measured.series(Run::lost).largest()),
            ],
        );
    }
}
