//! `--gc-after`: Ruby collects no garbage until the program has allocated that much memory.
//!
//! A boot creates many objects and little garbage, and each collection traverses all objects. Allocations are counted
//! as they are made, so the limit holds whatever the program does. When descriptors or memory run out, the wait ends,
//! and Ruby collects as always. If a program enables or disables the collector
//! itself, it gets the results that it would get without Thruway. From then on, only the program controls the
//! collector.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use rb_sys::VALUE;

use super::allocations::{self, AllocationObserver};
use crate::ruby::collector;
use crate::ruby::define::{Method, quietly, singleton_method};
use crate::ruby::{FALSE, Gvl, ProtectedCall, RModule, is_true};

/// The wait for the first collection. Any thread may allocate memory, and the thread that clears `is_waiting` ends
/// the wait.
struct CollectorState {
    /// The number of bytes that may still be allocated.
    bytes_left: AtomicI64,
    /// Whether the boot has disabled the collector.
    is_waiting: AtomicBool,
}

static STATE: CollectorState =
    CollectorState { bytes_left: AtomicI64::new(0), is_waiting: AtomicBool::new(false) };

/// Disables the collector until the program has allocated that many megabytes.
pub(super) fn wait_for(gvl: Gvl, megabytes: u32) {
    // SAFETY: the lock is held.
    if is_true(unsafe { rb_sys::rb_gc_disable() }) {
        return;
    }
    STATE.bytes_left.store(i64::from(megabytes) * 1_000_000, Ordering::Relaxed);
    STATE.is_waiting.store(true, Ordering::Relaxed);
    let observer = AllocationObserver { allocated, ran_out };
    if allocations::watch(rb_sys::rb_f_require as *const (), observer).is_err() {
        return resume();
    }
    let collector = RModule::named(gvl, c"GC").value();
    quietly(gvl, || {
        singleton_method(gvl, collector, c"enable", Method::of_0(enable));
        singleton_method(gvl, collector, c"disable", Method::of_0(disable));
    });
}

/// Counts an allocation. Beyond the limit, the first allocation during which nothing else holds the collector ends the
/// wait.
fn allocated(bytes: usize) {
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    if STATE.bytes_left.fetch_sub(bytes, Ordering::Relaxed) <= bytes && !collector::is_held() {
        resume();
    }
}

/// Ends the wait, unless something else holds the collector.
fn ran_out() {
    if !collector::is_held() {
        resume();
    }
}

fn resume() {
    if stop() {
        // SAFETY: the function sets a flag, which is allowed wherever Ruby allocates memory.
        unsafe { rb_sys::rb_gc_enable() };
    }
}

/// Stops waiting. Returns whether the boot was waiting.
fn stop() -> bool {
    let was_waiting = STATE.is_waiting.swap(false, Ordering::Relaxed);
    if was_waiting {
        allocations::forget(rb_sys::rb_f_require as *const ());
    }
    was_waiting
}

/// `GC.enable`: returns whether the program had disabled the collector.
fn enable(_ruby: ProtectedCall, _collector: VALUE) -> VALUE {
    let was_waiting = stop();
    // SAFETY: the lock is held.
    let was_off = unsafe { rb_sys::rb_gc_enable() };
    if was_waiting { FALSE } else { was_off }
}

/// `GC.disable`: returns whether the program had disabled the collector before.
fn disable(_ruby: ProtectedCall, _collector: VALUE) -> VALUE {
    let was_waiting = stop();
    // SAFETY: as above.
    let was_off = unsafe { rb_sys::rb_gc_disable() };
    if was_waiting { FALSE } else { was_off }
}
