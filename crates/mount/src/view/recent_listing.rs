//! Detects a listing that is requested twice in succession.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::inodes::{InodeId, lock};

/// The time for which the kernel certainly keeps the names of a listing with their attributes.
pub(super) const FRESH: Duration = Duration::from_millis(10);

/// The most recent listing with attributes: the folder, the cookie, and the time.
#[derive(Debug, Default)]
pub(super) struct RecentListing {
    last: Mutex<Option<(InodeId, u64, Instant)>>,
}

impl RecentListing {
    /// Whether this listing repeats the previous one. `rm -r` checks whether each folder is empty before it reads the
    /// folder.
    pub(super) fn is_repeated(&self, folder: InodeId, cookie: u64) -> bool {
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
    fn only_the_same_listing_again_is_recognised() {
        let recent_listing = RecentListing::default();
        let (one, other) = (InodeId(7), InodeId(8));
        let asked = [(one, 0), (one, 0), (one, 9), (one, 0), (other, 0), (other, 0)];
        let known = asked.map(|(folder, cookie)| recent_listing.is_repeated(folder, cookie));
        assert_eq!(known, [false, true, false, false, false, true]);
        std::thread::sleep(FRESH);
        assert!(!recent_listing.is_repeated(other, 0));
    }
}
