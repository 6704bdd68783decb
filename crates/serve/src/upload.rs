//! A request's body while it comes in, and when it is whole.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

use thruway_http1::{BodyDecoder, Head};

use crate::spool_file::unnamed_file;

/// A request's body without its framing.
#[derive(Debug)]
pub enum Body {
    /// In memory; empty if there is none.
    Memory(Vec<u8>),
    /// In a file without a name, at its start.
    File {
        /// The file.
        file: File,
        /// Its length in bytes.
        length: u64,
    },
}

impl Body {
    /// No bytes.
    #[must_use]
    pub fn empty() -> Self {
        Self::Memory(Vec::new())
    }

    /// Its length in bytes.
    #[must_use]
    pub fn length_bytes(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File { length, .. } => *length,
        }
    }
}

/// A request whose body is not there yet.
#[derive(Debug)]
pub(crate) struct Upload {
    pub(crate) head: Head,
    pub(crate) head_bytes: Vec<u8>,
    pub(crate) decoder: BodyDecoder,
    pub(crate) spool: Spool,
    /// All of the body is here.
    pub(crate) is_whole: bool,
}

/// Where a body's bytes go.
#[derive(Debug)]
pub(crate) enum Spool {
    /// Into memory, and into a file beyond so many bytes.
    Keep { body: Body, memory_bytes_max: usize },
    /// Nowhere: the handler does not want them.
    Discard,
}

impl Spool {
    pub(crate) fn keep(memory_bytes_max: usize) -> Self {
        Self::Keep { body: Body::empty(), memory_bytes_max }
    }

    /// Adds bytes at the end.
    ///
    /// # Errors
    /// The file cannot be made or written: the disk is full.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Self::Keep { body, memory_bytes_max } = self else { return Ok(()) };
        if let Body::Memory(memory) = body {
            if memory.len() + bytes.len() <= *memory_bytes_max {
                memory.extend_from_slice(bytes);
                return Ok(());
            }
            let mut file = unnamed_file()?;
            file.write_all(memory)?;
            *body = Body::File { file, length: memory.len() as u64 };
        }
        if let Body::File { file, length } = body {
            file.write_all(bytes)?;
            *length += bytes.len() as u64;
        }
        Ok(())
    }

    /// The whole body, ready to be read.
    ///
    /// # Errors
    /// The file cannot be rewound.
    pub(crate) fn finish(self) -> io::Result<Body> {
        match self {
            Self::Discard => Ok(Body::empty()),
            Self::Keep { mut body, .. } => {
                if let Body::File { file, .. } = &mut body {
                    file.seek(SeekFrom::Start(0))?;
                }
                Ok(body)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_small_body_stays_in_memory_and_a_large_one_goes_to_a_file() {
        let mut small = Spool::keep(4);
        small.write(b"ab").unwrap();
        small.write(b"cd").unwrap();
        let small = small.finish().unwrap();
        assert!(matches!(&small, Body::Memory(bytes) if bytes == b"abcd"));
        let mut large = Spool::keep(4);
        large.write(b"ab").unwrap();
        large.write(b"cde").unwrap();
        large.write(b"f").unwrap();
        let large = large.finish().unwrap();
        assert_eq!(large.length_bytes(), 6);
        let Body::File { mut file, .. } = large else { panic!("it is in a file") };
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "abcdef");
    }

    #[test]
    fn what_is_not_wanted_is_kept_nowhere() {
        let mut spool = Spool::Discard;
        spool.write(&[0; 1000]).unwrap();
        assert_eq!(spool.finish().unwrap().length_bytes(), 0);
    }
}
