//! Counters and the report: how much came from the pack, and why the rest did not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use thruway_pack::printable;

use crate::code::Reason;
use crate::options::Part;

/// The most features that a report lists by name.
const NAMED_MAX: usize = 10_000;

/// A counter that any thread may increment.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Increases the counter.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Returns the current value of the counter.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of this process.
#[derive(Debug, Default)]
pub struct Counts {
    /// Names resolved without a search.
    pub resolved: Count,
    /// Names that Ruby had to search for.
    pub searched: Count,
    /// Calls of Ruby that were answered in place of the kernel.
    pub answered: Count,
    /// Features whose compiled code came from the pack.
    pub from_pack: Count,
    /// Features that Ruby compiled.
    pub compiled: Count,
    reasons: Mutex<BTreeMap<Reason, Vec<Vec<u8>>>>,
    inactive_parts: Mutex<BTreeSet<(&'static str, String)>>,
    supplier: Mutex<Option<String>>,
    heap: Mutex<Option<String>>,
}

impl Counts {
    /// Counts a feature that Ruby compiled, with the reason.
    pub fn record_compiled(&self, path: &[u8], reason: Reason, keep_name: bool) {
        self.compiled.add(1);
        let Ok(mut reasons) = self.reasons.try_lock() else { return };
        let names = reasons.entry(reason).or_default();
        if keep_name && names.len() < NAMED_MAX {
            names.push(path.to_vec());
        }
    }

    /// Records that a part stayed inactive at least once, because a method that it replaces is not the
    /// library's own.
    pub fn record_inactive_part(&self, part: Part, change: String) {
        if let Ok(mut left) = self.inactive_parts.try_lock() {
            left.insert((part.name(), change));
        }
    }

    /// Records where another `load_iseq`, which runs before the pack's, is defined.
    pub fn record_supplier(&self, place: String) {
        if let Ok(mut supplier) = self.supplier.try_lock() {
            *supplier = Some(place);
        }
    }

    /// Records how Ruby's heap began.
    pub fn record_heap(&self, line: String) {
        if let Ok(mut heap) = self.heap.try_lock() {
            *heap = Some(line);
        }
    }

    /// Returns the report, one fact per line. `files` and `folders` are numbers of queries to the disk.
    #[must_use]
    pub fn report(&self, files: u64, folders: u64) -> String {
        let mut report = format!(
            "thruway: {} features from the pack, {} compiled\n\
             thruway: {} names found without a search, {} searched for by Ruby\n\
             thruway: {} look-ups answered; the disk was asked {} times about files, {} about folders\n",
            self.from_pack.value(),
            self.compiled.value(),
            self.resolved.value(),
            self.searched.value(),
            self.answered.value(),
            files,
            folders,
        );
        if let Ok(reasons) = self.reasons.try_lock() {
            for (reason, names) in reasons.iter() {
                for name in names {
                    let name = printable::bytes(name);
                    report.push_str(&format!("thruway: {}: {name}\n", reason.words()));
                }
            }
        }
        if let Ok(left) = self.inactive_parts.try_lock() {
            for (part, change) in left.iter() {
                let line =
                    format!("thruway: {part} was left to Ruby, since {change} is not its own\n");
                report.push_str(&line);
            }
        }
        if let Ok(heap) = self.heap.try_lock()
            && let Some(line) = heap.as_deref()
        {
            report.push_str(&format!("thruway: {line}\n"));
        }
        if let Ok(supplier) = self.supplier.try_lock()
            && let Some(place) = supplier.as_deref().map(printable::text)
        {
            let line = format!("thruway: code is asked of another load_iseq first: {place}\n");
            report.push_str(&line);
        }
        report
    }
}
