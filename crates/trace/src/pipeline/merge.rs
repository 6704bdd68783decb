//! Merges the records of all rings in the order in which the calls ended.

use crate::record::View;
use crate::shared_rings::{SharedRings, Slot};

/// Records that were read from the rings but not passed on yet.
#[derive(Debug, Default)]
pub(crate) struct MergeBuffer {
    bytes: Vec<u8>,
    /// The end time of each record's call, with the record's offset and length in `bytes`.
    places: Vec<(u64, usize, usize)>,
}

impl MergeBuffer {
    /// Reads the records of a ring. Returns their number.
    pub(crate) fn take(&mut self, rings: &SharedRings, slot: Slot) -> usize {
        let Self { bytes, places } = self;
        let before = places.len();
        rings.take(slot, bytes, |at, size| places.push((0, at, size)));
        places.len() - before
    }

    /// Passes on all records of calls that ended before `cut`, in order.
    ///
    /// A call's effects begin only after the call was recorded. If `cut` is a time before the rings were
    /// read, no effect is passed on before its cause.
    pub(crate) fn pass(&mut self, cut: u64, mut each: impl FnMut(View<'_>)) {
        for (ended, at, size) in &mut self.places {
            *ended = View::new(&self.bytes[*at..*at + *size]).map_or(0, |view| view.ended());
        }
        self.places.sort_by_key(|(ended, ..)| *ended);
        let kept_from = self.places.partition_point(|(ended, ..)| *ended < cut);
        for (_, at, size) in &self.places[..kept_from] {
            if let Some(view) = View::new(&self.bytes[*at..*at + *size]) {
                each(view);
            }
        }
        self.keep(kept_from);
    }

    fn keep(&mut self, from: usize) {
        let mut kept = Self::default();
        for (ended, at, size) in &self.places[from..] {
            kept.places.push((*ended, kept.bytes.len(), *size));
            kept.bytes.extend_from_slice(&self.bytes[*at..*at + *size]);
        }
        self.places.clear();
        self.bytes.clear();
        self.places.append(&mut kept.places);
        self.bytes.append(&mut kept.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Calls, Notice, Record};

    #[test]
    fn records_are_passed_on_by_their_end_and_late_ones_are_kept() {
        let rings = SharedRings::new(&Calls::new().shapes()).unwrap();
        for now in [5, 3, 9, 4] {
            assert!(rings.append(&Record::notice(
                Notice::Exit,
                now,
                now.unsigned_abs().into(),
                [0; 2]
            )));
        }
        let mut buffer = MergeBuffer::default();
        assert_eq!(buffer.take(&rings, Slot::TRACER), 4);
        let passed = |buffer: &mut MergeBuffer, cut| {
            let mut threads = Vec::new();
            buffer.pass(cut, |view| threads.push(view.thread()));
            threads
        };
        assert_eq!(passed(&mut buffer, 9), [3, 4, 5]);
        assert!(passed(&mut buffer, 9).is_empty());
        assert_eq!(passed(&mut buffer, u64::MAX), [9]);
    }
}
