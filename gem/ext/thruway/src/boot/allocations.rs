//! Counts the memory that libruby allocates, for the [collector](super::collector) while it waits.

use std::ffi::{c_int, c_void};
use std::io;
use std::sync::OnceLock;

use libc::{off_t, size_t};
use thruway_sys::imports::Object;

use crate::interpose::import::{imports, replace, restore};

imports! { ALLOCATIONS:
    MALLOC c"malloc" malloc: Malloc;
    CALLOC c"calloc" calloc: Calloc;
    REALLOC c"realloc" realloc: Realloc;
    MEMALIGN c"posix_memalign" posix_memalign: Memalign;
    MMAP c"mmap" mmap: Mmap;
}

/// The function that receives the size of each allocation.
static REPORT: OnceLock<fn(usize)> = OnceLock::new();

/// Calls `report` with the size of each allocation of libruby's.
///
/// # Errors
/// libruby is not found, or [`replace`] fails.
pub(super) fn watch(libruby: *const (), report: fn(usize)) -> io::Result<()> {
    let object = Object::containing(libruby).ok_or(io::ErrorKind::NotFound)?;
    REPORT.get_or_init(|| report);
    replace(&object, ALLOCATIONS.iter().copied())
}

/// Reports an allocation of that size.
fn asked_for(bytes: usize) {
    if let Some(report) = REPORT.get() {
        report(bytes);
    }
}

/// Points libruby's imports at libc's functions again.
pub(super) fn forget(libruby: *const ()) {
    let Some(object) = Object::containing(libruby) else { return };
    restore(&object, ALLOCATIONS);
}

type Malloc = unsafe extern "C" fn(size_t) -> *mut c_void;
type Calloc = unsafe extern "C" fn(size_t, size_t) -> *mut c_void;
type Realloc = unsafe extern "C" fn(*mut c_void, size_t) -> *mut c_void;
type Memalign = unsafe extern "C" fn(*mut *mut c_void, size_t, size_t) -> c_int;
type Mmap = unsafe extern "C" fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void;

unsafe extern "C" fn malloc(size: size_t) -> *mut c_void {
    asked_for(size);
    // SAFETY: this function runs, so the import was replaced.
    let malloc = unsafe { MALLOC.original() };
    // SAFETY: the arguments are those of the caller.
    unsafe { malloc(size) }
}

unsafe extern "C" fn calloc(count: size_t, size: size_t) -> *mut c_void {
    asked_for(count.saturating_mul(size));
    // SAFETY: this function runs, so the import was replaced.
    let calloc = unsafe { CALLOC.original() };
    // SAFETY: the arguments are those of the caller.
    unsafe { calloc(count, size) }
}

unsafe extern "C" fn realloc(place: *mut c_void, size: size_t) -> *mut c_void {
    asked_for(size);
    // SAFETY: this function runs, so the import was replaced.
    let realloc = unsafe { REALLOC.original() };
    // SAFETY: the arguments are those of the caller.
    unsafe { realloc(place, size) }
}

/// Ruby allocates the pages of its objects with this function where it does not map them.
unsafe extern "C" fn posix_memalign(
    place: *mut *mut c_void,
    alignment: size_t,
    size: size_t,
) -> c_int {
    asked_for(size);
    // SAFETY: this function runs, so the import was replaced.
    let posix_memalign = unsafe { MEMALIGN.original() };
    // SAFETY: the arguments are those of the caller.
    unsafe { posix_memalign(place, alignment, size) }
}

/// Ruby maps the pages of its objects where it can.
unsafe extern "C" fn mmap(
    place: *mut c_void,
    size: size_t,
    protection: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: off_t,
) -> *mut c_void {
    asked_for(size);
    // SAFETY: this function runs, so the import was replaced.
    let mmap = unsafe { MMAP.original() };
    // SAFETY: the arguments are those of the caller.
    unsafe { mmap(place, size, protection, flags, descriptor, offset) }
}
