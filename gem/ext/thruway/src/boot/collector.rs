//! `--gc-after`: Ruby collects no garbage until the program has asked for that much memory.
//!
//! A boot leaves little garbage and many objects, and each collection looks at all of them. What the
//! program asks for is counted as it is asked for, so that the bound holds whatever it does. If a program
//! switches the collector on or off itself, it gets the answers that it would get without us. From then
//! on, only the program switches the collector.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use rb_sys::VALUE;

use super::allocations;
use crate::ruby::define::{Method, quietly, singleton_method};
use crate::ruby::{FALSE, Gvl, Protected, RModule, is_true};

/// How many bytes may still be asked for.
static LEFT: AtomicI64 = AtomicI64::new(0);
/// Whether the collector is off because of us.
static IS_WAITING: AtomicBool = AtomicBool::new(false);

/// Switches the collector off until the program has asked for that many megabytes.
pub(super) fn wait_for(gvl: Gvl, megabytes: u32) {
    // SAFETY: the lock is held.
    if is_true(unsafe { rb_sys::rb_gc_disable() }) {
        return;
    }
    LEFT.store(i64::from(megabytes) * 1_000_000, Ordering::Relaxed);
    IS_WAITING.store(true, Ordering::Relaxed);
    if allocations::watch(rb_sys::rb_f_require as *const (), allocated).is_err() {
        return resume();
    }
    let collector = RModule::named(gvl, c"GC").value();
    quietly(gvl, || {
        singleton_method(gvl, collector, c"enable", Method::of_0(enable));
        singleton_method(gvl, collector, c"disable", Method::of_0(disable));
    });
}

/// Ruby asks for memory.
fn allocated(bytes: usize) {
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    if LEFT.fetch_sub(bytes, Ordering::Relaxed) <= bytes {
        resume();
    }
}

fn resume() {
    if stop() {
        // SAFETY: it sets a flag, which may be done wherever Ruby asks for memory.
        unsafe { rb_sys::rb_gc_enable() };
    }
}

/// Whether we were waiting; we are not any more.
fn stop() -> bool {
    let was_waiting = IS_WAITING.swap(false, Ordering::Relaxed);
    if was_waiting {
        allocations::forget(rb_sys::rb_f_require as *const ());
    }
    was_waiting
}

/// `GC.enable`: whether the program had switched it off.
fn enable(_ruby: Protected, _collector: VALUE) -> VALUE {
    let was_waiting = stop();
    // SAFETY: the lock is held.
    let was_off = unsafe { rb_sys::rb_gc_enable() };
    if was_waiting { FALSE } else { was_off }
}

/// `GC.disable`: whether the program had switched it off before.
fn disable(_ruby: Protected, _collector: VALUE) -> VALUE {
    let was_waiting = stop();
    // SAFETY: as above.
    let was_off = unsafe { rb_sys::rb_gc_disable() };
    if was_waiting { FALSE } else { was_off }
}
