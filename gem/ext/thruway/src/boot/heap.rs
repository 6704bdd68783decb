//! Ruby's heap begins with the size that it had at the end of an earlier boot of the same command.
//!
//! Ruby starts with a small heap. A boot creates objects that mostly stay, and Ruby traverses all of them whenever its
//! free slots are used up, which is a quarter of a boot's time. So the heap is filled with Strings while it is still
//! small, and a collection frees most of them at once. The others are the first garbage of the program. Ruby's
//! collector is as usual from then on: it is neither disabled while a program runs, nor has it other settings. The
//! Strings have no class, as Ruby's own hidden objects, so that `ObjectSpace` does not show them.

use std::ffi::CStr;
use std::sync::OnceLock;

use thruway_boot::heap::command;
use thruway_boot::{Boot, Part};

use super::originals;
use crate::ruby::call::{ask, send};
use crate::ruby::collector::{collect, count, without_collection};
use crate::ruby::number::{from_u64, small};
use crate::ruby::{Gvl, NIL, PinnedObject, ProtectedCall, RArray, RHash, RModule, RString, Symbol};

/// The most objects of a heap that is still small, so that a collection takes some ten milliseconds at most. RubyGems
/// and Bundler have 60,000.
const OBJECTS_MAX: u64 = 120_000;

/// The fewest slots whose growth is worth a collection.
const SLOTS_MIN: u64 = 20_000;

/// The bytes of a slot that a String does not use for its content, at most.
const STRING_BYTES: u64 = 32;

/// Half of a page of Ruby's heap, in its smallest version. Of the Strings in each such half, one outlives the
/// collection: as soon as 65 of 100 slots are free, Ruby gives back pages, but only those without any object.
const HALF_PAGE_BYTES: u64 = 8 << 10;

/// Makes the heap as large as at the end of an earlier boot of this command.
pub(super) fn grow(gvl: Gvl, boot: &Boot) {
    if !boot.options.has(Part::Heap) || boot.options.gc_after_mb.is_some() {
        return;
    }
    let Some(size) = boot.heap_size(this_command()) else { return };
    if let Some(reason) = reason_against(gvl) {
        let line = format!("the heap begins as Ruby decides, since {reason}");
        return boot.counts.record_heap(line);
    }
    let Some(pools) = SizePool::all(gvl) else { return };
    let wanted = size.slots_for_boot();
    let missing: Vec<_> =
        pools.iter().zip(wanted).map(|(pool, slots)| pool.missing(slots)).collect();
    let sum: u64 = missing.iter().map(|(_, slots)| slots).sum();
    if sum >= SLOTS_MIN {
        fill(gvl, &missing);
        boot.counts.record_heap(format!("the heap began with {sum} slots more than Ruby's"));
    }
}

/// Keeps the size of the heap at the end of the boot, once in a process.
pub(super) fn note_size(gvl: Gvl, boot: &Boot) {
    static IS_NOTED: OnceLock<()> = OnceLock::new();
    let is_usual = boot.options.has(Part::Heap) && boot.options.gc_after_mb.is_none();
    if is_usual
        && IS_NOTED.set(()).is_ok()
        && setting().is_none()
        && let Some(pools) = SizePool::all(gvl)
    {
        let slots: Vec<_> = pools.iter().map(|pool| pool.slots).collect();
        boot.learn_heap_size(this_command(), &slots);
    }
}

/// The name of the command that this process runs.
fn this_command() -> &'static [u8] {
    static COMMAND: OnceLock<Vec<u8>> = OnceLock::new();
    COMMAND.get_or_init(|| command(std::env::args_os(), |name| std::env::var_os(name)))
}

/// Why the heap must not grow now, if there is a reason.
fn reason_against(gvl: Gvl) -> Option<String> {
    if let Some(name) = setting() {
        return Some(format!("{name} is set"));
    }
    let collector = RModule::named(gvl, c"GC").value();
    if !is_by_ruby(gvl, c"stress") || ask(gvl, collector, c"stress", &[]) {
        return Some("GC.stress is set".to_owned());
    }
    if has_limit() {
        return Some("the memory of the process is limited".to_owned());
    }
    (count(gvl, c"heap_live_slots") > OBJECTS_MAX).then(|| "it is large already".to_owned())
}

/// A setting of Ruby's collector in the environment.
fn setting() -> Option<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.into_iter().find(|name| name.starts_with("RUBY_GC_"))
}

/// Whether the process may not have all the memory of the machine.
#[cfg(unix)]
fn has_limit() -> bool {
    [libc::RLIMIT_AS, libc::RLIMIT_DATA].into_iter().any(|resource| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the place is valid for a limit.
        let status = unsafe { libc::getrlimit(resource, &raw mut limit) };
        status != 0 || limit.rlim_cur != libc::RLIM_INFINITY
    })
}

/// Windows has no such limits.
#[cfg(windows)]
fn has_limit() -> bool {
    false
}

/// Fills the free slots of each pool, and new ones, and frees them. Where memory runs out, the rest is left.
fn fill(gvl: Gvl, missing: &[(SizePool, u64)]) {
    let kept = RArray::with_room(gvl, 0);
    PinnedObject::new(gvl, kept.value());
    without_collection(gvl, || {
        gvl.protect(|ruby| missing.iter().for_each(|(pool, slots)| pool.fill(ruby, *slots, kept)));
    });
    collect(gvl);
    kept.clear(gvl);
}

/// The slots of one size in Ruby's heap.
#[derive(Debug, Clone, Copy)]
struct SizePool {
    slot_bytes: u64,
    slots: u64,
}

impl SizePool {
    /// All pools, from the smallest slots to the largest; `None` if a program has replaced the means to find them.
    fn all(gvl: Gvl) -> Option<Vec<Self>> {
        let collector = RModule::named(gvl, c"GC");
        if !ask(gvl, collector.value(), c"respond_to?", &[Symbol::new(gvl, c"stat_heap").value()]) {
            // Ruby 3.1 has one pool.
            let slots = count(gvl, c"heap_available_slots");
            return Some(vec![Self { slot_bytes: 40, slots }]);
        }
        is_by_ruby(gvl, c"stat_heap").then_some(())?;
        let number = |pool, name| {
            let arguments = [from_u64(gvl, pool), Symbol::new(gvl, name).value()];
            let number = small(send(gvl, collector.value(), c"stat_heap", &arguments)?)?;
            u64::try_from(number).ok()
        };
        let pool = |index| {
            let (slot_bytes, slots) =
                (number(index, c"slot_size")?, number(index, c"heap_eden_slots")?);
            Some(Self { slot_bytes, slots })
        };
        // A pool that is not there would raise, which a program sees with `-d`.
        let all = send(gvl, collector.value(), c"stat_heap", &[])?;
        let count = u64::try_from(RHash::of(gvl, all)?.len(gvl)).ok()?;
        let pools: Vec<_> = (0..count).map_while(pool).collect();
        (!pools.is_empty()).then_some(pools)
    }

    /// The pool, and the number of slots that it lacks.
    fn missing(self, slots: u64) -> (Self, u64) {
        (self, slots.saturating_sub(self.slots))
    }

    /// Fills so many slots, and keeps one of each page filled. Raises NoMemoryError.
    fn fill(self, ruby: ProtectedCall, slots: u64, kept: RArray) {
        let distance = (HALF_PAGE_BYTES / self.slot_bytes.max(1)).max(1);
        for index in 0..slots {
            let text = RString::hidden(ruby, self.slot_bytes.saturating_sub(STRING_BYTES));
            if index % distance == 0 {
                kept.push(ruby.gvl(), text.value());
            }
        }
    }
}

/// Whether a method of the collector's is Ruby's own.
fn is_by_ruby(gvl: Gvl, name: &'static CStr) -> bool {
    let collector = RModule::named(gvl, c"GC").value();
    let Some(method) = originals::own_method(gvl, collector, name) else { return false };
    match send(gvl, method, c"source_location", &[]) {
        Some(NIL) => true,
        Some(location) => originals::source_file(gvl, location)
            .is_some_and(|file| file.read(gvl, |file| file.starts_with(b"<internal:"))),
        None => false,
    }
}
