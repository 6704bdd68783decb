//! Records of all rings, put into the order in which the calls ended.

use crate::area::{Area, Slot};
use crate::record::View;

/// What was taken from the rings and not yet passed on.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    /// When each record's call had ended, and where the record lies in `bytes`.
    places: Vec<(u64, usize, usize)>,
}

impl Batch {
    /// Takes what is in a ring; answers with the count of records.
    pub(crate) fn take(&mut self, area: &Area, slot: Slot) -> usize {
        let Self { bytes, places } = self;
        let before = places.len();
        area.take(slot, bytes, |at, size| places.push((0, at, size)));
        places.len() - before
    }

    /// Passes on all records of calls that ended before `cut`, in that order.
    ///
    /// Whatever happened because of another call began after that one had been noted. So if `cut` is
    /// a moment before the rings were read, nothing is passed on before what caused it.
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
        let area = Area::new(&Calls::new().shapes()).unwrap();
        for now in [5, 3, 9, 4] {
            assert!(area.append(&Record::notice(
                Notice::Exit,
                now,
                now.unsigned_abs().into(),
                [0; 2]
            )));
        }
        let mut batch = Batch::default();
        assert_eq!(batch.take(&area, Slot::TRACER), 4);
        let passed = |batch: &mut Batch, cut| {
            let mut threads = Vec::new();
            batch.pass(cut, |view| threads.push(view.thread()));
            threads
        };
        assert_eq!(passed(&mut batch, 9), [3, 4, 5]);
        assert!(passed(&mut batch, 9).is_empty());
        assert_eq!(passed(&mut batch, u64::MAX), [9]);
    }
}
