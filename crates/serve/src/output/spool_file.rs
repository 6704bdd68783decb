//! Files for bytes that would take too much memory: of requests, and of responses that a client has not taken.

use std::env;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::{Errno, pwrite};

/// The maximum size of one file in bytes: during a long stream, the disk space of taken bytes becomes free file by
/// file.
const SEGMENT_BYTES: u64 = 64 << 20;

/// The folder of files; `/tmp` is memory on many systems.
const FOLDER: &str = "/var/tmp";

/// An unnamed file to which bytes are appended. A new file replaces a long one, and a file is freed with the last
/// reference to it.
#[derive(Debug)]
pub(crate) struct SpoolFile {
    file: Arc<OwnedFd>,
    end: u64,
}

impl SpoolFile {
    /// Appends bytes, and returns their file and offset.
    ///
    /// # Errors
    /// No file can be created or written: the disk is full, or no descriptor is left.
    pub(crate) fn append(
        spool: &mut Option<Self>,
        bytes: &[u8],
    ) -> io::Result<(Arc<OwnedFd>, u64)> {
        let mut segment = match spool.take().filter(|segment| segment.end < SEGMENT_BYTES) {
            Some(segment) => segment,
            None => Self { file: Arc::new(unnamed_file()?.into()), end: 0 },
        };
        let start = segment.end;
        write_at(&segment.file, bytes, start)?;
        segment.end += bytes.len() as u64;
        let place = (Arc::clone(&segment.file), start);
        *spool = Some(segment);
        Ok(place)
    }
}

fn write_at(file: &OwnedFd, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match pwrite(file, bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Creates an unnamed file in `TMPDIR`, or by default in a folder on a disk.
///
/// # Errors
/// The file cannot be created: no descriptor is left, or the disk is full.
pub(crate) fn unnamed_file() -> io::Result<File> {
    if env::var_os("TMPDIR").is_some() {
        return tempfile::tempfile();
    }
    tempfile::tempfile_in(FOLDER).or_else(|_| tempfile::tempfile())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn appended_bytes_are_at_the_returned_offset() {
        let mut spool = None;
        let (first, start) = SpoolFile::append(&mut spool, b"one").unwrap();
        assert_eq!(start, 0);
        let (second, start) = SpoolFile::append(&mut spool, b"three").unwrap();
        assert_eq!((start, Arc::ptr_eq(&first, &second)), (3, true));
        let mut got = [0; 8];
        File::from(first.try_clone().unwrap()).read_exact_at(&mut got, 0).unwrap();
        assert_eq!(&got, b"onethree");
    }

    #[test]
    fn a_long_file_is_followed_by_another_one() {
        let mut spool = None;
        let (first, _) = SpoolFile::append(&mut spool, b"one").unwrap();
        spool.as_mut().unwrap().end = SEGMENT_BYTES;
        let (second, start) = SpoolFile::append(&mut spool, b"two").unwrap();
        assert_eq!((start, Arc::ptr_eq(&first, &second)), (0, false));
        assert_eq!(Arc::strong_count(&first), 1, "the first one goes with its last reader");
    }
}
