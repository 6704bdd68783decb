//! Counts the connections of a worker, both open ones and those on their way, in a word of the worker's row.
//!
//! The lower half counts the connections that are open in the worker, and only the worker changes that half. The upper
//! half counts those that siblings send: a sibling reserves a place, then sends the message, and gives the place back
//! if there is no message after all. Whoever takes the message out of the mailbox releases the place. Both halves are
//! one word, so that a connection which arrives is counted at any time, and the limit holds for several senders.
//!
//! A sibling may die between the two steps, and its place would stay reserved. So a worker that finds its mailbox empty
//! forgets all places. A living sibling that is just between the two steps loses its place, too: a worker gets at most
//! one connection per sibling more than its limit.

use std::sync::atomic::{AtomicU64, Ordering};

/// One connection on its way.
const COMING: u64 = 1 << 32;

/// The bits of the open connections.
const OPEN: u64 = COMING - 1;

/// The connections of a worker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionCount<'a> {
    /// Connections on their way in the upper half, open ones in the lower half.
    pub(super) word: &'a AtomicU64,
}

impl ConnectionCount<'_> {
    /// Open connections and those on their way.
    pub(super) fn total(self) -> u64 {
        total(self.word.load(Ordering::Relaxed))
    }

    /// Sets the number of open connections. Those on their way stay counted.
    pub(super) fn set_open(self, open: u64) {
        self.change(|word| Some(word & !OPEN | open.min(OPEN)));
    }

    /// Counts a connection that the worker has accepted and keeps.
    pub(super) fn keep(self) {
        self.change(|word| Some(opened(word)));
    }

    /// Reserves a place for a connection, unless the worker has `most` connections or more; returns whether the place
    /// is reserved.
    pub(super) fn reserve(self, most: u64) -> bool {
        self.change(|word| (total(word) < most).then(|| word.saturating_add(COMING)))
    }

    /// Gives up a place: the connection was not sent, or went elsewhere.
    pub(crate) fn release(self) {
        self.change(|word| Some(released(word)));
    }

    /// Counts a connection as open that was on its way.
    pub(crate) fn arrive(self) {
        self.change(|word| Some(opened(released(word))));
    }

    /// Forgets all places: no message is in the mailbox.
    pub(crate) fn forget_coming(self) {
        self.change(|word| Some(word & OPEN));
    }

    /// Changes the word, unless `next` returns none; returns whether it did.
    fn change(self, next: impl Fn(u64) -> Option<u64>) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        while let Some(new) = next(word) {
            if new == word {
                // The row's line stays with the processors that read the row.
                return true;
            }
            let relaxed = Ordering::Relaxed;
            match self.word.compare_exchange_weak(word, new, relaxed, relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }
}

fn total(word: u64) -> u64 {
    (word >> 32) + (word & OPEN)
}

fn opened(word: u64) -> u64 {
    if word & OPEN == OPEN { word } else { word + 1 }
}

/// A place may have been forgotten before.
fn released(word: u64) -> u64 {
    if word >= COMING { word - COMING } else { word }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SENDERS: usize = 3;
    const MOST: u64 = 5;

    #[test]
    fn connections_on_their_way_stay_counted_whatever_is_open() {
        let word = AtomicU64::new(0);
        let count = ConnectionCount { word: &word };
        assert!(count.reserve(4) && count.reserve(4));
        count.set_open(1);
        assert_eq!(count.total(), 3);
        assert!(count.reserve(4) && !count.reserve(4), "four are the limit");
        count.arrive();
        assert_eq!(count.total(), 4, "it was counted before");
        count.set_open(0);
        assert_eq!(count.total(), 2);
        count.release();
        count.forget_coming();
        assert_eq!(count.total(), 0);
    }

    #[test]
    fn a_forgotten_place_is_not_released_again() {
        let word = AtomicU64::new(0);
        let count = ConnectionCount { word: &word };
        assert!(count.reserve(9));
        count.forget_coming();
        count.release();
        assert_eq!(count.total(), 0);
        count.arrive();
        assert_eq!(count.total(), 1);
        count.set_open(u64::MAX);
        count.keep();
        assert_eq!(count.total(), OPEN, "nothing is carried into the upper half");
    }

    proptest! {
        /// A receiver and its senders in random order: steps are reserving, sending, giving up and dying of a sender,
        /// and taking a message, closing a connection and publishing of the receiver.
        #[test]
        fn a_worker_gets_at_most_one_connection_per_sibling_too_many(
            steps in prop::collection::vec((0_u8..8, 0..SENDERS), 0..400),
        ) {
            let word = AtomicU64::new(0);
            let count = ConnectionCount { word: &word };
            let (mut open, mut mailbox, mut holds) = (0_u64, 0_u64, [false; SENDERS]);
            for (step, sender) in steps {
                match step {
                    0 | 1 if !holds[sender] => holds[sender] = count.reserve(MOST),
                    2 | 3 if holds[sender] => {
                        holds[sender] = false;
                        mailbox += 1;
                    }
                    4 if holds[sender] => {
                        holds[sender] = false;
                        // The first sender does not give up, but dies: its place stays reserved.
                        if sender > 0 {
                            count.release();
                        }
                    }
                    5 if mailbox > 0 => {
                        mailbox -= 1;
                        open += 1;
                        count.arrive();
                    }
                    5 => {
                        count.forget_coming();
                        prop_assert_eq!(count.total(), open);
                    }
                    6 if open > 0 => {
                        open -= 1;
                        count.set_open(open);
                    }
                    7 => count.set_open(open),
                    _ => {}
                }
                prop_assert!(open + mailbox <= MOST + SENDERS as u64, "{open} and {mailbox}");
            }
        }
    }
}
