//! The id and the identity of an inode.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde::{Deserialize, Serialize};
use thruway_sys::handle::FileHandle;

/// The type of a folder: `S_IFDIR >> 12`.
const FOLDER: u8 = 4;

/// The kernel's id of an inode: a slot of the table and an incarnation. Ids are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct InodeId(pub(crate) u64);

/// The properties that distinguish a file from all others, including later files with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The file system, as an index into the volumes.
    pub(crate) volume: u16,
    /// The inode number in the file system.
    pub(crate) number: u64,
    /// The time of birth in nanoseconds since 1970; zero if the file system does not store it.
    pub(crate) birth: u64,
    /// The file type: `mode >> 12`.
    pub(crate) kind: u8,
    /// Whether the birth is so recent that another file with the same number may have been born in the same clock tick.
    /// Then only the handle distinguishes the two.
    pub(crate) young: bool,
}

/// A copy of an inode's entry in the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inode {
    pub(crate) id: InodeId,
    pub(crate) identity: Identity,
    /// The folder in which the inode was first found.
    pub(crate) parent: InodeId,
    /// The source in which the inode was first found.
    pub(crate) branch: u16,
    pub(crate) handle: Option<FileHandle>,
    /// Whether the handle is known to open this inode.
    pub(crate) checked: bool,
}

impl InodeId {
    pub(crate) const ROOT: Self = Self(thruway_fuse::ROOT);

    pub(super) fn new(slot: u32, incarnation: u32) -> Self {
        Self(u64::from(incarnation) << 32 | u64::from(slot))
    }

    #[expect(clippy::cast_possible_truncation, reason = "the low half is the slot")]
    pub(super) fn slot(self) -> u32 {
        self.0 as u32
    }

    pub(super) fn incarnation(self) -> u64 {
        self.0 >> 32
    }
}

impl Identity {
    pub(crate) fn is_folder(&self) -> bool {
        self.kind == FOLDER
    }

    /// Whether both identify the same file, as far as can be known without handles.
    pub(crate) fn is_same_file(&self, other: &Self) -> bool {
        let file =
            |identity: &Self| (identity.volume, identity.number, identity.birth, identity.kind);
        file(self) == file(other)
    }

    /// Distinguishes the file by its name, too, so that each hard link is an inode of its own.
    pub(crate) fn with_name(mut self, parent: InodeId, name: &[u8]) -> Self {
        // The hash is the same in each process, since the table outlives a worker.
        let mut hasher = DefaultHasher::new();
        (parent.0, name).hash(&mut hasher);
        self.birth ^= hasher.finish() | 1;
        self.young = false;
        self
    }

    /// Whether both have the same number, and so are links of one file or the same file.
    pub(crate) fn is_same_number(&self, other: &Self) -> bool {
        (self.volume, self.number, self.kind) == (other.volume, other.number, other.kind)
    }

    /// Returns a hash of volume and number only. The other fields reveal whether a number was reused.
    pub(super) fn hash(&self) -> u64 {
        let mixed = (self.number ^ u64::from(self.volume).rotate_left(40))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 32)
    }
}
