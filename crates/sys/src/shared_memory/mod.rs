//! Memory that several processes share. All of it is atomic words, because any of them may write.

mod anonymous;
#[cfg(target_os = "linux")]
mod memfd;

pub use anonymous::Anonymous;
#[cfg(target_os = "linux")]
pub use memfd::{Memfd, OWNER_DIED};
