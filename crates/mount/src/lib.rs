//! Presents many folders as a single view: a policy decides when a file is opened, then the kernel moves the data.
//!
//! Reading order:
//!
//! 1. [`plan`]: the options of a mount.
//! 2. `process`: the supervisor and the worker.
//! 3. `transport`: how requests arrive.
//! 4. `schedule`: the CPUs and policies of the threads that serve requests.
//! 5. `view`: the operations, starting with `view/dispatch.rs`.
//! 6. `policy`: access rules.
//! 7. `inodes`: the table of inodes, in memory that outlives a crash.
#![forbid(unsafe_code)]

mod actor;
mod attach;
mod branches;
mod control;
mod descriptors;
mod error;
mod event_flag;
mod fusermount;
mod id_map;
mod index;
mod inodes;
mod limits;
mod location;
mod lock_holder;
mod locks;
mod log;
mod memory;
mod mounts;
mod names;
mod owners;
mod pins;
pub mod plan;
mod policy;
mod proc_path;
mod process;
mod reload;
mod rights;
mod roots;
mod schedule;
mod source_spec;
mod source_table;
mod sources;
mod status;
mod tiering;
mod transport;
mod unmount;
mod upper;
mod view;
mod volumes;
mod watch;

pub use control::change_sources;
pub use error::Error;
pub use location::locate;
pub use log::{Level, Log, LogTarget};
pub use owners::{IdRange, ModeRule, OwnerIds, Owners};
pub use plan::{
    AccessTimes, Changes, CreateOrder, CreatePolicy, CreateReach, FollowLinks, Mode, OnFull,
    OnMissing, Plan, Presence, Transport,
};
pub use policy::PolicyFile;
pub use process::{INNER_VERB, SourceChange, run_inner, start};
pub use reload::read_policy_again;
pub use rights::MountRights;
pub use source_spec::{SourceAccess, SourceSpec, parse_bytes};
pub use status::{MountStatus, Status, status};
pub use tiering::{MoveRequest, PlannedMove, move_error, move_file, plan_moves};
pub use unmount::{Manner, resolve_new_target, resolve_target, unmount};
