//! One view of many folders: decided at open, moved by the kernel.
//!
//! Reading order: [`plan`] (what is asked for), `process` (supervisor and worker), `transport` (the two ways of a
//! request), `schedule` (where the threads run), `view` (what each request does), `policy` (who may do what), `inodes`
//! (what the kernel knows, in memory that outlives a crash).
#![forbid(unsafe_code)]

mod actor;
mod attach;
mod branches;
mod descriptors;
mod error;
mod event_flag;
mod id_map;
mod index;
mod inodes;
mod limits;
mod lock_holder;
mod locks;
mod log;
mod memory;
mod mounts;
mod names;
mod pins;
pub mod plan;
mod policy;
mod proc_path;
mod process;
mod reload;
mod schedule;
mod sources;
mod status;
mod transport;
mod unmount;
mod view;
mod volumes;
mod watch;

pub use error::Error;
pub use log::{Level, Log, LogTarget};
pub use plan::{AccessTimes, Changes, CreatePolicy, Mode, Plan, Transport};
pub use policy::PolicyFile;
pub use process::{INNER_VERB, run_inner, start};
pub use reload::read_policy_again;
pub use status::{Answered, Status, status};
pub use unmount::{Manner, resolve_new_target, resolve_target, unmount};
