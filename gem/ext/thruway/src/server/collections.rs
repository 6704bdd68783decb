//! The time for which Ruby pauses to collect garbage, for the metrics.
//!
//! Ruby 3.3 and later report the beginning and the end of each pause. Earlier versions create each object more slowly
//! while anything subscribes to these events. There, Ruby's own total is read after each call of the application
//! during which a collection began. Each collection then counts as one pause, including the rest of the previous one.

use std::cell::Cell;
use std::ffi::c_void;

use rb_sys::VALUE;
use thruway_serve::{Time, WorkerMetrics, monotonic_us};

use crate::ruby::constants::constant;
use crate::ruby::event::{self, TracePoint};
use crate::ruby::{Gvl, Symbol, call, number};

/// Whether Ruby reports pauses without creating objects more slowly.
pub(super) const REPORTS_PAUSES: bool =
    rb_sys::RUBY_API_VERSION_MAJOR > 3 || rb_sys::RUBY_API_VERSION_MINOR >= 3;

/// The data of the events: the metrics that count pauses, and the beginning of the current pause.
struct Pauses {
    metrics: WorkerMetrics,
    began_us: Cell<u64>,
}

/// Counts each pause from now on, until the events are unsubscribed.
pub(super) fn measure(gvl: Gvl, metrics: &WorkerMetrics) -> [TracePoint; 2] {
    // The value is never freed. A server is created and ended only a few times.
    let pauses = Box::new(Pauses { metrics: metrics.clone(), began_us: Cell::new(0) });
    let data: *mut c_void = Box::into_raw(pauses).cast();
    [
        event::subscribe(gvl, rb_sys::RUBY_INTERNAL_EVENT_GC_ENTER, began, data),
        event::subscribe(gvl, rb_sys::RUBY_INTERNAL_EVENT_GC_EXIT, ended, data),
    ]
}

/// Called with the interpreter lock held, at a point where nothing may be allocated.
unsafe extern "C" fn began(_: VALUE, pauses: *mut c_void) {
    // SAFETY: `measure` passed the pointer, whose target is never freed.
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

/// The collector's totals at the last reading.
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

    /// Counts the collections that have begun since the last call.
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

/// The duration of all collections; zero if the application has disabled the measurement.
fn nanoseconds(gvl: Gvl) -> u64 {
    let Some(collector) = constant(gvl, c"GC") else { return 0 };
    let total = gvl.catch(|ruby| {
        let total = call::call(ruby, collector, Symbol::new(gvl, c"total_time"), &[]);
        number::to_u64(ruby, total)
    });
    total.unwrap_or(0)
}
