//! Injects the stub into programs, and redirects their calls to it.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use thruway_sys::process::address_space_limit;
use thruway_sys::ptrace::{self, Registers};
use thruway_sys::stub::{self, Start, layout};

use super::object::{Object, UsedSites};
use super::site::{PATCH_BYTES, SITE_BYTES, SYSCALL, Site};
use super::thread::{Identity, Program, Thread};
use crate::shared_rings::{SharedRings, Slot};

/// The origin of a stopped call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallOrigin {
    /// The program itself.
    Program,
    /// The stub, which could not record the call.
    Stub,
    /// The stub, whose call was interrupted by a signal and is restarted by the kernel.
    Restart,
}

/// Injects the stub into programs.
#[derive(Debug)]
pub(super) struct Injector {
    cookie: u64,
    /// The path by which programs can open the rings' file.
    path: String,
    /// The offset of unused bytes at the end of the vDSO, the code that the kernel maps into every program.
    spare: u64,
    shapes: [u8; layout::SHAPES_MAX],
    /// Sites found in a file's code, relative to its mapping.
    found: HashMap<Rc<str>, Vec<Site>>,
    /// Positions after calls that cannot be redirected.
    refused: HashSet<(Rc<str>, u64)>,
    used: UsedSites,
    /// Whether the gs register can identify a thread's slot.
    has_gs: bool,
}

/// The amount of code that is searched before a program starts its second thread: 20 ms of work, once per
/// file.
const CODE_AHEAD_BYTES_MAX: u64 = 64 << 20;
/// The most files whose found sites are remembered.
const FILES_MAX: usize = 1 << 12;
/// The most sites remembered as impossible to redirect.
const SITES_MAX: usize = 1 << 14;

/// Entries of the auxiliary vector, by the kernel's numbers.
mod auxiliary {
    pub(super) const PROGRAM_HEADERS: u64 = 3;
    pub(super) const PROGRAM_ENTRY: u64 = 9;
    pub(super) const KERNEL_CODE: u64 = 33;
}

impl Injector {
    /// Returns `None` if the vDSO leaves no room for the start code.
    pub(super) fn new(rings: &SharedRings, shapes: [u8; layout::SHAPES_MAX]) -> Option<Self> {
        let cookie = rings.cookie();
        let path = format!("/proc/{}/fd/{}", std::process::id(), rings.descriptor());
        let spare = spare_kernel_code()?;
        (path.len() < layout::PATH_BYTES).then(|| Self {
            cookie,
            path,
            spare,
            shapes,
            found: HashMap::new(),
            refused: HashSet::new(),
            used: UsedSites::default(),
            has_gs: ptrace::is_gs_base_readable(),
        })
    }

    /// Makes a thread that has just executed a program map the rings before the program's own code runs. Returns the
    /// program's entry point; `None` if the rings cannot be mapped, so that the tracer has to record every call.
    pub(super) fn start(&self, id: i32, slot: Slot) -> Option<u64> {
        // Mapping the rings could exhaust a limited address space.
        let is_unlimited = address_space_limit(id).is_ok_and(|limit| limit.is_none());
        if is_unlimited { self.try_start(id, slot).ok().flatten() } else { None }
    }

    fn try_start(&self, id: i32, slot: Slot) -> io::Result<Option<u64>> {
        let mut registers = ptrace::registers(id)?;
        if !registers.is_64_bit() {
            return Ok(None);
        }
        let entry = registers.instruction_pointer();
        let vector = std::fs::read(format!("/proc/{id}/auxv"))?;
        let kernel_code =
            auxiliary_value(&vector, auxiliary::KERNEL_CODE).ok_or(io::ErrorKind::NotFound)?;
        let own_entry = auxiliary_value(&vector, auxiliary::PROGRAM_ENTRY);
        let is_static = own_entry == Some(entry);
        let headers = auxiliary_value(&vector, auxiliary::PROGRAM_HEADERS).unwrap_or(0);
        let (hint, near) = if is_static { (within_reach(entry), 0) } else { (0, below(headers)) };
        let report = slot.report();
        let start = Start { path: &self.path, cookie: self.cookie, hint, near, report, entry };
        memory(id)?.write_all_at(&start.code(), kernel_code + self.spare)?;
        registers.jump(kernel_code + self.spare);
        ptrace::set_registers(id, &registers)?;
        Ok(own_entry)
    }

    /// Returns the origin of a call that ended at `back`, with the rings at `base`.
    pub(super) fn origin(base: u64, back: u64) -> CallOrigin {
        if back == base + stub::after_syscall() {
            CallOrigin::Restart
        } else if (base..base + layout::PRIVATE_BYTES as u64).contains(&back) {
            CallOrigin::Stub
        } else {
            CallOrigin::Program
        }
    }

    /// Redirects the call site that ends at `back` to the stub. The first site of a file brings all other
    /// known sites of the file with it. No other thread may be running in the program. Returns `None` if the
    /// site cannot be patched; such a site stops again the next time.
    pub(super) fn patch(
        &mut self,
        id: i32,
        program: &mut Program,
        number: u32,
        back: u64,
    ) -> Option<()> {
        if !program.sites.insert(back) {
            return None;
        }
        let known = program.objects.iter().find(|object| object.contains(back)).cloned();
        let is_new = known.is_none();
        let object = known.or_else(|| Object::at(id, back));
        let site =
            simple_site(id, back, number).or_else(|| self.site_in(id, object.as_ref()?, back))?;
        let mut patcher = Patcher::new(id, program)?;
        patcher.patch(&site)?;
        let object = object?;
        if is_new {
            for site in self.used.of(&object) {
                patcher.patch_once(&site);
            }
            let of_go = self.sites_of_go(id, patcher.program, &object);
            of_go.iter().for_each(|site| patcher.patch_once(site));
        }
        self.used.learn(&object, &site);
        if is_new {
            program.objects.push(object);
        }
        Some(())
    }

    /// Finds the site of a call that ended at `back`, from the code around it.
    fn site_in(&mut self, id: i32, object: &Object, back: u64) -> Option<Site> {
        let place = (Rc::clone(&object.file), back - object.start);
        if self.refused.contains(&place) {
            return None;
        }
        let at = usize::try_from(back - object.start).ok()?.checked_sub(SYSCALL.len())?;
        let site = object.code(id).site_at(at, &self.shapes);
        if site.is_none() && self.refused.len() < SITES_MAX {
            self.refused.insert(place);
        }
        site.map(|site| site.moved(object.start))
    }

    /// Returns the sites of a Go program, which are searched only near the entry; empty for other code.
    fn sites_of_go(&mut self, id: i32, program: &Program, object: &Object) -> Vec<Site> {
        let entry = program.entry_in(object);
        if entry.is_none() || object.code(id).go_sites(entry).is_none() {
            return Vec::new();
        }
        let found = self.found_in(id, object, entry).iter();
        found.map(|site| site.moved(object.start)).collect()
    }

    /// Returns the sites found in a mapping of code whether they have run or not, relative to its start.
    fn found_in(&mut self, id: i32, object: &Object, entry: Option<usize>) -> &[Site] {
        if self.found.len() >= FILES_MAX {
            self.found.clear();
        }
        let shapes = &self.shapes;
        let found = self.found.entry(Rc::clone(&object.file));
        found.or_insert_with(|| object.code(id).search(entry, shapes))
    }

    /// Redirects a stopped call to the stub.
    pub(super) fn redirect(id: i32, base: u64, number: u32, back: u64) -> io::Result<()> {
        let mut registers = ptrace::registers(id)?;
        registers.redirect(base + layout::CODE as u64, u64::from(number), back);
        ptrace::set_registers(id, &registers)
    }

    /// Patches all sites that can be found, because the program is about to start a second thread. Code must
    /// not be patched while another thread may be executing it.
    pub(super) fn patch_ahead(&mut self, id: i32, program: &mut Program) {
        if program.known_base().is_none() || program.is_patched_ahead(id) {
            return;
        }
        let mut objects = Object::all(id);
        // If the limit is too small for all code, mappings in which calls were made come first, then the
        // program itself.
        objects.sort_by_key(|object| !program.sites.iter().any(|site| object.contains(*site)));
        let mut bytes = 0;
        for object in objects {
            bytes += object.bytes();
            if bytes > CODE_AHEAD_BYTES_MAX {
                break;
            }
            let found = self.found_in(id, &object, program.entry_in(&object)).iter();
            let sites: Vec<_> = found.map(|site| site.moved(object.start)).collect();
            let Some(mut patcher) = Patcher::new(id, program) else { return };
            for site in sites {
                // A site out of reach stops at each call.
                patcher.patch_once(&site);
            }
        }
    }

    /// Switches the stub to finding the thread's slot by the gs register, because several threads are about
    /// to run. This thread is stopped, and the new one waits for [`Self::set_gs_to_slot`].
    pub(super) fn begin_threads(&self, id: i32, slot: Option<Slot>, program: &mut Program) {
        let Some(base) = program.known_base() else { return };
        if program.identity == Identity::Owner {
            set_owner(id, program, None);
        }
        if self.has_gs && program.identity == Identity::Unknown {
            let slots = Slot::addresses(base);
            let bytes = [*slots.start(), *slots.end()].map(u64::to_ne_bytes);
            let at = base + layout::FIRST_SLOT as u64;
            let written =
                memory(id).and_then(|memory| memory.write_all_at(bytes.as_flattened(), at));
            if written.is_ok() {
                program.identity = Identity::Gs;
                Self::set_gs_to_slot(id, slot, base);
            }
        }
    }

    /// Sets the stopped thread's gs to the address of its slot, unless the program uses gs itself.
    pub(super) fn set_gs_to_slot(id: i32, slot: Option<Slot>, base: u64) {
        let Ok(registers) = ptrace::registers(id) else { return };
        let gs = registers.gs_base();
        if gs == 0 || Slot::addresses(base).contains(&gs) {
            // A failure means that the thread was killed in the meantime.
            let _ = ptrace::set_gs_base(id, slot.map_or(0, |slot| slot.address(base)));
        }
    }

    /// Makes an interrupted call of the stub pass the filter again.
    pub(super) fn restart(&self, id: i32) -> io::Result<()> {
        let mut registers = ptrace::registers(id)?;
        registers.set_sixth_argument(self.cookie);
        ptrace::set_registers(id, &registers)
    }

    /// Handles the arrival of a signal in the stub. Returns `true` if the stub itself caused the signal by
    /// reading a bad address, in which case the program must not see it.
    pub(super) fn handle_signal(id: i32, thread: &Thread, signal: i32) -> io::Result<bool> {
        let Some(base) = thread.program.borrow().known_base() else { return Ok(false) };
        let mut registers = ptrace::registers(id)?;
        let at = registers.instruction_pointer();
        if is_fault(signal) && stub::loads().contains(&at.wrapping_sub(base)) {
            registers.jump(base + stub::unreadable());
            ptrace::set_registers(id, &registers)?;
            return Ok(true);
        }
        if at == base + stub::after_syscall() && is_restart(&registers) {
            // Without the cookie, the filter will stop the restarted call.
            registers.set_sixth_argument(0);
            ptrace::set_registers(id, &registers)?;
        }
        Ok(false)
    }
}

/// Tells the stub the slot of the program's only thread, or that there is none. No thread may be running in
/// the program.
pub(super) fn set_owner(id: i32, program: &mut Program, slot: Option<Slot>) {
    if let (Some(base), Ok(memory)) = (program.known_base(), memory(id)) {
        let owner = slot.map_or(0, |slot| slot.address(base)).to_ne_bytes();
        let written = memory.write_all_at(&owner, base + layout::OWNER as u64);
        let is_owned = written.is_ok() && slot.is_some();
        program.identity = if is_owned { Identity::Owner } else { Identity::Unknown };
    }
}

/// Recognizes the site of a call that ended at `back` by a single instruction.
fn simple_site(id: i32, back: u64, number: u32) -> Option<Site> {
    let mut bytes = [0; SITE_BYTES];
    let start = back.checked_sub(SITE_BYTES as u64)?;
    let read = ptrace::read_memory(id, start, &mut bytes).ok()?;
    let is_whole = read == SITE_BYTES;
    let site = Site::simple(&bytes, SITE_BYTES - SYSCALL.len(), Some(number));
    site.filter(|_| is_whole).map(|site| site.moved(start))
}

/// Writes jumps into a program. No other thread may be running in the program.
struct Patcher<'a> {
    id: i32,
    program: &'a mut Program,
    memory: File,
    base: u64,
    /// Whether a signal handler may return to the middle of a site; `None` until checked.
    may_return_within: Option<bool>,
}

impl<'a> Patcher<'a> {
    fn new(id: i32, program: &'a mut Program) -> Option<Self> {
        let base = program.known_base()?;
        Some(Self { id, program, memory: memory(id).ok()?, base, may_return_within: None })
    }

    /// Redirects a site that was found elsewhere, if the same bytes are here.
    fn patch_once(&mut self, site: &Site) {
        let expected = site.bytes();
        let mut bytes = vec![0; expected.len()];
        let read = ptrace::read_memory(self.id, site.start(), &mut bytes);
        let is_there = read.is_ok_and(|read| read == expected.len()) && bytes == expected;
        if is_there && self.program.sites.insert(site.back) {
            let _ = self.patch(site);
        }
    }

    /// Redirects a site to the stub.
    fn patch(&mut self, site: &Site) -> Option<()> {
        if site.is_of_several() && self.may_return_within() {
            return None;
        }
        self.write(site, self.base, 0).or_else(|| self.write(site, self.program.near()?, 1))
    }

    /// Redirects a site through a trampoline in the copy of the rings' private part at `part`.
    fn write(&mut self, site: &Site, part: u64, pool: usize) -> Option<()> {
        let used = self.program.trampolines[pool];
        if used == layout::TRAMPOLINES_MAX {
            return None;
        }
        let address = part + (layout::TRAMPOLINES + used * layout::TRAMPOLINE_BYTES) as u64;
        let stub = self.base + layout::CODE as u64;
        let (trampoline, jump) = (site.trampoline(address, part, stub)?, site.jump(address)?);
        self.memory.write_all_at(&trampoline, address).ok()?;
        self.program.trampolines[pool] += 1;
        let mut bytes = site.bytes();
        bytes[..PATCH_BYTES].copy_from_slice(&jump);
        self.memory.write_all_at(&bytes, site.start()).ok()
    }

    /// Whether a handler may have been called in the middle of a site by a signal delivered so far.
    fn may_return_within(&mut self) -> bool {
        let (id, signals) = (self.id, self.program.signals);
        *self.may_return_within.get_or_insert_with(|| signals & caught_signals(id) != 0)
    }
}

/// Returns the signals with a handler, one bit each; all bits if unknown.
fn caught_signals(id: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught.and_then(|caught| u64::from_str_radix(caught.trim(), 16).ok()).unwrap_or(u64::MAX)
}

impl Program {
    /// Returns the offset of the program's entry point in this mapping, if it is there.
    fn entry_in(&self, object: &Object) -> Option<usize> {
        let entry = self.entry.filter(|entry| object.contains(*entry))?;
        usize::try_from(entry - object.start).ok()
    }

    /// Whether no code was mapped since the last call of [`Injector::patch_ahead`], judging by the number of
    /// mappings.
    fn is_patched_ahead(&mut self, id: i32) -> bool {
        let objects = Object::all(id).len();
        std::mem::replace(&mut self.objects_ahead, objects) == objects
    }
}

/// Opens a stopped program's memory, which is writable regardless of protection.
fn memory(id: i32) -> io::Result<File> {
    File::options().write(true).open(format!("/proc/{id}/mem"))
}

fn is_fault(signal: i32) -> bool {
    const BUS_ERROR: i32 = 7;
    const SEGMENTATION_FAULT: i32 = 11;
    matches!(signal, BUS_ERROR | SEGMENTATION_FAULT)
}

/// Whether the kernel is going to restart the interrupted call.
fn is_restart(registers: &Registers) -> bool {
    (-516..=-512).contains(&registers.result())
}

/// Returns the address for the rings in a statically linked program, all of whose sites are in the program
/// itself: within reach of a jump, and out of the way of the heap, which grows upwards.
fn within_reach(entry: u64) -> u64 {
    const LOW: u64 = 0x7000_0000;
    if entry < LOW { LOW } else { (entry - layout::AREA_BYTES as u64 - (1 << 28)) & !0xfff }
}

/// Returns the address for the second copy of the private part: a little below the program, whose headers are
/// at its start.
fn below(headers: u64) -> u64 {
    const DISTANCE: u64 = 0x8_0000;
    // The kernel does not map the lowest addresses (`mmap_min_addr`).
    const LOWEST: u64 = 0x10_0000;
    let address = (headers & !0xfff).saturating_sub(DISTANCE);
    if address < LOWEST { 0 } else { address }
}

fn auxiliary_value(vector: &[u8], wanted: u64) -> Option<u64> {
    let word = |bytes: &[u8]| bytes.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
    let mut pairs = vector.chunks_exact(16);
    pairs.find(|pair| word(pair) == Some(wanted)).and_then(|pair| word(&pair[8..]))
}

/// Returns the offset of the unused end of the vDSO, if it is long enough.
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
    let need = Start { path: "", cookie: 0, hint: 0, near: 0, report: 0, entry: 0 }.code().len();
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
        assert_eq!(Injector::origin(base, base + stub::after_syscall()), CallOrigin::Restart);
        assert_eq!(Injector::origin(base, base + 2), CallOrigin::Stub);
        assert_eq!(Injector::origin(base, base - 2), CallOrigin::Program);
    }
}
