//! The first request: the kernel says what it can do, and the daemon what it wants.

use crate::answer::Answer;
use crate::wire::{InitIn, InitOut, feature};

/// The protocol's major version.
const MAJOR: u32 = 7;
/// The newest minor version whose structures are known here (Linux 6.18).
const MINOR: u32 = 45;
/// The oldest one: Linux 5.17, the first with 64 features.
const MINOR_MIN: u32 = 36;

/// What the kernel offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Major version.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
    /// Most bytes that it reads ahead.
    pub readahead_bytes_max: u32,
    /// Bits of [`feature`].
    pub features: u64,
}

/// What is agreed on: it holds for as long as the mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreement {
    /// Minor version that both speak.
    pub minor: u32,
    /// Bits of [`feature`] that are on.
    pub features: u64,
    /// Most pages of 4 KiB that one request carries.
    pub pages_max: u16,
    /// How many stacked file systems may lie below a backing file; zero is no passthrough.
    pub stack_depth_max: u32,
    /// Most bytes that the kernel reads ahead.
    pub readahead_bytes_max: u32,
}

/// Background requests at a time, and from which number on the kernel holds back. The kernel's own
/// 12 would make a read-ahead wait for its turn.
const BACKGROUND_MAX: u16 = 64;
const CONGESTION_THRESHOLD: u16 = 48;

impl Offer {
    /// Reads an offer; `high_features` is the second half of the features.
    #[must_use]
    pub fn new(offer: InitIn, high_features: u32) -> Self {
        let mut features = u64::from(offer.flags);
        if features & feature::INIT_EXT != 0 {
            features |= u64::from(high_features) << 32;
        }
        Self {
            major: offer.major,
            minor: offer.minor,
            readahead_bytes_max: offer.max_readahead,
            features,
        }
    }

    /// Whether the kernel speaks a version that is understood here.
    #[must_use]
    pub fn is_understood(&self) -> bool {
        self.major == MAJOR && self.minor >= MINOR_MIN
    }

    /// Takes of `wanted` what is offered.
    #[must_use]
    pub fn accept(&self, wanted: u64, pages_max: u16, stack_depth_max: u32) -> Agreement {
        let features = self.features & (wanted | feature::INIT_EXT | feature::MAX_PAGES);
        let passthrough = features & feature::PASSTHROUGH != 0;
        Agreement {
            minor: self.minor.min(MINOR),
            features,
            pages_max,
            stack_depth_max: if passthrough { stack_depth_max } else { 0 },
            readahead_bytes_max: self.readahead_bytes_max,
        }
    }
}

impl Agreement {
    /// Whether a feature is on.
    #[must_use]
    pub fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }

    /// Most bytes that one request carries besides its header.
    #[must_use]
    pub fn payload_bytes_max(&self) -> usize {
        usize::from(self.pages_max) * 4096
    }

    /// Answers the kernel.
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of the features")]
    pub fn put(&self, answer: &mut Answer) {
        answer.put(&InitOut {
            major: MAJOR,
            minor: self.minor,
            max_readahead: self.readahead_bytes_max,
            flags: self.features as u32,
            max_background: BACKGROUND_MAX,
            congestion_threshold: CONGESTION_THRESHOLD,
            max_write: u32::from(self.pages_max) * 4096,
            time_granularity: 1,
            max_pages: self.pages_max,
            map_alignment: 0,
            flags2: (self.features >> 32) as u32,
            max_stack_depth: self.stack_depth_max,
            request_timeout: 0,
            unused: [0; 11],
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Wire;

    fn offer(minor: u32, flags: u64) -> Offer {
        let low = u32::try_from(flags & 0xffff_ffff).unwrap();
        let init = InitIn { major: 7, minor, max_readahead: 131_072, flags: low };
        Offer::new(init, u32::try_from(flags >> 32).unwrap())
    }

    #[test]
    fn only_what_is_offered_is_taken() {
        let offer = offer(40, feature::INIT_EXT | feature::PASSTHROUGH | feature::DONT_MASK);
        let agreement = offer.accept(feature::PASSTHROUGH | feature::HAS_RESEND, 32, 1);
        assert!(agreement.has(feature::PASSTHROUGH) && !agreement.has(feature::HAS_RESEND));
        assert!(!agreement.has(feature::DONT_MASK));
        assert_eq!((agreement.minor, agreement.stack_depth_max), (40, 1));
    }

    #[test]
    fn the_second_half_counts_only_with_its_flag() {
        assert_eq!(offer(40, feature::PASSTHROUGH).features, 0);
    }

    #[test]
    fn without_passthrough_nothing_may_be_stacked() {
        assert_eq!(
            offer(40, feature::INIT_EXT).accept(feature::PASSTHROUGH, 32, 2).stack_depth_max,
            0
        );
    }

    #[test]
    fn an_old_kernel_is_refused_and_a_newer_one_is_met_where_we_are() {
        assert!(!offer(31, 0).is_understood());
        assert!(offer(99, 0).is_understood());
        assert_eq!(offer(99, 0).accept(0, 1, 0).minor, MINOR);
    }

    #[test]
    fn the_answer_has_the_length_that_the_kernel_expects() {
        let mut answer = Answer::default();
        offer(45, feature::INIT_EXT).accept(0, 256, 0).put(&mut answer);
        let sent = InitOut::take(&mut answer.body()).unwrap();
        assert_eq!((answer.body().len(), sent.max_write), (64, 1 << 20));
    }
}
