//! Single operations, repeated a few thousand times.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::test_filesystem::TestFilesystem;
use super::view::{Processors, View, Way};
use crate::context::BenchContext;
use crate::measure::{Contender, Series, interleave};
use crate::table::{Table, at_most, ratio};

/// The number of runs of each operation in a round.
const TIMES: usize = 2000;

/// Runs an operation [`TIMES`] times, with the given numbers for new names.
type Operation = fn(&Path, Range<usize>) -> std::io::Result<()>;

const OPERATIONS: [(&str, Operation); 6] = [
    ("open, close", open),
    ("open, read 4 KiB, close", read),
    ("pwrite 4 KiB", write),
    ("create, write, close", create),
    ("stat", stat),
    ("stat, no such name", stat_nothing),
];
const OPEN: usize = 0;
const READ: usize = 1;
const CREATE: usize = 3;

const WAYS: [Way; 8] = [
    Way::Native,
    Way::Overlay,
    Way::Live,
    Way::LiveRing,
    Way::Frozen,
    Way::MergerFs,
    Way::PassthroughHp,
    Way::PassthroughHpRing,
];

pub(crate) fn run(context: &BenchContext) -> Result<String, String> {
    let filesystem = TestFilesystem::new()?;
    let mut views = Vec::new();
    for way in WAYS {
        let source = filesystem.folder(&format!("calls-{way:?}"))?;
        fs::write(source.join("file"), [7; 4096]).map_err(|error| error.to_string())?;
        views.extend(View::new(context, &filesystem, way, &[source], Processors::One)?);
    }
    let everywhere = pin().map_err(|error| format!("cannot pin: {error}"))?;
    let columns = measure(context, &views);
    sched_setaffinity(None, &everywhere).map_err(|error| format!("cannot unpin: {error}"))?;
    Ok(text(&views, &columns?))
}

/// Pins the thread to the processor of the daemons.
fn pin() -> rustix::io::Result<CpuSet> {
    let everywhere = sched_getaffinity(None)?;
    let mut one = CpuSet::new();
    one.set(1);
    sched_setaffinity(None, &one)?;
    Ok(everywhere)
}

/// Returns a column for each operation, with a series for each view; none for a view that refuses
/// the operation.
fn measure(context: &BenchContext, views: &[View]) -> Result<Vec<Vec<Option<Series>>>, String> {
    let mut columns = Vec::new();
    for (name, operation) in OPERATIONS {
        let writes = matches!(name, "pwrite 4 KiB" | "create, write, close");
        let takes_part = |view: &View| !(writes && view.way == Way::Frozen);
        let mut contenders: Vec<_> = views
            .iter()
            .filter(|view| takes_part(view))
            .map(|view| Contender {
                name: view.way.name(),
                run: Box::new(|| timed(&view.folder, operation)),
            })
            .collect();
        let mut series = interleave(context.rounds, &mut contenders)?.into_iter();
        let column = views.iter().map(|view| if takes_part(view) { series.next() } else { None });
        columns.push(column.collect());
    }
    Ok(columns)
}

/// The time of one operation in microseconds.
fn timed(folder: &Path, operation: Operation) -> Result<f64, String> {
    let failed = |error| format!("{}: {error}", folder.display());
    // A frozen view has no such folder, and needs none.
    let _ = fs::remove_dir_all(folder.join("made"));
    let _ = fs::create_dir(folder.join("made"));
    operation(folder, 0..TIMES).map_err(failed)?;
    let start = Instant::now();
    operation(folder, TIMES..2 * TIMES).map_err(failed)?;
    Ok(start.elapsed().as_secs_f64() * 1e6 / TIMES as f64)
}

fn open(folder: &Path, mut times: Range<usize>) -> std::io::Result<()> {
    let path = folder.join("file");
    times.try_for_each(|_| File::open(&path).map(drop))
}

fn read(folder: &Path, mut times: Range<usize>) -> std::io::Result<()> {
    let path = folder.join("file");
    let mut bytes = [0; 4096];
    times.try_for_each(|_| File::open(&path)?.read_exact(&mut bytes))
}

fn write(folder: &Path, mut times: Range<usize>) -> std::io::Result<()> {
    let file = OpenOptions::new().write(true).open(folder.join("file"))?;
    times.try_for_each(|_| file.write_all_at(&[7; 4096], 0))
}

fn create(folder: &Path, mut names: Range<usize>) -> std::io::Result<()> {
    let made = folder.join("made");
    names.try_for_each(|name| File::create(made.join(name.to_string()))?.write_all(&[7; 4096]))
}

fn stat(folder: &Path, mut times: Range<usize>) -> std::io::Result<()> {
    let path = folder.join("file");
    times.try_for_each(|_| rustix::fs::stat(&path).map(drop).map_err(Into::into))
}

fn stat_nothing(folder: &Path, mut times: Range<usize>) -> std::io::Result<()> {
    let path = folder.join("nothing");
    times.try_for_each(|_| match rustix::fs::stat(&path) {
        Err(Errno::NOENT) => Ok(()),
        other => Err(std::io::Error::other(format!("{other:?}"))),
    })
}

fn text(views: &[View], columns: &[Vec<Option<Series>>]) -> String {
    let heads: Vec<_> = [""].into_iter().chain(OPERATIONS.map(|(name, _)| name)).collect();
    let mut table = Table::new("One operation, µs; all on one processor", &heads);
    for (row, view) in views.iter().enumerate() {
        let cells =
            columns.iter().map(|column| column[row].as_ref().map_or("–".into(), Series::cell));
        table.row(view.way.name(), &cells.collect::<Vec<_>>());
    }
    let of = |way, column: usize| {
        let row = views.iter().position(|view| view.way == way)?;
        Some(columns[column][row].as_ref()?.median())
    };
    let frozen = ratio(of(Way::Frozen, READ), of(Way::Native, READ));
    table.target("frozen, open, read, close ≤ 1.6 × native", at_most(frozen, 1.6));
    for way in [Way::Live, Way::LiveRing] {
        if !views.iter().any(|view| view.way == way) {
            continue;
        }
        // The target of 8 µs was set on a machine on which a native open takes 1.6 µs.
        let open = ratio(of(way, OPEN), of(Way::Native, OPEN));
        let what = format!("{}, open, close ≤ 5 × native (8 µs where that is 1.6)", way.name());
        table.target(&what, at_most(open, 5.0));
        let create = ratio(of(way, CREATE), of(Way::Native, CREATE));
        let what = format!("{}, create, write, close ≤ 3 × native", way.name());
        table.target(&what, at_most(create, 3.0));
    }
    table.text()
}
