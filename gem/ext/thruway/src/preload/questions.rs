//! What Ruby code wants to know of a file that it asks the kernel about.

use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;

use rb_sys::ID;
use thruway_preload::observed::Question;

/// Methods that ask only whether something is there, and what it is.
const PRESENCE: [&CStr; 40] = [
    c"exist?",
    c"exists?",
    c"file?",
    c"directory?",
    c"symlink?",
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
    c"pipe?",
    c"socket?",
    c"blockdev?",
    c"chardev?",
    c"setuid?",
    c"setgid?",
    c"sticky?",
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

/// Files whose code compares a file's time with what it sees later, and does nothing else with it.
const WATCHERS: [&[u8]; 2] =
    [b"/active_support/file_update_checker.rb", b"/active_support/evented_file_update_checker.rb"];

unsafe extern "C" {
    /// The file and the line of the Ruby code that runs; null for none. Exported, but in no header.
    fn rb_source_location_cstr(line: *mut c_int) -> *const c_char;
}

static PRESENCE_IDS: OnceLock<Vec<ID>> = OnceLock::new();

/// Takes the numbers of the methods' names.
pub(super) fn prepare() {
    PRESENCE_IDS.get_or_init(|| {
        // SAFETY: each name ends in NUL; the interpreter lock is held at the start of the boot.
        PRESENCE.iter().map(|name| unsafe { rb_sys::rb_intern(name.as_ptr()) }).collect()
    });
}

/// What a `stat` is for, by the method that is running.
pub(super) fn of_stat(follows: bool) -> Question {
    let is_presence = is_by_ruby() && (is_presence_method() || is_by_watcher());
    match (is_presence, follows) {
        (true, true) => Question::Presence,
        (true, false) => Question::LinkPresence,
        (false, true) => Question::Stat,
        (false, false) => Question::LinkStat,
    }
}

/// Whether Ruby code runs on this thread.
fn is_by_ruby() -> bool {
    // SAFETY: it may be asked on any thread.
    unsafe { rb_sys::ruby_native_thread_p() != 0 }
}

fn is_presence_method() -> bool {
    // SAFETY: this is one of Ruby's threads, whose frames are its own.
    let method = unsafe { rb_sys::rb_frame_this_func() };
    PRESENCE_IDS.get().is_some_and(|known| known.contains(&method))
}

fn is_by_watcher() -> bool {
    let mut line: c_int = 0;
    // SAFETY: as above.
    let file = unsafe { rb_source_location_cstr(&raw mut line) };
    if file.is_null() {
        return false;
    }
    // SAFETY: it is the path of a file of code, which ends in NUL and outlives this call.
    let file = unsafe { CStr::from_ptr(file) }.to_bytes();
    WATCHERS.iter().any(|watcher| file.ends_with(watcher))
}
