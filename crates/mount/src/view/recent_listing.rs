//! What was listed last.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::inodes::{InodeId, lock};

/// For so long the kernel is sure to know the names that it was told with their attributes.
pub(super) const FRESH: Duration = Duration::from_millis(10);

/// What was listed last with attributes: the folder, from which cookie on, and when.
#[derive(Debug, Default)]
pub(super) struct RecentListing {
    last: Mutex<Option<(InodeId, u64, Instant)>>,
}

impl RecentListing {
    /// Whether this has been told just now. `rm -r` asks each folder whether it is empty before it reads it.
    pub(super) fn is_again(&self, folder: InodeId, cookie: u64) -> bool {
        let (now, mut last) = (Instant::now(), lock(&self.last));
        let is_same = |(other, from, at): &(InodeId, u64, Instant)| {
            (*other, *from) == (folder, cookie) && now.duration_since(*at) < FRESH
        };
        let is_again = last.as_ref().is_some_and(is_same);
        if !is_again {
            *last = Some((folder, cookie, now));
        }
        is_again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_listed_just_now_and_nothing_else_is_known() {
        let recent_listing = RecentListing::default();
        let (one, other) = (InodeId(7), InodeId(8));
        let asked = [(one, 0), (one, 0), (one, 9), (one, 0), (other, 0), (other, 0)];
        let known = asked.map(|(folder, cookie)| recent_listing.is_again(folder, cookie));
        assert_eq!(known, [false, true, false, false, false, true]);
        std::thread::sleep(FRESH);
        assert!(!recent_listing.is_again(other, 0));
    }
}
