//! A template does not act: it ends before a gem's file that it loads does something that others could see.
//!
//! A run has loaded such a file once, and has acted then. Loaded again by a template it would act a second time, for
//! nobody. What Rails' own files do is the application's boot, and every boot does it.

use std::ffi::{OsStr, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use thruway_preload::template_folder::{KeyFile, TemplateFolder};
use thruway_sys::descriptor;

use super::{notes, post};
use crate::interpose::arguments::TextArgument;

/// The file that is loaded, and the process that loads it.
static LOADED: Mutex<Option<(Vec<u8>, u32)>> = Mutex::new(None);

/// From here on that file is loaded, or none that must not act.
pub(super) fn load(file: Option<Vec<u8>>) {
    *loaded() = file.map(|file| (file, std::process::id()));
}

/// Notes why there is no template, for the command that asks for one.
pub(super) fn refuse(reason: &[u8]) {
    let Some(post) = post::template() else { return };
    if let Ok(folder) = TemplateFolder::at(&post.folder) {
        let _ = folder.write(post.key, KeyFile::Refusal, reason);
    }
    // From here on no template is being made.
    if post.lock >= 0 {
        descriptor::close(post.lock);
    }
}

/// Ends this process if a file that must not act is loaded. `deed` says what it is about to do.
pub(super) fn act(deed: impl FnOnce() -> String) {
    if !notes::is_noting() {
        return;
    }
    let Some((file, process)) = loaded().clone() else { return };
    let file = String::from_utf8_lossy(&file).into_owned();
    let reason = format!("{file} acts as it is loaded: it {}", deed());
    notes::object(|| reason.clone());
    // A child that is about to start a program shares this memory, and its parent finds the objection.
    if std::process::id() == process {
        refuse(reason.as_bytes());
    }
    // SAFETY: it takes a number, and runs nothing of this process any more.
    unsafe { libc::_exit(1) };
}

/// As [`act`], of what is written at a path. A cache may be written anew by each boot, and a device is no file.
pub(super) fn write_at(path: TextArgument) {
    let path = path.bytes();
    let is_cache = |part: &OsStr| part == "cache" || part == ".cache";
    if !path.starts_with(b"/dev/") && !Path::new(OsStr::from_bytes(path)).iter().any(is_cache) {
        act(|| format!("writes {}", String::from_utf8_lossy(path)));
    }
}

/// As [`act`], of what is written to standard output. Warnings of a library are no act.
pub(super) fn write_to(descriptor: c_int) {
    if descriptor == libc::STDOUT_FILENO {
        act(|| "writes to its standard output".to_owned());
    }
}

fn loaded() -> MutexGuard<'static, Option<(Vec<u8>, u32)>> {
    LOADED.lock().unwrap_or_else(PoisonError::into_inner)
}
