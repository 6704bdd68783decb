//! INIT, the first request: the kernel offers features, and the daemon accepts those that it wants.

use crate::reply::Reply;
use crate::wire::{InitIn, InitOut, feature};

/// The protocol's major version.
const MAJOR: u32 = 7;
/// The newest minor version that this crate knows (Linux 6.18).
const MINOR: u32 = 45;
/// The oldest minor version: Linux 5.17, the first with 64 features.
const MINOR_MIN: u32 = 36;

/// The kernel's INIT request: the versions and features that it offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitRequest {
    /// Major version.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
    /// Most bytes that the kernel reads ahead.
    pub readahead_bytes_max: u32,
    /// Bits of [`feature`].
    pub features: u64,
}

/// The negotiated version and features, which are valid until the connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// Minor version that both sides know.
    pub minor: u32,
    /// Bits of [`feature`] that are on.
    pub features: u64,
    /// Most pages of 4 KiB in the payload of one request.
    pub pages_max: u16,
    /// The depth of stacked file systems at which a backing file may lie; with zero, there is no passthrough.
    pub stack_depth_max: u32,
    /// Most bytes that the kernel reads ahead.
    pub readahead_bytes_max: u32,
}

/// Most background requests at a time, and the number from which the kernel sends fewer. With the kernel's default of
/// 12, read-ahead would wait.
const BACKGROUND_MAX: u16 = 64;
const CONGESTION_THRESHOLD: u16 = 48;

impl InitRequest {
    /// Combines the fixed part of the request with `high_features`, the bits 32 to 63 of the kernel's features.
    #[must_use]
    pub fn new(init: InitIn, high_features: u32) -> Self {
        let mut features = u64::from(init.flags);
        if features & feature::INIT_EXT != 0 {
            features |= u64::from(high_features) << 32;
        }
        Self {
            major: init.major,
            minor: init.minor,
            readahead_bytes_max: init.max_readahead,
            features,
        }
    }

    /// Whether this crate knows a version that the kernel offers.
    #[must_use]
    pub fn is_supported(&self) -> bool {
        self.major == MAJOR && self.minor >= MINOR_MIN
    }

    /// Accepts the features of `wanted` that are offered.
    #[must_use]
    pub fn accept(&self, wanted: u64, pages_max: u16, stack_depth_max: u32) -> ConnectionOptions {
        let features = self.features & (wanted | feature::INIT_EXT | feature::MAX_PAGES);
        let passthrough = features & feature::PASSTHROUGH != 0;
        ConnectionOptions {
            minor: self.minor.min(MINOR),
            features,
            pages_max,
            stack_depth_max: if passthrough { stack_depth_max } else { 0 },
            readahead_bytes_max: self.readahead_bytes_max,
        }
    }
}

impl ConnectionOptions {
    /// Whether a feature is on.
    #[must_use]
    pub fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }

    /// Most bytes in the payload of one request.
    #[must_use]
    pub fn payload_bytes_max(&self) -> usize {
        usize::from(self.pages_max) * 4096
    }

    /// Appends the body of the reply.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the low and the high half of the features"
    )]
    pub fn put(&self, reply: &mut Reply) {
        reply.put(&InitOut {
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

    fn request(minor: u32, flags: u64) -> InitRequest {
        let low = u32::try_from(flags & 0xffff_ffff).unwrap();
        let init = InitIn { major: 7, minor, max_readahead: 131_072, flags: low };
        InitRequest::new(init, u32::try_from(flags >> 32).unwrap())
    }

    #[test]
    fn only_offered_features_are_accepted() {
        let request = request(40, feature::INIT_EXT | feature::PASSTHROUGH | feature::DONT_MASK);
        let negotiated = request.accept(feature::PASSTHROUGH | feature::HAS_RESEND, 32, 1);
        assert!(negotiated.has(feature::PASSTHROUGH) && !negotiated.has(feature::HAS_RESEND));
        assert!(!negotiated.has(feature::DONT_MASK));
        assert_eq!((negotiated.minor, negotiated.stack_depth_max), (40, 1));
    }

    #[test]
    fn high_features_count_only_with_their_flag() {
        assert_eq!(request(40, feature::PASSTHROUGH).features, 0);
    }

    #[test]
    fn without_passthrough_the_stack_depth_is_zero() {
        assert_eq!(
            request(40, feature::INIT_EXT).accept(feature::PASSTHROUGH, 32, 2).stack_depth_max,
            0
        );
    }

    #[test]
    fn an_old_kernel_is_refused_and_a_newer_one_gets_our_version() {
        assert!(!request(31, 0).is_supported());
        assert!(request(99, 0).is_supported());
        assert_eq!(request(99, 0).accept(0, 1, 0).minor, MINOR);
    }

    #[test]
    fn the_reply_has_the_length_that_the_kernel_expects() {
        let mut reply = Reply::default();
        request(45, feature::INIT_EXT).accept(0, 256, 0).put(&mut reply);
        let sent = InitOut::take(&mut reply.body()).unwrap();
        assert_eq!((reply.body().len(), sent.max_write), (64, 1 << 20));
    }
}
