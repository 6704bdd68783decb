//! Reports of calls by which libruby changes files on Windows. Each of them invalidates the boot's knowledge of a path.

use std::sync::atomic::{AtomicBool, Ordering};

use thruway_boot::Files;
use thruway_resolve::wtf8;

use super::{answers, current, search};
use crate::interpose::windows_arguments::{OpenArguments, WideArgument};

/// `FILE_FLAG_DELETE_ON_CLOSE`: closing the last handle removes the file.
const DELETE_ON_CLOSE: u32 = 0x0400_0000;
/// `OPEN_EXISTING` and `TRUNCATE_EXISTING`, the ways to open a file that do not create it.
const EXISTING: [u32; 2] = [3, 5];
const TRUNCATING: u32 = 5;
/// Any right by which a file is changed: `GENERIC_WRITE`, `GENERIC_ALL`, `MAXIMUM_ALLOWED`, `WRITE_OWNER`, `WRITE_DAC`,
/// `DELETE`, `FILE_WRITE_ATTRIBUTES`, `FILE_WRITE_EA`, `FILE_APPEND_DATA`, `FILE_WRITE_DATA`.
const CHANGING: u32 = 0x5000_0000 | 0x0200_0000 | 0x000D_0000 | 0x0116;

/// `_O_WRONLY` and `_O_RDWR`, `_O_CREAT` and `_O_TEMPORARY`, `_O_TRUNC`.
const WRITING: i32 = 0x0003;
const CREATING: i32 = 0x0100 | 0x0040;
const EMPTYING: i32 = 0x0200;

/// Whether closing some file will remove the file.
static REMOVES_ON_CLOSE: AtomicBool = AtomicBool::new(false);

/// Records a creation, a move or a removal at a path.
pub(crate) fn changed(path: WideArgument) {
    report(path, Files::changed);
}

/// Records a change of a file's content or attributes.
pub(crate) fn edited(path: WideArgument) {
    report(path, Files::edited);
}

/// Records a file that `CreateFileW` has opened.
pub(crate) fn opened(path: WideArgument, opening: OpenArguments) {
    if opening.flags & DELETE_ON_CLOSE != 0 {
        REMOVES_ON_CLOSE.store(true, Ordering::Relaxed);
    }
    if !EXISTING.contains(&opening.disposition) {
        report(path, Files::opened);
    } else if opening.access & CHANGING != 0 || opening.disposition == TRUNCATING {
        edited(path);
    }
}

/// Records a file that `_wopen` has opened.
pub(crate) fn opened_by_flags(path: WideArgument, flags: i32) {
    if flags & CREATING != 0 {
        REMOVES_ON_CLOSE.fetch_or(flags & 0x0040 != 0, Ordering::Relaxed);
        report(path, Files::opened);
    } else if flags & (WRITING | EMPTYING) != 0 {
        edited(path);
    }
}

/// Records a file of a new stream, whose mode is unknown.
pub(crate) fn opened_as_stream(path: WideArgument) {
    report(path, Files::opened);
}

/// Records that a handle or a descriptor was closed, which may have removed its file.
pub(crate) fn closed() {
    if REMOVES_ON_CLOSE.load(Ordering::Relaxed) {
        changed_somewhere();
    }
}

/// Records a change at an unknown path.
pub(crate) fn changed_somewhere() {
    if let Some(boot) = current::boot() {
        boot.files.invalidate_pack();
        forget();
    }
}

fn report(path: WideArgument, change: impl FnOnce(&Files, &[u8])) {
    let Some(boot) = current::boot() else { return };
    let mut path = wtf8::from_wide(path.units());
    path.iter_mut().filter(|byte| **byte == b'\\').for_each(|byte| *byte = b'/');
    change(&boot.files, &path);
    forget();
}

/// Ends the observations of this thread's search.
fn forget() {
    search::forget_file();
    answers::stop();
}
