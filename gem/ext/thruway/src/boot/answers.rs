//! Answers to calls that libruby makes into libc while it searches for a feature, and reports of calls that change
//! files.
//!
//! The [table of interposed calls](crate::interpose::calls) passes each call to this module. A call is answered only
//! while its thread is in the middle of a [search](super::search), and only if the boot knows the answer. All other
//! calls go on to libc. A call that changes files invalidates the boot's knowledge of them.

use std::ffi::{c_char, c_int};

use libc::{mode_t, stat};
use thruway_boot::{Files, Lookup, Part, path};

use super::search::{self, PathMark, Phase};
use super::{current, json_files, load_path, outside};
use crate::interpose::arguments::TextArgument;
use crate::interpose::errno::{errno, set_errno};
use crate::ruby::Gvl;

/// The flags with which `rb_file_load_ok` opens candidates. During a search, libruby opens nothing else with them.
const CANDIDATE: c_int = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC;

/// The descriptor that a search holds for a file that was not opened. Ruby only stats and closes it. The number is
/// below `NOFILE`, so Ruby takes it for used in any case (`rb_update_max_fd`), and above stderr, where Ruby changes
/// flags.
const FAKE_DESCRIPTOR: c_int = 255;

/// The answer to `open` of a candidate: a descriptor that stands for the file, or "not found".
pub(crate) fn open(path: TextArgument, flags: c_int) -> Option<c_int> {
    if flags != CANDIDATE {
        return None;
    }
    let path = path.bytes();
    let boot = current::boot().filter(|boot| boot.options.has(Part::Lookups))?;
    if search::phase() != Phase::Opening {
        let is_missing = is_encoding(path) && matches!(boot.files.look_up(path), Lookup::Missing);
        return is_missing.then(not_found);
    }
    let mark = PathMark::of(path);
    let look = match search::last_file() {
        Some((seen, file)) if seen == mark => Lookup::File(file),
        _ => boot.files.look_up(path),
    };
    match look {
        Lookup::File(file) => {
            search::record_file(mark, file);
            search::advance(Phase::Opened);
            answered(Some(FAKE_DESCRIPTOR))
        }
        // A file that was missing when its folder was listed may exist by now.
        Lookup::Missing if search::current().is_settled || boot.files.is_frozen() => {
            Some(not_found())
        }
        Lookup::Missing | Lookup::Undecided => None,
    }
}

fn not_found() -> c_int {
    set_errno(libc::ENOENT);
    answered(-1)
}

/// Whether Ruby is looking for one of its encodings. Ruby does so in every folder of the load path, and without
/// `require`. Encodings are not installed while a program runs.
fn is_encoding(path: &[u8]) -> bool {
    let folder = path::split(path).filter(|_| path.ends_with(b".so")).map(|(folder, _)| folder);
    folder.is_some_and(|folder| folder.ends_with(b"/enc") || folder.ends_with(b"/enc/trans"))
}

/// Remembers a JSON file that is about to be opened.
pub(crate) fn note_json(path: TextArgument) {
    if json_files::are_noted() {
        json_files::opened(path.bytes());
    }
}

/// Records a descriptor that `open` has returned, and the file if the call may have created or changed it.
pub(crate) fn opened(path: TextArgument, flags: c_int, descriptor: c_int) {
    outside::renewed(descriptor);
    if descriptor >= 0 && flags & libc::O_CREAT != 0 {
        invalidate(|files| files.opened(path.bytes()));
    } else if descriptor >= 0 && flags & libc::O_ACCMODE != libc::O_RDONLY {
        invalidate(|files| files.edited(path.bytes()));
    }
}

/// The answer to `fstat` of the fake descriptor.
///
/// # Safety
/// `result` is valid for writing a `stat`.
pub(crate) unsafe fn fstat(descriptor: c_int, result: *mut stat) -> Option<c_int> {
    if descriptor != FAKE_DESCRIPTOR || search::phase() != Phase::Opened {
        return None;
    }
    // SAFETY: this function's own contract.
    unsafe { write_stat(result, libc::S_IFREG | 0o444) };
    Some(0)
}

/// Records the kind of file that `fstat` has reported.
///
/// # Safety
/// `result` points to a `stat` that was written, if `answer` is 0.
pub(crate) unsafe fn fstat_returned(descriptor: c_int, result: *const stat, answer: c_int) {
    if answer == 0 {
        // SAFETY: this function's own contract.
        let mode = unsafe { (*result).st_mode };
        outside::note_kind(descriptor, mode & libc::S_IFMT == libc::S_IFREG);
    }
}

/// The answer to `close` of the fake descriptor.
pub(crate) fn close(descriptor: c_int) -> Option<c_int> {
    if descriptor == FAKE_DESCRIPTOR && search::phase() == Phase::Opened {
        search::advance(Phase::Found);
        return Some(0);
    }
    outside::renewed(descriptor);
    None
}

/// The answer to `realpath` of a folder in the load path, or of the file that was found. libruby passes a null
/// pointer for the result, and frees the returned copy.
pub(crate) fn realpath(path: TextArgument, result: *mut c_char) -> Option<*mut c_char> {
    let phase = search::phase();
    if phase == Phase::Opening {
        expanded(path.bytes());
    }
    if phase == Phase::Idle || !result.is_null() {
        return None;
    }
    real_path_of(path.bytes()).map(|real_path| allocated(&real_path))
}

/// Records a path that was expanded outside of a search.
pub(crate) fn realpath_returned(path: TextArgument) {
    if search::phase() == Phase::Idle {
        expanded(path.bytes());
    }
}

/// Rebuilds the load path if libruby is expanding it now.
fn expanded(path: &[u8]) {
    // SAFETY: libruby holds the interpreter lock while it expands paths.
    let gvl = unsafe { Gvl::assume() };
    if let Some(boot) = current::serving(gvl) {
        let errno = errno();
        load_path::expanded(gvl, boot, path);
        set_errno(errno);
    }
}

fn real_path_of(path: &[u8]) -> Option<Vec<u8>> {
    let mut search = search::current();
    let mark = PathMark::of(path);
    let boot = current::boot()?;
    let real_path = match (search::phase(), search::last_file()) {
        (Phase::Opening, _) => boot.files.real_path(path)?,
        (Phase::Found, Some((seen, _))) if seen == mark => {
            boot.files.real_path_below(path, false)?
        }
        _ => return None,
    };
    search.real_path = Some(PathMark::of(&real_path));
    search::set(search);
    answered(Some(real_path))
}

/// The answer to `stat` of a real path that was answered just before. Ruby only checks whether the file exists.
///
/// # Safety
/// `result` is valid for writing a `stat`.
pub(crate) unsafe fn stat_path(path: TextArgument, result: *mut stat) -> Option<c_int> {
    if search::phase() == Phase::Idle {
        return None;
    }
    let mark = PathMark::of(path.bytes());
    if search::current().real_path != Some(mark) {
        return None;
    }
    // SAFETY: this function's own contract.
    unsafe { write_stat(result, libc::S_IFREG | 0o444) };
    Some(0)
}

/// Invalidates a path at which this process has created, moved or removed a file. `result` is the result of the call.
pub(crate) fn changed(path: TextArgument, result: c_int) {
    if result == 0 {
        invalidate(|files| files.changed(path.bytes()));
    }
}

/// Invalidates a file that this process has written to, or whose rights have changed. `result` is the result of the
/// call.
pub(crate) fn edited(path: TextArgument, result: c_int) {
    if result == 0 {
        invalidate(|files| files.edited(path.bytes()));
    }
}

/// Reports a change of this process to the boot's files, and to the search that is under way.
fn invalidate(report: impl FnOnce(&Files)) {
    if let Some(boot) = current::boot() {
        let errno = errno();
        report(&boot.files);
        search::forget_file();
        set_errno(errno);
    }
}

/// Invalidates the pack: the rights of an open file have changed, whose path is not known.
pub(crate) fn rights_of_descriptor_changed() {
    if let Some(boot) = current::boot().filter(|boot| boot.options.is_frozen()) {
        boot.files.invalidate_pack();
    }
}

fn answered<T>(answer: T) -> T {
    if let Some(boot) = current::boot() {
        boot.counts.answered.add(1);
    }
    answer
}

/// # Safety
/// `result` is valid for writing a `stat`.
unsafe fn write_stat(result: *mut stat, mode: mode_t) {
    // SAFETY: a stat is plain numbers, for which zero is valid.
    let mut answer = unsafe { std::mem::zeroed::<stat>() };
    answer.st_mode = mode;
    answer.st_nlink = 1;
    // SAFETY: this function's own contract.
    unsafe { result.write(answer) };
    answered(());
}

/// A copy that the caller frees with `free`, as it does with the result of `realpath`.
fn allocated(path: &[u8]) -> *mut c_char {
    // SAFETY: malloc may be called with any size.
    let copy = unsafe { libc::malloc(path.len() + 1) }.cast::<u8>();
    if copy.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: the copy is valid for one byte more than the path.
    unsafe { copy.copy_from_nonoverlapping(path.as_ptr(), path.len()) };
    // SAFETY: as above.
    unsafe { copy.wrapping_add(path.len()).write(0) };
    copy.cast()
}
