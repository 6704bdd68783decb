//! The view: the operations for the kernel's requests.
//!
//! Reading order: [`dispatch`] calls the operations, which are in files named after them. [`state`] holds the parts of
//! a view:
//!
//! - [`files`]: inodes and their open descriptors; [`found_inode`] opens new inodes, and [`stat`] distinguishes them;
//! - [`folders`]: folders of a single source, or merged from several ([`merged_sources`]), and [`watches`] on them;
//!   [`folder_places`] keeps their inodes while disks go and come;
//! - [`several_sources`]: changes that either all sources make or none;
//! - [`backing_files`]: files that the kernel reads and writes without the daemon;
//! - [`relocation`]: moves of files between sources, on request or to make [`room`]; [`location`] tells the source;
//! - [`copy_up`]: copies of files that are changed, in an upper source, and [`layered_names`] there;
//! - [`links`]: symbolic links that are followed;
//! - [`mount_changes`]: file systems that are mounted and unmounted at the sources and below them;
//! - [`timeouts`] and [`invalidation`] of the kernel's caches, at once or a little later ([`deferred`]);
//! - [`access`]: access checks, by the policy ([`policy_check`]) and by the names in use ([`walks`]).

mod access;
mod attribute_names;
mod attributes;
mod backing_files;
mod connection;
mod context;
mod copy_up;
mod copying;
mod create;
mod data;
mod deferred;
mod dispatch;
mod entries;
mod error_counts;
mod file_flags;
mod files;
mod folder;
mod folder_places;
mod folders;
mod found_inode;
mod invalidation;
mod layered_names;
mod left_copies;
mod links;
mod listing;
mod location;
mod locking;
mod lookup;
mod merged_sources;
mod mount_changes;
mod moves;
mod names;
mod open;
mod placement;
mod policy_check;
mod recent_listing;
mod relocation;
mod report;
mod room;
mod several_sources;
mod stat;
mod state;
mod statfs;
mod superseded;
mod target;
mod timeouts;
mod walks;
mod watches;
mod xattr;

pub(crate) use mount_changes::SourcePlaces;
pub(crate) use policy_check::PolicyEnforcer;
pub(crate) use state::{Behaviour, View};
pub(crate) use timeouts::Timeouts;
