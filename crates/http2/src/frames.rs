//! Counts a client's frames by kind, before any work is done for them.

use std::fmt;

use crate::limits::{Limits, Rate};

/// The connection preface, which is the first thing that a client sends.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The size of a frame's header in bytes.
const HEADER_BYTES: usize = 9;

/// The parts of a token in a bucket. With thousandths, every millisecond adds a whole number of parts.
const PARTS: u64 = 1_000;

/// The types of frames (RFC 9113, section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;

/// Flags of frames: the end of a body, the end of a head, and an acknowledgement.
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// The kind of frames of which a client has sent too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Excess {
    /// RST_STREAM.
    Resets,
    /// PING.
    Pings,
    /// SETTINGS.
    Settings,
    /// DATA frames without data.
    EmptyData,
    /// Frames that have no effect.
    Ignored,
}

impl fmt::Display for Excess {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Resets => "it resets too many streams",
            Self::Pings => "it sends too many PING frames",
            Self::Settings => "it sends too many SETTINGS frames",
            Self::EmptyData => "it sends too many empty DATA frames",
            Self::Ignored => "it sends too many PRIORITY or unknown frames",
        })
    }
}

/// Counts a client's frames, which may arrive in pieces of any size.
#[derive(Debug)]
pub(crate) struct FrameCounter {
    preface_left: usize,
    header: [u8; HEADER_BYTES],
    header_length: usize,
    payload_left: usize,
    is_in_head: bool,
    resets: Bucket,
    pings: Bucket,
    settings: Bucket,
    empty_data: Bucket,
    ignored: Bucket,
}

/// A token bucket.
#[derive(Debug)]
struct Bucket {
    rate: Rate,
    parts: u64,
    filled_ms: u64,
}

impl FrameCounter {
    pub(crate) fn new(limits: &Limits, now_ms: u64) -> Self {
        let bucket = |rate| Bucket::new(rate, now_ms);
        Self {
            preface_left: PREFACE.len(),
            header: [0; HEADER_BYTES],
            header_length: 0,
            payload_left: 0,
            is_in_head: false,
            resets: bucket(limits.resets),
            pings: bucket(limits.pings),
            settings: bucket(limits.settings),
            empty_data: bucket(limits.empty_data),
            ignored: bucket(limits.ignored),
        }
    }

    /// Whether the client has sent the start of a head but not yet its end.
    pub(crate) fn is_in_head(&self) -> bool {
        self.is_in_head
    }

    /// Counts the frames in the client's next bytes.
    ///
    /// # Errors
    /// The first kind of which there were too many.
    pub(crate) fn count(&mut self, mut bytes: &[u8], now_ms: u64) -> Result<(), Excess> {
        skip(&mut bytes, &mut self.preface_left);
        while !bytes.is_empty() {
            skip(&mut bytes, &mut self.payload_left);
            let wanted = (HEADER_BYTES - self.header_length).min(bytes.len());
            let (part, rest) = bytes.split_at(wanted);
            self.header[self.header_length..][..wanted].copy_from_slice(part);
            self.header_length += wanted;
            bytes = rest;
            if self.header_length == HEADER_BYTES {
                self.header_length = 0;
                self.take_header(now_ms)?;
            }
        }
        Ok(())
    }

    fn take_header(&mut self, now_ms: u64) -> Result<(), Excess> {
        let [high, middle, low, kind, flags, ..] = self.header;
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        self.payload_left = length;
        let has = |flag| flags & flag != 0;
        let (bucket, excess) = match kind {
            HEADERS | CONTINUATION => {
                self.is_in_head = !has(END_HEADERS);
                return Ok(());
            }
            DATA if length == 0 && !has(END_STREAM) => (&mut self.empty_data, Excess::EmptyData),
            RESET => (&mut self.resets, Excess::Resets),
            PING if !has(ACK) => (&mut self.pings, Excess::Pings),
            SETTINGS if !has(ACK) => (&mut self.settings, Excess::Settings),
            PRIORITY | CONTINUATION.. => (&mut self.ignored, Excess::Ignored),
            _ => return Ok(()),
        };
        if bucket.take(now_ms) { Ok(()) } else { Err(excess) }
    }
}

/// Skips up to `left` bytes.
fn skip(bytes: &mut &[u8], left: &mut usize) {
    let skipped = bytes.len().min(*left);
    *left -= skipped;
    *bytes = &bytes[skipped..];
}

impl Bucket {
    fn new(rate: Rate, now_ms: u64) -> Self {
        Self { rate, parts: u64::from(rate.burst) * PARTS, filled_ms: now_ms }
    }

    /// Takes a token. Returns `false` if the bucket is empty.
    fn take(&mut self, now_ms: u64) -> bool {
        let passed_ms = now_ms.saturating_sub(self.filled_ms);
        let gained = passed_ms.saturating_mul(u64::from(self.rate.per_second));
        let most = u64::from(self.rate.burst) * PARTS;
        (self.parts, self.filled_ms) = (self.parts.saturating_add(gained).min(most), now_ms);
        match self.parts.checked_sub(PARTS) {
            Some(left) => {
                self.parts = left;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, 1], payload].concat()
    }

    fn counter() -> FrameCounter {
        let rate = Rate { burst: 3, per_second: 1 };
        let limits = Limits {
            resets: rate,
            pings: rate,
            settings: rate,
            empty_data: rate,
            ignored: rate,
            ..Limits::default()
        };
        let mut counter = FrameCounter::new(&limits, 0);
        assert_eq!(counter.count(PREFACE, 0), Ok(()));
        counter
    }

    #[test]
    fn each_kind_has_its_own_limit() {
        let cases = [
            (RESET, 0, Excess::Resets),
            (PING, 0, Excess::Pings),
            (SETTINGS, 0, Excess::Settings),
            (DATA, 0, Excess::EmptyData),
            (PRIORITY, 0, Excess::Ignored),
            (0xfa, 0, Excess::Ignored),
        ];
        for (kind, flags, excess) in cases {
            let (mut counter, frame) = (counter(), frame(kind, flags, &[]));
            let passed = (0..9).take_while(|_| counter.count(&frame, 0) == Ok(())).count();
            assert_eq!((passed, counter.count(&frame, 0)), (3, Err(excess)));
            assert_eq!(counter.count(&frame, 1_000), Ok(()), "a second brings another one");
            assert_eq!(counter.count(&frame, 1_999), Err(excess));
        }
    }

    #[test]
    fn frames_of_requests_and_acknowledgements_are_not_counted() {
        let mut counter = counter();
        let frames = [
            frame(PING, ACK, &[0; 8]),
            frame(SETTINGS, ACK, &[]),
            frame(DATA, END_STREAM, &[]),
            frame(DATA, 0, &[3]),
            frame(HEADERS, END_HEADERS, &[RESET; 40]),
        ];
        let all = frames.concat().repeat(50);
        assert_eq!(counter.count(&all, 0), Ok(()));
    }

    #[test]
    fn frames_are_found_in_pieces_of_any_size() {
        let bytes = [frame(HEADERS, 0, &[RESET; 100]), frame(RESET, 0, &[0; 4])].concat().repeat(4);
        for size in [1, 2, 7, 8, 9, 10, 100, bytes.len()] {
            let mut counter = counter();
            let counted = bytes.chunks(size).map(|piece| counter.count(piece, 0));
            assert_eq!(counted.collect::<Result<Vec<_>, _>>(), Err(Excess::Resets), "{size}");
        }
    }

    #[test]
    fn a_head_lasts_until_its_last_frame() {
        let mut counter = counter();
        let steps =
            [(HEADERS, 0, true), (CONTINUATION, 0, true), (CONTINUATION, END_HEADERS, false)];
        for (kind, flags, is_in_head) in steps {
            counter.count(&frame(kind, flags, &[1, 2]), 0).unwrap();
            assert_eq!(counter.is_in_head(), is_in_head);
        }
    }
}
