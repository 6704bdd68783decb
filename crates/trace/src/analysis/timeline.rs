//! How look-ups are spread over the time of a recording.

use serde::Serialize;

/// A stretch of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Moment {
    /// Look-ups that began in it.
    pub asked: u64,
    /// Those of them that missed.
    pub missed: u64,
}

/// Stretches of equal length, from the start of the recording on.
#[derive(Debug)]
pub(super) struct Timeline {
    width_ns: u64,
    moments: Vec<Moment>,
}

/// The line is kept at no more stretches than this: they grow with the recording.
const MOMENTS_MAX: usize = 512;
const WIDTH_SMALLEST_NS: u64 = 1 << 16;

impl Default for Timeline {
    fn default() -> Self {
        Self { width_ns: WIDTH_SMALLEST_NS, moments: Vec::new() }
    }
}

impl Timeline {
    pub(super) fn push(&mut self, at_ns: u64, is_missed: bool) {
        while at_ns / self.width_ns >= MOMENTS_MAX as u64 {
            self.widen();
        }
        // Below MOMENTS_MAX, as was just seen to.
        let index = (at_ns / self.width_ns) as usize;
        if index >= self.moments.len() {
            self.moments.resize(index + 1, Moment::default());
        }
        self.moments[index].asked += 1;
        self.moments[index].missed += u64::from(is_missed);
    }

    fn widen(&mut self) {
        self.width_ns *= 2;
        let pairs = self.moments.chunks(2);
        let sum = |pair: &[Moment]| Moment {
            asked: pair.iter().map(|moment| moment.asked).sum(),
            missed: pair.iter().map(|moment| moment.missed).sum(),
        };
        self.moments = pairs.map(sum).collect();
    }

    /// The stretches, and how long each is.
    pub(super) fn moments(&self) -> (u64, &[Moment]) {
        (self.width_ns, &self.moments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_recording_has_longer_stretches() {
        let mut timeline = Timeline::default();
        for second in 0..100 {
            timeline.push(second * 1_000_000_000, second % 2 == 0);
        }
        let (width_ns, moments) = timeline.moments();
        assert!(moments.len() <= MOMENTS_MAX && width_ns * moments.len() as u64 >= 99_000_000_000);
        assert_eq!(moments.iter().map(|moment| moment.asked).sum::<u64>(), 100);
        assert_eq!(moments.iter().map(|moment| moment.missed).sum::<u64>(), 50);
    }
}
