//! In the place of import tables where they have other forms than on 64-bit Linux: no object has a slot that could
//! be pointed elsewhere.

use std::convert::Infallible;
use std::ffi::{CStr, c_void};
use std::io;
use std::mem::MaybeUninit;

/// A loaded object: a shared library, or the main program.
#[derive(Debug, Clone, Copy)]
pub struct Object {
    /// Where it begins in memory.
    base: usize,
}

/// The place that holds the address of an imported function: there is none here.
#[derive(Debug, Clone, Copy)]
pub struct Slot(Infallible);

impl Object {
    /// The object that the code or data at `address` belongs to, which stays loaded.
    #[must_use]
    pub fn containing(address: *const ()) -> Option<Self> {
        let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: any address may be asked about, and the place is valid for the answer.
        let is_found = unsafe { libc::dladdr(address.cast(), found.as_mut_ptr()) } != 0;
        // SAFETY: its fields are pointers, for which zero is valid, too.
        let found = unsafe { found.assume_init() };
        is_found.then_some(Self { base: found.dli_fbase as usize })
    }

    /// The build's identity, where the system's objects have one: the same for the same binary only.
    #[must_use]
    pub fn build_id(&self) -> Option<&'static [u8]> {
        #[cfg(target_os = "macos")]
        // SAFETY: it is the address of an image that stays loaded.
        return crate::mach_o::uuid(unsafe {
            crate::mach_o::load_commands(self.base as *const u8)
        }?);
        #[cfg(not(target_os = "macos"))]
        return None;
    }

    /// Every slot that holds the address of the imported function of a name: none.
    #[must_use]
    pub fn slots(&self, _: &CStr) -> Vec<Slot> {
        Vec::new()
    }

    /// Whether this is the object that `address` belongs to.
    #[must_use]
    pub fn holds(&self, address: *const ()) -> bool {
        Self::containing(address).is_some_and(|object| object.base == self.base)
    }
}

impl Slot {
    /// The address that calls through this slot go to now.
    #[must_use]
    pub fn target(&self) -> *mut c_void {
        match self.0 {}
    }

    /// Makes calls through this slot go to `target`.
    ///
    /// # Errors
    /// There is no slot, and so no error.
    ///
    /// # Safety
    /// `target` has the signature of the function that the slot is for.
    pub unsafe fn replace(&self, _: *mut c_void) -> io::Result<()> {
        match self.0 {}
    }
}
