//! Decides where and when the threads that serve requests run.
//!
//! Reading order: [`idle_policy`] explains the policy, and [`reader_activity`] samples whether requests wait and
//! applies the policy. [`affinity`] keeps a reader on the CPU of the calling program, and [`cpu_pin`] pins a monitor to
//! the CPU that it monitors.

pub(crate) mod affinity;
mod cpu_pin;
pub(crate) mod idle_policy;
pub(crate) mod reader_activity;
