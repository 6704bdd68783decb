//! libruby's calls into libc by which this process may learn that another one has changed something.
//!
//! A change of which this process has learned nothing cannot be told from a change that is still to come. So what is
//! known of folders counts until this process may have learned of one. It may have when it reads from something that
//! is no file, waits, starts a child or sees one end. What a C library reads by itself, and what comes through files,
//! is not seen here. For that, a folder counts for some seconds at most (`PAUSE_MAX`).

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

#[cfg(not(target_os = "linux"))]
use libc::fstat;
use libc::{fd_set, gid_t, nfds_t, pid_t, pollfd, pthread_cond_t, pthread_mutex_t};
use libc::{sigset_t, size_t, ssize_t, stat, timespec, timeval, uid_t};

use super::current;
use super::errno::{errno, set_errno};
use super::import::{Import, imports};

/// Threads that hand on the interpreter wait for less: it is taken from them after 100 ms.
const WAITED_MIN: Duration = Duration::from_millis(200);
/// Descriptors from here on are asked about each time.
const DESCRIPTORS_MAX: usize = 1024;

const NOT_KNOWN: u8 = 0;
const FILE: u8 = 1;
const NO_FILE: u8 = 2;

/// What each descriptor is, once it was asked.
static KINDS: [AtomicU8; DESCRIPTORS_MAX] = [const { AtomicU8::new(NOT_KNOWN) }; DESCRIPTORS_MAX];

/// Stands in the place of a function: calls it, and then does what follows from its result.
macro_rules! after {
    ($($place:ident $function:ident($($name:ident: $type:ty),*) -> $result:ty, $follow:expr;)*) => {$(
        unsafe extern "C" fn $function($($name: $type),*) -> $result {
            type Function = unsafe extern "C" fn($($type),*) -> $result;
            // SAFETY: the type is the function's.
            let function = unsafe { $place.function::<Function>() };
            // SAFETY: handed on as it came.
            let result = unsafe { function($($name),*) };
            let follow: fn($result) = $follow;
            follow(result);
            result
        }
    )*};
}

imports! { OUTSIDE:
    READ c"read" read;
    DUP2 c"dup2" dup2;
    DUP3 c"dup3" dup3;
    POLL c"poll" poll;
    PPOLL c"ppoll" ppoll;
    SELECT c"select" select;
    WAIT c"pthread_cond_wait" wait;
    TIMED_WAIT c"pthread_cond_timedwait" timed_wait;
    SLEEP c"sleep" sleep;
    NANOSLEEP c"nanosleep" nanosleep;
    FLOCK c"flock" flock;
    FORK c"fork" fork;
    EXECV c"execv" execv;
    EXECVE c"execve" execve;
    WAITPID c"waitpid" waitpid;
    CHROOT c"chroot" chroot;
    SETUID c"setuid" setuid;
    SETEUID c"seteuid" seteuid;
    SETREUID c"setreuid" setreuid;
    SETRESUID c"setresuid" setresuid;
    SETGID c"setgid" setgid;
    SETEGID c"setegid" setegid;
    SETREGID c"setregid" setregid;
    SETRESGID c"setresgid" setresgid;
    SETGROUPS c"setgroups" setgroups;
    INITGROUPS c"initgroups" initgroups;
}

pub(super) static IMPORTS: &[&Import] = OUTSIDE;

after! {
    POLL poll(all: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int, |_| may_have_changed();
    PPOLL ppoll(all: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t)
        -> c_int, |_| may_have_changed();
    SELECT select(count: c_int, read: *mut fd_set, write: *mut fd_set, other: *mut fd_set,
        timeout: *mut timeval) -> c_int, |_| may_have_changed();
    SLEEP sleep(seconds: c_uint) -> c_uint, |_| may_have_changed();
    NANOSLEEP nanosleep(wanted: *const timespec, left: *mut timespec) -> c_int, |_| may_have_changed();
    FLOCK flock(descriptor: c_int, operation: c_int) -> c_int, |_| may_have_changed();
    // The child is another process; what this one starts may change anything.
    FORK fork() -> pid_t, |child| if child > 0 { invalidate_pack() } else { may_have_changed() };
    WAITPID waitpid(child: pid_t, status: *mut c_int, options: c_int) -> pid_t,
        |ended| if ended > 0 { invalidate_pack() } else { may_have_changed() };
    CHROOT chroot(path: *const c_char) -> c_int, |_| invalidate_pack();
    SETUID setuid(user: uid_t) -> c_int, rights_changed;
    SETEUID seteuid(user: uid_t) -> c_int, rights_changed;
    SETREUID setreuid(real: uid_t, effective: uid_t) -> c_int, rights_changed;
    SETRESUID setresuid(real: uid_t, effective: uid_t, saved: uid_t) -> c_int, rights_changed;
    SETGID setgid(group: gid_t) -> c_int, rights_changed;
    SETEGID setegid(group: gid_t) -> c_int, rights_changed;
    SETREGID setregid(real: gid_t, effective: gid_t) -> c_int, rights_changed;
    SETRESGID setresgid(real: gid_t, effective: gid_t, saved: gid_t) -> c_int, rights_changed;
    SETGROUPS setgroups(count: size_t, groups: *const gid_t) -> c_int, rights_changed;
    INITGROUPS initgroups(user: *const c_char, group: gid_t) -> c_int, rights_changed;
    DUP2 dup2(old: c_int, new: c_int) -> c_int, renewed;
    DUP3 dup3(old: c_int, new: c_int, flags: c_int) -> c_int, renewed;
}

unsafe extern "C" fn wait(condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> c_int {
    type Wait = unsafe extern "C" fn(*mut pthread_cond_t, *mut pthread_mutex_t) -> c_int;
    // SAFETY: the type is pthread_cond_wait's.
    let wait = unsafe { WAIT.function::<Wait>() };
    let before = Instant::now();
    // SAFETY: handed on as it came.
    let result = unsafe { wait(condition, mutex) };
    waited_since(before);
    result
}

unsafe extern "C" fn timed_wait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until: *const timespec,
) -> c_int {
    type TimedWait =
        unsafe extern "C" fn(*mut pthread_cond_t, *mut pthread_mutex_t, *const timespec) -> c_int;
    // SAFETY: the type is pthread_cond_timedwait's.
    let timed_wait = unsafe { TIMED_WAIT.function::<TimedWait>() };
    let before = Instant::now();
    // SAFETY: handed on as it came.
    let result = unsafe { timed_wait(condition, mutex, until) };
    waited_since(before);
    result
}

/// Another thread of this process has woken this one, or it has slept. What that thread has heard, it has
/// noted itself. So only time tells anything, as for a program that sleeps until a file is there.
fn waited_since(before: Instant) {
    if before.elapsed() >= WAITED_MIN {
        may_have_changed();
    }
}

unsafe extern "C" fn read(descriptor: c_int, data: *mut c_void, length: size_t) -> ssize_t {
    type Read = unsafe extern "C" fn(c_int, *mut c_void, size_t) -> ssize_t;
    // SAFETY: the type is read's.
    let read = unsafe { READ.function::<Read>() };
    // SAFETY: handed on as it came.
    let result = unsafe { read(descriptor, data, length) };
    if result >= 0 && !is_file(descriptor) {
        may_have_changed();
    }
    result
}

/// Called by a child that shares this process's memory until it is another program (`vfork`), too: no
/// other function is called in both.
unsafe extern "C" fn execv(path: *const c_char, arguments: *const *const c_char) -> c_int {
    type Execv = unsafe extern "C" fn(*const c_char, *const *const c_char) -> c_int;
    invalidate_pack();
    // SAFETY: the type is execv's.
    let execv = unsafe { EXECV.function::<Execv>() };
    // SAFETY: handed on as it came.
    unsafe { execv(path, arguments) }
}

/// As [`execv`].
unsafe extern "C" fn execve(
    path: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    type Execve =
        unsafe extern "C" fn(*const c_char, *const *const c_char, *const *const c_char) -> c_int;
    invalidate_pack();
    // SAFETY: the type is execve's.
    let execve = unsafe { EXECVE.function::<Execve>() };
    // SAFETY: handed on as it came.
    unsafe { execve(path, arguments, environment) }
}

/// libruby has opened or closed it, or put another one in its place.
pub(super) fn renewed(descriptor: c_int) {
    note(descriptor, NOT_KNOWN);
}

/// libruby has asked what it is.
pub(super) fn seen(descriptor: c_int, is_file: bool) {
    note(descriptor, if is_file { FILE } else { NO_FILE });
}

fn note(descriptor: c_int, kind: u8) {
    if let Some(known) = usize::try_from(descriptor).ok().and_then(|at| KINDS.get(at)) {
        known.store(kind, Ordering::Relaxed);
    }
}

/// Whether it is a regular file.
fn is_file(descriptor: c_int) -> bool {
    let known = usize::try_from(descriptor).ok().and_then(|at| KINDS.get(at));
    match known.map(|known| known.load(Ordering::Relaxed)) {
        Some(FILE) => true,
        Some(NO_FILE) => false,
        _ => ask(descriptor),
    }
}

/// Linux' call that has no name to look up; libc's `fstat` is a `newfstatat` of an empty one.
///
/// # Safety
/// As of libc's.
#[cfg(target_os = "linux")]
unsafe fn fstat(descriptor: c_int, result: *mut stat) -> libc::c_long {
    // SAFETY: as this function's own; a stat is the kernel's own on the platforms that we know.
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
    seen(descriptor, is_file);
    is_file
}

/// Nothing that another process has changed until now may be overlooked.
fn may_have_changed() {
    if let Some(boot) = current::boot() {
        boot.files.invalidate();
    }
}

fn invalidate_pack() {
    if let Some(boot) = current::boot() {
        boot.files.invalidate_pack();
    }
}

fn rights_changed(_: c_int) {
    let errno = errno();
    if let Some(boot) = current::boot() {
        boot.files.rights_changed();
    }
    set_errno(errno);
}
