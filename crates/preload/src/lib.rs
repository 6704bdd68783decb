//! Commands that start as forks of a booted application.
//!
//! A *template* is a Ruby that has booted and waits. A client asks it by a socket; it compares all that its boot
//! asked with the disk, and forks. Nothing here calls Ruby.
//!
//! Reading order:
//!
//! 1. [`key`]: which template a command may use.
//! 2. [`observed`] and [`zone`]: when it is stale.
//! 3. [`plan`]: what it loads.
//! 4. [`place`] and [`wire`]: the socket.
//! 5. [`open_files`]: what its children do not share.
//! 6. [`template`] and [`client`]: its two ends.
//! 7. [`history`]: why there was no fork.
#![forbid(unsafe_code)]

pub mod client;
pub mod command;
pub mod history;
pub mod key;
pub mod observed;
pub mod open_files;
pub mod passing;
pub mod place;
pub mod plan;
pub mod role;
pub mod template;
pub mod terminal;
pub mod wire;
pub mod zone;
