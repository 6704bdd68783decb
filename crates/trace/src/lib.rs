//! Look-ups of a command and of all that it starts: which were wasted, and what would fix it.
//!
//! Reading order: [`call`] (which system calls ask for a file by name); `record` and `area` (how
//! they are noted, and the memory that everyone shares); `tracer` (the process that is attached to
//! the command) and `launch`; `reader`, `batch`, `stream` and `replay` (from the rings to [`Event`]s
//! with absolute names); [`Recorder`], which holds it all together. `ebpf` is another way to the same
//! records.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "what the tracer does for the stub waits for one")
)]

pub mod analysis;
mod area;
mod attachment;
mod batch;
pub mod call;
mod clock;
mod command;
mod doorbell;
#[cfg(feature = "ebpf")]
mod ebpf;
#[cfg(not(feature = "ebpf"))]
#[path = "ebpf_missing.rs"]
mod ebpf;
mod error;
mod event;
mod filter;
mod job;
mod keeper;
mod launch;
mod reader;
mod record;
mod recorder;
mod recording;
mod replay;
mod stream;
mod tracer;

pub use attachment::Attachment;
pub use command::Command;
pub use ebpf::KernelRecorder;
pub use error::Error;
pub use event::{Event, EventKind, Syscall};
pub use recorder::{Backend, Outcome, Recorder};
pub use recording::{Header, Reader, Sink, TraceEvents, Writer};
pub use thruway_sys::process::{Change, die_of};
