//! Typical work on a source tree, and its compilation.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::test_filesystem::TestFilesystem;
use super::view::{Processors, View, Way};
use crate::context::BenchContext;
use crate::measure::{Series, wall};
use crate::table::{Table, at_most};
use xtask::command::succeed;

/// The work on the tree, and its permitted time as a multiple of the time on the folder itself.
/// `$1` is a repository, `$2` a folder for output outside of the tree.
const STEPS: [Step; 6] = [
    Step { name: "clone", script: "git clone -q \"$1\" tree", at_most: Some(2.0) },
    Step { name: "status", script: "git -C tree status -s", at_most: Some(1.5) },
    Step { name: "find", script: "find tree -size +8 >/dev/null", at_most: Some(1.4) },
    Step { name: "tar", script: "tar -cf \"$2/tar\" tree", at_most: Some(2.5) },
    Step { name: "`cp -a`", script: "cp -a tree copy", at_most: Some(3.5) },
    Step { name: "rm", script: "rm -rf copy tree", at_most: Some(2.0) },
];

/// The compilation, as the patch series compiled a kernel. `$1` is the folder of sources.
const COMPILE: [Step; 3] = [
    Step { name: "copy", script: "cp -r \"$1\" tree", at_most: None },
    Step {
        name: "compile",
        script: "CFLAGS=-O0 make -s -j2 -C tree lib zstd",
        at_most: Some(1.03),
    },
    Step { name: "rm", script: "rm -rf tree", at_most: None },
];

const WAYS: [Way; 7] = [
    Way::Native,
    Way::Overlay,
    Way::Live,
    Way::LiveRing,
    Way::MergerFs,
    Way::PassthroughHp,
    Way::PassthroughHpRing,
];

const NO_SOURCES: &str = "Not measured: there was no `--peer zstd=DIR` with Debian's sources of zstd \
                          (`apt-get source libzstd`).";

struct Step {
    name: &'static str,
    script: &'static str,
    at_most: Option<f64>,
}

pub(crate) fn handling(context: &BenchContext) -> Result<String, String> {
    let Some(sources) = context.peers.get("zstd") else { return Ok(NO_SOURCES.into()) };
    let mut text = String::new();
    for (processors, words) in
        [(Processors::One, "one processor"), (Processors::All, "two processors")]
    {
        let filesystem = TestFilesystem::new()?;
        let repository = repository(&filesystem, sources)?;
        let views = views(context, &filesystem, processors)?;
        let columns = rounds(context, &views, &STEPS, &repository, processors)?;
        let title = format!("zstd's source tree, ms; {words}");
        text.push_str(&(table(&title, &STEPS, &views, &columns) + "\n\n"));
    }
    Ok(text)
}

pub(crate) fn compiling(context: &BenchContext) -> Result<String, String> {
    let Some(sources) = context.peers.get("zstd") else { return Ok(NO_SOURCES.into()) };
    let filesystem = TestFilesystem::new()?;
    let views = views(context, &filesystem, Processors::All)?;
    let columns = rounds(context, &views, &COMPILE, sources, Processors::All)?;
    Ok(table("zstd, `make -j2`, ms; two processors", &COMPILE, &views, &columns))
}

/// Creates a repository of the sources on the same file system.
fn repository(filesystem: &TestFilesystem, sources: &Path) -> Result<PathBuf, String> {
    let repository = filesystem.folder("repository")?;
    let script = "cp -r \"$1\"/. . && git init -q . && git add -Af . && \
                  git -c user.name=x -c user.email=x@localhost commit -qm x && git gc -q";
    succeed(Command::new("sh").args(["-c", script, "sh"]).arg(sources).current_dir(&repository))?;
    Ok(repository)
}

fn views(
    context: &BenchContext,
    filesystem: &TestFilesystem,
    processors: Processors,
) -> Result<Vec<View>, String> {
    let mut views = Vec::new();
    for way in WAYS {
        let source = filesystem.folder(&format!("tree-{way:?}"))?;
        views.extend(View::new(context, filesystem, way, &[source], processors)?);
    }
    Ok(views)
}

/// Returns a column for each step, with a series for each view. The steps of a view run in order,
/// as each needs the previous one.
fn rounds(
    context: &BenchContext,
    views: &[View],
    steps: &[Step],
    repository: &Path,
    processors: Processors,
) -> Result<Vec<Vec<Series>>, String> {
    let mut times = vec![vec![Vec::new(); views.len()]; steps.len()];
    let beside = std::env::temp_dir();
    // The first round warms the caches.
    for round in 0..=context.rounds {
        for (row, view) in views.iter().enumerate() {
            for (step, times) in steps.iter().zip(&mut times) {
                let mut command = processors.command("sh");
                command.args(["-ec", step.script, "sh"]).arg(repository).arg(&beside);
                let time = wall(command.current_dir(&view.folder))?;
                if round > 0 {
                    times[row].push(time.as_secs_f64() * 1e3);
                }
            }
        }
    }
    let _ = fs::remove_file(beside.join("tar"));
    let series = |(view, times): (&View, Vec<f64>)| Series::new(view.way.name(), times);
    Ok(times.into_iter().map(|column| views.iter().zip(column).map(series).collect()).collect())
}

fn table(title: &str, steps: &[Step], views: &[View], columns: &[Vec<Series>]) -> String {
    let mut heads = vec![""];
    for step in steps {
        heads.extend([step.name, "÷ native"]);
    }
    let mut table = Table::new(title, &heads);
    let ratio = |column: &[Series], row: usize| column[row].median() / column[0].median();
    for (row, view) in views.iter().enumerate() {
        let cells = columns
            .iter()
            .flat_map(|column| [column[row].cell(), format!("{:.2}", ratio(column, row))]);
        table.row(view.way.name(), &cells.collect::<Vec<_>>());
    }
    for way in [Way::Live, Way::LiveRing] {
        let Some(row) = views.iter().position(|view| view.way == way) else { continue };
        for (step, column) in steps.iter().zip(columns) {
            let Some(most) = step.at_most else { continue };
            let target = format!("{}, {} ≤ {most} × native", way.name(), step.name);
            table.target(&target, at_most(Some(ratio(column, row)), most));
        }
    }
    table.text()
}
