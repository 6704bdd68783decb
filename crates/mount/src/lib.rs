//! One view of many folders: decided at open, moved by the kernel.
//!
//! Reading order: [`plan`] (what is asked for), `front` and `supervisor` (the processes of a mount),
//! `worker`, `device` and `ring` (threads and the two ways of a request), `work` and `courtesy` (where those
//! threads run), `view` (what each request of the kernel does), `inodes` (what the kernel knows, in memory that outlives a crash).
#![forbid(unsafe_code)]

mod actor;
mod attach;
mod branches;
mod channel;
mod company;
mod courtesy;
mod daemon;
mod descriptors;
mod device;
mod error;
mod front;
mod id_map;
mod index;
mod inodes;
mod limits;
mod locks;
mod log;
mod memory;
mod mounts;
mod names;
mod order;
mod pins;
pub mod plan;
mod policy;
mod pool;
mod proc_path;
mod reload;
mod reply;
mod ring;
mod row;
mod sources;
mod status;
mod supervisor;
mod tether;
mod unmount;
mod view;
mod volumes;
mod watch;
mod work;
mod worker;

pub use error::Error;
pub use front::{INNER_VERB, obey, start};
pub use log::{Level, Log, LogTarget};
pub use plan::{AccessTimes, Changes, CreatePolicy, Mode, Plan, Transport};
pub use policy::PolicyFile;
pub use reload::read_policy_again;
pub use status::{Answered, Status, status};
pub use unmount::{Manner, resolve_new_target, resolve_target, unmount};
