//! Reads and patches the import table of an object that is loaded into this process (Linux, 64-bit ELF).
//!
//! A shared library calls a function of another library through a slot that the dynamic linker filled with the callee's
//! address. [`Object`] finds those slots by name, and [`Slot::replace`] points a slot at another function. Only the
//! calls of that object change, and only in this process: a child that is started by `exec` is not affected.
//!
//! The code reads the tables that the dynamic linker itself uses, in memory. The tables are as trustworthy as the
//! object's own code, so their contents are not validated.

use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{dl_phdr_info, size_t};
use rustix::mm::{MprotectFlags, mprotect};

#[cfg(target_arch = "x86_64")]
const IMPORT_RELOCATIONS: [u32; 2] = [6, 7]; // R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT
#[cfg(target_arch = "aarch64")]
const IMPORT_RELOCATIONS: [u32; 2] = [1025, 1026]; // R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const IMPORT_RELOCATIONS: [u32; 0] = [];

/// Tags of the dynamic section (System V ABI, "Dynamic Section").
const DT_NULL: u64 = 0;
const DT_PLTRELSZ: u64 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_JMPREL: u64 = 23;

/// The type of the note that identifies a build; the note's owner is `GNU`.
const NT_GNU_BUILD_ID: u32 = 3;

/// A loaded object: a shared library, or the main program.
#[derive(Debug, Clone, Copy)]
pub struct Object {
    /// The load bias: the difference between an address in memory and the address in the file.
    base: usize,
    dynamic: Option<*const Dynamic>,
    notes: Option<(*const u8, usize)>,
    /// The memory that the dynamic linker made read-only after relocation: start and end.
    read_only: (usize, usize),
}

/// A location that holds the address of an imported function.
#[derive(Debug, Clone, Copy)]
pub struct ImportSlot {
    place: *const AtomicPtr<c_void>,
    is_read_only: bool,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Dynamic {
    tag: u64,
    value: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Note {
    name_bytes: u32,
    description_bytes: u32,
    kind: u32,
}

/// The locations of an object's import tables.
struct Tables {
    symbols: *const Symbol,
    strings: *const u8,
    relocations: [(*const Relocation, usize); 2],
}

impl Object {
    /// Returns the object that contains the code or data at `address`.
    ///
    /// The object must stay loaded for as long as the result and its slots are used. The main program and the libraries
    /// that it was linked with always do.
    #[must_use]
    pub fn containing(address: *const ()) -> Option<Self> {
        let mut search = (address as usize, None::<Self>);
        // SAFETY: the callback gets back the pointer to `search`, which outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
        search.1
    }

    /// Returns every loaded object with its path; the path of the main program is empty.
    #[must_use]
    pub fn all() -> Vec<(Vec<u8>, Self)> {
        let mut all = Vec::new();
        // SAFETY: the callback gets back the pointer to `all`, which outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut all).cast()) };
        all
    }

    /// Returns the load bias, which differs between any two loaded objects.
    #[must_use]
    pub fn base(&self) -> usize {
        self.base
    }

    /// Returns the build id (`.note.gnu.build-id`), which is equal only for identical binaries.
    #[must_use]
    pub fn build_id(&self) -> Option<&'static [u8]> {
        let (mut at, length) = self.notes?;
        let end = at as usize + length;
        while at as usize + size_of::<Note>() < end {
            // SAFETY: a whole note header lies below `end`, and notes are aligned to 4 bytes.
            let note = unsafe { at.cast::<Note>().read() };
            let name = at.wrapping_add(size_of::<Note>());
            let description = name.wrapping_add(padded(note.name_bytes));
            if note.kind == NT_GNU_BUILD_ID && note.name_bytes == 4 {
                // SAFETY: the description lies in the loaded note, which is never unmapped.
                return Some(unsafe {
                    std::slice::from_raw_parts(description, note.description_bytes as usize)
                });
            }
            at = description.wrapping_add(padded(note.description_bytes));
        }
        None
    }

    /// Returns every slot that holds the address of the imported function `name`.
    #[must_use]
    pub fn slots(&self, name: &CStr) -> Vec<ImportSlot> {
        let Some(tables) = self.tables() else { return Vec::new() };
        let mut slots = Vec::new();
        for (start, count) in tables.relocations {
            for index in 0..count {
                // SAFETY: the table holds `count` relocations.
                let relocation = unsafe { start.wrapping_add(index).read() };
                if tables.imports(&relocation, name) {
                    slots.push(self.slot(&relocation));
                }
            }
        }
        slots
    }

    /// Whether `address` belongs to this object.
    #[must_use]
    pub fn holds(&self, address: *const ()) -> bool {
        Self::containing(address).is_some_and(|object| object.base == self.base)
    }

    fn slot(&self, relocation: &Relocation) -> ImportSlot {
        let place = self.base.wrapping_add(relocation.offset as usize);
        let (start, end) = self.read_only;
        ImportSlot {
            place: place as *const AtomicPtr<c_void>,
            is_read_only: (start..end).contains(&place),
        }
    }

    fn tables(&self) -> Option<Tables> {
        let section = self.dynamic?;
        let pointer = |tag| find(section, tag).map(|value| self.address(value));
        let length = |tag| find(section, tag).unwrap_or(0) as usize / size_of::<Relocation>();
        let table = |start, bytes| match pointer(start) {
            Some(address) => (address as *const Relocation, length(bytes)),
            None => (std::ptr::null(), 0),
        };
        Some(Tables {
            symbols: pointer(DT_SYMTAB)? as *const Symbol,
            strings: pointer(DT_STRTAB)? as *const u8,
            relocations: [table(DT_RELA, DT_RELASZ), table(DT_JMPREL, DT_PLTRELSZ)],
        })
    }

    /// Converts an address in the dynamic section to an address in memory. glibc has already added the load bias; musl
    /// has not.
    fn address(&self, value: u64) -> usize {
        let value = value as usize;
        if value < self.base { self.base.wrapping_add(value) } else { value }
    }
}

impl Tables {
    fn imports(&self, relocation: &Relocation, name: &CStr) -> bool {
        let (symbol, kind) = ((relocation.info >> 32) as usize, relocation.info as u32);
        if symbol == 0 || !IMPORT_RELOCATIONS.contains(&kind) {
            return false;
        }
        // SAFETY: relocations refer to symbols by their index in the symbol table.
        let symbol = unsafe { self.symbols.wrapping_add(symbol).read() };
        let start = self.strings.wrapping_add(symbol.name as usize);
        // SAFETY: symbols refer to their names by offset in the string table, and each name ends in NUL.
        unsafe { CStr::from_ptr(start.cast()) == name }
    }
}

impl ImportSlot {
    /// Returns the address that calls through this slot currently go to.
    ///
    /// In an object that binds lazily, the slot points to a stub inside the object until the first call.
    #[must_use]
    pub fn target(&self) -> *mut c_void {
        // SAFETY: the slot is aligned, and mapped while its object is loaded.
        unsafe { &*self.place }.load(Ordering::Acquire)
    }

    /// Points the slot at `function`. Calls in progress are not affected; other threads see either the old or the new
    /// target.
    ///
    /// # Errors
    /// Any error of `mprotect` if the slot lies in read-only memory; the slot is unchanged.
    ///
    /// # Safety
    /// `function` must have the signature of the imported function and keep its contract, and must stay loaded for as
    /// long as the slot's object.
    pub unsafe fn replace(&self, function: *mut c_void) -> io::Result<()> {
        if self.is_read_only {
            self.protect(MprotectFlags::READ | MprotectFlags::WRITE)?;
        }
        // SAFETY: the slot is aligned, mapped, and was made writable above.
        unsafe { &*self.place }.store(function, Ordering::Release);
        if self.is_read_only {
            self.protect(MprotectFlags::READ)?;
        }
        Ok(())
    }

    /// Changes the protection of the page that contains the slot. The page holds only data of the dynamic linker, all
    /// with the same protection.
    fn protect(&self, flags: MprotectFlags) -> io::Result<()> {
        let page_bytes = rustix::param::page_size();
        let start = (self.place as usize) & !(page_bytes - 1);
        // SAFETY: the page stays readable throughout, and nothing but this slot is written.
        unsafe { mprotect(start as *mut c_void, page_bytes, flags) }?;
        Ok(())
    }
}

/// Returns an object's program headers.
///
/// # Safety
/// `info` must come from the dynamic linker, and the object must stay loaded for as long as the slice is used.
unsafe fn headers(info: &dl_phdr_info) -> &[libc::Elf64_Phdr] {
    // SAFETY: the program headers of a loaded object are mapped and hold that many entries.
    unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize) }
}

/// The callback of [`Object::all`]. Called once per object, and never stops the iteration.
unsafe extern "C" fn collect(info: *mut dl_phdr_info, _: size_t, data: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker passes a valid pointer for the duration of the call.
    let info = unsafe { &*info };
    // SAFETY: `all` passes its own local variable, which nothing else refers to during the call.
    let all = unsafe { &mut *data.cast::<Vec<(Vec<u8>, Object)>>() };
    let path = if info.dlpi_name.is_null() {
        Vec::new()
    } else {
        // SAFETY: the name ends in NUL, and is valid for the duration of the call.
        unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes().to_vec()
    };
    // SAFETY: `info` comes from the dynamic linker.
    all.push((path, object(info.dlpi_addr as usize, unsafe { headers(info) })));
    0
}

/// The callback of [`Object::containing`]. Called once per object, and stops the iteration at the object that holds the
/// address.
unsafe extern "C" fn visit(info: *mut dl_phdr_info, _: size_t, data: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker passes a valid pointer for the duration of the call.
    let info = unsafe { &*info };
    // SAFETY: `containing` passes its own local variable, which nothing else refers to during the call.
    let (address, found) = unsafe { &mut *data.cast::<(usize, Option<Object>)>() };
    // SAFETY: `info` comes from the dynamic linker.
    let headers = unsafe { headers(info) };
    let base = info.dlpi_addr as usize;
    let holds = headers.iter().any(|header| {
        let start = base.wrapping_add(header.p_vaddr as usize);
        header.p_type == libc::PT_LOAD && address.wrapping_sub(start) < header.p_memsz as usize
    });
    if holds {
        *found = Some(object(base, headers));
    }
    c_int::from(holds)
}

fn object(base: usize, headers: &[libc::Elf64_Phdr]) -> Object {
    let place = |kind| {
        let header = headers.iter().find(|header| header.p_type == kind)?;
        Some((base.wrapping_add(header.p_vaddr as usize), header.p_memsz as usize))
    };
    let notes = headers.iter().filter(|header| header.p_type == libc::PT_NOTE);
    // An object may have several notes; the note with the build id is aligned to 4 bytes.
    let note = notes.min_by_key(|header| header.p_align);
    let page_bytes = rustix::param::page_size();
    let relro = place(libc::PT_GNU_RELRO).unwrap_or((0, 0));
    Object {
        base,
        dynamic: place(libc::PT_DYNAMIC).map(|(start, _)| start as *const Dynamic),
        notes: note.map(|header| {
            let start = base.wrapping_add(header.p_vaddr as usize);
            (start as *const u8, header.p_memsz as usize)
        }),
        // The dynamic linker protects whole pages only: if other data shares the last page, that page stays writable.
        read_only: (relro.0 & !(page_bytes - 1), (relro.0 + relro.1) & !(page_bytes - 1)),
    }
}

/// Returns the value of the first entry with the given tag.
fn find(section: *const Dynamic, tag: u64) -> Option<u64> {
    for index in 0.. {
        // SAFETY: the section ends with a DT_NULL entry, at which the loop stops.
        let entry = unsafe { section.wrapping_add(index).read() };
        if entry.tag == tag {
            return Some(entry.value);
        }
        if entry.tag == DT_NULL {
            return None;
        }
    }
    None
}

/// Rounds up to the 4-byte padding of notes.
fn padded(bytes: u32) -> usize {
    (bytes as usize).next_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn another_parent() -> libc::pid_t {
        -7
    }

    fn this() -> Object {
        Object::containing(another_parent as *const ()).unwrap()
    }

    #[test]
    fn a_call_goes_where_its_slot_points() {
        let slots = this().slots(c"getppid");
        assert!(!slots.is_empty());
        // SAFETY: getppid cannot fail.
        let parent = || unsafe { libc::getppid() };
        let before = parent();
        let original = slots[0].target();
        for slot in &slots {
            // SAFETY: the function has getppid's signature and is part of this program.
            unsafe { slot.replace(another_parent as *mut c_void) }.unwrap();
        }
        assert_eq!(parent(), -7);
        for slot in &slots {
            // SAFETY: as it was before.
            unsafe { slot.replace(original) }.unwrap();
        }
        assert_eq!(parent(), before);
    }

    #[test]
    fn a_slot_that_was_read_only_is_so_again() {
        // SAFETY: getpgrp cannot fail; it is called so that it is imported.
        let _ = unsafe { libc::getpgrp() };
        let slot = this().slots(c"getpgrp")[0];
        // SAFETY: the slot keeps its target.
        unsafe { slot.replace(slot.target()) }.unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| {
            let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
            let address = |text| usize::from_str_radix(text, 16).unwrap();
            (address(start)..address(end)).contains(&(slot.place as usize))
        });
        let protection = line.unwrap().split(' ').nth(1).unwrap();
        assert_eq!(protection, if slot.is_read_only { "r--p" } else { "rw-p" });
    }

    /// A function of the C library that no test replaces.
    fn of_libc() -> *const () {
        libc::getuid as *const ()
    }

    #[test]
    fn all_objects_are_listed_with_their_paths() {
        let all = Object::all();
        let libc = Object::containing(of_libc()).unwrap();
        let (path, _) = all.iter().find(|(_, object)| object.base() == libc.base()).unwrap();
        assert!(path.starts_with(b"/"), "{path:?}");
        assert!(all.iter().any(|(_, object)| object.base() == this().base()));
    }

    #[test]
    fn a_name_that_is_not_imported_has_no_slot() {
        assert!(this().slots(c"no_such_function").is_empty());
        assert!(Object::containing(std::ptr::null()).is_none());
        assert!(this().holds(another_parent as *const ()));
        assert!(!this().holds(of_libc()));
    }

    #[test]
    fn a_library_is_found_by_its_function_and_named_by_its_build() {
        let object = Object::containing(of_libc()).unwrap();
        assert_eq!(object.build_id().map(<[u8]>::len), Some(20));
    }
}
