//! Replies: an errno, or a body.

use crate::wire::{DirEntry, EntryOut, OutHeader, Wire};

/// The reply to one request: room for the header, then the body.
///
/// A thread reuses it for all its requests, so that its memory is allocated once.
#[derive(Debug)]
pub struct Reply {
    errno: i32,
    bytes: Vec<u8>,
}

impl Default for Reply {
    fn default() -> Self {
        Self { errno: 0, bytes: vec![0; OutHeader::SIZE] }
    }
}

impl Reply {
    /// Turns the reply into a success without a body.
    pub fn clear(&mut self) {
        self.fail(0);
    }

    /// Turns the reply into an error without a body; `errno` is positive.
    pub fn fail(&mut self, errno: i32) {
        self.errno = errno;
        self.bytes.truncate(OutHeader::SIZE);
    }

    /// Appends a structure to the body.
    pub fn put(&mut self, structure: &impl Wire) {
        structure.put(&mut self.bytes);
    }

    /// Appends bytes to the body.
    pub fn put_bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Lets `fill` append up to `length` bytes to the body. `fill` returns the number of bytes that it has written.
    ///
    /// # Errors
    /// The error of `fill`; the body is then unchanged.
    pub fn fill<E>(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<(), E> {
        let before = self.bytes.len();
        self.bytes.resize(before + length, 0);
        let written = fill(&mut self.bytes[before..]);
        self.bytes.truncate(before + written.as_ref().map_or(0, |&written| written.min(length)));
        written.map(|_| ())
    }

    /// Begins a listing of at most `room` bytes.
    pub fn listing(&mut self, room: u32) -> Listing<'_> {
        let room = usize::try_from(room).unwrap_or(usize::MAX).saturating_add(OutHeader::SIZE);
        Listing { bytes: &mut self.bytes, room }
    }

    /// The errno, positive, or zero.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.errno
    }

    /// The body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.bytes[OutHeader::SIZE..]
    }

    /// Fills in the header, and returns header and body as they go over the wire.
    pub fn seal(&mut self, unique: u64) -> &[u8] {
        let length = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        let (header, _) = self.bytes.split_at_mut(OutHeader::SIZE);
        header[..4].copy_from_slice(&length.to_ne_bytes());
        header[4..8].copy_from_slice(&(-self.errno).to_ne_bytes());
        header[8..].copy_from_slice(&unique.to_ne_bytes());
        &self.bytes
    }
}

/// The names of a folder, packed into the body of a reply.
#[derive(Debug)]
pub struct Listing<'a> {
    bytes: &'a mut Vec<u8>,
    room: usize,
}

impl Listing<'_> {
    /// Adds a name; `false` if it does not fit.
    pub fn push(&mut self, entry: DirEntry, name: &[u8]) -> bool {
        self.push_sized(0, name, |bytes| put_entry(bytes, entry, name))
    }

    /// Whether a name of this length fits with its attributes.
    #[must_use]
    pub fn fits_with_attributes(&self, name: &[u8]) -> bool {
        self.bytes.len() + EntryOut::SIZE + padded(name) <= self.room
    }

    /// Adds a name with its attributes; `false` if it does not fit.
    pub fn push_with_attributes(&mut self, out: &EntryOut, entry: DirEntry, name: &[u8]) -> bool {
        self.push_sized(EntryOut::SIZE, name, |bytes| {
            out.put(bytes);
            put_entry(bytes, entry, name);
        })
    }

    /// Whether no name was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == OutHeader::SIZE
    }

    fn push_sized(&mut self, before: usize, name: &[u8], put: impl FnOnce(&mut Vec<u8>)) -> bool {
        let fits = self.bytes.len() + before + padded(name) <= self.room;
        if fits {
            put(self.bytes);
        }
        fits
    }
}

/// Length of an entry with this name: the kernel wants each to start at a multiple of 8.
fn padded(name: &[u8]) -> usize {
    (DirEntry::SIZE + name.len()).next_multiple_of(8)
}

fn put_entry(bytes: &mut Vec<u8>, mut entry: DirEntry, name: &[u8]) {
    entry.name_length = u32::try_from(name.len()).unwrap_or(u32::MAX);
    let end = bytes.len() + padded(name);
    entry.put(bytes);
    bytes.extend_from_slice(name);
    bytes.resize(end, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_counts_the_body_and_negates_the_errno() {
        let mut reply = Reply::default();
        reply.put_bytes(b"12345");
        let header = OutHeader::take(&mut reply.seal(9)).unwrap();
        assert_eq!(header, OutHeader { length: 21, error: 0, unique: 9 });
        reply.fail(2);
        let header = OutHeader::take(&mut reply.seal(9)).unwrap();
        assert_eq!(header, OutHeader { length: 16, error: -2, unique: 9 });
    }

    #[test]
    fn a_listing_stops_when_it_is_full() {
        let mut reply = Reply::default();
        let mut listing = reply.listing(70);
        let entry = DirEntry { number: 1, offset: 1, name_length: 0, kind: 8 };
        assert!(listing.push(entry, b"a"));
        assert!(listing.push(entry, b"b"));
        assert!(!listing.push(entry, b"c"));
        assert_eq!(reply.body().len(), 64);
        let mut second = &reply.body()[32..];
        assert_eq!(DirEntry::take(&mut second).unwrap().name_length, 1);
        assert_eq!(second[0], b'b');
    }

    #[test]
    fn bytes_that_were_not_filled_are_not_sent() {
        let mut reply = Reply::default();
        let filled: Result<(), ()> = reply.fill(10, |room| {
            room[..3].copy_from_slice(b"abc");
            Ok(3)
        });
        assert_eq!((filled, reply.body()), (Ok(()), b"abc".as_slice()));
        assert_eq!(reply.fill(10, |_| Err(5)), Err(5));
        assert_eq!(reply.body(), b"abc");
    }
}
