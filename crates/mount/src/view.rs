//! The view that is served: what each request of the kernel does.
//!
//! [`dispatch`] knows which operation is in which file, and [`state`] the parts of a view:
//!
//! - [`files`]: inodes and the descriptors that are open of them; [`found`] adds new ones, [`stat`] tells them apart;
//! - [`folders`]: folders of one source, or merged of several ([`merging`]); [`watches`] of what others change there;
//! - [`backing_files`]: files that the kernel moves data to and from by itself;
//! - [`timeouts`] and [`invalidation`]: how long the kernel may keep what it is told, and what it is told again, now or
//!   a little later ([`deferred`]);
//! - [`access`]: who may do what, by the policy ([`policy_check`]) and by the names in use ([`walks`]).

mod access;
mod attributes;
mod backing_files;
mod connection;
mod context;
mod create;
mod data;
mod deferred;
mod dispatch;
mod entries;
mod error_counts;
mod files;
mod folder;
mod folders;
mod found;
mod invalidation;
mod listing;
mod locking;
mod lookup;
mod merging;
mod names;
mod open;
mod placement;
mod policy_check;
mod recent_listing;
mod report;
mod stat;
mod state;
mod statfs;
mod target;
mod timeouts;
mod walks;
mod watches;
mod xattr;

pub(crate) use policy_check::PolicyEnforcer;
pub(crate) use state::{Behaviour, View};
pub(crate) use timeouts::Timeouts;
