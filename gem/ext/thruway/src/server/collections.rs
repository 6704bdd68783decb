//! How long Ruby pauses for its collector, for the metrics.

use std::cell::Cell;
use std::ffi::c_void;

use rb_sys::VALUE;
use thruway_serve::{Time, WorkerMetrics, monotonic_us};

use crate::ruby::Gvl;
use crate::ruby::event::{self, Subscription};

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
