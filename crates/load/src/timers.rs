//! The timers of clients.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Timers, earliest first. Times are nanoseconds since the start of the run.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(u64, usize)>>,
}

impl Timers {
    pub(crate) fn set(&mut self, at_ns: u64, client: usize) {
        self.heap.push(Reverse((at_ns, client)));
    }

    /// Removes and returns the next client whose timer is due.
    pub(crate) fn take_due(&mut self, now_ns: u64) -> Option<usize> {
        if self.next_ns()? > now_ns {
            return None;
        }
        self.heap.pop().map(|Reverse((_, client))| client)
    }

    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at_ns, _))| *at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_is_due_first_and_none_before_its_time() {
        let mut timers = Timers::default();
        timers.set(30, 1);
        timers.set(10, 2);
        assert_eq!(timers.next_ns(), Some(10));
        assert_eq!(timers.take_due(9), None);
        assert_eq!((timers.take_due(30), timers.take_due(30)), (Some(2), Some(1)));
        assert_eq!(timers.take_due(u64::MAX), None);
    }
}
