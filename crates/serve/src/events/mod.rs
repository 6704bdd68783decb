//! The event sources of an engine: kernel events, timers, the clock, and the tokens that the kernel reports.
//!
//! Reading order: `poller` waits for events and wakes other threads; `slab` gives each connection a number that the
//! kernel can report; `token` tells those numbers from the engine's own sources; `timer_wheel` and `clock` measure
//! time; `stop_signals` waits for the signal that ends a process.

pub(crate) mod clock;
pub(crate) mod poller;
pub(crate) mod slab;
pub(crate) mod stop_signals;
pub(crate) mod timer_wheel;
pub(crate) mod token;
