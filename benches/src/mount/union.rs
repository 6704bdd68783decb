//! The look-up of one name among 211 folders.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use super::test_filesystem::TestFilesystem;
use super::view::{Processors, View, Way, drop_names, supervisor};
use crate::context::BenchContext;
use crate::measure::{Contender, Series, interleave};
use crate::process::{family, memory_mb};
use crate::table::{Table, at_most};

const FOLDERS: usize = 211;
const NAMES: usize = 40;

pub(crate) fn run(context: &BenchContext) -> Result<String, String> {
    let filesystem = TestFilesystem::new()?;
    let sources = sources(&filesystem)?;
    let mut text = searching(context, &filesystem, &sources)?;
    text.push_str("\n\n");
    text.push_str(&indexing(context, &filesystem, &sources)?);
    Ok(text)
}

/// Creates 211 folders of 40 files, with no name twice.
fn sources(filesystem: &TestFilesystem) -> Result<Vec<PathBuf>, String> {
    let mut sources = Vec::new();
    for folder in 0..FOLDERS {
        let source = filesystem.folder(&format!("union/{folder}"))?;
        for name in 0..NAMES {
            fs::write(source.join(name_of(folder, name)), "").map_err(|error| error.to_string())?;
        }
        sources.push(source);
    }
    Ok(sources)
}

fn name_of(folder: usize, name: usize) -> String {
    format!("feature_{folder}_{name}.rb")
}

/// A search for names in folders.
struct Search<'a> {
    name: &'static str,
    /// The folders to search, in order.
    folders: &'a [PathBuf],
}

fn searching(
    context: &BenchContext,
    filesystem: &TestFilesystem,
    sources: &[PathBuf],
) -> Result<String, String> {
    let mut views = Vec::new();
    for way in [Way::Live, Way::Frozen, Way::MergerFs] {
        views.extend(View::new(context, filesystem, way, sources, Processors::One)?);
    }
    let mut searches = vec![Search { name: "native search", folders: sources }];
    for view in &views {
        let folders = std::slice::from_ref(&view.folder);
        searches.push(Search { name: view.way.name(), folders });
    }
    let mut columns = Vec::new();
    for (is_hit, is_cold) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut contenders: Vec<_> = searches
            .iter()
            .map(|search| Contender {
                name: search.name,
                run: Box::new(move || look_for_all(search.folders, is_hit, is_cold)),
            })
            .collect();
        columns.push(interleave(context.rounds, &mut contenders)?);
    }
    let title = format!("One name among {FOLDERS} folders of {NAMES}, µs");
    let heads = ["", "there, warm", "not there, warm", "there, cold", "not there, cold"];
    let mut table = Table::new(&title, &heads);
    for row in 0..searches.len() {
        let cells: Vec<_> = columns.iter().map(|series| series[row].cell()).collect();
        table.row(searches[row].name, &cells);
    }
    for (column, most) in [(0, 1.2), (1, 1.2), (2, 60.0), (3, 60.0)] {
        let reached = at_most(Some(columns[column][1].median()), most);
        table.target(&format!("{} ≤ {most} µs", heads[column + 1]), reached);
    }
    Ok(table.text())
}

/// Microseconds per name. The paths are built beforehand.
fn look_for_all(folders: &[PathBuf], is_hit: bool, is_cold: bool) -> Result<f64, String> {
    let prefix = if is_hit { "" } else { "no_" };
    let names: Vec<Vec<_>> = (0..FOLDERS * NAMES)
        .map(|number| format!("{prefix}{}", name_of(number % FOLDERS, number / FOLDERS)))
        .map(|name| folders.iter().map(|folder| folder.join(&name)).collect())
        .collect();
    let look = || {
        let found = names.iter().filter(|places| is_at_one(places)).count();
        if found == if is_hit { names.len() } else { 0 } {
            Ok(())
        } else {
            Err(format!("found {found} names of {}", names.len()))
        }
    };
    if is_cold {
        drop_names()?;
    } else {
        look()?;
    }
    let start = Instant::now();
    look()?;
    Ok(start.elapsed().as_secs_f64() * 1e6 / names.len() as f64)
}

fn is_at_one(places: &[PathBuf]) -> bool {
    places.iter().any(|place| rustix::fs::stat(place).is_ok())
}

/// Measures the first look-up, which builds the index. The kernel's caches of the folders are dropped, as after a
/// start. A search for 8,440 names in each folder leaves as many names of each in memory, and the kernel traverses all
/// of them to watch a folder.
fn indexing(
    context: &BenchContext,
    filesystem: &TestFilesystem,
    sources: &[PathBuf],
) -> Result<String, String> {
    let (mut times, mut sizes) = (Vec::new(), Vec::new());
    for _ in 0..context.rounds {
        drop_names()?;
        let view = View::new(context, filesystem, Way::Live, sources, Processors::One)?;
        let view = view.ok_or("thruway is not at hand")?;
        let processes = family(supervisor(context, &view.folder)?);
        let before = memory_mb(&processes);
        let start = Instant::now();
        let first = view.folder.join(name_of(FOLDERS - 1, NAMES - 1));
        fs::metadata(&first).map_err(|error| format!("{}: {error}", first.display()))?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
        sizes.push((memory_mb(&processes) - before) * 1e6 / (FOLDERS * NAMES) as f64);
    }
    let (times, sizes) = (Series::new("", times), Series::new("", sizes));
    let mut table = Table::new("The index of these names", &["", "built in, ms", "bytes a name"]);
    table.row("thruway", &[times.cell(), sizes.cell()]);
    table.target("built in ≤ 50 ms", at_most(Some(times.median()), 50.0));
    table.target("≤ 200 bytes a name", at_most(Some(sizes.median()), 200.0));
    Ok(table.text())
}
