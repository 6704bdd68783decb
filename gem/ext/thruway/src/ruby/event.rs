//! Events inside Ruby, such as garbage collections.

use std::ffi::c_void;

use rb_sys::VALUE;

use super::{Gvl, NIL, PinnedObject};

/// A function that Ruby calls at an event, with the data of the subscription.
pub(crate) type TracePointFunction = unsafe extern "C" fn(VALUE, *mut c_void);

/// An enabled TracePoint.
pub(crate) struct TracePoint(PinnedObject);

/// Calls `callback` at each of `events` from now on. `data` must live for ever.
pub(crate) fn subscribe(
    gvl: Gvl,
    events: u32,
    callback: TracePointFunction,
    data: *mut c_void,
) -> TracePoint {
    // SAFETY: the callback has the type that Ruby calls, and receives its data.
    let trace_point = unsafe { rb_sys::rb_tracepoint_new(NIL, events, Some(callback), data) };
    let trace_point = PinnedObject::new(gvl, trace_point);
    // SAFETY: the value is a TracePoint.
    unsafe { rb_sys::rb_tracepoint_enable(trace_point.value()) };
    TracePoint(trace_point)
}

impl TracePoint {
    pub(crate) fn end(self, _: Gvl) {
        // SAFETY: the lock is held; the TracePoint is pinned.
        unsafe { rb_sys::rb_tracepoint_disable(self.0.value()) };
    }
}
