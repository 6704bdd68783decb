//! fio with 4 KiB at a time, as in the patch series for passthrough.

use std::path::Path;
use std::process::Command;

use super::test_filesystem::TestFilesystem;
use super::view::{Processors, View, Way};
use crate::context::BenchContext;
use crate::measure::{Contender, Series, interleave};
use crate::table::{Table, at_least, ratio};

const PATTERNS: [&str; 4] = ["read", "randread", "write", "randwrite"];
const WAYS: [Way; 6] =
    [Way::Native, Way::Overlay, Way::Live, Way::LiveWhole, Way::MergerFs, Way::PassthroughHp];

const FILE_BYTES: usize = 96 << 20;

/// The figures of the patch series of 2021 for a file of 35 GiB on an SSD, as shares of native.
const PATCH_SERIES: [&str; 4] = [".97", ".76", ".81", ".81"];

pub(crate) fn run(context: &BenchContext) -> Result<String, String> {
    let filesystem = TestFilesystem::new()?;
    let whole = TestFilesystem::named("whole")?;
    let views = views(context, &filesystem, &whole)?;
    let mut columns = Vec::new();
    for pattern in PATTERNS {
        let mut contenders: Vec<_> = views.iter().map(|view| contender(view, pattern)).collect();
        columns.push(interleave(context.rounds, &mut contenders)?);
    }
    let mut table = Table::new("fio, 4 KiB, sync, 96 MiB, warm: MiB/s", &heads());
    for (row, view) in views.iter().enumerate() {
        let cells: Vec<_> = columns.iter().map(|series| series[row].cell()).collect();
        table.row(view.way.name(), &cells);
    }
    let mut shares = Table::new("The same as shares of native", &heads());
    shares.row("patch series of 2021, 35 GiB, SSD", &PATCH_SERIES.map(str::to_owned));
    for (row, view) in views.iter().enumerate().skip(1) {
        let share =
            |series: &Vec<Series>| format!("{:.2}", series[row].median() / series[0].median());
        shares.row(view.way.name(), &columns.iter().map(share).collect::<Vec<_>>());
    }
    for (pattern, series) in PATTERNS.iter().zip(&columns) {
        let of =
            |way| views.iter().position(|view| view.way == way).map(|row| series[row].median());
        let share = ratio(of(Way::Live), of(Way::Native));
        shares.target(&format!("{pattern} ≥ .95 of native"), at_least(share, 0.95));
    }
    Ok(format!("{}\n{}", table.text(), shares.text()))
}

fn heads() -> Vec<&'static str> {
    [&[""], PATTERNS.as_slice()].concat()
}

/// Shows a folder of its own in each way.
fn views(
    context: &BenchContext,
    filesystem: &TestFilesystem,
    whole: &TestFilesystem,
) -> Result<Vec<View>, String> {
    let mut views = Vec::new();
    for way in WAYS {
        let (filesystem, source) = match way {
            Way::LiveWhole => (whole, whole.at("ext4")),
            _ => (filesystem, filesystem.folder(&format!("fio-{way:?}"))?),
        };
        lay_out(&source.join("file"))?;
        views.extend(View::new(context, filesystem, way, &[source], Processors::One)?);
    }
    Ok(views)
}

/// Writes the whole file: reserved but unwritten extents would cost each way differently.
fn lay_out(file: &Path) -> Result<(), String> {
    let written = std::fs::write(file, vec![1; FILE_BYTES]);
    let synced = written.and_then(|()| std::fs::File::open(file)?.sync_all());
    synced.map_err(|error| format!("cannot write {}: {error}", file.display()))
}

fn contender<'a>(view: &View, pattern: &'static str) -> Contender<'a> {
    let file = view.folder.join("file");
    Contender { name: view.way.name(), run: Box::new(move || fio(&file, pattern)) }
}

/// Returns the throughput in MiB/s.
fn fio(file: &Path, pattern: &str) -> Result<f64, String> {
    let mut command = Processors::One.command("fio");
    command.args([
        "--name=x",
        "--bs=4k",
        "--ioengine=sync",
        "--size=96m",
        "--fallocate=none",
        "--runtime=1",
        "--time_based",
    ]);
    command.args(["--output-format=json", "--thread", "--invalidate=0"]);
    command.arg(format!("--rw={pattern}")).arg(format!("--filename={}", file.display()));
    let report = json(&mut command)?;
    let direction = pattern.trim_start_matches("rand");
    let kibibytes = report["jobs"][0][direction]["bw"].as_f64();
    kibibytes.map(|kibibytes| kibibytes / 1024.0).ok_or_else(|| format!("fio said: {report}"))
}

fn json(command: &mut Command) -> Result<serde_json::Value, String> {
    let output = command.output().map_err(|error| format!("cannot start {command:?}: {error}"))?;
    serde_json::from_slice(&output.stdout)
        .map_err(|_| format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)))
}
