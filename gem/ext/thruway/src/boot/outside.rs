//! Calls by which this process can learn of another process's change.
//!
//! For this process, an unknown change is no different from a future change. So the boot's knowledge of folders is
//! valid until the process may have learned of a change. That is the case when libruby reads from anything but a
//! regular file, waits, starts a child, or sees a child end. Reads by C libraries, and changes that are communicated
//! through files, are not observed. For such changes, knowledge of a folder is valid for a few seconds at most
//! (`PAUSE_MAX`).

use std::ffi::c_int;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

#[cfg(not(target_os = "linux"))]
use libc::fstat;
use libc::{pid_t, ssize_t, stat};

use super::current;
use crate::interpose::errno::{errno, set_errno};

/// Threads that hand over the interpreter lock wait for a shorter time, since Ruby takes the lock away after 100 ms.
const WAIT_MIN: Duration = Duration::from_millis(200);
/// Descriptors from this number on are queried each time.
const DESCRIPTORS_MAX: usize = 1024;

const NOT_KNOWN: u8 = 0;
const FILE: u8 = 1;
const NO_FILE: u8 = 2;

/// The kind of each descriptor, once it was queried.
static KINDS: [AtomicU8; DESCRIPTORS_MAX] = [const { AtomicU8::new(NOT_KNOWN) }; DESCRIPTORS_MAX];

/// Called after libruby may have waited for an event outside the process.
pub(crate) fn waited() {
    may_have_changed();
}

/// The time that a thread in libruby waits for another thread, from `begin` until the value is dropped.
///
/// The wait has ended because another thread of this process has woken this one, or because the time was over. The
/// other thread reports for itself anything that it has learned. So only a long wait counts, as in a program that
/// sleeps until a file exists.
pub(crate) struct ThreadWait(Instant);

impl ThreadWait {
    pub(crate) fn begin() -> Self {
        Self(Instant::now())
    }
}

impl Drop for ThreadWait {
    fn drop(&mut self) {
        if self.0.elapsed() >= WAIT_MIN {
            may_have_changed();
        }
    }
}

/// Called after `read`. Only reading a regular file brings no news of other processes.
pub(crate) fn read_returned(descriptor: c_int, result: ssize_t) {
    if result >= 0 && !is_file(descriptor) {
        may_have_changed();
    }
}

/// Called after `fork`. The child is another process, and whatever it starts may change anything.
pub(crate) fn fork_returned(child: pid_t) {
    if child > 0 { invalidate_pack() } else { may_have_changed() }
}

/// Called after `waitpid`: a child that has ended may have changed anything.
pub(crate) fn waitpid_returned(child: pid_t) {
    if child > 0 { invalidate_pack() } else { may_have_changed() }
}

/// Called when libruby has opened or closed a descriptor, or put another file in its place.
pub(crate) fn renewed(descriptor: c_int) {
    note(descriptor, NOT_KNOWN);
}

/// Called after `fstat`, which tells the kind of the descriptor.
pub(super) fn note_kind(descriptor: c_int, is_file: bool) {
    note(descriptor, if is_file { FILE } else { NO_FILE });
}

fn note(descriptor: c_int, kind: u8) {
    if let Some(known) = usize::try_from(descriptor).ok().and_then(|at| KINDS.get(at)) {
        known.store(kind, Ordering::Relaxed);
    }
}

/// Whether a descriptor is a regular file.
fn is_file(descriptor: c_int) -> bool {
    let known = usize::try_from(descriptor).ok().and_then(|at| KINDS.get(at));
    match known.map(|known| known.load(Ordering::Relaxed)) {
        Some(FILE) => true,
        Some(NO_FILE) => false,
        _ => ask(descriptor),
    }
}

/// Linux's system call `fstat`, which takes no path; libc implements `fstat` as `newfstatat` of an empty path, which
/// costs more.
///
/// # Safety
/// As of libc's `fstat`.
#[cfg(target_os = "linux")]
unsafe fn fstat(descriptor: c_int, result: *mut stat) -> libc::c_long {
    // SAFETY: this function's own contract; on supported platforms, libc's stat is the kernel's.
    unsafe { libc::syscall(libc::SYS_fstat, descriptor, result) }
}

fn ask(descriptor: c_int) -> bool {
    let errno = errno();
    // SAFETY: a stat is plain numbers, for which zero is valid.
    let mut result = unsafe { std::mem::zeroed::<stat>() };
    // SAFETY: the place is valid for a stat.
    let answer = unsafe { fstat(descriptor, &raw mut result) };
    set_errno(errno);
    let is_file = answer == 0 && result.st_mode & libc::S_IFMT == libc::S_IFREG;
    note_kind(descriptor, is_file);
    is_file
}

/// Invalidates the boot's knowledge of folders: another process may have changed anything.
fn may_have_changed() {
    if let Some(boot) = current::boot() {
        boot.files.invalidate();
    }
}

/// Invalidates the pack. A child of `vfork`, which shares this process's memory until it is another program, calls
/// this before `execv` and `execve`.
pub(crate) fn invalidate_pack() {
    if let Some(boot) = current::boot() {
        boot.files.invalidate_pack();
    }
}

/// Called after the process has changed its user or group, which may change what it can read.
pub(crate) fn rights_changed() {
    let errno = errno();
    if let Some(boot) = current::boot() {
        boot.files.rights_changed();
    }
    set_errno(errno);
}
