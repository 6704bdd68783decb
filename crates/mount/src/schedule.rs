//! Where and when the threads that answer requests run.
//!
//! [`reader_activity`] looks whether requests wait, and grants the [`idle_policy`]; [`affinity`] keeps a reader where the
//! program runs that asks, and [`cpu_pin`] ties a monitor to the processor that it monitors.

pub(crate) mod affinity;
mod cpu_pin;
pub(crate) mod idle_policy;
pub(crate) mod reader_activity;
