//! A template has no effects: before a gem's file has an effect on other processes, the template ends.
//!
//! The command's own run has already loaded such a file, with its effects. A template that loads the file again would
//! repeat these effects although no command asked for them. Effects of Rails' own files belong to the application's
//! boot, which every boot repeats.

use std::ffi::{OsStr, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use thruway_preload::template_folder::{KeyFile, TemplateFolder};
use thruway_sys::descriptor;

use super::{notes, process_role};
use crate::interpose::arguments::TextArgument;

/// The gem's file that is loading, and the process that loads the file.
static LOADED: Mutex<Option<(Vec<u8>, u32)>> = Mutex::new(None);

/// Records that the load of a gem's `file`, which must have no effects, has begun; `None` ends the record.
pub(super) fn load(file: Option<Vec<u8>>) {
    *loaded() = file.map(|file| (file, std::process::id()));
}

/// Stores the reason why there is no template, which the next command reports.
pub(super) fn refuse(reason: &[u8]) {
    let Some(assignment) = process_role::template() else { return };
    if let Ok(folder) = TemplateFolder::at(&assignment.folder) {
        let _ = folder.write(assignment.key, KeyFile::Refusal, reason);
    }
    // From here on, this process does not become a template.
    if assignment.lock >= 0 {
        descriptor::close(assignment.lock);
    }
}

/// Called before an effect, which `deed` describes. Ends the process if a gem's file is loading.
pub(super) fn forbid(deed: impl FnOnce() -> String) {
    if !notes::is_noting() {
        return;
    }
    let Some((file, process)) = loaded().clone() else { return };
    let file = String::from_utf8_lossy(&file).into_owned();
    let reason = format!("{file} acts as it is loaded: it {}", deed());
    notes::object(|| reason.clone());
    // A child of `vfork` shares this memory, so its parent finds the objection.
    if std::process::id() == process {
        refuse(reason.as_bytes());
    }
    // SAFETY: it takes a number, and runs nothing of this process any more.
    unsafe { libc::_exit(1) };
}

/// Calls [`forbid`] for a change at `path`, which `verb` names, unless the path is a device or in a folder for caches:
/// each boot may write caches anew.
pub(super) fn forbid_at(verb: &str, path: TextArgument) {
    let path = path.bytes();
    let is_cache = |part: &OsStr| part == "cache" || part == ".cache";
    if !path.starts_with(b"/dev/") && !Path::new(OsStr::from_bytes(path)).iter().any(is_cache) {
        forbid(|| format!("{verb} {}", String::from_utf8_lossy(path)));
    }
}

/// Calls [`forbid`] for a write to standard output. Warnings on standard error are exempt.
pub(super) fn forbid_output(descriptor: c_int) {
    if descriptor == libc::STDOUT_FILENO {
        forbid(|| "writes to its standard output".to_owned());
    }
}

fn loaded() -> MutexGuard<'static, Option<(Vec<u8>, u32)>> {
    LOADED.lock().unwrap_or_else(PoisonError::into_inner)
}
