//! libruby's own calls into libc, answered while it searches for a feature.
//!
//! The import table of the object that holds libruby (the library, or a program that was linked with
//! it) is pointed at the functions below. Each of them hands the call on as it came, unless this
//! thread is in the middle of a [search](super::search) and the answer is known. No other object's
//! calls are touched, nothing is left in the environment, and a child that is started by `exec` knows
//! nothing of it. Where an import table cannot be changed, Ruby just goes on asking the kernel.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use libc::{FILE, gid_t, iovec, mode_t, off_t, size_t, ssize_t, stat, uid_t};
use thruway_boot::{Files, Lookup, Part, path};
use thruway_sys::imports::Object;

use super::errno::{errno, set_errno};
use super::import::{Import, imports, replace};
use super::search::{self, PathMark, Phase};
use super::{current, json_files, load_path, outside};
use crate::ruby::Gvl;

/// What `rb_file_load_ok` opens candidates with, and nothing else in libruby does during a search.
const CANDIDATE: c_int = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC;

/// The descriptor that a search holds for a file that was not opened. Ruby only stats and closes it.
/// It is below `NOFILE`, which Ruby takes for used anyhow (`rb_update_max_fd`), and above stderr,
/// where Ruby changes flags.
pub(super) const FAKE_DESCRIPTOR: c_int = 255;

/// How often libruby wrote to any descriptor: a compiler that had something to say did.
static WRITES: AtomicU64 = AtomicU64::new(0);
/// Whether they are counted.
static COUNTS_WRITES: AtomicBool = AtomicBool::new(false);

imports! { IMPORTS:
    OPEN c"open" open;
    FSTAT c"fstat" fstat;
    CLOSE c"close" close;
    REALPATH c"realpath" realpath;
    STAT c"stat" stat_path;
    WRITE c"write" write;
    WRITEV c"writev" writev;
    FWRITE c"fwrite" fwrite;
    MKDIR c"mkdir" mkdir;
    RMDIR c"rmdir" rmdir;
    UNLINK c"unlink" unlink;
    RENAME c"rename" rename;
    SYMLINK c"symlink" symlink;
    LINK c"link" link;
    MKFIFO c"mkfifo" mkfifo;
    TRUNCATE c"truncate" truncate;
    CHMOD c"chmod" chmod;
    LCHMOD c"lchmod" lchmod;
    FCHMOD c"fchmod" fchmod;
    CHOWN c"chown" chown;
    LCHOWN c"lchown" lchown;
    FCHOWN c"fchown" fchown;
}

/// Points libruby's imports here.
///
/// # Errors
/// Its object cannot be found, its imports have other names, or its import table cannot be written.
pub(super) fn install(libruby: *const ()) -> io::Result<()> {
    let object = Object::containing(libruby).ok_or(io::ErrorKind::NotFound)?;
    let has = |import: &Import| !object.slots(import.name).is_empty();
    // A candidate's descriptor is made up, so every call on it must be answered too.
    if ![&OPEN, &FSTAT, &CLOSE].into_iter().all(has) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    replace(&object, IMPORTS)?;
    replace(&object, outside::IMPORTS)
}

/// Begins to count what libruby writes.
pub(super) fn count_writes() {
    COUNTS_WRITES.store(true, Ordering::Relaxed);
}

/// How often libruby wrote since counting began; `None` if it cannot be seen.
pub(super) fn writes() -> Option<u64> {
    let is_seen = |import: &Import| !import.original.load(Ordering::Relaxed).is_null();
    let all = [&WRITE, &FWRITE].into_iter().all(is_seen);
    all.then(|| WRITES.load(Ordering::Relaxed))
}

type Open = unsafe extern "C" fn(*const c_char, c_int, mode_t) -> c_int;
type OnDescriptor = unsafe extern "C" fn(c_int) -> c_int;
type OnPath = unsafe extern "C" fn(*const c_char) -> c_int;
type OnPaths = unsafe extern "C" fn(*const c_char, *const c_char) -> c_int;
type Fstat = unsafe extern "C" fn(c_int, *mut stat) -> c_int;
type Stat = unsafe extern "C" fn(*const c_char, *mut stat) -> c_int;
type Realpath = unsafe extern "C" fn(*const c_char, *mut c_char) -> *mut c_char;
type Write = unsafe extern "C" fn(c_int, *const c_void, size_t) -> ssize_t;
type Writev = unsafe extern "C" fn(c_int, *const iovec, c_int) -> ssize_t;
type Fwrite = unsafe extern "C" fn(*const c_void, size_t, size_t, *mut FILE) -> size_t;
type OnPathWithMode = unsafe extern "C" fn(*const c_char, mode_t) -> c_int;
type Truncate = unsafe extern "C" fn(*const c_char, off_t) -> c_int;
type Fchmod = unsafe extern "C" fn(c_int, mode_t) -> c_int;
type Chown = unsafe extern "C" fn(*const c_char, uid_t, gid_t) -> c_int;
type Fchown = unsafe extern "C" fn(c_int, uid_t, gid_t) -> c_int;

/// `open` takes its mode as a variable argument, which is passed like any other on the platforms whose
/// import tables we know. It is handed on whether it was given or not.
unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    if flags == CANDIDATE {
        // SAFETY: callers of open pass a path.
        if let Some(answer) = open_candidate(unsafe { bytes(path) }) {
            return answer;
        }
    }
    if json_files::are_noted() {
        // SAFETY: as above.
        json_files::opened(unsafe { bytes(path) });
    }
    // SAFETY: the type is open's.
    let open = unsafe { OPEN.function::<Open>() };
    // SAFETY: handed on as it came.
    let descriptor = unsafe { open(path, flags, mode) };
    outside::renewed(descriptor);
    if descriptor >= 0 && flags & libc::O_CREAT != 0 {
        // SAFETY: as above.
        told(|files| files.opened(unsafe { bytes(path) }));
    } else if descriptor >= 0 && flags & libc::O_ACCMODE != libc::O_RDONLY {
        // SAFETY: as above.
        edited(unsafe { bytes(path) });
    }
    descriptor
}

/// What Ruby gets for a candidate: a descriptor that stands for the file, or "not found".
fn open_candidate(path: &[u8]) -> Option<c_int> {
    let boot = current::boot().filter(|boot| boot.options.has(Part::Lookups))?;
    if search::phase() != Phase::Opening {
        let is_missing = is_encoding(path) && matches!(boot.files.look_up(path), Lookup::Missing);
        return is_missing.then(not_found);
    }
    let mark = PathMark::of(path);
    let look = match search::seen() {
        Some((seen, file)) if seen == mark => Lookup::File(file),
        _ => boot.files.look_up(path),
    };
    match look {
        Lookup::File(file) => {
            search::see(mark, file);
            search::advance(Phase::Opened);
            answered(Some(FAKE_DESCRIPTOR))
        }
        // What was not there when its folder was looked at may be there now.
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

/// Whether Ruby is looking for one of its encodings, which it does in every folder of the load path,
/// and without `require`. None is made while a program runs.
fn is_encoding(path: &[u8]) -> bool {
    let folder = path::split(path).filter(|_| path.ends_with(b".so")).map(|(folder, _)| folder);
    folder.is_some_and(|folder| folder.ends_with(b"/enc") || folder.ends_with(b"/enc/trans"))
}

unsafe extern "C" fn fstat(descriptor: c_int, result: *mut stat) -> c_int {
    if descriptor == FAKE_DESCRIPTOR && search::phase() == Phase::Opened {
        // SAFETY: callers of fstat pass a place for the result.
        unsafe { write_stat(result, libc::S_IFREG | 0o444) };
        return 0;
    }
    // SAFETY: the type is fstat's.
    let fstat = unsafe { FSTAT.function::<Fstat>() };
    // SAFETY: handed on as it came.
    let answer = unsafe { fstat(descriptor, result) };
    if answer == 0 {
        // SAFETY: fstat has written it.
        let mode = unsafe { (*result).st_mode };
        outside::seen(descriptor, mode & libc::S_IFMT == libc::S_IFREG);
    }
    answer
}

unsafe extern "C" fn close(descriptor: c_int) -> c_int {
    if descriptor == FAKE_DESCRIPTOR && search::phase() == Phase::Opened {
        search::advance(Phase::Found);
        return 0;
    }
    // SAFETY: the type is close's.
    let close = unsafe { CLOSE.function::<OnDescriptor>() };
    outside::renewed(descriptor);
    // SAFETY: handed on as it came.
    unsafe { close(descriptor) }
}

unsafe extern "C" fn realpath(path: *const c_char, result: *mut c_char) -> *mut c_char {
    let phase = search::phase();
    if phase == Phase::Opening {
        // SAFETY: callers of realpath pass a path.
        expanded(unsafe { bytes(path) });
    }
    if phase != Phase::Idle && result.is_null() {
        // SAFETY: callers of realpath pass a path.
        if let Some(real_path) = real_path_of(unsafe { bytes(path) }) {
            return allocated(&real_path);
        }
    }
    // SAFETY: the type is realpath's.
    let realpath = unsafe { REALPATH.function::<Realpath>() };
    // SAFETY: handed on as it came.
    let answer = unsafe { realpath(path, result) };
    if phase == Phase::Idle {
        // SAFETY: callers of realpath pass a path.
        expanded(unsafe { bytes(path) });
    }
    answer
}

/// Perhaps Ruby expands its load path now.
fn expanded(path: &[u8]) {
    // SAFETY: libruby holds the interpreter lock meanwhile.
    let gvl = unsafe { Gvl::assume() };
    if let Some(boot) = current::serving(gvl) {
        let errno = errno();
        load_path::expanded(gvl, boot, path);
        set_errno(errno);
    }
}

/// The real path of a folder of the load path, or of the file that was found.
fn real_path_of(path: &[u8]) -> Option<Vec<u8>> {
    let mut search = search::current();
    let mark = PathMark::of(path);
    let boot = current::boot()?;
    let real_path = match (search::phase(), search::seen()) {
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

/// Ruby stats a real path once more, only to see whether it is there.
unsafe extern "C" fn stat_path(path: *const c_char, result: *mut stat) -> c_int {
    if search::phase() != Phase::Idle {
        // SAFETY: callers of stat pass a path.
        let mark = PathMark::of(unsafe { bytes(path) });
        if search::current().real_path == Some(mark) {
            // SAFETY: callers of stat pass a place for the result.
            unsafe { write_stat(result, libc::S_IFREG | 0o444) };
            return 0;
        }
    }
    // SAFETY: the type is stat's.
    let stat = unsafe { STAT.function::<Stat>() };
    // SAFETY: handed on as it came.
    unsafe { stat(path, result) }
}

unsafe extern "C" fn write(descriptor: c_int, data: *const c_void, length: size_t) -> ssize_t {
    wrote();
    // SAFETY: the type is write's.
    let write = unsafe { WRITE.function::<Write>() };
    // SAFETY: handed on as it came.
    unsafe { write(descriptor, data, length) }
}

unsafe extern "C" fn writev(descriptor: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    wrote();
    // SAFETY: the type is writev's.
    let writev = unsafe { WRITEV.function::<Writev>() };
    // SAFETY: handed on as it came.
    unsafe { writev(descriptor, parts, count) }
}

/// How Ruby writes warnings of its compiler.
unsafe extern "C" fn fwrite(
    data: *const c_void,
    size: size_t,
    count: size_t,
    stream: *mut FILE,
) -> size_t {
    wrote();
    // SAFETY: the type is fwrite's.
    let fwrite = unsafe { FWRITE.function::<Fwrite>() };
    // SAFETY: handed on as it came.
    unsafe { fwrite(data, size, count, stream) }
}

/// Stands in the place of a function that changes what is at a path: calls it, and says so.
macro_rules! changing {
    ($($place:ident $function:ident: $function_type:ty,
        ($($name:ident: $type:ty),*), $follow:ident($($path:ident),*);)*) => {$(
        unsafe extern "C" fn $function($($name: $type),*) -> c_int {
            // SAFETY: the type is the function's.
            let function = unsafe { $place.function::<$function_type>() };
            // SAFETY: handed on as it came.
            let result = unsafe { function($($name),*) };
            if result == 0 {
                // SAFETY: callers of it pass paths.
                $($follow(unsafe { bytes($path) });)*
            }
            result
        }
    )*};
}

changing! {
    MKDIR mkdir: OnPathWithMode, (path: *const c_char, mode: mode_t), changed(path);
    RMDIR rmdir: OnPath, (path: *const c_char), changed(path);
    UNLINK unlink: OnPath, (path: *const c_char), changed(path);
    RENAME rename: OnPaths, (from: *const c_char, to: *const c_char), changed(from, to);
    SYMLINK symlink: OnPaths, (target: *const c_char, path: *const c_char), changed(path);
    LINK link: OnPaths, (from: *const c_char, to: *const c_char), changed(to);
    MKFIFO mkfifo: OnPathWithMode, (path: *const c_char, mode: mode_t), changed(path);
    TRUNCATE truncate: Truncate, (path: *const c_char, length: off_t), edited(path);
    CHMOD chmod: OnPathWithMode, (path: *const c_char, mode: mode_t), edited(path);
    LCHMOD lchmod: OnPathWithMode, (path: *const c_char, mode: mode_t), edited(path);
    CHOWN chown: Chown, (path: *const c_char, user: uid_t, group: gid_t), edited(path);
    LCHOWN lchown: Chown, (path: *const c_char, user: uid_t, group: gid_t), edited(path);
}

unsafe extern "C" fn fchmod(descriptor: c_int, mode: mode_t) -> c_int {
    // SAFETY: the type is fchmod's.
    let fchmod = unsafe { FCHMOD.function::<Fchmod>() };
    // SAFETY: handed on as it came.
    let result = unsafe { fchmod(descriptor, mode) };
    rights_changed_somewhere();
    result
}

unsafe extern "C" fn fchown(descriptor: c_int, user: uid_t, group: gid_t) -> c_int {
    // SAFETY: the type is fchown's.
    let fchown = unsafe { FCHOWN.function::<Fchown>() };
    // SAFETY: handed on as it came.
    let result = unsafe { fchown(descriptor, user, group) };
    rights_changed_somewhere();
    result
}

/// This process made, moved or removed something.
fn changed(path: &[u8]) {
    told(|files| files.changed(path));
}

/// This process wrote to a file that was there, or changed its rights.
fn edited(path: &[u8]) {
    told(|files| files.edited(path));
}

/// Tells of what this process has done.
fn told(tell: impl FnOnce(&Files)) {
    if let Some(boot) = current::boot() {
        let errno = errno();
        tell(&boot.files);
        search::forget();
        set_errno(errno);
    }
}

/// The rights of an unknown file have changed.
fn rights_changed_somewhere() {
    if let Some(boot) = current::boot().filter(|boot| boot.options.is_frozen()) {
        boot.files.invalidate_pack();
    }
}

fn wrote() {
    if COUNTS_WRITES.load(Ordering::Relaxed) {
        WRITES.fetch_add(1, Ordering::Relaxed);
    }
}

fn answered<T>(answer: T) -> T {
    if let Some(boot) = current::boot() {
        boot.counts.answered.add(1);
    }
    answer
}

/// # Safety
/// `path` is a string that ends in NUL and outlives the slice, or null.
unsafe fn bytes<'a>(path: *const c_char) -> &'a [u8] {
    if path.is_null() {
        return b"";
    }
    // SAFETY: as this function's own.
    unsafe { CStr::from_ptr(path) }.to_bytes()
}

/// # Safety
/// `result` is valid for writing a `stat`.
unsafe fn write_stat(result: *mut stat, mode: mode_t) {
    // SAFETY: a stat is plain numbers, for which zero is valid.
    let mut answer = unsafe { std::mem::zeroed::<stat>() };
    answer.st_mode = mode;
    answer.st_nlink = 1;
    // SAFETY: as this function's own.
    unsafe { result.write(answer) };
    answered(());
}

/// A copy that the caller frees with `free`, as it does with realpath's own result.
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
