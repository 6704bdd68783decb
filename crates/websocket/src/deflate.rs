//! Compresses messages (RFC 7692), without a context that outlives a message.
//!
//! A context that outlived its message would cost each socket some hundred KiB. It would also reveal more to an
//! attacker about secrets that are compressed together with the attacker's own bytes.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use crate::close::Fault;

/// The end of a flushed block, which messages omit.
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

/// The step by which the output buffer grows during decompression.
const STEP_BYTES: usize = 16 << 10;

/// Compresses and decompresses the messages of any number of sockets.
#[derive(Debug)]
pub struct Deflater {
    compress: Compress,
    decompress: Decompress,
}

impl Default for Deflater {
    fn default() -> Self {
        let compress = Compress::new(Compression::fast(), false);
        Self { compress, decompress: Decompress::new(false) }
    }
}

impl Deflater {
    /// Returns the compressed payload of a message, or `None` on failure.
    pub(crate) fn deflate(&mut self, plain: &[u8]) -> Option<Vec<u8>> {
        self.compress.reset();
        // A stored block adds 5 bytes for at least 16 KiB.
        let mut out = Vec::with_capacity(plain.len() + plain.len() / 1024 + 64);
        loop {
            // The count never exceeds the length, since both count the same bytes.
            let done = usize::try_from(self.compress.total_in()).unwrap_or(plain.len());
            let rest = &plain[done..];
            self.compress.compress_vec(rest, &mut out, FlushCompress::Sync).ok()?;
            if self.compress.total_in() == plain.len() as u64 && out.len() < out.capacity() {
                break;
            }
            out.reserve(STEP_BYTES);
        }
        out.ends_with(&TAIL).then(|| out.truncate(out.len() - TAIL.len()))?;
        Some(out)
    }

    /// Returns the plain bytes of a compressed message.
    ///
    /// # Errors
    /// The message exceeds `bytes_max`, or the compressed bytes are malformed.
    pub(crate) fn inflate(
        &mut self,
        compressed: &[u8],
        bytes_max: usize,
    ) -> Result<Vec<u8>, Fault> {
        self.decompress.reset(false);
        let mut out = Vec::new();
        for part in [compressed, &TAIL] {
            let before = self.decompress.total_in();
            loop {
                let at = usize::try_from(self.decompress.total_in() - before).unwrap_or(part.len());
                let (from, length) = (self.decompress.total_out(), out.len());
                out.reserve(STEP_BYTES.min(bytes_max + 1 - length.min(bytes_max)));
                let rest = &part[at.min(part.len())..];
                let status = self.decompress.decompress_vec(rest, &mut out, FlushDecompress::Sync);
                let status = status.map_err(|_| Fault::invalid("compressed bytes are broken"))?;
                if out.len() > bytes_max {
                    return Err(Fault::too_big());
                }
                let is_over = self.decompress.total_in() - before >= part.len() as u64;
                let is_full = out.len() == out.capacity();
                if status == Status::StreamEnd {
                    // Some clients send a final block. The bytes after it have no meaning.
                    return Ok(out);
                }
                if is_over && !is_full {
                    break;
                }
                if self.decompress.total_out() == from && !is_full && !is_over {
                    return Err(Fault::invalid("compressed bytes are broken"));
                }
                if is_over && self.decompress.total_out() == from {
                    break;
                }
            }
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MANY: usize = 1 << 24;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn compressed_bytes_are_restored(bytes in proptest::collection::vec(0_u8..8, 0..30_000)) {
            let mut deflater = Deflater::default();
            let compressed = deflater.deflate(&bytes).unwrap();
            prop_assert_eq!(deflater.inflate(&compressed, MANY), Ok(bytes.clone()));
            let limited = deflater.inflate(&compressed, bytes.len().saturating_sub(1));
            prop_assert!(bytes.is_empty() || limited == Err(Fault::too_big()));
        }

        #[test]
        fn random_bytes_are_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
            if let Ok(plain) = Deflater::default().inflate(&bytes, 10_000) {
                prop_assert!(plain.len() <= 10_000);
            }
        }
    }

    #[test]
    fn bytes_that_do_not_compress_come_back() {
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            u8::try_from(state >> 24).unwrap()
        };
        let bytes: Vec<u8> = (0..300_000).map(|_| next()).collect();
        let mut deflater = Deflater::default();
        let compressed = deflater.deflate(&bytes).unwrap();
        assert_eq!(deflater.inflate(&compressed, MANY), Ok(bytes));
    }

    #[test]
    fn a_bomb_ends_at_the_limit() {
        let mut deflater = Deflater::default();
        let bomb = deflater.deflate(&vec![0; MANY]).unwrap();
        assert!(bomb.len() < 100_000, "{}", bomb.len());
        assert_eq!(deflater.inflate(&bomb, 1 << 20), Err(Fault::too_big()));
    }

    #[test]
    fn the_example_of_the_rfc_is_read() {
        // RFC 7692, sections 7.2.3.1 and 7.2.3.4, the latter with a final block.
        let mut deflater = Deflater::default();
        let hello = [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
        assert_eq!(deflater.inflate(&hello, 100).unwrap(), b"Hello");
        let last = [0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00];
        assert_eq!(deflater.inflate(&last, 100).unwrap(), b"Hello");
    }
}
