//! libruby's calls for memory, counted for the [collector](super::collector) while it waits.

use std::ffi::{c_int, c_void};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use libc::{off_t, size_t};
use thruway_sys::imports::Object;

use super::import::{imports, replace};

imports! { ALLOCATIONS:
    MALLOC c"malloc" malloc;
    CALLOC c"calloc" calloc;
    REALLOC c"realloc" realloc;
    MEMALIGN c"posix_memalign" posix_memalign;
    MMAP c"mmap" mmap;
}

/// What is told of the number of bytes.
static TOLD: OnceLock<fn(usize)> = OnceLock::new();

/// Calls `told` with the size of all memory that libruby asks for.
///
/// # Errors
/// libruby is not found, or as of [`replace`].
pub(super) fn watch(libruby: *const (), told: fn(usize)) -> io::Result<()> {
    let object = Object::containing(libruby).ok_or(io::ErrorKind::NotFound)?;
    TOLD.get_or_init(|| told);
    replace(&object, ALLOCATIONS)
}

/// libruby asks for so many bytes.
fn asked_for(bytes: usize) {
    if let Some(told) = TOLD.get() {
        told(bytes);
    }
}

/// Puts libc's functions back.
pub(super) fn forget(libruby: *const ()) {
    let Some(object) = Object::containing(libruby) else { return };
    for import in ALLOCATIONS {
        let original = import.original.load(Ordering::Acquire);
        for slot in object.slots(import.name).into_iter().filter(|_| !original.is_null()) {
            // SAFETY: it is the function that was there before. Where it cannot be put back, ours
            // goes on handing calls to it.
            let _ = unsafe { slot.replace(original) };
        }
    }
}

type Malloc = unsafe extern "C" fn(size_t) -> *mut c_void;
type Calloc = unsafe extern "C" fn(size_t, size_t) -> *mut c_void;
type Realloc = unsafe extern "C" fn(*mut c_void, size_t) -> *mut c_void;
type Memalign = unsafe extern "C" fn(*mut *mut c_void, size_t, size_t) -> c_int;
type Mmap = unsafe extern "C" fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void;

unsafe extern "C" fn malloc(size: size_t) -> *mut c_void {
    asked_for(size);
    // SAFETY: the type is malloc's.
    let malloc = unsafe { MALLOC.function::<Malloc>() };
    // SAFETY: handed on as it came.
    unsafe { malloc(size) }
}

unsafe extern "C" fn calloc(count: size_t, size: size_t) -> *mut c_void {
    asked_for(count.saturating_mul(size));
    // SAFETY: the type is calloc's.
    let calloc = unsafe { CALLOC.function::<Calloc>() };
    // SAFETY: handed on as it came.
    unsafe { calloc(count, size) }
}

unsafe extern "C" fn realloc(place: *mut c_void, size: size_t) -> *mut c_void {
    asked_for(size);
    // SAFETY: the type is realloc's.
    let realloc = unsafe { REALLOC.function::<Realloc>() };
    // SAFETY: handed on as it came.
    unsafe { realloc(place, size) }
}

/// How Ruby gets the pages that its objects are in, where it does not map them.
unsafe extern "C" fn posix_memalign(
    place: *mut *mut c_void,
    alignment: size_t,
    size: size_t,
) -> c_int {
    asked_for(size);
    // SAFETY: the type is posix_memalign's.
    let posix_memalign = unsafe { MEMALIGN.function::<Memalign>() };
    // SAFETY: handed on as it came.
    unsafe { posix_memalign(place, alignment, size) }
}

/// How it maps them.
unsafe extern "C" fn mmap(
    place: *mut c_void,
    size: size_t,
    protection: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: off_t,
) -> *mut c_void {
    asked_for(size);
    // SAFETY: the type is mmap's.
    let mmap = unsafe { MMAP.function::<Mmap>() };
    // SAFETY: handed on as it came.
    unsafe { mmap(place, size, protection, flags, descriptor, offset) }
}
