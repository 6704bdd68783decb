//! The back end without a stop: programs in the kernel note the calls. It takes the right to load them.
//!
//! `programs.c` has the programs, `kernel.h` what they use of the kernel; [`programs`] loads them, and
//! [`KernelRecorder`] takes what they note.

mod programs;
mod recorder;

pub use recorder::KernelRecorder;
