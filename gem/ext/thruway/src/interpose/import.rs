//! A function that a loaded object imports, and its replacement in this extension.

use std::ffi::{CStr, c_void};
use std::io;
use std::mem::transmute_copy;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use thruway_sys::imports::{ImportSlot, Object};

/// An imported function of type `F`, and its replacement.
pub(crate) struct Import<F> {
    name: &'static CStr,
    /// The function that calls are handed on to; null until the first slot is pointed at the replacement.
    original: AtomicPtr<c_void>,
    replacement: F,
}

/// An [`Import`] of any type.
pub(crate) trait Replaceable: Sync {
    fn name(&self) -> &'static CStr;

    /// The original function, or null as long as no slot was pointed at the replacement.
    fn original_address(&self) -> &AtomicPtr<c_void>;

    fn replacement_address(&self) -> *mut c_void;
}

/// Declares one static [`Import`] for each function, and one list of them all.
macro_rules! imports {
    ($all:ident: $($place:ident $name:literal $function:ident: $type:ty;)*) => {
        $(static $place: $crate::interpose::import::Import<$type> =
            // SAFETY: the type is that of the function of this name, and the replacement hands each call on.
            unsafe { $crate::interpose::import::Import::new($name, $function) };)*
        static $all: &[&dyn $crate::interpose::import::Replaceable] = &[$(&$place),*];
    };
}

pub(crate) use imports;

impl<F: Copy> Import<F> {
    /// # Safety
    /// `F` is the type of pointers to the function called `name`. The replacement keeps that function's contract.
    pub(crate) const unsafe fn new(name: &'static CStr, replacement: F) -> Self {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        Self { name, original: AtomicPtr::new(null_mut()), replacement }
    }

    /// The function that was imported before its replacement.
    ///
    /// # Safety
    /// A slot was pointed at the replacement, as is the case when the replacement runs.
    pub(crate) unsafe fn original(&self) -> F {
        let original = self.original.load(Ordering::Acquire);
        // SAFETY: the address is that of a function of type F (`new`), and is not null (this function's contract).
        unsafe { transmute_copy::<*mut c_void, F>(&original) }
    }
}

impl<F: Copy + Sync> Replaceable for Import<F> {
    fn name(&self) -> &'static CStr {
        self.name
    }

    fn original_address(&self) -> &AtomicPtr<c_void> {
        &self.original
    }

    fn replacement_address(&self) -> *mut c_void {
        // SAFETY: `F` is a pointer to a function, and as large as any other pointer (`new`).
        unsafe { transmute_copy::<F, *mut c_void>(&self.replacement) }
    }
}

/// Points the slots of an object at the replacements.
///
/// The original of an import is stored before its first slot changes, since other threads may call at once. The
/// original of the first object is kept: later objects import the same function.
///
/// # Errors
/// An import table cannot be written, or no library defines a function; the imports that follow are left as they are.
pub(crate) fn replace<'a>(
    object: &Object,
    imports: impl IntoIterator<Item = &'a dyn Replaceable>,
) -> io::Result<()> {
    for import in imports {
        for slot in object.slots(import.name()) {
            redirect(object, slot, import)?;
        }
    }
    Ok(())
}

/// Points one slot at the replacement. Stores the original function first, if no other slot has done so.
fn redirect(object: &Object, slot: ImportSlot, import: &dyn Replaceable) -> io::Result<()> {
    let (target, replacement) = (slot.target(), import.replacement_address());
    if target == replacement {
        return Ok(());
    }
    if import.original_address().load(Ordering::Acquire).is_null() {
        // An object that binds lazily has its own stub in the slot until the first call.
        let is_bound = !target.is_null() && !object.holds(target.cast());
        let original = if is_bound { target } else { look_up(import.name()) };
        if original.is_null() {
            // A weak import that no library defines: the object does not call it.
            let is_unused = target.is_null();
            return if is_unused { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) };
        }
        import.original_address().store(original, Ordering::Release);
    }
    // SAFETY: the replacement has the signature of the function of that name, and keeps its contract (`Import::new`).
    // It is part of an extension, which Ruby never unloads.
    unsafe { slot.replace(replacement) }
}

/// The function that the dynamic linker finds by a name; null if there is none.
#[cfg(unix)]
fn look_up(name: &CStr) -> *mut c_void {
    // SAFETY: the name ends in NUL.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Returns null: on Windows, every slot holds its function from the start.
#[cfg(windows)]
fn look_up(_: &CStr) -> *mut c_void {
    null_mut()
}

/// Points the slots of an object at the original functions again. A slot that cannot be written keeps the
/// replacement, which continues to call the original.
#[cfg(unix)]
pub(crate) fn restore(object: &Object, imports: &[&dyn Replaceable]) {
    for import in imports {
        let original = import.original_address().load(Ordering::Acquire);
        for slot in object.slots(import.name()).into_iter().filter(|_| !original.is_null()) {
            // SAFETY: the original is the function that the slot was made for.
            let _ = unsafe { slot.replace(original) };
        }
    }
}
