//! Counts look-ups by the call stacks from which they were made.

use serde::Serialize;

use super::maps::HashMap;
use super::text::text;
use crate::stack::{Frame, Stack};

/// A call stack, with the counts of the look-ups that were made from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StackCount {
    /// The number of look-ups.
    pub asked: u64,
    /// Look-ups that missed.
    pub missed: u64,
    /// Opens of files.
    pub opened: u64,
    /// One of the names that were looked up.
    pub name: String,
    /// The frames, from the innermost, which made the call, outwards.
    pub frames: Vec<Frame>,
}

impl StackCount {
    fn new(frames: Vec<Frame>) -> Self {
        Self { asked: 0, missed: 0, opened: 0, name: String::new(), frames }
    }
}

/// The counts of each stack, by its number.
#[derive(Debug, Default)]
pub(super) struct StackTally(HashMap<u32, StackCount>);

impl StackTally {
    /// Counts a look-up of `name`, and returns its counts.
    pub(super) fn count(&mut self, stack: &Stack, name: &[u8]) -> &mut StackCount {
        let new = || StackCount { name: text(name), ..StackCount::new(stack.frames.clone()) };
        let count = self.0.entry(stack.id).or_insert_with(new);
        count.asked += 1;
        count
    }

    /// Returns the stacks, in descending order of their look-ups. Stacks with equal frames are merged, since the code
    /// of one line may make several calls.
    pub(super) fn counts(&self) -> Vec<StackCount> {
        let mut numbers: Vec<_> = self.0.keys().collect();
        numbers.sort_unstable();
        let mut merged: HashMap<&[Frame], StackCount> = HashMap::default();
        for count in numbers.iter().filter_map(|number| self.0.get(*number)) {
            let new = || StackCount { asked: 0, missed: 0, opened: 0, ..count.clone() };
            let sum = merged.entry(&count.frames).or_insert_with(new);
            sum.asked += count.asked;
            sum.missed += count.missed;
            sum.opened += count.opened;
        }
        let mut counts: Vec<_> = merged.into_values().collect();
        counts.sort_by(|one, other| {
            let order = |count: &StackCount| (count.asked, count.missed);
            order(other).cmp(&order(one)).then_with(|| one.frames.cmp(&other.frames))
        });
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_that_look_the_same_are_one() {
        let frame = |line| Frame { function: "f".to_owned(), line, ..Frame::default() };
        let stack = |id, line| Stack { id, frames: vec![frame(line)] };
        let mut tally = StackTally::default();
        for (stack, name) in [(stack(0, 7), "/a"), (stack(1, 8), "/b"), (stack(2, 8), "/c")] {
            tally.count(&stack, name.as_bytes()).missed += 1;
        }
        let counts = tally.counts();
        let seen: Vec<_> =
            counts.iter().map(|count| (count.frames[0].line, count.asked, &*count.name)).collect();
        assert_eq!(seen, [(8, 2, "/b"), (7, 1, "/a")]);
    }
}
