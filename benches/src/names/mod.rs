//! Expansion, command search and start: on Linux, and under Wine if it is installed.

mod program;
mod ruby;

use std::path::Path;
use std::process::Command;

use crate::context::BenchContext;
use crate::measure::{Contender, Series, interleave, wall};
use crate::table::{Table, at_least, at_most, ratio};
use program::Program;
use xtask::wine::Wine;

/// The place of the program that is searched for.
const PLACES: [(&str, &str); 3] = [("first", "1st"), ("deep", "197th"), ("miss", "none")];

const METHOD: &str = "One process for all contenders of a system, pinned to one processor together with all \
                      that it starts. 211 folders of 40 files.\n\n";

const NO_WINE: &str = "Not measured for Windows: this machine has no Wine.\n\n";

pub(super) fn linux(context: &BenchContext) -> Result<String, String> {
    let linux = Program::of_linux(context)?;
    let wine = Wine::installed(&context.root)?;
    let windows = wine.as_ref().map(Program::of_windows).transpose()?;
    let mut text = METHOD.to_owned();
    if windows.is_none() {
        text.push_str(NO_WINE);
    }
    text.push_str(&expansion(context, &linux, windows.as_ref())?);
    text.push_str(&ruby::expansion(context)?);
    text.push_str(&on_linux(context, &linux)?);
    Ok(text)
}

pub(super) fn wine(context: &BenchContext) -> Result<String, String> {
    match Wine::installed(&context.root)? {
        Some(wine) => {
            let windows = Program::of_windows(&wine)?;
            Ok(METHOD.to_owned() + &under_wine(context, &windows)?)
        }
        None => Ok(METHOD.to_owned() + NO_WINE),
    }
}

/// A row for each technique and a column for each place: medians of the answers of `program`.
struct Grid {
    rows: Vec<(&'static str, [Series; 3])>,
}

impl Grid {
    /// Measures `techniques`, which are words of the program, each with the name of its row.
    fn measure(
        context: &BenchContext,
        program: &Program,
        work: &str,
        techniques: &[(&'static str, &'static str)],
    ) -> Result<Self, String> {
        let mut columns = Vec::new();
        for (place, _) in PLACES {
            let asked = |(technique, name): &(&str, &'static str)| {
                program.contender(&format!("{work} {technique} {place}"), name)
            };
            let mut contenders: Vec<_> = techniques.iter().map(asked).collect();
            // The first answer of each technique initializes its state.
            interleave(1, &mut contenders)?;
            columns.push(interleave(context.rounds, &mut contenders)?.into_iter());
        }
        let mut row = || Some([columns[0].next()?, columns[1].next()?, columns[2].next()?]);
        Ok(Self { rows: techniques.iter().filter_map(|(_, name)| Some((*name, row()?))).collect() })
    }

    /// The median of one cell.
    fn median(&self, row: &str, place: usize) -> Option<f64> {
        let (_, series) = self.rows.iter().find(|(name, _)| *name == row)?;
        Some(series[place].median())
    }

    fn table(&self, title: &str, unit: &str) -> Table {
        let heads = PLACES.map(|(_, head)| format!("{head}, {unit}"));
        let mut columns = vec![""];
        columns.extend(heads.iter().map(String::as_str));
        let mut table = Table::new(title, &columns);
        for (name, series) in &self.rows {
            table.row(name, &series.each_ref().map(Series::cell));
        }
        table
    }
}

fn expansion(
    context: &BenchContext,
    linux: &Program,
    windows: Option<&Program>,
) -> Result<String, String> {
    let ours = [
        ("posix", "thruway, POSIX"),
        ("windows", "thruway, Windows, WTF-8"),
        ("utf-16", "thruway, Windows, UTF-16"),
        ("ruby", "thruway, Ruby's rules on POSIX"),
        ("ruby-windows", "thruway, Ruby's rules on Windows"),
        ("system", "`std::path::absolute` on Linux, which keeps `..`"),
    ];
    let asked =
        |(rules, name): &(&str, &'static str)| linux.contender(&format!("expand {rules}"), name);
    let mut contenders: Vec<_> = ours.iter().map(asked).collect();
    if let Some(windows) = windows {
        let name = "`GetFullPathNameW` of Wine, by way of std";
        contenders.push(windows.contender("expand system", name));
    }
    let series = interleave(context.rounds, &mut contenders)?;
    let mut table = Table::new("One name made absolute", &["`lib/../ext/./feature1.rb`", "ns"]);
    series.iter().for_each(|one| table.row(one.name, &[one.cell()]));
    let slowest = series[..5].iter().map(Series::median).fold(0.0, f64::max);
    table.target("slowest of ours ≤ 300 ns", at_most(Some(slowest), 300.0));
    Ok(table.text() + "\n\n")
}

fn on_linux(context: &BenchContext, program: &Program) -> Result<String, String> {
    let techniques =
        [("cold", "one look-up a folder"), ("validated", "listings"), ("watched", "watched index")];
    let search = Grid::measure(context, program, "search", &techniques)?;
    let mut table = search.table("A command on Linux: found in", "µs");
    table.note(
        "Only a program that stays gains: a listing costs as many look-ups as the search itself, and \
         setting up watches costs more.",
    );
    let mut text = table.text() + "\n\n" + &one_shot(context)?;
    text.push_str(&starts(context, program)?);
    Ok(text)
}

/// The times of a start: until the program runs, until it has ended, and until an empty program has ended.
fn starts(context: &BenchContext, program: &Program) -> Result<String, String> {
    let techniques = [
        ("posix_spawnp", "`posix_spawnp`"),
        ("std", "Rust's std, which calls it"),
        ("cold", "thruway"),
        ("watched", "thruway, watched index"),
    ];
    let share =
        |grid: &Grid| ratio(grid.median(techniques[3].1, 1), grid.median(techniques[0].1, 1));
    let start = Grid::measure(context, program, "start", &techniques)?;
    let spawn = Grid::measure(context, program, "spawn", &techniques)?;
    let mut table = start.table("A program started on Linux, until it runs", "µs");
    table.target("watched ≤ 0.7 × `posix_spawnp`, 197th", at_most(share(&start), 0.7));
    table.note(
        "This is the time of the call, which returns when the program runs, and where a search can be saved.",
    );
    let mut text = table.text() + "\n\n";
    let mut table = spawn.table("A program started on Linux, and waited for", "µs");
    table.target("the same, waited for", at_most(share(&spawn), 0.7));
    table.note(
        "The program itself, `true`, is part of every row: its C library takes longer to start than all searches \
         ([what was tried](explanation/design/names.md)).",
    );
    text.push_str(&(table.text() + "\n\n"));
    let small = Grid::measure(context, program, "small", &techniques)?;
    let mut table =
        small.table("A program of one system call started on Linux, and waited for", "µs");
    table.target("the same, of a program that ends at once", at_most(share(&small), 0.7));
    table.note(
        "It has no C library, whose start costs most of what `true` takes: what is left is the start, the search \
         and the end.",
    );
    text.push_str(&(table.text() + "\n\n"));
    Ok(text)
}

/// Debian's `which` is a shell script, `command -v` is one shell.
fn one_shot(context: &BenchContext) -> Result<String, String> {
    let folders =
        (0..211).map(|n| format!("{}/d{n:03}", context.root.join("target/bench/names").display()));
    let path = folders.collect::<Vec<_>>().join(":");
    let thruway = context.root.join("target/release/thruway");
    let timed = |program: &Path, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).env("PATH", &path);
        Ok(wall(&mut command)?.as_secs_f64() * 1e3)
    };
    let series = interleave(
        context.rounds,
        &mut [
            Contender {
                name: "`thruway which`",
                run: Box::new(|| timed(&thruway, &["which", "deep"])),
            },
            Contender {
                name: "Debian's `which`",
                run: Box::new(|| timed(Path::new("/usr/bin/which"), &["deep"])),
            },
            Contender {
                name: "`sh -c 'command -v …'`",
                run: Box::new(|| timed(Path::new("/bin/sh"), &["-c", "command -v deep"])),
            },
        ],
    )?;
    let mut table = Table::new("One search a process on Linux, in the 197th folder", &["", "ms"]);
    series.iter().for_each(|one| table.row(one.name, &[one.cell()]));
    table.note("A one-shot search gains nothing on Linux: each way asks 197 folders once.");
    Ok(table.text() + "\n\n")
}

fn under_wine(context: &BenchContext, program: &Program) -> Result<String, String> {
    let techniques =
        [("cold", "wildcard query"), ("validated", "listings"), ("watched", "watched index")];
    let search = Grid::measure(context, program, "search", &techniques)?;
    let mut table = search.table("A command under Wine 8: found in", "µs");
    let gain =
        |place| ratio(search.median("wildcard query", place), search.median("listings", place));
    table.target("listings ≥ 10 × faster, 197th", at_least(gain(1), 10.0));
    table.target("listings ≥ 10 × faster, none", at_least(gain(2), 10.0));
    table
        .note("These are Wine's times. The counts of calls hold on Windows too, the times do not.");
    let mut text = table.text() + "\n\n";
    let techniques = [
        ("std", "Rust's std"),
        ("cmd", "`cmd /c`"),
        ("cold", "thruway, wildcard query"),
        ("validated", "thruway, listings"),
        ("watched", "thruway, watched index"),
    ];
    let spawn = Grid::measure(context, program, "spawn", &techniques)?;
    let mut table = spawn.table("A program started under Wine 8, and waited for", "µs");
    table.note(
        "Each cell is the median of rounds of 100 starts; a start that finds nothing ends there.",
    );
    text.push_str(&(table.text() + "\n\n"));
    Ok(text)
}
