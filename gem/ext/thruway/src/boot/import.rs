//! A function that libruby imports from libc, and what stands in its place.

use std::ffi::{CStr, c_void};
use std::io;
use std::sync::atomic::{AtomicPtr, Ordering};

use thruway_sys::imports::Object;

/// A function of libc's that libruby imports, and what stands in its place.
pub(crate) struct Import {
    pub(crate) name: &'static CStr,
    pub(crate) original: AtomicPtr<c_void>,
    pub(crate) replacement: fn() -> *mut c_void,
}

macro_rules! imports {
    ($all:ident: $($place:ident $name:literal $function:ident;)*) => {
        $(static $place: $crate::boot::import::Import = $crate::boot::import::Import {
            name: $name,
            original: std::sync::atomic::AtomicPtr::new(std::ptr::null_mut()),
            replacement: || $function as *mut c_void,
        };)*
        static $all: &[&$crate::boot::import::Import] = &[$(&$place),*];
    };
}

pub(crate) use imports;

impl Import {
    /// The function itself, for an object that binds lazily and has not called it yet.
    pub(crate) fn look_up(&self) -> *mut c_void {
        // SAFETY: the name ends in NUL.
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, self.name.as_ptr()) }
    }

    /// # Safety
    /// `F` is the type of the function of that name, and the import was installed.
    pub(crate) unsafe fn function<F: Copy>(&self) -> F {
        let original = self.original.load(Ordering::Acquire);
        // SAFETY: as this function's own; a function pointer is as large as any other.
        unsafe { std::mem::transmute_copy::<*mut c_void, F>(&original) }
    }
}

/// Points those imports of an object at their replacements.
///
/// # Errors
/// A function is nowhere, or the import table cannot be written.
pub(crate) fn replace(object: &Object, imports: &[&Import]) -> io::Result<()> {
    for import in imports {
        for slot in object.slots(import.name) {
            let target = slot.target();
            let original = if object.holds(target.cast()) { import.look_up() } else { target };
            if original.is_null() {
                return Err(io::ErrorKind::Unsupported.into());
            }
            import.original.store(original, Ordering::Release);
            // SAFETY: the replacement has the signature of the function of that name, and hands on what it does not
            // answer. It is part of an extension, which Ruby never unloads.
            unsafe { slot.replace((import.replacement)()) }?;
        }
    }
    Ok(())
}
