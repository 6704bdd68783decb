//! `thruway mount` against the folder itself, overlayfs, mergerfs and libfuse's passthrough_hp.
//!
//! All contenders show folders of one ext4 in memory. So the measurement covers the way to the data, and not a disk.

pub(super) mod calls;
pub(super) mod data;
pub(super) mod disks;
pub(super) mod memory;
mod test_filesystem;
pub(super) mod tree;
pub(super) mod union;
mod view;
