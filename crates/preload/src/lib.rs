//! Commands that start as forks of a booted application.
//!
//! A *template* is a Ruby that has booted and waits. A client asks it by a socket; it compares all that its boot
//! asked with the disk, and forks. Nothing here calls Ruby.
//!
//! Reading order: [`key`] (which template a command may use), [`observed`] (when it is stale), [`plan`] (what it
//! loads), [`place`] and [`wire`] (the socket), [`template`] and [`client`] (its two ends),
//! [`history`] (why there was no fork).
#![forbid(unsafe_code)]

pub mod client;
pub mod command;
pub mod history;
pub mod key;
pub mod observed;
pub mod place;
pub mod plan;
pub mod role;
pub mod template;
pub mod terminal;
pub mod wire;
