//! Reads and patches the import table of a DLL that is loaded into this process (Windows, 64-bit PE).
//!
//! A DLL calls a function of another DLL through a slot that the loader filled with the callee's address. [`Object`]
//! finds those slots by name, and [`Slot::replace`] points a slot at another function. Only the calls of that DLL
//! change, and only in this process.
//!
//! The code reads the tables that the loader itself uses, in memory. The tables are as trustworthy as the DLL's own
//! code, so their contents are not validated. The layout is that of Microsoft's "PE Format".

use std::ffi::{CStr, c_void};
use std::io;
use std::sync::atomic::{AtomicPtr, Ordering};

use windows_sys::Win32::System::Memory::{PAGE_READWRITE, VirtualProtect};

use crate::loaded_module;

/// The offset in the DOS header at which the offset of the PE header is stored.
const PE_HEADER_AT: usize = 0x3C;
/// The offset in the PE header of the directory of imports: behind the signature (4 bytes), the file header (20), the
/// optional header up to its directories (112), and the directory of exports (8).
const IMPORT_DIRECTORY_AT: usize = 4 + 20 + 112 + 8;
/// The offset in the PE header of the number of directories.
const DIRECTORIES_AT: usize = 4 + 20 + 108;
/// The offset in the PE header of the magic number of the optional header.
const MAGIC_AT: usize = 4 + 20;
/// The magic number of 64-bit files.
const MAGIC_64_BITS: u16 = 0x20B;
/// The flag of a function that is imported by its number.
const BY_NUMBER: u64 = 1 << 63;
/// The length of the hint before an imported name.
const HINT_BYTES: usize = 2;

/// A loaded DLL, or the main program.
#[derive(Debug, Clone, Copy)]
pub struct Object {
    /// The address at which the file begins in memory.
    base: usize,
}

/// A location that holds the address of an imported function.
#[derive(Debug, Clone, Copy)]
pub struct ImportSlot {
    place: *const AtomicPtr<c_void>,
}

/// The imports from one DLL. All fields are offsets from the base; all are zero in the last entry.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Imports {
    names: u32,
    time: u32,
    forwarder: u32,
    dll: u32,
    slots: u32,
}

impl Object {
    /// Returns the object that contains the code or data at `address`.
    ///
    /// The object must stay loaded for as long as the result and its slots are used.
    #[must_use]
    pub fn containing(address: *const ()) -> Option<Self> {
        loaded_module::base_of(address).ok().map(|base| Self { base })
    }

    /// Whether `address` belongs to this object.
    #[must_use]
    pub fn holds(&self, address: *const ()) -> bool {
        Self::containing(address).is_some_and(|object| object.base == self.base)
    }

    /// Returns every slot that holds the address of the imported function `name`.
    #[must_use]
    pub fn slots(&self, name: &CStr) -> Vec<ImportSlot> {
        let mut slots = Vec::new();
        for imports in self.imports() {
            for index in 0.. {
                // SAFETY: the list of names is as long as that of slots, and ends with a zero.
                let entry = unsafe { self.read::<u64>(imports.names as usize + index * 8) };
                if entry == 0 {
                    break;
                }
                if entry & BY_NUMBER == 0 && self.name(entry as usize) == name {
                    let place = self.base + imports.slots as usize + index * 8;
                    slots.push(ImportSlot { place: place as *const AtomicPtr<c_void> });
                }
            }
        }
        slots
    }

    /// The imports of each DLL that has names.
    fn imports(&self) -> Vec<Imports> {
        let mut all = Vec::new();
        // SAFETY: a loaded file begins with its headers, and the DOS header holds this offset.
        let header = unsafe { self.read::<u32>(PE_HEADER_AT) } as usize;
        // SAFETY: as above; every header is as long as that.
        let magic = unsafe { self.read::<u16>(header + MAGIC_AT) };
        // SAFETY: as above.
        let directories = unsafe { self.read::<u32>(header + DIRECTORIES_AT) };
        if magic != MAGIC_64_BITS || directories < 2 {
            return all;
        }
        // SAFETY: the header has this directory.
        let mut at = unsafe { self.read::<u32>(header + IMPORT_DIRECTORY_AT) } as usize;
        while at != 0 {
            // SAFETY: the directory ends with an entry of zeros, at which the loop stops.
            let imports = unsafe { self.read::<Imports>(at) };
            if imports.slots == 0 {
                break;
            }
            // Without names, the loader has overwritten them with the addresses.
            all.extend((imports.names != 0).then_some(imports));
            at += size_of::<Imports>();
        }
        all
    }

    fn name(&self, at: usize) -> &CStr {
        let start = (self.base + at + HINT_BYTES) as *const std::ffi::c_char;
        // SAFETY: imported names end in NUL, and stay mapped as long as the object.
        unsafe { CStr::from_ptr(start) }
    }

    /// Reads a value at an offset from the base.
    ///
    /// # Safety
    /// A value of that type lies there, for which every bit pattern is valid.
    unsafe fn read<T: Copy>(&self, at: usize) -> T {
        // SAFETY: this function's own contract.
        unsafe { ((self.base + at) as *const T).read_unaligned() }
    }
}

impl ImportSlot {
    /// Returns the address that calls through this slot currently go to.
    #[must_use]
    pub fn target(&self) -> *mut c_void {
        // SAFETY: the slot is aligned, and mapped while its object is loaded.
        unsafe { &*self.place }.load(Ordering::Acquire)
    }

    /// Points the slot at `function`. Calls in progress are not affected; other threads see either the old or the new
    /// target.
    ///
    /// # Errors
    /// Any error of `VirtualProtect`; the slot is unchanged.
    ///
    /// # Safety
    /// `function` must have the signature of the imported function and keep its contract, and must stay loaded for as
    /// long as the slot's object.
    pub unsafe fn replace(&self, function: *mut c_void) -> io::Result<()> {
        let before = self.protect(PAGE_READWRITE)?;
        // SAFETY: the slot is aligned, mapped, and was made writable above.
        unsafe { &*self.place }.store(function, Ordering::Release);
        self.protect(before).map(|_| ())
    }

    /// Changes the protection of the page that contains the slot, and returns the former one. The page holds only
    /// data of the loader.
    fn protect(&self, protection: u32) -> io::Result<u32> {
        let mut before = 0;
        // SAFETY: the page stays readable throughout, and there is room for the result.
        let is_changed = unsafe {
            VirtualProtect(self.place.cast(), size_of::<usize>(), protection, &raw mut before)
        };
        if is_changed == 0 { Err(io::Error::last_os_error()) } else { Ok(before) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windows_sys::Win32::System::Threading::{GetCurrentProcessId, GetCurrentThreadId};

    unsafe extern "system" fn another_id() -> u32 {
        7
    }

    fn this() -> Object {
        Object::containing(another_id as *const ()).unwrap()
    }

    #[test]
    fn a_call_goes_where_its_slot_points() {
        // SAFETY: the function cannot fail.
        let id = || unsafe { GetCurrentProcessId() };
        let before = id();
        let slots = this().slots(c"GetCurrentProcessId");
        assert!(!slots.is_empty());
        let original = slots[0].target();
        assert!(!this().holds(original.cast()));
        for slot in &slots {
            // SAFETY: the function has that signature and is part of this program.
            unsafe { slot.replace(another_id as *mut c_void) }.unwrap();
        }
        assert_eq!(id(), 7);
        for slot in &slots {
            // SAFETY: as it was before.
            unsafe { slot.replace(original) }.unwrap();
        }
        assert_eq!(id(), before);
    }

    #[test]
    fn a_name_that_is_not_imported_has_no_slot() {
        // SAFETY: the function cannot fail; it is called so that it is imported.
        let _ = unsafe { GetCurrentThreadId() };
        assert!(!this().slots(c"GetCurrentThreadId").is_empty());
        assert!(this().slots(c"NoSuchFunction").is_empty());
        assert!(Object::containing(std::ptr::null::<()>().wrapping_byte_add(1)).is_none());
    }
}
