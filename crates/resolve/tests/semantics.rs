//! Tests docs/reference/names.md: each cell that names this test as its source has rows in
//! `vectors/search.tsv`. Each row is checked on Linux in a tree and on Windows on the disk. The test is not
//! packaged, because the page belongs to the project.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use thruway_resolve::expand::Flavour;
use thruway_resolve::search::{Lister, Places, Plan, Rules, Search};
use thruway_testing::table::byte_rows;

const PAGE: &str = include_str!("../../../docs/reference/names.md");
const VECTORS: &str = include_str!("vectors/search.tsv");

/// The columns of each table, which are rules of ours.
const TABLES: [(&str, [&str; 4]); 2] = [
    ("## Finding a command\n", ["exec", "cmd", "zig", "rust"]),
    ("### Libraries and PowerShell\n", ["go", "python", "libuv", "powershell"]),
];

/// Rows that a search alone cannot check: tests in `crates/spawn/tests`, `tests/it/which.rs` and the lister
/// of NT do.
const STARTED: [&str; 6] = [
    "`NoDefaultCurrentDirectoryInExePath`",
    "file that may not be run",
    "which `PATH`",
    "file that is no program",
    "script, or program, without its interpreter",
    "folder that cannot be read",
];

fn rules(text: &str) -> Rules {
    const PATH_EXT: &[u8] = b".COM;.EXE;.BAT;.CMD;.VBS";
    match text {
        "exec" => Rules::exec(),
        "cmd" => Rules::cmd(PATH_EXT),
        "cmd +current" => Rules::cmd(PATH_EXT).current_first(true),
        "zig" => Rules::zig(PATH_EXT),
        "zig -current" => Rules::zig(PATH_EXT).current_first(false),
        "rust" => Rules::rust(),
        "go" => Rules::go(PATH_EXT),
        "python" => Rules::python(PATH_EXT),
        "python +current" => Rules::python(PATH_EXT).current_first(true),
        "libuv" => Rules::libuv(),
        "libuv +current" => Rules::libuv().current_first(true),
        "powershell +current" => Rules::powershell(PATH_EXT).current_first(true),
        "powershell" => Rules::powershell(PATH_EXT),
        other => panic!("whose rules are {other}?"),
    }
}

fn make(root: &Path, file: &str) {
    let name = file.trim_end_matches(['/', '!', '>']);
    let path = root.join(name);
    fs::create_dir_all(path.parent().expect("the case is well made"))
        .expect("the case is well made");
    match file.as_bytes().last() {
        Some(b'/') => fs::create_dir(path).expect("the case is well made"),
        Some(b'>') => link_to_itself(&path),
        last => {
            fs::write(&path, "").expect("the case is well made");
            set_runnable(&path, last != Some(&b'!'));
        }
    }
}

#[cfg(unix)]
fn link_to_itself(path: &Path) {
    std::os::unix::fs::symlink(path.file_name().expect("the case is well made"), path)
        .expect("the case is well made");
}

#[cfg(unix)]
fn set_runnable(path: &Path, is_runnable: bool) {
    use std::os::unix::fs::PermissionsExt;
    let mode = if is_runnable { 0o755 } else { 0o644 };
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the case is well made");
}

#[cfg(windows)]
fn link_to_itself(_: &Path) {
    unreachable!("only a row of POSIX has one");
}

#[cfg(windows)]
fn set_runnable(_: &Path, _: bool) {}

/// Returns the lister below `root`, and the path that `@` stands for.
#[cfg(target_os = "linux")]
fn lister(root: &Path, flavour: Flavour) -> (impl Lister, String) {
    let at = if flavour == Flavour::Posix { "" } else { "C:" };
    (thruway_resolve::search::Tree::new(root, flavour).expect("the case is well made"), at.into())
}

#[cfg(windows)]
fn lister(root: &Path, _: Flavour) -> (impl Lister, String) {
    let at = root.display().to_string();
    (
        thruway_resolve::search::Nt::new(
            thruway_resolve::search::nt::System::default(),
            at.clone().into_bytes(),
            Vec::new(),
        ),
        at,
    )
}

fn found(plan: &Plan, lister: &mut impl Lister) -> String {
    let found: Result<Vec<_>, _> = Search::new(plan, lister).collect();
    let Ok(found) = found else { return "!".into() };
    let paths = found
        .into_iter()
        .map(|found| String::from_utf8(found.path).expect("the case is well made"));
    let paths = paths.collect::<Vec<_>>().join(" ");
    if paths.is_empty() { "-".into() } else { paths }
}

fn check(row: &[String]) {
    let [_, kind, files, path, name, expected] = row else { panic!("six columns: {row:?}") };
    let rules = rules(kind);
    if rules.flavour() == Flavour::Posix && cfg!(windows) {
        return;
    }
    let folder = tempfile::tempdir().expect("the case is well made");
    files.split(' ').for_each(|file| make(folder.path(), file));
    let (mut lister, at) = lister(folder.path(), rules.flavour());
    let path = path.replace('@', &at);
    let path = if path == "-" { rules.default_path() } else { path.as_bytes() };
    let places = Places { path, before: &[] };
    let plan = Plan::new(&rules, name.as_bytes(), &places).expect("the case is well made");
    assert_eq!(found(&plan, &mut lister), expected.replace('@', &at), "{row:?}");
}

fn vectors() -> Vec<Vec<String>> {
    let text = |column: Vec<u8>| String::from_utf8(column).expect("the case is well made");
    byte_rows(VECTORS).into_iter().map(|row| row.into_iter().map(text).collect()).collect()
}

#[test]
fn every_row_of_the_vectors_holds() {
    vectors().iter().for_each(|row| check(row));
}

/// Returns the cells marked "t" in both tables: the row's name and the column's rules.
fn cells_that_are_tested() -> BTreeSet<(String, &'static str)> {
    let mut tested = BTreeSet::new();
    for (heading, columns) in TABLES {
        let table = PAGE.split(heading).nth(1).expect("the table's heading");
        let lines = table.lines().skip_while(|line| !line.starts_with('|')).skip(2);
        for line in lines.take_while(|line| line.starts_with('|')) {
            let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            assert_eq!(cells.len(), 5, "{line}");
            for (cell, rules) in cells[1..].iter().zip(columns) {
                let source = cell.rsplit_once('(').map_or("", |(_, source)| source);
                if source.trim_end_matches(')').split(", ").any(|letter| letter == "t") {
                    tested.insert((cells[0].to_owned(), rules));
                }
            }
        }
    }
    tested
}

#[test]
fn every_cell_that_is_said_to_be_tested_is() {
    let kind = |text: &str| {
        let rules = TABLES.iter().flat_map(|(_, columns)| columns);
        *rules.clone().find(|rules| text.split(' ').next() == Some(rules)).expect("a column")
    };
    let vectors: BTreeSet<_> =
        vectors().iter().map(|row| (row[0].clone(), kind(&row[1]))).collect();
    let told = cells_that_are_tested();
    assert!(told.len() > 100);
    let is_here = |(row, _): &&(String, &str)| !STARTED.contains(&row.as_str());
    let untested: Vec<_> = told.difference(&vectors).filter(is_here).collect();
    assert!(untested.is_empty(), "without a vector: {untested:?}");
    let untold: Vec<_> = vectors.difference(&told).collect();
    assert!(untold.is_empty(), "not said on the page: {untold:?}");
}
