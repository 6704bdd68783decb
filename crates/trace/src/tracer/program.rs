//! Putting the stub into programs, and leading their calls to it.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use thruway_sys::process::address_space_limit;
use thruway_sys::ptrace::{self, Registers};
use thruway_sys::stub::{self, Start, layout};

use super::object::{Object, UsedSites};
use super::site::{SITE_BYTES, Site};
use super::thread::{Program, Thread};
use crate::area::{Area, Slot};

/// Where a stopped call came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The program itself.
    Program,
    /// The stub, which cannot note it.
    Stub,
    /// The stub, whose call a signal interrupted: the kernel makes it again.
    Restart,
}

/// Puts the stub into programs.
#[derive(Debug)]
pub(super) struct Injector {
    cookie: u64,
    /// The area's file, as programs can open it.
    path: String,
    /// Unused bytes at the end of the code that the kernel gives every program.
    spare: u64,
    shapes: [u8; layout::SHAPES_MAX],
    /// Sites that were found in a file's code, relative to where it is mapped.
    sites: HashMap<Rc<str>, Vec<Site>>,
    used: UsedSites,
}

/// Entries of the auxiliary vector, by the kernel's numbers.
mod auxiliary {
    pub(super) const PROGRAM_ENTRY: u64 = 9;
    pub(super) const KERNEL_CODE: u64 = 33;
}

impl Injector {
    /// `None` if this kernel leaves no room for the start.
    pub(super) fn new(area: &Area, shapes: [u8; layout::SHAPES_MAX]) -> Option<Self> {
        let cookie = area.cookie();
        let path = format!("/proc/{}/fd/{}", std::process::id(), area.descriptor());
        let spare = spare_kernel_code()?;
        let (sites, used) = (HashMap::new(), UsedSites::default());
        (path.len() < layout::PATH_BYTES).then_some(Self {
            cookie,
            path,
            spare,
            shapes,
            sites,
            used,
        })
    }

    /// Lets a thread that has just become a program map the area first. Where that is not possible,
    /// nothing happens, and the tracer notes all its calls.
    pub(super) fn start(&self, id: i32, slot: Slot) {
        // A program with little address space keeps all of it.
        if address_space_limit(id).is_ok_and(|limit| limit.is_none()) {
            let _ = self.try_start(id, slot);
        }
    }

    fn try_start(&self, id: i32, slot: Slot) -> io::Result<()> {
        let mut registers = ptrace::registers(id)?;
        if !registers.is_64_bit() {
            return Ok(());
        }
        let entry = registers.instruction_pointer();
        let vector = std::fs::read(format!("/proc/{id}/auxv"))?;
        let kernel_code =
            auxiliary_value(&vector, auxiliary::KERNEL_CODE).ok_or(io::ErrorKind::NotFound)?;
        let is_static = auxiliary_value(&vector, auxiliary::PROGRAM_ENTRY) == Some(entry);
        let hint = if is_static { near(entry) } else { 0 };
        let report = slot.report();
        let start = Start { path: &self.path, cookie: self.cookie, hint, report, entry };
        memory(id)?.write_all_at(&start.code(), kernel_code + self.spare)?;
        registers.jump(kernel_code + self.spare);
        ptrace::set_registers(id, &registers)
    }

    /// Where a call came from: it ended at `back`, and the area lies at `base`.
    pub(super) fn place(base: u64, back: u64) -> Place {
        if back == base + stub::called() {
            Place::Restart
        } else if (base..base + layout::PRIVATE_BYTES as u64).contains(&back) {
            Place::Stub
        } else {
            Place::Program
        }
    }

    /// Leads the site of a call that ended at `back` to the stub and, with the first one of a file,
    /// all others that are known of it. Nobody else may be running there. `None`: it cannot be
    /// patched, and stops again the next time.
    pub(super) fn patch(
        &mut self,
        id: i32,
        program: &mut Program,
        base: u64,
        number: u32,
        back: u64,
    ) -> Option<()> {
        if !program.sites.insert(back) {
            return None;
        }
        let site = Site::recognise(site_bytes(id, back)?, back, number)?;
        let memory = memory(id).ok()?;
        program.patch(&memory, base, &site)?;
        if let Some(object) = program.objects.iter().find(|object| object.contains(back)) {
            self.used.learn(object, &site);
            return Some(());
        }
        let object = Object::at(id, back)?;
        for site in self.used.of(&object) {
            let is_there = site_bytes(id, site.back).is_some_and(|bytes| site.is(bytes));
            if is_there && program.sites.insert(site.back) {
                program.patch(&memory, base, &site)?;
            }
        }
        self.used.learn(&object, &site);
        program.objects.push(object);
        Some(())
    }

    /// Sends a stopped call through the stub.
    pub(super) fn redirect(id: i32, base: u64, number: u32, back: u64) -> io::Result<()> {
        let mut registers = ptrace::registers(id)?;
        registers.redirect(base + layout::CODE as u64, u64::from(number), back);
        ptrace::set_registers(id, &registers)
    }

    /// Patches all sites that are to be found where this program has made calls so far, because it is
    /// about to have a second thread, and nothing can be patched under a thread that runs.
    pub(super) fn patch_ahead(&mut self, id: i32, thread: &Thread) {
        let mut program = thread.program.borrow_mut();
        let (Some(base), Ok(memory)) = (program.known_base(), memory(id)) else { return };
        for object in Object::all(id, &program.sites) {
            let sites = self.sites.entry(Rc::clone(&object.file)).or_insert_with(|| {
                let code = object.code(id);
                Site::search(&code, 0, &self.shapes).collect()
            });
            for site in sites {
                let site = site.moved(object.start);
                if program.sites.insert(site.back) {
                    // One that is out of reach stops every time.
                    let _ = program.patch(&memory, base, &site);
                }
            }
        }
    }

    /// Makes an interrupted call of the stub pass the filter again.
    pub(super) fn restart(&self, id: i32) -> io::Result<()> {
        let mut registers = ptrace::registers(id)?;
        registers.set_sixth_argument(self.cookie);
        ptrace::set_registers(id, &registers)
    }

    /// Looks after the stub when a signal arrives. `true`: the signal was the stub's own, because it
    /// met a bad address, and the program must not see it.
    pub(super) fn repair(id: i32, thread: &Thread, signal: i32) -> io::Result<bool> {
        let Some(base) = thread.program.borrow().known_base() else { return Ok(false) };
        let mut registers = ptrace::registers(id)?;
        let at = registers.instruction_pointer();
        if is_fault(signal) && stub::loads().contains(&at.wrapping_sub(base)) {
            registers.jump(base + stub::unreadable());
            ptrace::set_registers(id, &registers)?;
            return Ok(true);
        }
        if at == base + stub::called() && is_restart(&registers) {
            // Without the cookie the filter stops the call when it is made again.
            registers.set_sixth_argument(0);
            ptrace::set_registers(id, &registers)?;
        }
        Ok(false)
    }
}

/// Saves the stub the question which thread it runs in, because there is only this one; with `None`
/// it asks again. Nobody may be running there meanwhile.
pub(super) fn set_owner(id: i32, program: &mut Program, slot: Option<Slot>) {
    let owner = slot.map_or([0; 2], |slot| [id.unsigned_abs(), slot.number()]);
    if let (Some(base), Ok(memory)) = (program.known_base(), memory(id)) {
        let bytes = owner.map(u32::to_ne_bytes);
        let written = memory.write_all_at(bytes.as_flattened(), base + layout::OWNER as u64);
        program.has_owner = written.is_ok() && slot.is_some();
    }
}

/// Lets the tracer note all calls of a program whose thread ids are not ours.
pub(super) fn disable_stub(id: i32, thread: &Thread) {
    if let (Some(base), Ok(memory)) = (thread.program.borrow().known_base(), memory(id)) {
        let _ = memory.write_all_at(&[1], base + layout::FOREIGN as u64);
    }
}

/// The bytes of a site that ends at `back`.
fn site_bytes(id: i32, back: u64) -> Option<[u8; SITE_BYTES]> {
    let mut bytes = [0; SITE_BYTES];
    let read = ptrace::read_memory(id, back.checked_sub(SITE_BYTES as u64)?, &mut bytes).ok()?;
    (read == SITE_BYTES).then_some(bytes)
}

impl Program {
    /// Leads a site to the stub. Nobody may be running there meanwhile.
    fn patch(&mut self, memory: &File, base: u64, site: &Site) -> Option<()> {
        if self.trampolines == layout::TRAMPOLINES_MAX {
            return None;
        }
        let offset = layout::TRAMPOLINES + self.trampolines * layout::TRAMPOLINE_BYTES;
        let address = base + offset as u64;
        let (trampoline, jump) = (site.trampoline(address, base)?, site.jump(address)?);
        memory.write_all_at(&trampoline, address).ok()?;
        self.trampolines += 1;
        memory.write_all_at(&jump, site.start()).ok()
    }
}

/// A stopped program's memory, writable wherever it lies.
fn memory(id: i32) -> io::Result<File> {
    File::options().write(true).open(format!("/proc/{id}/mem"))
}

fn is_fault(signal: i32) -> bool {
    const BUS_ERROR: i32 = 7;
    const SEGMENTATION_FAULT: i32 = 11;
    matches!(signal, BUS_ERROR | SEGMENTATION_FAULT)
}

/// Whether the kernel means to make the interrupted call again.
fn is_restart(registers: &Registers) -> bool {
    (-516..=-512).contains(&registers.result())
}

/// Where the area should lie for a program without a loader, whose sites are all in itself: within
/// reach of a jump, and out of the way of its heap, which grows upwards.
fn near(entry: u64) -> u64 {
    const LOW: u64 = 0x7000_0000;
    if entry < LOW { LOW } else { (entry - layout::AREA_BYTES as u64 - (1 << 28)) & !0xfff }
}

fn auxiliary_value(vector: &[u8], wanted: u64) -> Option<u64> {
    let word = |bytes: &[u8]| bytes.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
    let mut pairs = vector.chunks_exact(16);
    pairs.find(|pair| word(pair) == Some(wanted)).and_then(|pair| word(&pair[8..]))
}

/// Where the unused end of the kernel's code for programs begins, if it is long enough.
fn spare_kernel_code() -> Option<u64> {
    let vector = std::fs::read("/proc/self/auxv").ok()?;
    let start = auxiliary_value(&vector, auxiliary::KERNEL_CODE)?;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let range = maps.lines().find(|line| line.ends_with("[vdso]"))?.split(' ').next()?;
    let end = u64::from_str_radix(range.split_once('-')?.1, 16).ok()?;
    let mut code = vec![0; usize::try_from(end - start).ok()?];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut code, start).ok()?;
    let used = code.iter().rposition(|byte| *byte != 0)? + 1;
    let spare = used.next_multiple_of(64);
    let need = Start { path: "", cookie: 0, hint: 0, report: 0, entry: 0 }.code().len();
    (spare + need <= code.len()).then_some(spare as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_leaves_room_for_the_start() {
        assert!(spare_kernel_code().is_some());
    }

    #[test]
    fn a_value_is_found_in_the_vector() {
        let vector: Vec<u8> = [6_u64, 4096, 33, 7, 0, 0].map(u64::to_ne_bytes).concat();
        assert_eq!(auxiliary_value(&vector, 33), Some(7));
        assert_eq!(auxiliary_value(&vector, 9), None);
    }

    #[test]
    fn a_call_comes_from_the_program_or_the_stub() {
        let base = 0x7000_0000;
        assert_eq!(Injector::place(base, base + stub::called()), Place::Restart);
        assert_eq!(Injector::place(base, base + 2), Place::Stub);
        assert_eq!(Injector::place(base, base - 2), Place::Program);
    }
}
