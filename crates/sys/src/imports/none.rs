//! Replaces the module for import tables on systems other than 64-bit Linux: no object has a slot that could be
//! patched.

use std::convert::Infallible;
use std::ffi::{CStr, c_void};
use std::io;
use std::mem::MaybeUninit;

/// A loaded object: a shared library, or the main program.
#[derive(Debug, Clone, Copy)]
pub struct Object {
    /// The address at which the object begins.
    base: usize,
}

/// A location that holds the address of an imported function. No value of this type exists.
#[derive(Debug, Clone, Copy)]
pub struct ImportSlot(Infallible);

impl Object {
    /// Returns the object that contains the code or data at `address`, which must stay loaded.
    #[must_use]
    pub fn containing(address: *const ()) -> Option<Self> {
        let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: the call accepts any address, and the place is valid for the result.
        let is_found = unsafe { libc::dladdr(address.cast(), found.as_mut_ptr()) } != 0;
        // SAFETY: the fields are pointers, for which zero is valid.
        let found = unsafe { found.assume_init() };
        is_found.then_some(Self { base: found.dli_fbase as usize })
    }

    /// Returns the build id if the system's objects have one. Equal ids mean identical binaries.
    #[must_use]
    pub fn build_id(&self) -> Option<&'static [u8]> {
        #[cfg(target_os = "macos")]
        // SAFETY: the base is the address of an image that stays loaded.
        return crate::mach_o::uuid(unsafe {
            crate::mach_o::load_commands(self.base as *const u8)
        }?);
        #[cfg(not(target_os = "macos"))]
        return None;
    }

    /// Returns the slots of an imported function, of which there are none.
    #[must_use]
    pub fn slots(&self, _: &CStr) -> Vec<ImportSlot> {
        Vec::new()
    }

    /// Whether `address` belongs to this object.
    #[must_use]
    pub fn holds(&self, address: *const ()) -> bool {
        Self::containing(address).is_some_and(|object| object.base == self.base)
    }
}

impl ImportSlot {
    /// Returns the address that calls through this slot currently go to.
    #[must_use]
    pub fn target(&self) -> *mut c_void {
        match self.0 {}
    }

    /// Points the slot at another function.
    ///
    /// # Errors
    /// None, since no slot exists.
    ///
    /// # Safety
    /// The function must have the signature of the imported function.
    pub unsafe fn replace(&self, _: *mut c_void) -> io::Result<()> {
        match self.0 {}
    }
}
