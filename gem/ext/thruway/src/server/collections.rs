//! How long Ruby pauses for its collector, for the metrics.
//!
//! From 3.3 on Ruby tells of the beginning and the end of each pause. Before, it makes each object more slowly while
//! anything subscribes to its collector. Its own total is read there, after a call of the application in which a
//! collection began. Each collection is one time then, with what was left of the one before.

use std::cell::Cell;
use std::ffi::c_void;

use rb_sys::VALUE;
use thruway_serve::{Time, WorkerMetrics, monotonic_us};

use crate::ruby::constants::constant;
use crate::ruby::event::{self, Subscription};
use crate::ruby::{Gvl, Symbol, call, number};

/// Whether Ruby tells of pauses, and makes objects as quickly as otherwise.
pub(super) const ARE_TOLD: bool =
    rb_sys::RUBY_API_VERSION_MAJOR > 3 || rb_sys::RUBY_API_VERSION_MINOR >= 3;

/// What the events are given: where pauses are counted, and when the current one began.
struct Pauses {
    metrics: WorkerMetrics,
    began_us: Cell<u64>,
}

/// Counts each pause from now on, until the events are unsubscribed.
pub(super) fn measure(gvl: Gvl, metrics: &WorkerMetrics) -> [Subscription; 2] {
    // It lives for ever: a server is made and ended a few times at most.
    let pauses = Box::new(Pauses { metrics: metrics.clone(), began_us: Cell::new(0) });
    let data: *mut c_void = Box::into_raw(pauses).cast();
    [
        event::subscribe(gvl, rb_sys::RUBY_INTERNAL_EVENT_GC_ENTER, began, data),
        event::subscribe(gvl, rb_sys::RUBY_INTERNAL_EVENT_GC_EXIT, ended, data),
    ]
}

/// Called with the interpreter lock held, where nothing may be allocated.
unsafe extern "C" fn began(_: VALUE, pauses: *mut c_void) {
    // SAFETY: `measure` gave the pointer, and what it points at lives for ever.
    let pauses = unsafe { &*pauses.cast::<Pauses>() };
    pauses.began_us.set(monotonic_us());
}

unsafe extern "C" fn ended(_: VALUE, pauses: *mut c_void) {
    // SAFETY: as above.
    let pauses = unsafe { &*pauses.cast::<Pauses>() };
    let began_us = pauses.began_us.take();
    if began_us > 0 {
        pauses.metrics.record(Time::Collection, monotonic_us().saturating_sub(began_us));
    }
}

/// The collector's totals as they were read last.
pub(super) struct Totals {
    metrics: WorkerMetrics,
    collections: Cell<u64>,
    nanoseconds: Cell<u64>,
}

impl Totals {
    pub(super) fn new(gvl: Gvl, metrics: &WorkerMetrics) -> Self {
        let (collections, nanoseconds) = (Cell::new(collections(gvl)), Cell::new(nanoseconds(gvl)));
        Self { metrics: metrics.clone(), collections, nanoseconds }
    }

    /// Counts the collections that began since the last time.
    pub(super) fn note(&self, gvl: Gvl) {
        let all = collections(gvl);
        let began = all.saturating_sub(self.collections.replace(all));
        if began == 0 {
            return;
        }
        let total = nanoseconds(gvl);
        let took = total.saturating_sub(self.nanoseconds.replace(total));
        let each_us = took / 1000 / began;
        (0..began).for_each(|_| self.metrics.record(Time::Collection, each_us));
    }
}

fn collections(_: Gvl) -> u64 {
    // SAFETY: the interpreter lock is held.
    unsafe { rb_sys::rb_gc_count() }
}

/// What all collections took together; zero where the application has switched that off.
fn nanoseconds(gvl: Gvl) -> u64 {
    let Some(collector) = constant(gvl, c"GC") else { return 0 };
    let total = gvl.catch(|ruby| {
        let total = call::call(ruby, collector, Symbol::new(gvl, c"total_time"), &[]);
        number::to_u64(ruby, total)
    });
    total.unwrap_or(0)
}
