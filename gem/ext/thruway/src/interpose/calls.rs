//! The table of interposed calls of libc, and the observers of each.
//!
//! The [boot](Observer::Boot) observes calls of libruby, and answers some of them. A [template](Observer::Template)
//! observes calls of all loaded objects, to learn what its boot depends on. The observers of a call run in the order
//! of its rows. A row names the observer, the moment, and what happens then:
//!
//! | moment | |
//! | --- | --- |
//! | `before` | runs before the call |
//! | `answers` | if the result is not `None`, it is the answer: neither later rows nor libc see the call |
//! | `during` | a value that is created before the call and dropped after it |
//! | `after` | a closure that runs after the call, with its result |
//!
//! Rows of an observer are skipped while it does not observe. A skipped row costs one atomic load. Observers run on any
//! thread of the process, within a call of C code: they do not unwind, and leave `errno` as they found it unless they
//! answer.
//!
//! `open` and its kin take their mode as a variable argument. On the platforms whose import tables are known it is
//! passed like any other argument, and is handed on whether the caller gave it or not.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{DIR, fd_set, gid_t, iovec, mode_t, nfds_t, off_t, pid_t, pollfd, pthread_cond_t};
use libc::{pthread_mutex_t, sigset_t, size_t, socklen_t, ssize_t, stat, timespec, timeval, uid_t};
use thruway_sys::imports::Object;

use super::arguments::{StreamArgument, TextArgument};
#[cfg(target_os = "linux")]
use super::errno::{errno, set_errno};
use super::import::{Import, Replaceable, replace};
use crate::boot::{answers, outside, writes};
#[cfg(target_os = "linux")]
use crate::preload::{notes, template_calls};
#[cfg(target_os = "linux")]
use thruway_preload::boot_queries::Question;

/// A part of the extension that calls are reported to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Observer {
    /// The boot, to which calls of libruby are reported.
    Boot,
    /// A template's boot, for which calls of all loaded objects are noted. Templates exist on Linux alone.
    Template,
}

/// A function of libc that is interposed.
struct Call {
    import: &'static dyn Replaceable,
    /// The observers of the rows, in order.
    observers: &'static [Observer],
}

/// Whether the calls of libruby that the boot needs are interposed.
static IS_BOOT_OBSERVING: AtomicBool = AtomicBool::new(false);

/// Points the imports of libruby at the replacements that the boot observes. `libruby` is any address in libruby.
///
/// # Errors
/// The object of libruby cannot be found, its imports have other names, or its import table cannot be written. Then
/// nothing is reported to the boot.
pub(crate) fn interpose_libruby(libruby: *const ()) -> io::Result<()> {
    let object = Object::containing(libruby).ok_or(io::ErrorKind::NotFound)?;
    let has = |import: &dyn Replaceable| !object.slots(import.name()).is_empty();
    // When libruby opens a candidate, it gets a fake descriptor, so every call on the descriptor must be answered, too.
    if !has(&OPEN) || !has(&FSTAT) || !has(&CLOSE) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    replace(&object, observed_by(Observer::Boot))?;
    if has(&WRITE) && has(&FWRITE) {
        writes::interposed();
    }
    IS_BOOT_OBSERVING.store(true, Ordering::Release);
    Ok(())
}

/// Points the imports of all objects that were loaded since the last time at the replacements that a template observes.
#[cfg(target_os = "linux")]
pub(crate) fn observe_loaded_objects() {
    use std::collections::HashSet;
    use std::sync::{Mutex, PoisonError};

    /// The base addresses of the objects whose import tables were changed before, or must not be changed.
    static KNOWN_OBJECTS: Mutex<Option<HashSet<usize>>> = Mutex::new(None);

    let mut known = KNOWN_OBJECTS.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_with(|| {
        // The extension notes its own questions itself. Calls within libc do not use import tables.
        let own = [observe_loaded_objects as *const (), libc::getppid as *const ()];
        own.into_iter().filter_map(Object::containing).map(|object| object.base()).collect()
    });
    for (_, object) in Object::all() {
        if known.insert(object.base()) && replace(&object, observed_by(Observer::Template)).is_err()
        {
            notes::object(|| "a library's calls cannot be seen".to_owned());
        }
    }
}

fn observed_by(observer: Observer) -> impl Iterator<Item = &'static dyn Replaceable> {
    CALLS.iter().filter(move |call| call.observers.contains(&observer)).map(|call| call.import)
}

fn is_boot_observing() -> bool {
    IS_BOOT_OBSERVING.load(Ordering::Relaxed)
}

/// A row's part before the call.
macro_rules! before {
    (Boot before $action:expr) => {
        if is_boot_observing() {
            $action;
        }
    };
    (Boot answers $answer:expr) => {
        if is_boot_observing()
            && let Some(answer) = $answer
        {
            return answer;
        }
    };
    (Boot during $value:expr) => {
        let _during = is_boot_observing().then(|| $value);
    };
    (Template before $action:expr) => {
        #[cfg(target_os = "linux")]
        if notes::is_noting() {
            let errno = errno();
            $action;
            set_errno(errno);
        }
    };
    (Template answers $answer:expr) => {
        #[cfg(target_os = "linux")]
        if notes::is_noting()
            && let Some(answer) = $answer
        {
            return answer;
        }
    };
    ($observer:ident after $action:expr) => {};
}

/// A row's part after the call.
macro_rules! after {
    ($result:ident Boot after $action:expr) => {
        if is_boot_observing() {
            ($action)($result);
        }
    };
    ($result:ident Template after $action:expr) => {
        #[cfg(target_os = "linux")]
        if notes::is_noting() {
            ($action)($result);
        }
    };
    ($result:ident $observer:ident $moment:ident $action:expr) => {};
}

/// Defines the replacement of each function, its import, and the table.
macro_rules! calls {
    ($($place:ident $symbol:literal $function:ident($($name:ident: $type:ty),* $(,)?) -> $result:ty {
        $($observer:ident $moment:ident $action:expr;)+
    })*) => {
        $(
            static $place: Import<unsafe extern "C" fn($($type),*) -> $result> =
                // SAFETY: the types are those of the function. The replacement hands each call on that no observer
                // answers.
                unsafe { Import::new($symbol, $function) };

            unsafe extern "C" fn $function($($name: $type),*) -> $result {
                $(before!($observer $moment $action);)+
                // SAFETY: this function runs, so the import was replaced.
                let original = unsafe { $place.original() };
                // SAFETY: the arguments are those of the caller.
                let result = unsafe { original($($name),*) };
                $(after!(result $observer $moment $action);)+
                result
            }
        )*

        static CALLS: &[Call] = &[
            $(Call { import: &$place, observers: &[$(Observer::$observer),+] }),*
        ];
    };
}

calls! {
    // Files that are opened, and descriptors.
    OPEN c"open" open(path: TextArgument, flags: c_int, mode: mode_t) -> c_int {
        Template before template_calls::opened(libc::AT_FDCWD, path, flags);
        Boot answers answers::open(path, flags);
        Boot before answers::note_json(path);
        Boot after |descriptor| answers::opened(path, flags, descriptor);
    }
    OPEN64 c"open64" open64(path: TextArgument, flags: c_int, mode: mode_t) -> c_int {
        Template before template_calls::opened(libc::AT_FDCWD, path, flags);
    }
    OPENAT c"openat" openat(folder: c_int, path: TextArgument, flags: c_int, mode: mode_t) -> c_int {
        Template before template_calls::opened(folder, path, flags);
    }
    OPENAT64 c"openat64" openat64(folder: c_int, path: TextArgument, flags: c_int, mode: mode_t)
        -> c_int {
        Template before template_calls::opened(folder, path, flags);
    }
    FOPEN c"fopen" fopen(path: TextArgument, mode: TextArgument) -> StreamArgument {
        Template before template_calls::stream_opened(path, mode);
    }
    FOPEN64 c"fopen64" fopen64(path: TextArgument, mode: TextArgument) -> StreamArgument {
        Template before template_calls::stream_opened(path, mode);
    }
    FREOPEN c"freopen" freopen(path: TextArgument, mode: TextArgument, stream: StreamArgument)
        -> StreamArgument {
        Template before template_calls::stream_reopened(path, mode, stream);
    }
    FREOPEN64 c"freopen64" freopen64(path: TextArgument, mode: TextArgument, stream: StreamArgument)
        -> StreamArgument {
        Template before template_calls::stream_reopened(path, mode, stream);
    }
    CLOSE c"close" close(descriptor: c_int) -> c_int {
        Boot answers answers::close(descriptor);
    }
    DUP2 c"dup2" dup2(old: c_int, new: c_int) -> c_int {
        Template before template_calls::replaced(new);
        Boot after outside::renewed;
    }
    DUP3 c"dup3" dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
        Template before template_calls::replaced(new);
        Boot after outside::renewed;
    }

    // Questions about files.
    FSTAT c"fstat" fstat(descriptor: c_int, result: *mut stat) -> c_int {
        // SAFETY: callers of fstat pass a place for the result.
        Boot answers unsafe { answers::fstat(descriptor, result) };
        // SAFETY: fstat has written to the place if it returned 0.
        Boot after |answer| unsafe { answers::fstat_returned(descriptor, result, answer) };
    }
    STAT c"stat" stat_path(path: TextArgument, result: *mut stat) -> c_int {
        Template before template_calls::stat(path, true);
        // SAFETY: callers of stat pass a place for the result.
        Boot answers unsafe { answers::stat_path(path, result) };
    }
    STAT64 c"stat64" stat64(path: TextArgument, result: *mut stat) -> c_int {
        Template before template_calls::stat(path, true);
    }
    LSTAT c"lstat" lstat(path: TextArgument, result: *mut stat) -> c_int {
        Template before template_calls::stat(path, false);
    }
    LSTAT64 c"lstat64" lstat64(path: TextArgument, result: *mut stat) -> c_int {
        Template before template_calls::stat(path, false);
    }
    FSTATAT c"fstatat" fstatat(folder: c_int, path: TextArgument, result: *mut stat, flags: c_int)
        -> c_int {
        Template before template_calls::stat_at(folder, path, flags);
    }
    FSTATAT64 c"fstatat64" fstatat64(folder: c_int, path: TextArgument, result: *mut stat, flags: c_int)
        -> c_int {
        Template before template_calls::stat_at(folder, path, flags);
    }
    STATX c"statx" statx(folder: c_int, path: TextArgument, flags: c_int, mask: c_uint,
        result: *mut c_void) -> c_int {
        Template before template_calls::stat_at(folder, path, flags);
    }
    ACCESS c"access" access(path: TextArgument, mode: c_int) -> c_int {
        Template before template_calls::asked(path, Question::Rights);
    }
    EACCESS c"eaccess" eaccess(path: TextArgument, mode: c_int) -> c_int {
        Template before template_calls::asked(path, Question::Rights);
    }
    EUIDACCESS c"euidaccess" euidaccess(path: TextArgument, mode: c_int) -> c_int {
        Template before template_calls::asked(path, Question::Rights);
    }
    FACCESSAT c"faccessat" faccessat(folder: c_int, path: TextArgument, mode: c_int, flags: c_int)
        -> c_int {
        Template before template_calls::asked_at(folder, path, Question::Rights);
    }
    OPENDIR c"opendir" opendir(path: TextArgument) -> *mut DIR {
        Template before template_calls::asked(path, Question::Names);
    }
    READLINK c"readlink" readlink(path: TextArgument, text: *mut c_char, length: size_t) -> ssize_t {
        Template before template_calls::asked(path, Question::LinkStat);
    }
    READLINKAT c"readlinkat" readlinkat(folder: c_int, path: TextArgument, text: *mut c_char,
        length: size_t) -> ssize_t {
        Template before template_calls::asked_at(folder, path, Question::LinkStat);
    }
    REALPATH c"realpath" realpath(path: TextArgument, result: *mut c_char) -> *mut c_char {
        Template before template_calls::asked(path, Question::RealPath);
        Boot answers answers::realpath(path, result);
        Boot after |_| answers::realpath_returned(path);
    }
    CHDIR c"chdir" chdir(path: TextArgument) -> c_int {
        Template before template_calls::asked(path, Question::Kind);
    }

    // Changes of files.
    MKDIR c"mkdir" mkdir(path: TextArgument, mode: mode_t) -> c_int {
        Template before template_calls::folder_made(path);
        Boot after |result| answers::changed(path, result);
    }
    RMDIR c"rmdir" rmdir(path: TextArgument) -> c_int {
        Template before template_calls::written(path);
        Boot after |result| answers::changed(path, result);
    }
    UNLINK c"unlink" unlink(path: TextArgument) -> c_int {
        Template before template_calls::written(path);
        Boot after |result| answers::changed(path, result);
    }
    RENAME c"rename" rename(from: TextArgument, to: TextArgument) -> c_int {
        Template before template_calls::written(from);
        Template before template_calls::written(to);
        Boot after |result| answers::changed(from, result);
        Boot after |result| answers::changed(to, result);
    }
    SYMLINK c"symlink" symlink(target: TextArgument, path: TextArgument) -> c_int {
        Template before template_calls::changed(path);
        Boot after |result| answers::changed(path, result);
    }
    LINK c"link" link(from: TextArgument, to: TextArgument) -> c_int {
        Template before template_calls::changed(to);
        Boot after |result| answers::changed(to, result);
    }
    MKFIFO c"mkfifo" mkfifo(path: TextArgument, mode: mode_t) -> c_int {
        Template before template_calls::changed(path);
        Boot after |result| answers::changed(path, result);
    }
    TRUNCATE c"truncate" truncate(path: TextArgument, length: off_t) -> c_int {
        Template before template_calls::changed(path);
        Boot after |result| answers::edited(path, result);
    }
    CHMOD c"chmod" chmod(path: TextArgument, mode: mode_t) -> c_int {
        Template before template_calls::changed(path);
        Boot after |result| answers::edited(path, result);
    }
    LCHMOD c"lchmod" lchmod(path: TextArgument, mode: mode_t) -> c_int {
        Template before template_calls::changed(path);
        Boot after |result| answers::edited(path, result);
    }
    FCHMOD c"fchmod" fchmod(descriptor: c_int, mode: mode_t) -> c_int {
        Boot after |_| answers::rights_of_descriptor_changed();
    }
    CHOWN c"chown" chown(path: TextArgument, user: uid_t, group: gid_t) -> c_int {
        Template before template_calls::changed(path);
        Boot after |result| answers::edited(path, result);
    }
    LCHOWN c"lchown" lchown(path: TextArgument, user: uid_t, group: gid_t) -> c_int {
        Template before template_calls::changed(path);
        Boot after |result| answers::edited(path, result);
    }
    FCHOWN c"fchown" fchown(descriptor: c_int, user: uid_t, group: gid_t) -> c_int {
        Boot after |_| answers::rights_of_descriptor_changed();
    }

    // Reading, writing and waiting.
    READ c"read" read(descriptor: c_int, data: *mut c_void, length: size_t) -> ssize_t {
        Template before template_calls::read(descriptor);
        Boot after |result| outside::read_returned(descriptor, result);
    }
    WRITE c"write" write(descriptor: c_int, data: *const c_void, length: size_t) -> ssize_t {
        // SAFETY: callers of write pass as many bytes.
        Template answers unsafe { template_calls::write(descriptor, data, length) };
        Boot before writes::add();
    }
    WRITEV c"writev" writev(descriptor: c_int, parts: *const iovec, count: c_int) -> ssize_t {
        // SAFETY: callers of writev pass as many parts, each with as many bytes as it says.
        Template answers unsafe { template_calls::writev(descriptor, parts, count) };
        Boot before writes::add();
    }
    FWRITE c"fwrite" fwrite(data: *const c_void, size: size_t, count: size_t, stream: StreamArgument)
        -> size_t {
        // SAFETY: callers of fwrite pass as many elements.
        Template answers unsafe { template_calls::fwrite(data, size, count, stream) };
        Boot before writes::add();
    }
    POLL c"poll" poll(all: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
        Boot after |_| outside::waited();
    }
    PPOLL c"ppoll" ppoll(all: *mut pollfd, count: nfds_t, timeout: *const timespec,
        mask: *const sigset_t) -> c_int {
        Boot after |_| outside::waited();
    }
    SELECT c"select" select(count: c_int, read: *mut fd_set, write: *mut fd_set, other: *mut fd_set,
        timeout: *mut timeval) -> c_int {
        Boot after |_| outside::waited();
    }
    COND_WAIT c"pthread_cond_wait" cond_wait(condition: *mut pthread_cond_t,
        mutex: *mut pthread_mutex_t) -> c_int {
        Boot during outside::ThreadWait::begin();
    }
    COND_TIMEDWAIT c"pthread_cond_timedwait" cond_timedwait(condition: *mut pthread_cond_t,
        mutex: *mut pthread_mutex_t, until: *const timespec) -> c_int {
        Boot during outside::ThreadWait::begin();
    }
    SLEEP c"sleep" sleep(seconds: c_uint) -> c_uint {
        Boot after |_| outside::waited();
    }
    NANOSLEEP c"nanosleep" nanosleep(wanted: *const timespec, left: *mut timespec) -> c_int {
        Boot after |_| outside::waited();
    }
    FLOCK c"flock" flock(descriptor: c_int, operation: c_int) -> c_int {
        Boot after |_| outside::waited();
    }

    // Sockets.
    BIND c"bind" bind(socket: c_int, address: *const c_void, length: socklen_t) -> c_int {
        Template before template_calls::acted("binds a socket");
    }
    CONNECT c"connect" connect(socket: c_int, address: *const c_void, length: socklen_t) -> c_int {
        Template before template_calls::acted("connects a socket");
    }
    SENDTO c"sendto" sendto(socket: c_int, data: *const c_void, length: size_t, flags: c_int,
        address: *const c_void, address_length: socklen_t) -> ssize_t {
        Template before template_calls::acted("sends through a socket");
    }

    // Processes.
    FORK c"fork" fork() -> pid_t {
        Template before template_calls::forked();
        Boot after outside::fork_returned;
    }
    KILL c"kill" kill(process: pid_t, signal: c_int) -> c_int {
        Template before template_calls::acted("sends a signal");
    }
    EXECV c"execv" execv(path: TextArgument, words: *const *const c_char) -> c_int {
        Template before template_calls::started(path);
        Boot before outside::invalidate_pack();
    }
    EXECVE c"execve" execve(path: TextArgument, words: *const *const c_char,
        environment: *const *const c_char) -> c_int {
        Template before template_calls::started(path);
        Boot before outside::invalidate_pack();
    }
    POSIX_SPAWN c"posix_spawn" posix_spawn(process: *mut c_void, path: TextArgument,
        actions: *const c_void, attributes: *const c_void, words: *const c_void,
        environment: *const c_void) -> c_int {
        Template before template_calls::started(path);
    }
    POSIX_SPAWNP c"posix_spawnp" posix_spawnp(process: *mut c_void, path: TextArgument,
        actions: *const c_void, attributes: *const c_void, words: *const c_void,
        environment: *const c_void) -> c_int {
        Template before template_calls::started(path);
    }
    SYSTEM c"system" system(command: TextArgument) -> c_int {
        Template before template_calls::started(command);
    }
    POPEN c"popen" popen(command: TextArgument, mode: TextArgument) -> StreamArgument {
        Template before template_calls::started(command);
    }
    WAITPID c"waitpid" waitpid(child: pid_t, status: *mut c_int, options: c_int) -> pid_t {
        Boot after outside::waitpid_returned;
    }

    // The process's environment, libraries, root, user and groups.
    GETENV c"getenv" getenv(name: TextArgument) -> *mut c_char {
        Template before template_calls::variable(name);
    }
    SECURE_GETENV c"secure_getenv" secure_getenv(name: TextArgument) -> *mut c_char {
        Template before template_calls::variable(name);
    }
    DLOPEN c"dlopen" dlopen(path: TextArgument, flags: c_int) -> *mut c_void {
        Template after |_| observe_loaded_objects();
    }
    CHROOT c"chroot" chroot(path: TextArgument) -> c_int {
        Boot after |_| outside::invalidate_pack();
    }
    SETUID c"setuid" setuid(user: uid_t) -> c_int {
        Boot after |_| outside::rights_changed();
    }
    SETEUID c"seteuid" seteuid(user: uid_t) -> c_int {
        Boot after |_| outside::rights_changed();
    }
    SETREUID c"setreuid" setreuid(real: uid_t, effective: uid_t) -> c_int {
        Boot after |_| outside::rights_changed();
    }
    SETRESUID c"setresuid" setresuid(real: uid_t, effective: uid_t, saved: uid_t) -> c_int {
        Boot after |_| outside::rights_changed();
    }
    SETGID c"setgid" setgid(group: gid_t) -> c_int {
        Boot after |_| outside::rights_changed();
    }
    SETEGID c"setegid" setegid(group: gid_t) -> c_int {
        Boot after |_| outside::rights_changed();
    }
    SETREGID c"setregid" setregid(real: gid_t, effective: gid_t) -> c_int {
        Boot after |_| outside::rights_changed();
    }
    SETRESGID c"setresgid" setresgid(real: gid_t, effective: gid_t, saved: gid_t) -> c_int {
        Boot after |_| outside::rights_changed();
    }
    SETGROUPS c"setgroups" setgroups(count: size_t, groups: *const gid_t) -> c_int {
        Boot after |_| outside::rights_changed();
    }
    INITGROUPS c"initgroups" initgroups(user: TextArgument, group: gid_t) -> c_int {
        Boot after |_| outside::rights_changed();
    }
}
