//! Commands that start as forks of a booted application.
//!
//! A *template* is a Ruby process that has booted an application and waits. A client sends a command to the
//! template's socket. The template compares every file system query of its boot with the disk and, if all
//! answers still hold, forks. Nothing in this crate calls Ruby.
//!
//! Reading order:
//!
//! 1. [`key`]: chooses the template that a command may use.
//! 2. [`boot_queries`] and [`zone`]: decide when a template is stale.
//! 3. [`plan`]: lists the features that a template loads.
//! 4. [`template_folder`] and [`wire`]: the socket, its folder and its messages.
//! 5. [`open_files`]: gives each child open files of its own.
//! 6. [`template`] and [`client`]: the two ends of the socket.
//! 7. [`history`]: records why commands booted instead of being forked.
#![forbid(unsafe_code)]

pub mod boot_queries;
pub mod client;
pub mod command;
pub mod history;
pub mod key;
pub mod one_shot;
pub mod open_files;
pub mod plan;
pub mod role;
pub mod template;
pub mod template_folder;
pub mod terminal;
pub mod wire;
pub mod zone;
