//! The identity of a file, and the bytes that distinguish a pack from other files.

use std::fs::File;
use std::io::{self, Read};

use crate::layout::MAGIC;

/// The device and the number of a file, which distinguish a pack from its successor.
pub type Inode = (u64, u64);

/// Returns the first bytes of a file, by which a pack is recognized; all bytes of a shorter file.
pub(crate) fn start_of(file: File) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    file.take(MAGIC.len() as u64).read_to_end(&mut start)?;
    Ok(start)
}
