//! Memory that several processes share. Every access is atomic, because any of the processes may write.

mod anonymous;
#[cfg(target_os = "linux")]
mod memfd;

pub use anonymous::Anonymous;
#[cfg(target_os = "linux")]
pub use memfd::{Memfd, OWNER_DIED};
