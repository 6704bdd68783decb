//! Notes about a template's boot: its queries to the system, its output, and objections to the template.

use std::collections::BTreeSet;
use std::ffi::{OsStr, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use thruway_boot::DiskQuery;
use thruway_preload::boot_queries::{BootQueries, QueryLog, Question};
use thruway_preload::key::VOLATILE;
use thruway_preload::one_shot::is_one_shot;
use thruway_preload::open_files::Descriptors;
use thruway_preload::template::now_ns;
use thruway_preload::zone;
use thruway_sys::imports::Object;

use crate::interpose::arguments::TextArgument;

/// Files that libc itself reads on behalf of a program, by calls that are not observed.
const OF_LIBC: [&str; 7] = [
    "/etc/localtime",
    "/etc/timezone",
    "/etc/passwd",
    "/etc/group",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
];

/// A variable that lists further files to compare, in the form of `PATH`, which the boot reads by means that are not
/// observed.
const FURTHER_FILES: &str = "THRUWAY_PRELOAD_FILES";

/// The notes of this process. Any thread may add to them. No mutex is locked while another is held, and none while
/// Ruby code runs.
struct Notebook {
    /// Whether the boot is being observed. Set last at the beginning, after which the other fields are used.
    is_noting: AtomicBool,
    /// The questions that the boot has asked; `None` before and after the observation.
    notes: Mutex<Option<QueryLog>>,
    /// The reason why this boot cannot become a template.
    objection: Mutex<Option<String>>,
    /// The environment variables that the boot has read, among those whose values differ between commands.
    read_variables: Mutex<BTreeSet<&'static str>>,
    /// The output of the boot: the descriptor and the bytes of each write.
    output: Mutex<Vec<(c_int, Vec<u8>)>>,
    /// The descriptors that were open when the boot began.
    known_descriptors: OnceLock<Descriptors>,
}

static NOTEBOOK: Notebook = Notebook {
    is_noting: AtomicBool::new(false),
    notes: Mutex::new(None),
    objection: Mutex::new(None),
    read_variables: Mutex::new(BTreeSet::new()),
    output: Mutex::new(Vec::new()),
    known_descriptors: OnceLock::new(),
};

pub(super) fn begin() {
    NOTEBOOK.known_descriptors.get_or_init(|| Descriptors::open().unwrap_or_default());
    *lock(&NOTEBOOK.notes) = Some(QueryLog::default());
    NOTEBOOK.is_noting.store(true, Ordering::SeqCst);
    note_zone();
    for path in std::env::split_paths(&std::env::var_os(FURTHER_FILES).unwrap_or_default()) {
        let path = absolute(libc::AT_FDCWD, path.as_os_str().as_bytes());
        note(&path, Question::Content);
        note(&path, Question::Names);
    }
}

/// Notes the file of the time zone in `TZ`, which libc itself reads as well.
fn note_zone() {
    if let Some(zone) = std::env::var_os("TZ") {
        let path = zone::file(&zone, std::env::var_os("TZDIR").as_deref());
        note(&absolute(libc::AT_FDCWD, &path), Question::Content);
    }
}

/// Excludes a path, and everything below it, from the comparison.
pub(super) fn exclude(path: &[u8]) {
    if let Some(notes) = lock(&NOTEBOOK.notes).as_mut() {
        notes.exclude(&absolute(libc::AT_FDCWD, path));
    }
}

/// Whether a template's boot is being observed.
pub(crate) fn is_noting() -> bool {
    NOTEBOOK.is_noting.load(Ordering::Relaxed)
}

/// Ends the observation. Returns the questions and answers to compare from now on.
pub(super) fn end() -> BootQueries {
    for (path, _) in Object::all() {
        if path.starts_with(b"/") {
            note(&path, Question::Content);
        }
    }
    // The boot may have chosen another zone.
    note_zone();
    OF_LIBC.iter().for_each(|path| note(path.as_bytes(), Question::Content));
    NOTEBOOK.is_noting.store(false, Ordering::SeqCst);
    lock(&NOTEBOOK.notes).take().map(QueryLog::sealed).unwrap_or_default()
}

/// The descriptors that are open for other reasons than the boot.
pub(super) fn known_descriptors() -> &'static Descriptors {
    NOTEBOOK.known_descriptors.get_or_init(Descriptors::default)
}

/// Objects to a template of this boot. The first reason is kept.
pub(crate) fn object(reason: impl FnOnce() -> String) {
    if is_noting() {
        lock(&NOTEBOOK.objection).get_or_insert_with(reason);
    }
}

pub(super) fn objection() -> Option<String> {
    lock(&NOTEBOOK.objection).clone()
}

/// The output of the boot: the descriptor and the bytes of each write. Each child writes this output again.
pub(super) fn output() -> Vec<(c_int, Vec<u8>)> {
    lock(&NOTEBOOK.output).clone()
}

/// Removes and returns the output after the first `count` writes.
pub(super) fn take_output(count: usize) -> Vec<u8> {
    let mut output = lock(&NOTEBOOK.output);
    let count = count.min(output.len());
    output.split_off(count).into_iter().flat_map(|(_, bytes)| bytes).collect()
}

pub(super) fn say(descriptor: c_int, bytes: &[u8]) {
    lock(&NOTEBOOK.output).push((descriptor, bytes.to_vec()));
}

/// Notes a question of Thruway's own crates, before it is asked.
pub(super) fn observe(path: &[u8], asked: DiskQuery) {
    note(
        path,
        match asked {
            DiskQuery::Folder => Question::LinkKind,
            DiskQuery::File => Question::LinkStat,
            DiskQuery::Target => Question::Stat,
            DiskQuery::Names => Question::Names,
        },
    );
}

/// Notes a question about a path, before libc is called with it.
pub(super) fn note_path(path: TextArgument, question: impl FnOnce() -> Question) {
    note_path_at(libc::AT_FDCWD, path, question);
}

/// Notes a question about a path that starts at an open folder.
pub(super) fn note_path_at(folder: c_int, path: TextArgument, question: impl FnOnce() -> Question) {
    if is_noting() && !path.is_null() {
        note(&absolute(folder, path.bytes()), question());
    }
}

/// Notes a file that the boot itself is about to write.
pub(super) fn note_written(folder: c_int, path: TextArgument) {
    if is_noting() && !path.is_null() {
        let path = absolute(folder, path.bytes());
        if let Some(notes) = lock(&NOTEBOOK.notes).as_mut() {
            notes.note_written(&path);
        }
    }
}

/// Notes the script, which Ruby has opened since `began_ns`. If the script was changed after that time, Ruby may have
/// read another text.
pub(super) fn note_script(path: &[u8], began_ns: i64) {
    if let Some(notes) = lock(&NOTEBOOK.notes).as_mut() {
        notes.note(&absolute(libc::AT_FDCWD, path), Question::Content, began_ns);
    }
    if is_one_shot(Path::new(OsStr::from_bytes(path))) {
        object(|| "its script can be read once".to_owned());
    }
}

/// Notes a variable that the boot is about to read.
pub(super) fn note_variable(name: TextArgument) {
    if is_noting() && !name.is_null() {
        read_variable(name.bytes());
    }
}

/// Notes a variable by its name in Ruby.
pub(super) fn read_variable(name: &[u8]) {
    if let Some(name) = VOLATILE.iter().find(|volatile| volatile.as_bytes() == name) {
        lock(&NOTEBOOK.read_variables).insert(name);
    }
}

/// The environment variables that the boot has read, among those whose values differ between commands.
pub(super) fn read_variables() -> Vec<&'static str> {
    lock(&NOTEBOOK.read_variables).iter().copied().collect()
}

fn note(path: &[u8], question: Question) {
    if question == Question::Content && is_one_shot(Path::new(OsStr::from_bytes(path))) {
        object(|| {
            let name = String::from_utf8_lossy(path);
            format!("it reads {name}, which can be read once")
        });
    }
    if let Some(notes) = lock(&NOTEBOOK.notes).as_mut() {
        notes.note(path, question, now_ns());
    }
}

fn absolute(folder: c_int, path: &[u8]) -> Vec<u8> {
    if path.starts_with(b"/") {
        return path.to_vec();
    }
    let start = match folder {
        libc::AT_FDCWD => current_folder(),
        folder => link(&format!("/proc/self/fd/{folder}")),
    };
    if path.is_empty() || path == b"." { start } else { [&start[..], path].join(&b'/') }
}

fn current_folder() -> Vec<u8> {
    link("/proc/self/cwd")
}

fn link(path: &str) -> Vec<u8> {
    let target = std::fs::read_link(Path::new(OsStr::from_bytes(path.as_bytes())));
    target.map(|target| target.into_os_string().as_bytes().to_vec()).unwrap_or_default()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
