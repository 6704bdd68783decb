//! Notes of calls by which a template's boot asks the disk, and objections to calls that a template must not make.
//!
//! The [table of interposed calls](crate::interpose::calls) reports each call before it is made, by libruby or any
//! loaded library, while a template's boot is observed. Questions that libc itself asks are not reported: the files
//! that libc reads are listed in [`notes`].

use std::ffi::{c_int, c_void};

use libc::{iovec, size_t, ssize_t};
use thruway_preload::boot_queries::Question;

use super::effects;
use super::notes::{self, note_path, note_path_at, note_written};
use super::questions;
use crate::interpose::arguments::{StreamArgument, TextArgument};

/// Notes a `stat` of a path.
pub(crate) fn stat(path: TextArgument, follows: bool) {
    note_path(path, || questions::of_stat(follows));
}

/// Notes a `stat` of a path that starts at an open folder.
pub(crate) fn stat_at(folder: c_int, path: TextArgument, flags: c_int) {
    note_path_at(folder, path, || questions::of_stat(flags & libc::AT_SYMLINK_NOFOLLOW == 0));
}

/// Notes a question about a path.
pub(crate) fn asked(path: TextArgument, question: Question) {
    note_path(path, || question);
}

/// Notes a question about a path that starts at an open folder.
pub(crate) fn asked_at(folder: c_int, path: TextArgument, question: Question) {
    note_path_at(folder, path, || question);
}

/// Notes a file that the boot itself writes or removes.
pub(crate) fn written(path: TextArgument) {
    effects::forbid_at("writes", path);
    note_written(libc::AT_FDCWD, path);
}

/// Notes a file that is opened, for its content, its names, or to be written.
pub(crate) fn opened(folder: c_int, path: TextArgument, flags: c_int) {
    if flags & libc::O_ACCMODE != libc::O_RDONLY {
        effects::forbid_at("writes", path);
        return note_written(folder, path);
    }
    let is_folder = flags & libc::O_DIRECTORY != 0;
    asked_at(folder, path, if is_folder { Question::Names } else { Question::Content });
}

/// Notes a file that `fopen` opens.
pub(crate) fn stream_opened(path: TextArgument, mode: TextArgument) {
    let mode = mode.bytes();
    if mode.starts_with(b"r") && !mode.contains(&b'+') {
        asked(path, Question::Content);
    } else {
        written(path);
    }
}

/// Notes a file that `freopen` opens, and the descriptor that is replaced.
pub(crate) fn stream_reopened(path: TextArgument, mode: TextArgument, stream: StreamArgument) {
    stream_opened(path, mode);
    replaced(stream.descriptor());
}

/// Objects to a boot that replaces a standard stream: each child gets the streams of its client.
pub(crate) fn replaced(descriptor: c_int) {
    if matches!(descriptor, 0..=2) {
        notes::object(|| "it opens a standard stream anew".to_owned());
    }
}

/// Objects to a boot that reads its standard input.
pub(crate) fn read(descriptor: c_int) {
    if descriptor == 0 {
        notes::object(|| "it reads its standard input".to_owned());
    }
}

/// Objects to a boot that forks.
pub(crate) fn forked() {
    effects::forbid(|| "starts another process".to_owned());
    notes::object(|| "it starts another process".to_owned());
}

/// Objects to a boot that starts a program.
pub(crate) fn started(program: TextArgument) {
    let deed = || format!("starts {}", String::from_utf8_lossy(program.bytes()));
    effects::forbid(deed);
    notes::object(|| format!("it {}", deed()));
}

/// Notes that the boot creates a folder, if the folder does not exist.
pub(crate) fn folder_made(path: TextArgument) {
    asked(path, Question::Kind);
    effects::forbid_at("writes", path);
}

/// Ends a template in which a gem's file is about to link or truncate a file, or to change the file's rights or owner.
pub(crate) fn changed(path: TextArgument) {
    effects::forbid_at("changes", path);
}

/// Ends a template in which a gem's file is about to have the effect `deed`.
pub(crate) fn acted(deed: &str) {
    effects::forbid(|| deed.to_owned());
}

/// Notes a variable that is read.
pub(crate) fn variable(name: TextArgument) {
    notes::note_variable(name);
}

/// Keeps output of the boot to stdout or stderr, for each child to write again, and answers the call.
///
/// # Safety
/// `data` is valid for `length` bytes.
pub(crate) unsafe fn write(
    descriptor: c_int,
    data: *const c_void,
    length: size_t,
) -> Option<ssize_t> {
    // SAFETY: this function's own contract.
    let is_kept = unsafe { keep(descriptor, data, length) };
    is_kept.then(|| length.cast_signed())
}

/// Keeps output of `writev` as [`write`] does.
///
/// # Safety
/// `parts` points to `count` parts, each of which is valid for its length.
pub(crate) unsafe fn writev(
    descriptor: c_int,
    parts: *const iovec,
    count: c_int,
) -> Option<ssize_t> {
    if !is_output(descriptor) {
        return None;
    }
    effects::forbid_output(descriptor);
    // SAFETY: this function's own contract.
    let parts = unsafe { std::slice::from_raw_parts(parts, count.unsigned_abs() as usize) };
    for part in parts {
        // SAFETY: as above.
        unsafe { keep(descriptor, part.iov_base, part.iov_len) };
    }
    Some(parts.iter().map(|part| part.iov_len).sum::<size_t>().cast_signed())
}

/// Keeps output of `fwrite` as [`write`] does. Ruby's compiler prints warnings by `fwrite`.
///
/// # Safety
/// `data` is valid for `count` elements of `size` bytes.
pub(crate) unsafe fn fwrite(
    data: *const c_void,
    size: size_t,
    count: size_t,
    stream: StreamArgument,
) -> Option<size_t> {
    // SAFETY: this function's own contract.
    let is_kept = unsafe { keep(stream.descriptor(), data, size * count) };
    is_kept.then_some(count)
}

fn is_output(descriptor: c_int) -> bool {
    matches!(descriptor, 1 | 2)
}

/// Keeps output to stdout or stderr, and returns whether the descriptor is one of them.
///
/// # Safety
/// `data` is valid for `length` bytes.
unsafe fn keep(descriptor: c_int, data: *const c_void, length: size_t) -> bool {
    if !is_output(descriptor) {
        return false;
    }
    effects::forbid_output(descriptor);
    // SAFETY: this function's own contract.
    let bytes = unsafe { std::slice::from_raw_parts(data.cast(), length) };
    notes::say(descriptor, bytes);
    true
}
