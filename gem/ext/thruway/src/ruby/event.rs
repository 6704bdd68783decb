//! Events inside Ruby, such as pauses for the collector.

use std::ffi::c_void;

use rb_sys::VALUE;

use super::{Gvl, NIL, Pinned};

/// What Ruby calls at an event, with the data that it was subscribed with.
pub(crate) type Callback = unsafe extern "C" fn(VALUE, *mut c_void);

/// Calls `callback` at each of `events` from now on. `data` lives for ever.
pub(crate) fn subscribe(gvl: Gvl, events: u32, callback: Callback, data: *mut c_void) {
    // SAFETY: the callback has the type that Ruby calls, and gets back its data.
    let trace_point = unsafe { rb_sys::rb_tracepoint_new(NIL, events, Some(callback), data) };
    // SAFETY: it is a TracePoint.
    unsafe { rb_sys::rb_tracepoint_enable(Pinned::new(gvl, trace_point).value()) };
}
