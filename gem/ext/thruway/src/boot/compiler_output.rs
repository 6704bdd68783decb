//! Whether Ruby's compiler had something to say: a later boot has to say it again.
//!
//! Where libruby's calls are seen, what it writes is counted. In the portable mode its calls of `Warning.warn` are:
//! the compiler warns in no other way. Ruby suppresses events while it parses, so a method of ours stands in front
//! of Ruby's own meanwhile.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

use rb_sys::VALUE;

use super::{current, interpose};
use crate::ruby::call::{call_super, send};
use crate::ruby::define::{Method, quietly, singleton_method};
use crate::ruby::{Gvl, Protected, RModule, Symbol};

const WARN: &CStr = c"warn";

/// How often Ruby called `Warning.warn` meanwhile.
static WARNINGS: AtomicU64 = AtomicU64::new(0);
/// How many files are being listened to.
static LISTENING: AtomicU64 = AtomicU64::new(0);

/// From its beginning to its end, what is said is noted: how much was said before.
#[derive(Debug)]
pub(super) struct Listening(u64);

impl Listening {
    /// Listens from now on; `None` if it cannot be heard.
    pub(super) fn begin(gvl: Gvl) -> Option<Self> {
        if !is_portable() {
            interpose::count_writes();
            return interpose::writes().map(Self);
        }
        if LISTENING.fetch_add(1, Ordering::Relaxed) == 0 {
            let warn = Method::of_any(warn);
            quietly(gvl, || singleton_method(gvl, warning(gvl).value(), WARN, warn));
        }
        Some(Self(WARNINGS.load(Ordering::Relaxed)))
    }

    /// Listens no more. Answers whether nothing was said.
    pub(super) fn ends_in_silence(self, gvl: Gvl) -> bool {
        if !is_portable() {
            return interpose::writes() == Some(self.0);
        }
        if LISTENING.fetch_sub(1, Ordering::Relaxed) == 1 {
            let class = warning(gvl).singleton_class(gvl).value();
            send(gvl, class, c"remove_method", &[Symbol::new(gvl, WARN).value()]);
        }
        WARNINGS.load(Ordering::Relaxed) == self.0
    }
}

fn is_portable() -> bool {
    current::boot().is_some_and(|boot| boot.options.portable)
}

fn warning(gvl: Gvl) -> RModule {
    RModule::named(gvl, c"Warning")
}

/// In front of Ruby's own, which every program has by way of a module.
fn warn(ruby: Protected, _warning: VALUE, arguments: &[VALUE]) -> VALUE {
    WARNINGS.fetch_add(1, Ordering::Relaxed);
    call_super(ruby, arguments)
}
