//! Detects whether Ruby's compiler has printed anything: a later boot would have to print the same warnings again.
//!
//! Where libruby's writes are interposed, they are counted. In the portable mode and on Windows, calls of
//! `Warning.warn` are counted, since the compiler warns in no other way. Ruby suppresses trace events while it parses,
//! so a method of ours precedes Ruby's own meanwhile.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

use rb_sys::VALUE;

use super::{current, writes};
use crate::ruby::call::{call_super, send};
use crate::ruby::define::{Method, quietly, singleton_method};
use crate::ruby::{Gvl, ProtectedCall, RModule, Symbol};

const WARN: &CStr = c"warn";

/// The calls of `Warning.warn`, counted with the interpreter lock held.
struct Counts {
    /// The number of calls of `Warning.warn` while any file was observed.
    warnings: AtomicU64,
    /// The number of files that are observed now.
    observed_files: AtomicU64,
}

static COUNTS: Counts = Counts { warnings: AtomicU64::new(0), observed_files: AtomicU64::new(0) };

/// Observes the compiler's output from [`begin`](Self::begin) to [`ends_in_silence`](Self::ends_in_silence). Holds
/// the count at the beginning.
#[derive(Debug)]
pub(super) struct OutputObservation(u64);

impl OutputObservation {
    /// Starts to observe; returns `None` where the output cannot be observed.
    pub(super) fn begin(gvl: Gvl) -> Option<Self> {
        if counts_writes() {
            writes::count();
            return writes::counted().map(Self);
        }
        if COUNTS.observed_files.fetch_add(1, Ordering::Relaxed) == 0 {
            let warn = Method::of_any(warn);
            quietly(gvl, || singleton_method(gvl, warning(gvl).value(), WARN, warn));
        }
        Some(Self(COUNTS.warnings.load(Ordering::Relaxed)))
    }

    /// Stops observing. Returns whether the compiler has printed nothing.
    pub(super) fn ends_in_silence(self, gvl: Gvl) -> bool {
        if counts_writes() {
            return writes::counted() == Some(self.0);
        }
        if COUNTS.observed_files.fetch_sub(1, Ordering::Relaxed) == 1 {
            let class = warning(gvl).singleton_class(gvl).value();
            send(gvl, class, c"remove_method", &[Symbol::new(gvl, WARN).value()]);
        }
        COUNTS.warnings.load(Ordering::Relaxed) == self.0
    }
}

fn counts_writes() -> bool {
    cfg!(unix) && current::boot().is_some_and(|boot| !boot.options.portable)
}

fn warning(gvl: Gvl) -> RModule {
    RModule::named(gvl, c"Warning")
}

/// Precedes Ruby's own `warn`, which `Warning` inherits from a module.
fn warn(ruby: ProtectedCall, _warning: VALUE, arguments: &[VALUE]) -> VALUE {
    COUNTS.warnings.fetch_add(1, Ordering::Relaxed);
    call_super(ruby, arguments)
}
