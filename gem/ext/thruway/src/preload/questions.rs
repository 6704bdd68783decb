//! The purpose of a question to the kernel, which the running Ruby method tells: `file?` depends only on the kind of a
//! file, `readable?` also on the rights to it, and other methods on the whole stat.

use std::ffi::CStr;
use std::sync::OnceLock;

use rb_sys::ID;
use thruway_preload::boot_queries::Question;

/// Methods that depend only on the kind of a file, or on its existence.
const KIND: [&CStr; 27] = [
    c"exist?",
    c"exists?",
    c"file?",
    c"directory?",
    c"symlink?",
    c"pipe?",
    c"socket?",
    c"blockdev?",
    c"chardev?",
    c"ftype",
    c"glob",
    c"[]",
    c"entries",
    c"children",
    c"each_child",
    c"foreach",
    c"each",
    c"open",
    c"realpath",
    c"realdirpath",
    c"require",
    c"require_relative",
    c"load",
    c"chdir",
    c"mkdir",
    c"expand_path",
    c"absolute_path",
];

/// Methods that depend on the rights to a file as well.
const RIGHTS: [&CStr; 13] = [
    c"readable?",
    c"readable_real?",
    c"world_readable?",
    c"writable?",
    c"writable_real?",
    c"world_writable?",
    c"executable?",
    c"executable_real?",
    c"owned?",
    c"grpowned?",
    c"setuid?",
    c"setgid?",
    c"sticky?",
];

/// Source files of Rails whose code compares the modification times of files to detect changes, and uses the times for
/// nothing else.
const WATCHERS: [&[u8]; 2] =
    [b"/active_support/file_update_checker.rb", b"/active_support/evented_file_update_checker.rb"];

/// The IDs of the names in [`KIND`] and [`RIGHTS`].
static IDS: OnceLock<[Vec<ID>; 2]> = OnceLock::new();

/// Looks up the IDs of the names in [`KIND`] and [`RIGHTS`].
pub(super) fn prepare() {
    fn ids(names: &[&CStr]) -> Vec<ID> {
        // SAFETY: each name ends in NUL; the interpreter lock is held at the start of the boot.
        names.iter().map(|name| unsafe { rb_sys::rb_intern(name.as_ptr()) }).collect()
    }
    IDS.get_or_init(|| [ids(&KIND), ids(&RIGHTS)]);
}

/// The question that a `stat` asks, judged by the running method.
pub(super) fn of_stat(follows: bool) -> Question {
    let [asks_kind, asks_rights] = if is_by_ruby() { asked_by_method() } else { [false; 2] };
    match (asks_kind, asks_rights, follows) {
        (true, _, true) => Question::Kind,
        (true, _, false) => Question::LinkKind,
        (_, true, true) => Question::Rights,
        (_, _, true) => Question::Stat,
        (_, _, false) => Question::LinkStat,
    }
}

/// Whether the running method depends only on the kind, and whether only on the rights.
fn asked_by_method() -> [bool; 2] {
    // SAFETY: this is one of Ruby's threads, whose frames are its own.
    let method = unsafe { rb_sys::rb_frame_this_func() };
    let [kind, rights] =
        IDS.get().map_or([false; 2], |ids| ids.each_ref().map(|known| known.contains(&method)));
    [kind || is_by_watcher(), rights]
}

/// Whether Ruby code runs on this thread.
fn is_by_ruby() -> bool {
    // SAFETY: the function may be called on any thread.
    unsafe { rb_sys::ruby_native_thread_p() != 0 }
}

fn is_by_watcher() -> bool {
    // SAFETY: as above. On a thread of Ruby's, the result is the file whose code runs, or null.
    let file = unsafe { rb_sys::rb_sourcefile() };
    if file.is_null() {
        return false;
    }
    // SAFETY: the path of a file of code ends in NUL and outlives this call.
    let file = unsafe { CStr::from_ptr(file) }.to_bytes();
    WATCHERS.iter().any(|watcher| file.ends_with(watcher))
}
