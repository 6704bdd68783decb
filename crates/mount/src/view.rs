//! The view: what each request of the kernel does.
//!
//! [`dispatch`] calls the operations, which are in files named after them. [`state`] holds the parts of a view:
//!
//! - [`files`]: inodes and their open descriptors; [`found`] opens new ones, [`stat`] distinguishes them;
//! - [`folders`]: folders of one source, or merged of several ([`merging`]), and [`watches`] on them;
//! - [`several`]: changes that several sources make, or none;
//! - [`backing_files`]: files that the kernel moves data to and from by itself;
//! - [`mount_changes`]: file systems that come and go at the sources and below them;
//! - [`timeouts`] and [`invalidation`] of the kernel's caches, at once or a little later ([`deferred`]);
//! - [`access`]: access checks, by the policy ([`policy_check`]) and by the names in use ([`walks`]).

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
mod mount_changes;
mod names;
mod open;
mod placement;
mod policy_check;
mod recent_listing;
mod report;
mod several;
mod stat;
mod state;
mod statfs;
mod target;
mod timeouts;
mod walks;
mod watches;
mod xattr;

pub(crate) use mount_changes::SourcePlaces;
pub(crate) use policy_check::PolicyEnforcer;
pub(crate) use state::{Behaviour, View};
pub(crate) use timeouts::Timeouts;
