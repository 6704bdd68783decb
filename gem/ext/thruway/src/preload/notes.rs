//! What was noted of a template's boot so far.

use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr, c_char, c_int};
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

/// Files that libc reads by itself, whatever calls it.
const OF_LIBC: [&str; 7] = [
    "/etc/localtime",
    "/etc/timezone",
    "/etc/passwd",
    "/etc/group",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
];

/// Names files, as `PATH` names folders, that the boot reads unseen: they are compared as well.
const FURTHER_FILES: &str = "THRUWAY_PRELOAD_FILES";

static IS_NOTING: AtomicBool = AtomicBool::new(false);
static NOTES: Mutex<Option<QueryLog>> = Mutex::new(None);
/// Why this boot cannot be a template's.
static OBJECTION: Mutex<Option<String>> = Mutex::new(None);
/// What the boot wrote to its standard streams: to which, and what.
/// The variables that the boot read, of those that differ from one command to the next.
static READ: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
static SAID: Mutex<Vec<(c_int, Vec<u8>)>> = Mutex::new(Vec::new());
/// The descriptors that were open when the boot began.
static KNOWN: OnceLock<Descriptors> = OnceLock::new();

pub(super) fn begin() {
    KNOWN.get_or_init(|| Descriptors::open().unwrap_or_default());
    *lock(&NOTES) = Some(QueryLog::default());
    IS_NOTING.store(true, Ordering::SeqCst);
    note_zone();
    for path in std::env::split_paths(&std::env::var_os(FURTHER_FILES).unwrap_or_default()) {
        let path = absolute(libc::AT_FDCWD, path.as_os_str().as_bytes());
        note(&path, Question::Content);
        note(&path, Question::Names);
    }
}

/// The file of the time zone in `TZ`, which libc reads by itself as well.
fn note_zone() {
    if let Some(zone) = std::env::var_os("TZ") {
        let path = zone::file(&zone, std::env::var_os("TZDIR").as_deref());
        note(&absolute(libc::AT_FDCWD, &path), Question::Content);
    }
}

/// What is at that path, or below it, is not compared.
pub(super) fn exclude(path: &[u8]) {
    if let Some(notes) = lock(&NOTES).as_mut() {
        notes.exclude(&absolute(libc::AT_FDCWD, path));
    }
}

/// Whether the boot still goes on.
pub(super) fn is_noting() -> bool {
    IS_NOTING.load(Ordering::Relaxed)
}

/// Ends, and gives what has to be compared from now on.
pub(super) fn end() -> BootQueries {
    for (path, _) in Object::all() {
        if path.starts_with(b"/") {
            note(&path, Question::Content);
        }
    }
    // The boot may have chosen another.
    note_zone();
    OF_LIBC.iter().for_each(|path| note(path.as_bytes(), Question::Content));
    IS_NOTING.store(false, Ordering::SeqCst);
    lock(&NOTES).take().map(QueryLog::sealed).unwrap_or_default()
}

/// What is open, and is not the boot's.
pub(super) fn known_descriptors() -> &'static Descriptors {
    KNOWN.get_or_init(Descriptors::default)
}

/// Says why this boot cannot be a template's; the first reason counts.
pub(super) fn object(reason: impl FnOnce() -> String) {
    if is_noting() {
        lock(&OBJECTION).get_or_insert_with(reason);
    }
}

pub(super) fn objection() -> Option<String> {
    lock(&OBJECTION).clone()
}

/// What the boot wrote, for each child to write again.
pub(super) fn said() -> Vec<(c_int, Vec<u8>)> {
    lock(&SAID).clone()
}

/// What the boot wrote after its first `count` writes: it is not among [`said`] any more.
pub(super) fn take_said(count: usize) -> Vec<u8> {
    let mut said = lock(&SAID);
    let count = count.min(said.len());
    said.split_off(count).into_iter().flat_map(|(_, bytes)| bytes).collect()
}

pub(super) fn say(descriptor: c_int, bytes: &[u8]) {
    lock(&SAID).push((descriptor, bytes.to_vec()));
}

/// The boot is about to ask Thruway's own crates.
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

/// A path that a function of libc's is called with.
///
/// # Safety
/// `path` is null, or ends in NUL.
pub(super) unsafe fn note_path(path: *const c_char, question: impl FnOnce() -> Question) {
    // SAFETY: as this function's own.
    unsafe { note_path_at(libc::AT_FDCWD, path, question) };
}

/// As [`note_path`], of a path that starts at an open folder.
///
/// # Safety
/// As of [`note_path`].
pub(super) unsafe fn note_path_at(
    folder: c_int,
    path: *const c_char,
    question: impl FnOnce() -> Question,
) {
    if is_noting() && !path.is_null() {
        // SAFETY: as this function's own.
        let path = unsafe { CStr::from_ptr(path) }.to_bytes();
        note(&absolute(folder, path), question());
    }
}

/// The boot itself is about to write what is at a path.
///
/// # Safety
/// As of [`note_path`].
pub(super) unsafe fn note_written(folder: c_int, path: *const c_char) {
    if is_noting() && !path.is_null() {
        // SAFETY: as this function's own.
        let path = absolute(folder, unsafe { CStr::from_ptr(path) }.to_bytes());
        if let Some(notes) = lock(&NOTES).as_mut() {
            notes.note_written(&path);
        }
    }
}

/// Ruby, which began then, has opened its script: what has changed since may not be what it has read.
pub(super) fn note_script(path: &[u8], began_ns: i64) {
    if let Some(notes) = lock(&NOTES).as_mut() {
        notes.note(&absolute(libc::AT_FDCWD, path), Question::Content, began_ns);
    }
    if is_one_shot(Path::new(OsStr::from_bytes(path))) {
        object(|| "its script can be read once".to_owned());
    }
}

/// The boot is about to read a variable.
///
/// # Safety
/// `name` is null, or ends in NUL.
pub(super) unsafe fn note_variable(name: *const c_char) {
    if is_noting() && !name.is_null() {
        // SAFETY: as this function's own.
        let name = unsafe { CStr::from_ptr(name) }.to_bytes();
        read_variable(name);
    }
}

/// As [`note_variable`].
pub(super) fn read_variable(name: &[u8]) {
    if let Some(name) = VOLATILE.iter().find(|volatile| volatile.as_bytes() == name) {
        lock(&READ).insert(name);
    }
}

/// The variables that the boot read, of those that differ from one command to the next.
pub(super) fn read_variables() -> Vec<&'static str> {
    lock(&READ).iter().copied().collect()
}

fn note(path: &[u8], question: Question) {
    if question == Question::Content && is_one_shot(Path::new(OsStr::from_bytes(path))) {
        object(|| {
            let name = String::from_utf8_lossy(path);
            format!("it reads {name}, which can be read once")
        });
    }
    if let Some(notes) = lock(&NOTES).as_mut() {
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
