//! `thruway expand` against `realpath`, a thousand names at a time.

use std::process::Command;

use super::Setting;
use super::measure::{Contender, Series, interleave, wall};

const NAMES: usize = 1000;

pub(super) fn run(setting: &Setting) -> Result<String, String> {
    let names: Vec<_> = (0..NAMES).map(|n| format!("lib/../ext/./feature{n}.rb")).collect();
    let thruway = setting.root.join("target/release/thruway");
    let timed = |command: &mut Command| Ok(wall(command)?.as_secs_f64() * 1e3);
    let series = interleave(
        setting.rounds,
        &mut [
            Contender {
                name: "thruway expand",
                run: Box::new(|| timed(Command::new(&thruway).arg("expand").args(&names))),
            },
            Contender {
                name: "realpath -m",
                run: Box::new(|| timed(Command::new("realpath").arg("-m").args(&names))),
            },
        ],
    )?;
    Ok(table(&series))
}

fn table(series: &[Series]) -> String {
    let peer = series.last().map_or(f64::NAN, Series::median);
    let mut rows = String::from(
        "| 1,000 names, one process | ms | ± | ÷ realpath |\n| --- | --- | --- | --- |\n",
    );
    for one in series {
        let (median, spread) = (one.median(), one.spread() * 100.0);
        rows.push_str(&format!(
            "| {} | {median:.1} | {spread:.0} % | {:.2} |\n",
            one.name,
            median / peer
        ));
    }
    rows
}
