//! The work of a media server on two merged disks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::test_filesystem::TestFilesystem;
use super::view::{Processors, View, Way};
use crate::context::BenchContext;
use crate::measure::{Contender, interleave};
use crate::table::{Table, at_least};
use xtask::command::succeed;

const LINKS: usize = 200;
const SEASONS: usize = 10;
const FILES: usize = 10_000;
const SETTLING: Duration = Duration::from_secs(3);

/// The advantage over mergerfs that is aimed at.
const RATIO: f64 = 1.5;

type Work = fn(&[PathBuf], &Path, &str) -> Result<f64, String>;

/// The work, and its name in the table.
const WORKS: [(&str, Work); 3] = [
    ("200 hard links", import),
    ("`mv` of 10,000 files", rename_folder),
    ("`mv` to one of the disks", rename_to_one_disk),
];

pub(crate) fn run(context: &BenchContext) -> Result<String, String> {
    let disks = [TestFilesystem::new()?, TestFilesystem::named("second")?];
    let mut views = Vec::new();
    for way in [Way::Live, Way::MergerFs] {
        let folder = |disk: &TestFilesystem| disk.folder(&format!("disks-{way:?}"));
        let sources = disks.iter().map(folder).collect::<Result<Vec<_>, _>>()?;
        let view = View::new(context, &disks[0], way, &sources, Processors::All)?;
        views.extend(view.map(|view| (view, sources)));
    }
    let mut columns = Vec::new();
    for (_, work) in WORKS {
        let contender = |(view, sources): &'_ (View, Vec<PathBuf>)| {
            let (folder, sources) = (view.folder.clone(), sources.clone());
            let mut round = 0;
            let run = move || {
                round += 1;
                work(&sources, &folder, &format!("round {round}"))
            };
            Contender { name: view.way.name(), run: Box::new(run) }
        };
        let mut contenders: Vec<_> = views.iter().map(contender).collect();
        columns.push(interleave(context.rounds, &mut contenders)?);
    }
    let heads = [&[""][..], &WORKS.map(|(name, _)| name)].concat();
    let mut table = Table::new("A media server's work on two disks, ms", &heads);
    for (row, (view, _)) in views.iter().enumerate() {
        let cells: Vec<_> = columns.iter().map(|series| series[row].cell()).collect();
        table.row(view.way.name(), &cells);
    }
    for ((name, _), series) in WORKS.iter().zip(&columns) {
        let ratio = series.get(1).map(|peer| peer.median() / series[0].median());
        table.target(&format!("{name}: mergerfs ÷ thruway ≥ {RATIO}"), at_least(ratio, RATIO));
    }
    Ok(table.text())
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> String + '_ {
    move |error| format!("{}: {error}", path.display())
}

fn make_folder(path: &Path) -> Result<(), String> {
    fs::create_dir_all(path).map_err(failed(path))
}

fn make_files(folder: &Path, numbers: impl Iterator<Item = usize>) -> Result<(), String> {
    make_folder(folder)?;
    for number in numbers {
        let path = folder.join(format!("file {number}.mkv"));
        fs::write(&path, "").map_err(failed(&path))?;
    }
    Ok(())
}

/// Waits for what belongs to the preparation: writes to the disks, and the time for which a mount does not cache the
/// attributes of what was just changed in a source.
fn settle() {
    rustix::fs::sync();
    sleep(SETTLING);
}

/// Links files that were downloaded to the first disk into folders that only the second disk has, as an importer does.
fn import(sources: &[PathBuf], view: &Path, round: &str) -> Result<f64, String> {
    let season = |number: usize| format!("library/Season {}", number % SEASONS);
    make_files(&view.join("downloads").join(round), 0..LINKS)?;
    (0..SEASONS).try_for_each(|it| make_folder(&sources[1].join(round).join(season(it))))?;
    let (downloads, folder) = (view.join("downloads").join(round), view.join(round));
    settle();
    let start = Instant::now();
    for number in 0..LINKS {
        let from = downloads.join(format!("file {number}.mkv"));
        let to = folder.join(season(number)).join(format!("Episode {number}.mkv"));
        fs::metadata(&from).map_err(failed(&from))?;
        fs::hard_link(&from, &to).map_err(failed(&to))?;
        fs::metadata(&to).map_err(failed(&to))?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

/// Moves a folder that both disks have into one that both have.
fn rename_folder(sources: &[PathBuf], view: &Path, round: &str) -> Result<f64, String> {
    sources.iter().try_for_each(|source| make_folder(&source.join(round).join("complete")))?;
    move_with(sources, view, round)
}

/// Moves a folder that both disks have into one that the second disk has.
fn rename_to_one_disk(sources: &[PathBuf], view: &Path, round: &str) -> Result<f64, String> {
    let round = format!("{round}, one");
    make_folder(&sources[1].join(&round).join("complete"))?;
    move_with(sources, view, &round)
}

fn move_with(sources: &[PathBuf], view: &Path, round: &str) -> Result<f64, String> {
    for (at, source) in sources.iter().enumerate() {
        let numbers = (0..FILES).filter(|number| number % sources.len() == at);
        make_files(&source.join(round).join("incomplete"), numbers)?;
    }
    let folder = view.join(round);
    settle();
    let start = Instant::now();
    let mut mv = Command::new("mv");
    succeed(mv.args(["incomplete", "complete/"]).current_dir(&folder))?;
    let time = start.elapsed().as_secs_f64() * 1e3;
    let moved = fs::read_dir(folder.join("complete/incomplete")).map_err(failed(&folder))?;
    match moved.count() {
        FILES => Ok(time),
        count => Err(format!("{count} files were moved")),
    }
}
