//! The disks on which a new file may be, as the documentation of `--create` says.

use super::model::{DISKS, Model, parent};

/// The free space of each disk, in bytes: at least and at most, since space is freed while a program goes on.
pub(super) type Space = [(u64, u64); DISKS];

/// The largest space in which an empty file may not fit any more.
const BLOCK_BYTES: u64 = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    First,
    MostFree,
    LeastFree,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    All,
    Parent,
    Near,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Policy {
    pub(super) words: &'static str,
    pub(super) reach: Reach,
    pub(super) order: Order,
}

pub(super) const POLICIES: [Policy; 6] = [
    Policy { words: "most-free", reach: Reach::All, order: Order::MostFree },
    Policy { words: "first", reach: Reach::All, order: Order::First },
    Policy { words: "least-free", reach: Reach::All, order: Order::LeastFree },
    Policy { words: "parent-most-free", reach: Reach::Parent, order: Order::MostFree },
    Policy { words: "near-most-free", reach: Reach::Near, order: Order::MostFree },
    Policy { words: "near-first", reach: Reach::Near, order: Order::First },
];

impl Policy {
    /// The disks that come into question for a new name in a folder. A group is tried before the next one.
    pub(super) fn groups(self, model: &Model, folder: &str) -> Vec<Vec<usize>> {
        let having = |folder: &str| {
            let has_it = |disk: &usize| model.disks[*disk].has_folder(folder);
            model.present().into_iter().filter(has_it).collect::<Vec<_>>()
        };
        match self.reach {
            Reach::All => vec![model.present()],
            Reach::Parent => vec![having(folder)],
            Reach::Near => {
                let (mut groups, mut folder) = (vec![having(folder)], folder);
                while !folder.is_empty() {
                    folder = parent(folder);
                    groups.push(having(folder));
                }
                groups
            }
        }
    }

    /// Whether a new name may be on the disk `chosen`.
    pub(super) fn allows(
        self,
        groups: &[Vec<usize>],
        space: &Space,
        free_min: u64,
        chosen: usize,
    ) -> bool {
        let Some(at) = groups.iter().position(|group| group.contains(&chosen)) else {
            return false;
        };
        let is_short = |disk: usize| is_short(space, free_min, disk);
        let is_first_choice = |other: usize| match self.order {
            Order::First => chosen <= other || is_short(other),
            Order::MostFree => space[chosen].1 >= space[other].0,
            Order::LeastFree => space[chosen].0 <= space[other].1 || is_short(other),
        };
        // A disk without a free block comes last.
        let has_block = space[chosen].1 > 0;
        space[chosen].1 >= free_min
            && (has_block || groups.iter().flatten().all(|&disk| is_short(disk)))
            && groups[..at].iter().flatten().all(|&disk| is_short(disk))
            && groups[at].iter().all(|&other| is_first_choice(other))
    }

    /// Whether a new name may be refused because no disk has room.
    pub(super) fn may_refuse(self, groups: &[Vec<usize>], space: &Space, free_min: u64) -> bool {
        groups.iter().flatten().all(|&disk| is_short(space, free_min, disk))
    }
}

fn is_short(space: &Space, free_min: u64, disk: usize) -> bool {
    space[disk].0 < free_min.max(BLOCK_BYTES)
}
