//! Calls into libc by which a boot asks the disk, of libruby and of every library that it loads.
//!
//! The import tables of all loaded objects are pointed at the functions below while a template boots. Each notes
//! what it is about to ask, and hands the call on. What libc asks by itself is not seen: those files are known.

use std::collections::HashSet;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use libc::{DIR, FILE, iovec, mode_t, size_t, ssize_t, stat};
use thruway_preload::boot_queries::Question;
use thruway_sys::imports::Object;

use super::notes::{self, note_path, note_path_at, note_written};
use super::questions;
use crate::boot::errno::{errno, set_errno};
use crate::boot::import::imports;

imports! { CALLS:
    OPEN c"open" open;
    OPEN64 c"open64" open64;
    OPENAT c"openat" openat;
    OPENAT64 c"openat64" openat64;
    FOPEN c"fopen" fopen;
    FOPEN64 c"fopen64" fopen64;
    STAT c"stat" stat_path;
    STAT64 c"stat64" stat64;
    LSTAT c"lstat" lstat;
    LSTAT64 c"lstat64" lstat64;
    FSTATAT c"fstatat" fstatat;
    FSTATAT64 c"fstatat64" fstatat64;
    STATX c"statx" statx;
    ACCESS c"access" access;
    EACCESS c"eaccess" eaccess;
    EUIDACCESS c"euidaccess" euidaccess;
    FACCESSAT c"faccessat" faccessat;
    OPENDIR c"opendir" opendir;
    READLINK c"readlink" readlink;
    READLINKAT c"readlinkat" readlinkat;
    REALPATH c"realpath" realpath;
    CHDIR c"chdir" chdir;
    MKDIR c"mkdir" mkdir;
    UNLINK c"unlink" unlink;
    RMDIR c"rmdir" rmdir;
    RENAME c"rename" rename;
    READ c"read" read;
    WRITE c"write" write;
    WRITEV c"writev" writev;
    FWRITE c"fwrite" fwrite;
    DUP2 c"dup2" dup2;
    DUP3 c"dup3" dup3;
    FREOPEN c"freopen" freopen;
    FREOPEN64 c"freopen64" freopen64;
    FORK c"fork" fork;
    EXECVE c"execve" execve;
    EXECV c"execv" execv;
    POSIX_SPAWN c"posix_spawn" posix_spawn;
    POSIX_SPAWNP c"posix_spawnp" posix_spawnp;
    SYSTEM c"system" system;
    POPEN c"popen" popen;
    GETENV c"getenv" getenv;
    SECURE_GETENV c"secure_getenv" secure_getenv;
    DLOPEN c"dlopen" dlopen;
}

/// Where the objects begin whose tables point here.
static SEEN: Mutex<Option<HashSet<usize>>> = Mutex::new(None);

/// Points the tables of all objects here that have been loaded since the last time.
pub(super) fn install() {
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let seen = seen.get_or_insert_with(|| {
        // Our own calls ask for themselves, libc's cannot be seen.
        let own = [install as *const (), libc::getppid as *const ()];
        own.into_iter().filter_map(Object::containing).map(|object| object.base()).collect()
    });
    for (_, object) in Object::all() {
        if seen.insert(object.base()) {
            take(&object);
        }
    }
}

/// What cannot be taken goes on unseen, which the template then says.
fn take(object: &Object) {
    for import in CALLS {
        for slot in object.slots(import.name) {
            let target = slot.target();
            let is_bound = !target.is_null() && !object.holds(target.cast());
            let original = if is_bound { target } else { import.look_up() };
            let known = import.original.load(Ordering::Acquire);
            if known.is_null() {
                import.original.store(original, Ordering::Release);
            }
            // SAFETY: the replacement has the signature of the function of that name, and hands on each call. It is
            // part of an extension, which Ruby never unloads.
            if unsafe { slot.replace((import.replacement)()) }.is_err() {
                notes::object(|| "a library's calls cannot be seen".to_owned());
            }
        }
    }
}

/// Stands in the place of a function: notes what it asks, and hands the call on.
macro_rules! noting {
    ($($place:ident $function:ident($($name:ident: $type:ty),*) -> $result:ty, $note:expr;)*) => {$(
        unsafe extern "C" fn $function($($name: $type),*) -> $result {
            type Function = unsafe extern "C" fn($($type),*) -> $result;
            if notes::is_noting() {
                let errno = errno();
                ($note)();
                set_errno(errno);
            }
            // SAFETY: the type is the function's.
            let function = unsafe { $place.function::<Function>() };
            // SAFETY: handed on as it came.
            unsafe { function($($name),*) }
        }
    )*};
}

noting! {
    OPEN open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int,
        || opened(libc::AT_FDCWD, path, flags);
    OPEN64 open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int,
        || opened(libc::AT_FDCWD, path, flags);
    OPENAT openat(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int,
        || opened(folder, path, flags);
    OPENAT64 openat64(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int,
        || opened(folder, path, flags);
    FOPEN fopen(path: *const c_char, mode: *const c_char) -> *mut FILE, || stream_opened(path, mode);
    FOPEN64 fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE,
        || stream_opened(path, mode);
    STAT stat_path(path: *const c_char, result: *mut stat) -> c_int,
        || asked(path, || questions::of_stat(true));
    STAT64 stat64(path: *const c_char, result: *mut stat) -> c_int,
        || asked(path, || questions::of_stat(true));
    LSTAT lstat(path: *const c_char, result: *mut stat) -> c_int,
        || asked(path, || questions::of_stat(false));
    LSTAT64 lstat64(path: *const c_char, result: *mut stat) -> c_int,
        || asked(path, || questions::of_stat(false));
    FSTATAT fstatat(folder: c_int, path: *const c_char, result: *mut stat, flags: c_int) -> c_int,
        || asked_at(folder, path, || questions::of_stat(flags & libc::AT_SYMLINK_NOFOLLOW == 0));
    FSTATAT64 fstatat64(folder: c_int, path: *const c_char, result: *mut stat, flags: c_int) -> c_int,
        || asked_at(folder, path, || questions::of_stat(flags & libc::AT_SYMLINK_NOFOLLOW == 0));
    STATX statx(folder: c_int, path: *const c_char, flags: c_int, mask: c_uint, result: *mut c_void)
        -> c_int,
        || asked_at(folder, path, || questions::of_stat(flags & libc::AT_SYMLINK_NOFOLLOW == 0));
    ACCESS access(path: *const c_char, mode: c_int) -> c_int, || asked(path, || Question::Rights);
    EACCESS eaccess(path: *const c_char, mode: c_int) -> c_int, || asked(path, || Question::Rights);
    EUIDACCESS euidaccess(path: *const c_char, mode: c_int) -> c_int,
        || asked(path, || Question::Rights);
    FACCESSAT faccessat(folder: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int,
        || asked_at(folder, path, || Question::Rights);
    OPENDIR opendir(path: *const c_char) -> *mut DIR, || asked(path, || Question::Names);
    READLINK readlink(path: *const c_char, text: *mut c_char, length: size_t) -> ssize_t,
        || asked(path, || Question::LinkStat);
    READLINKAT readlinkat(folder: c_int, path: *const c_char, text: *mut c_char, length: size_t)
        -> ssize_t, || asked_at(folder, path, || Question::LinkStat);
    REALPATH realpath(path: *const c_char, result: *mut c_char) -> *mut c_char,
        || asked(path, || Question::RealPath);
    CHDIR chdir(path: *const c_char) -> c_int, || asked(path, || Question::Kind);
    MKDIR mkdir(path: *const c_char, mode: mode_t) -> c_int, || asked(path, || Question::Kind);
    UNLINK unlink(path: *const c_char) -> c_int, || written(path);
    RMDIR rmdir(path: *const c_char) -> c_int, || written(path);
    RENAME rename(from: *const c_char, to: *const c_char) -> c_int, || { written(from); written(to); };
    READ read(descriptor: c_int, data: *mut c_void, length: size_t) -> ssize_t,
        || if descriptor == 0 { notes::object(|| "it reads its standard input".to_owned()) };
    DUP2 dup2(old: c_int, new: c_int) -> c_int, || renewed(new);
    DUP3 dup3(old: c_int, new: c_int, flags: c_int) -> c_int, || renewed(new);
    FREOPEN freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE,
        || reopened(path, mode, stream);
    FREOPEN64 freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE,
        || reopened(path, mode, stream);
    FORK fork() -> libc::pid_t, || notes::object(|| "it starts another process".to_owned());
    EXECVE execve(path: *const c_char, words: *const *const c_char, environment: *const *const c_char)
        -> c_int, || started(path);
    EXECV execv(path: *const c_char, words: *const *const c_char) -> c_int, || started(path);
    POSIX_SPAWN posix_spawn(process: *mut c_void, path: *const c_char, actions: *const c_void,
        attributes: *const c_void, words: *const c_void, environment: *const c_void) -> c_int,
        || started(path);
    POSIX_SPAWNP posix_spawnp(process: *mut c_void, path: *const c_char, actions: *const c_void,
        attributes: *const c_void, words: *const c_void, environment: *const c_void) -> c_int,
        || started(path);
    GETENV getenv(name: *const c_char) -> *mut c_char, || variable(name);
    SECURE_GETENV secure_getenv(name: *const c_char) -> *mut c_char, || variable(name);
    SYSTEM system(command: *const c_char) -> c_int, || started(command);
    POPEN popen(command: *const c_char, mode: *const c_char) -> *mut FILE, || started(command);
}

unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
    // SAFETY: the type is dlopen's.
    let dlopen = unsafe { DLOPEN.function::<Dlopen>() };
    // SAFETY: handed on as it came.
    let library = unsafe { dlopen(path, flags) };
    if notes::is_noting() {
        install();
    }
    library
}

/// What a boot says is kept, and said again by each child.
unsafe extern "C" fn write(descriptor: c_int, data: *const c_void, length: size_t) -> ssize_t {
    type Write = unsafe extern "C" fn(c_int, *const c_void, size_t) -> ssize_t;
    if notes::is_noting() && is_said(descriptor) {
        // SAFETY: callers of write pass as many bytes.
        unsafe { keep(descriptor, data, length) };
        return length.cast_signed();
    }
    // SAFETY: the type is write's.
    let write = unsafe { WRITE.function::<Write>() };
    // SAFETY: handed on as it came.
    unsafe { write(descriptor, data, length) }
}

/// As [`write`].
unsafe extern "C" fn writev(descriptor: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    type Writev = unsafe extern "C" fn(c_int, *const iovec, c_int) -> ssize_t;
    if notes::is_noting() && is_said(descriptor) {
        // SAFETY: callers of writev pass as many parts.
        let parts = unsafe { std::slice::from_raw_parts(parts, count.unsigned_abs() as usize) };
        for part in parts {
            // SAFETY: each part has as many bytes.
            unsafe { keep(descriptor, part.iov_base, part.iov_len) };
        }
        return parts.iter().map(|part| part.iov_len).sum::<size_t>().cast_signed();
    }
    // SAFETY: the type is writev's.
    let writev = unsafe { WRITEV.function::<Writev>() };
    // SAFETY: handed on as it came.
    unsafe { writev(descriptor, parts, count) }
}

/// As [`write`]; this is how Ruby's compiler warns.
unsafe extern "C" fn fwrite(
    data: *const c_void,
    size: size_t,
    count: size_t,
    stream: *mut FILE,
) -> size_t {
    type Fwrite = unsafe extern "C" fn(*const c_void, size_t, size_t, *mut FILE) -> size_t;
    // SAFETY: callers of fwrite pass a stream.
    let descriptor = unsafe { libc::fileno(stream) };
    if notes::is_noting() && is_said(descriptor) {
        // SAFETY: callers of fwrite pass as many bytes.
        unsafe { keep(descriptor, data, size * count) };
        return count;
    }
    // SAFETY: the type is fwrite's.
    let fwrite = unsafe { FWRITE.function::<Fwrite>() };
    // SAFETY: handed on as it came.
    unsafe { fwrite(data, size, count, stream) }
}

fn is_said(descriptor: c_int) -> bool {
    matches!(descriptor, 1 | 2)
}

/// # Safety
/// `data` is valid for `length` bytes.
unsafe fn keep(descriptor: c_int, data: *const c_void, length: size_t) {
    // SAFETY: as this function's own.
    notes::say(descriptor, unsafe { std::slice::from_raw_parts(data.cast(), length) });
}

fn asked(path: *const c_char, question: impl FnOnce() -> Question) {
    // SAFETY: callers of these functions pass a path that ends in NUL.
    unsafe { note_path(path, question) };
}

fn variable(name: *const c_char) {
    // SAFETY: callers of getenv pass a name that ends in NUL.
    unsafe { notes::note_variable(name) };
}

fn asked_at(folder: c_int, path: *const c_char, question: impl FnOnce() -> Question) {
    // SAFETY: as above.
    unsafe { note_path_at(folder, path, question) };
}

fn written(path: *const c_char) {
    // SAFETY: as above.
    unsafe { note_written(libc::AT_FDCWD, path) };
}

fn opened(folder: c_int, path: *const c_char, flags: c_int) {
    if flags & libc::O_ACCMODE != libc::O_RDONLY {
        // SAFETY: as above.
        return unsafe { note_written(folder, path) };
    }
    let is_folder = flags & libc::O_DIRECTORY != 0;
    asked_at(folder, path, || if is_folder { Question::Names } else { Question::Content });
}

fn stream_opened(path: *const c_char, mode: *const c_char) {
    // SAFETY: callers of fopen pass a mode that ends in NUL.
    let mode = unsafe { CStr::from_ptr(mode) }.to_bytes();
    if mode.starts_with(b"r") && !mode.contains(&b'+') {
        asked(path, || Question::Content);
    } else {
        written(path);
    }
}

fn reopened(path: *const c_char, mode: *const c_char, stream: *mut FILE) {
    stream_opened(path, mode);
    // SAFETY: callers of freopen pass a stream.
    renewed(unsafe { libc::fileno(stream) });
}

/// Each child gets its client's streams.
fn renewed(descriptor: c_int) {
    if matches!(descriptor, 0..=2) {
        notes::object(|| "it opens a standard stream anew".to_owned());
    }
}

fn started(path: *const c_char) {
    notes::object(|| {
        // SAFETY: callers of these functions pass a name that ends in NUL.
        let name = unsafe { CStr::from_ptr(path) }.to_string_lossy();
        format!("it starts {name}")
    });
}
