//! Look-ups of a command and of all that it starts: which were wasted, and what would fix it.
//!
//! Reading order: [`call`] (which system calls ask for a file by name); `record` and `area` (how
//! they are noted, and the memory that everyone shares); `tracer` (the process that is attached to
//! the command) and `launch`; `reader`, `batch` and `replay` (from the rings to [`Event`]s with
//! absolute names); [`Recorder`], which holds it all together.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "what the tracer does for the stub waits for one")
)]

pub mod analysis;
mod area;
mod batch;
pub mod call;
mod command;
mod doorbell;
mod error;
mod event;
mod filter;
mod keeper;
mod launch;
mod reader;
mod record;
mod recorder;
mod recording;
mod replay;
mod tracer;

pub use command::Command;
pub use error::Error;
pub use event::{Called, Deed, Event};
pub use recorder::{Backend, Outcome, Recorder};
pub use recording::{Header, Reader, Sink, TraceEvents, Writer};
pub use thruway_sys::process::{Change, die_of};
