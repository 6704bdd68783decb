//! What came from the pack and what did not, and why.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use thruway_pack::printable;

use crate::code::Reason;
use crate::options::Part;

/// Most features that a report names one by one.
const NAMED_MAX: usize = 10_000;

/// A number that any thread may add to.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds to it.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// The number so far.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What happened in this process.
#[derive(Debug, Default)]
pub struct Counts {
    /// Names whose file was found without a search.
    pub resolved: Count,
    /// Names that Ruby had to search for.
    pub searched: Count,
    /// Calls of Ruby's that were answered instead of the kernel.
    pub answered: Count,
    /// Features whose compiled code came from the pack.
    pub from_pack: Count,
    /// Features that Ruby compiled.
    pub compiled: Count,
    reasons: Mutex<BTreeMap<Reason, Vec<Vec<u8>>>>,
    left_parts: Mutex<BTreeSet<(&'static str, String)>>,
    supplier: Mutex<Option<String>>,
}

impl Counts {
    /// A feature was left to Ruby.
    pub fn left(&self, path: &[u8], reason: Reason, keep_name: bool) {
        self.compiled.add(1);
        let Ok(mut reasons) = self.reasons.try_lock() else { return };
        let names = reasons.entry(reason).or_default();
        if keep_name && names.len() < NAMED_MAX {
            names.push(path.to_vec());
        }
    }

    /// A part was left to Ruby at least once, since something is not the library's own.
    pub fn left_part(&self, part: Part, change: String) {
        if let Ok(mut left) = self.left_parts.try_lock() {
            left.insert((part.name(), change));
        }
    }

    /// Something else supplies code, or is asked before the pack is: where it is defined.
    pub fn supplied_by(&self, place: String) {
        if let Ok(mut supplier) = self.supplier.try_lock() {
            *supplier = Some(place);
        }
    }

    /// The report, a line a fact; the disk was asked so many times about files and folders.
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
        if let Ok(left) = self.left_parts.try_lock() {
            for (part, change) in left.iter() {
                let line =
                    format!("thruway: {part} was left to Ruby, since {change} is not its own\n");
                report.push_str(&line);
            }
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
