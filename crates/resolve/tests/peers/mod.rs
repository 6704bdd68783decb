//! Compares searches with those of shells, languages and the C library, in random folders.
//!
//! `THRUWAY_CASES` sets the number of searches (`cargo x prove which` sets more), `THRUWAY_SEED` the seed.

mod layout;
mod oracles;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use thruway_resolve::search::{Places, Plan, Posix, Rules, Search};
use thruway_testing::{Random, setting, skipped};

use layout::{Layout, Query};

/// The number of searches in CI.
const CASES: u64 = 160;
/// Searches depend on the current folder, which all tests of this process share.
static CURRENT_FOLDER: Mutex<()> = Mutex::new(());

/// Returns the program that starts, by the rules of `execvp`.
fn started(query: &Query) -> Option<Vec<u8>> {
    found_by(&Rules::exec(), query)
}

/// Returns the file that shells find.
fn found(query: &Query) -> Option<Vec<u8>> {
    found_by(&Rules::shell(), query)
}

fn found_by(rules: &Rules, query: &Query) -> Option<Vec<u8>> {
    let places = Places { path: &query.path, before: &[] };
    let plan = Plan::new(rules, &query.name, &places).ok()?;
    let mut posix = Posix::default();
    let mut search = Search::new(&plan, &mut posix);
    loop {
        let candidate = search.next()?.ok()?;
        let obstacle = rules.checks_interpreters().then(|| search.obstacle(&candidate)).flatten();
        match obstacle {
            None => return Some(candidate.path),
            Some(obstacle) if obstacle.is_passed_over() => {}
            Some(_) => return None,
        }
    }
}

/// Returns the absolute path, in one form.
fn normal(path: &[u8]) -> PathBuf {
    let current = std::env::current_dir().expect("the current folder");
    let path = current.join(OsStr::from_bytes(path));
    let is_current = |component: &Component<'_>| *component == Component::CurDir;
    path.components().filter(|component| !is_current(component)).collect()
}

/// A search whose result is not compared, with the result of the other program.
type Exception = fn(&Query, Option<&[u8]>) -> bool;

/// Whether the path leads to a FIFO, a socket or a device. No system starts one, but some programs find it.
fn is_special(_: &Query, found: Option<&[u8]>) -> bool {
    let metadata = found.and_then(|path| Path::new(OsStr::from_bytes(path)).metadata().ok());
    metadata.is_some_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

/// Whether the file may be executed by nobody. Without another result, bash names such a file.
fn is_not_executable(query: &Query, found: Option<&[u8]>) -> bool {
    let metadata = found.and_then(|path| Path::new(OsStr::from_bytes(path)).metadata().ok());
    metadata.is_some_and(|metadata| metadata.permissions().mode() & 0o111 == 0)
        || is_special(query, found)
}

/// Whether the name contains a folder. dash repeats such a name without a look at the disk.
fn names_a_folder(query: &Query, _: Option<&[u8]>) -> bool {
    query.name.contains(&b'/')
}

/// Whether the `PATH` is empty. Go and Python then find nothing.
fn has_no_path(query: &Query, found: Option<&[u8]>) -> bool {
    query.path.is_empty() || is_special(query, found)
}

/// There is no exception.
fn none(_: &Query, _: Option<&[u8]>) -> bool {
    false
}

/// The searches of a program in a folder; `None` if the program is missing.
type Oracle<'a> = &'a dyn Fn(&Path, &[Query]) -> Option<Vec<Option<Vec<u8>>>>;

/// Compares our searches with those of a program.
fn compare(
    program: &str,
    ours: fn(&Query) -> Option<Vec<u8>>,
    is_excepted: Exception,
    oracle: Oracle<'_>,
) {
    let _current = CURRENT_FOLDER.lock().unwrap_or_else(PoisonError::into_inner);
    let before = std::env::current_dir().expect("the current folder");
    let mut random = Random::from_environment();
    let (mut compared, mut found) = (0, 0);
    let mut different = Vec::new();
    while compared < setting("THRUWAY_CASES", CASES) {
        let layout = Layout::new(&mut random);
        let Some(theirs) = oracle(layout.path(), &layout.queries) else {
            return skipped(format_args!("{program} is missing"));
        };
        assert_eq!(theirs.len(), layout.queries.len(), "{program} answers each query");
        std::env::set_current_dir(layout.path()).expect("the folder");
        for (query, theirs) in layout.queries.iter().zip(theirs) {
            let ours = ours(query);
            let is_same = match (&ours, &theirs) {
                (Some(ours), Some(theirs)) => normal(ours) == normal(theirs),
                (ours, theirs) => ours.is_none() && theirs.is_none(),
            };
            if !is_same && !is_excepted(query, theirs.as_deref()) {
                different.push(layout.difference(query, program, &theirs, &ours));
            }
            found += u64::from(theirs.is_some());
            compared += 1;
        }
        std::env::set_current_dir(&before).expect("the former folder");
    }
    let count = different.len();
    different.truncate(20);
    assert!(count == 0, "{count} of {compared} differ:\n{}", different.join("\n"));
    assert!(found * 20 > compared, "{found} of {compared} commands exist");
}

#[test]
fn execvp_starts_the_program_that_is_found() {
    compare("env", started, none, &|folder, queries| Some(oracles::execvp(folder, queries)));
}

#[test]
fn bash_finds_the_same_command() {
    compare("bash", found, is_not_executable, &|folder, queries| {
        oracles::BASH.found(folder, queries)
    });
}

#[test]
fn dash_finds_the_same_command() {
    compare("dash", found, names_a_folder, &|folder, queries| oracles::DASH.found(folder, queries));
}

#[test]
fn zsh_finds_the_same_command() {
    compare("zsh", found, none, &|folder, queries| oracles::ZSH.found(folder, queries));
}

#[test]
fn fish_finds_the_same_command() {
    compare("fish", found, none, &|folder, queries| oracles::FISH.found(folder, queries));
}

#[test]
fn which_of_python_finds_the_same_command() {
    compare("python3", found, has_no_path, &oracles::python);
}

#[test]
fn look_path_of_go_finds_the_same_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = oracles::build_go(folder.path()) else {
        return skipped(format_args!("go is missing"));
    };
    compare("go", found, has_no_path, &|folder, queries| {
        oracles::ask(&mut std::process::Command::new(&program), folder, queries)
    });
}
