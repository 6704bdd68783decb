//! Records the file look-ups of a command and its descendants, and reports which were wasted and how to avoid
//! them.
//!
//! Reading order: [`call`] (the system calls that name a file); `record` and `shared_rings` (the form of a
//! recorded call, and the memory that all processes share); `tracer` (the process that attaches to the
//! command) and `launch`; `pipeline` (turns records into [`Event`]s with absolute names); [`Recorder`], which
//! joins all of these.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "what the tracer does for the stub waits for one")
)]

pub mod analysis;
mod attachment;
pub mod call;
mod command;
mod doorbell;
mod error;
mod error_names;
mod event;
mod filter;
mod job;
mod launch;
mod orphan_guard;
mod outcome;
mod pipeline;
mod record;
mod recorder;
mod recording;
mod shared_rings;
mod stack;
mod tracer;

pub use attachment::Attachment;
pub use command::Command;
pub use error::Error;
pub use error_names::error_name;
pub use event::{Event, EventKind, Syscall};
pub use outcome::{Backend, Outcome};
pub use recorder::{Recorder, RecorderOptions};
pub use recording::{Header, Reader, Sink, TraceEvents, Writer};
pub use stack::{Frame, Stack};
pub use thruway_sys::process::{Change, die_of};
