//! Events inside Ruby, such as pauses for the collector.

use std::ffi::c_void;

use rb_sys::VALUE;

use super::{Gvl, NIL, Pinned};

/// What Ruby calls at an event, with the data that it was subscribed with.
pub(crate) type Callback = unsafe extern "C" fn(VALUE, *mut c_void);

/// A TracePoint that is enabled.
pub(crate) struct Subscription(Pinned);

/// Calls `callback` at each of `events` from now on. `data` lives for ever.
pub(crate) fn subscribe(
    gvl: Gvl,
    events: u32,
    callback: Callback,
    data: *mut c_void,
) -> Subscription {
    // SAFETY: the callback has the type that Ruby calls, and gets back its data.
    let trace_point = unsafe { rb_sys::rb_tracepoint_new(NIL, events, Some(callback), data) };
    let trace_point = Pinned::new(gvl, trace_point);
    // SAFETY: it is a TracePoint.
    unsafe { rb_sys::rb_tracepoint_enable(trace_point.value()) };
    Subscription(trace_point)
}

impl Subscription {
    pub(crate) fn end(self, _: Gvl) {
        // SAFETY: the lock is held; it is a TracePoint, which is pinned.
        unsafe { rb_sys::rb_tracepoint_disable(self.0.value()) };
    }
}
