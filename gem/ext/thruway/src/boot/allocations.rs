//! Counts the memory that libruby allocates, for the [collector](super::collector) while it waits, and notices when
//! the process runs out of something that a collection may free.

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
    COLLECT c"rb_gc" collect: Collect;
}

/// The functions that are called while allocations are watched.
pub(super) struct AllocationObserver {
    /// Receives the size of each allocation.
    pub(super) allocated: fn(usize),
    /// Called after an allocation has failed, and before Ruby collects garbage because descriptors, processes or memory
    /// have run out. Ruby collects and tries again if the collector is enabled then.
    pub(super) ran_out: fn(),
}

static OBSERVER: OnceLock<AllocationObserver> = OnceLock::new();

/// Calls `observer` for libruby's allocations.
///
/// # Errors
/// libruby is not found, or [`replace`] fails.
pub(super) fn watch(libruby: *const (), observer: AllocationObserver) -> io::Result<()> {
    let object = Object::containing(libruby).ok_or(io::ErrorKind::NotFound)?;
    OBSERVER.get_or_init(|| observer);
    replace(&object, ALLOCATIONS.iter().copied())
}

/// Reports an allocation of that size.
fn asked_for(bytes: usize) {
    if let Some(observer) = OBSERVER.get() {
        (observer.allocated)(bytes);
    }
}

fn ran_out_if(has_failed: bool) {
    if let Some(observer) = OBSERVER.get().filter(|_| has_failed) {
        (observer.ran_out)();
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
type Collect = unsafe extern "C" fn();
type Mmap = unsafe extern "C" fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void;

unsafe extern "C" fn malloc(size: size_t) -> *mut c_void {
    asked_for(size);
    // SAFETY: this function runs, so the import was replaced.
    let malloc = unsafe { MALLOC.original() };
    // SAFETY: the arguments are those of the caller.
    let place = unsafe { malloc(size) };
    ran_out_if(place.is_null() && size > 0);
    place
}

unsafe extern "C" fn calloc(count: size_t, size: size_t) -> *mut c_void {
    asked_for(count.saturating_mul(size));
    // SAFETY: this function runs, so the import was replaced.
    let calloc = unsafe { CALLOC.original() };
    // SAFETY: the arguments are those of the caller.
    let place = unsafe { calloc(count, size) };
    ran_out_if(place.is_null() && count > 0 && size > 0);
    place
}

unsafe extern "C" fn realloc(place: *mut c_void, size: size_t) -> *mut c_void {
    asked_for(size);
    // SAFETY: this function runs, so the import was replaced.
    let realloc = unsafe { REALLOC.original() };
    // SAFETY: the arguments are those of the caller.
    let place = unsafe { realloc(place, size) };
    ran_out_if(place.is_null() && size > 0);
    place
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
    let error = unsafe { posix_memalign(place, alignment, size) };
    ran_out_if(error != 0);
    error
}

/// Ruby maps the pages of its objects where it can.
/// Memory that cannot be written is an address that YJIT reserves for its code. It makes several attempts, and each but
/// the last fails.
unsafe extern "C" fn mmap(
    place: *mut c_void,
    size: size_t,
    protection: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: off_t,
) -> *mut c_void {
    let is_for_objects = protection & libc::PROT_WRITE != 0;
    if is_for_objects {
        asked_for(size);
    }
    // SAFETY: this function runs, so the import was replaced.
    let mmap = unsafe { MMAP.original() };
    // SAFETY: the arguments are those of the caller.
    let place = unsafe { mmap(place, size, protection, flags, descriptor, offset) };
    ran_out_if(is_for_objects && place == libc::MAP_FAILED);
    place
}

/// Ruby calls this function after a call has failed for want of descriptors, processes or memory, and then makes the
/// call once more. While the collector is disabled, the function does nothing.
unsafe extern "C" fn collect() {
    ran_out_if(true);
    // SAFETY: this function runs, so the import was replaced.
    let collect = unsafe { COLLECT.original() };
    // SAFETY: the caller may collect garbage.
    unsafe { collect() }
}
