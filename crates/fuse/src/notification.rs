//! Messages to the kernel that are no replies.

use crate::wire::{Deleted, InvalidateEntry, InvalidateInode, OutHeader, Wire, notify};

/// A message to the kernel that is no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notification<'a> {
    /// The attributes of an inode changed.
    Attributes {
        /// The inode.
        inode: u64,
    },
    /// The attributes and the data (of a folder: the names) of an inode changed.
    Data {
        /// The inode.
        inode: u64,
    },
    /// A name may lead to another inode than before, or to none.
    Entry {
        /// The folder.
        parent: u64,
        /// The name.
        name: &'a [u8],
    },
    /// A name was removed; watches on the mount report it.
    Deleted {
        /// The folder.
        parent: u64,
        /// The inode that had the name.
        child: u64,
        /// The name.
        name: &'a [u8],
    },
    /// Every name may lead to another inode than before.
    Epoch,
    /// The kernel shall send again the requests that were read and have no reply.
    Resend,
}

impl Notification<'_> {
    /// The bytes to write to the device.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let code = self.put(&mut body);
        let length = u32::try_from(OutHeader::SIZE + body.len()).unwrap_or(u32::MAX);
        let mut bytes = Vec::with_capacity(OutHeader::SIZE + body.len());
        OutHeader { length, error: code, unique: 0 }.put(&mut bytes);
        bytes.append(&mut body);
        bytes
    }

    /// Appends the body, and returns the code.
    fn put(&self, body: &mut Vec<u8>) -> i32 {
        match *self {
            Self::Attributes { inode } => put_inode(body, inode, -1),
            Self::Data { inode } => put_inode(body, inode, 0),
            Self::Entry { parent, name } => {
                InvalidateEntry { parent, name_length: length(name), flags: 0 }.put(body);
                put_name(body, name);
                notify::INVALIDATE_ENTRY
            }
            Self::Deleted { parent, child, name } => {
                Deleted { parent, child, name_length: length(name), padding: 0 }.put(body);
                put_name(body, name);
                notify::DELETE
            }
            Self::Epoch => notify::INCREMENT_EPOCH,
            Self::Resend => notify::RESEND,
        }
    }
}

fn put_inode(body: &mut Vec<u8>, inode: u64, offset: i64) -> i32 {
    InvalidateInode { inode, offset, length: 0 }.put(body);
    notify::INVALIDATE_INODE
}

fn put_name(body: &mut Vec<u8>, name: &[u8]) {
    body.extend_from_slice(name);
    body.push(0);
}

fn length(name: &[u8]) -> u32 {
    u32::try_from(name.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_sent_with_a_zero_byte() {
        let bytes = Notification::Entry { parent: 5, name: b"abc" }.to_bytes();
        let mut rest = bytes.as_slice();
        let header = OutHeader::take(&mut rest).unwrap();
        assert_eq!(header, OutHeader { length: 36, error: 3, unique: 0 });
        assert_eq!(InvalidateEntry::take(&mut rest).unwrap().name_length, 3);
        assert_eq!(rest, b"abc\0");
    }

    #[test]
    fn attributes_alone_keep_the_data() {
        let bytes = Notification::Attributes { inode: 5 }.to_bytes();
        let sent = InvalidateInode::take(&mut &bytes[OutHeader::SIZE..]).unwrap();
        assert!(sent.offset < 0);
        assert_eq!(Notification::Resend.to_bytes().len(), OutHeader::SIZE);
    }
}
