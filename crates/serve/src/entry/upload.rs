//! A request's body, while it arrives and when it is whole.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

use thruway_http1::{BodyDecoder, Head, RequestFraming};

use crate::output::spool_file::unnamed_file;

/// The overhead of a chunk beside its bytes.
const CHUNK_BYTES: usize = 32;

/// A request's body without its framing.
#[derive(Debug)]
pub enum Body {
    /// In memory; empty if the request has no body.
    Memory(Vec<u8>),
    /// In an unnamed file, positioned at its start.
    File {
        /// The file.
        file: File,
        /// The length in bytes.
        length: u64,
    },
}

impl Body {
    /// A body without bytes.
    #[must_use]
    pub fn empty() -> Self {
        Self::Memory(Vec::new())
    }

    /// The length in bytes.
    #[must_use]
    pub fn length_bytes(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File { length, .. } => *length,
        }
    }
}

/// A request whose body has not all arrived.
#[derive(Debug)]
pub(crate) struct Upload {
    pub(crate) head: Head,
    pub(crate) head_bytes: Vec<u8>,
    pub(crate) decoder: BodyDecoder,
    pub(crate) spool: Spool,
    /// Whether all of the body has arrived.
    pub(crate) is_whole: bool,
}

impl Upload {
    /// The length of the request in bytes, if all of it is in memory.
    pub(crate) fn bytes_in_memory(&self) -> Option<usize> {
        match &self.spool {
            Spool::Keep { body: Body::Memory(body), .. } if self.is_whole => {
                Some(self.head_bytes.len() + CHUNK_BYTES + body.len())
            }
            _ => None,
        }
    }

    /// Serializes a request that is in memory as a client could have sent it: chunks are merged and trailers are left
    /// out.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let Spool::Keep { body: Body::Memory(body), .. } = &self.spool else { return Vec::new() };
        match self.head.request(&self.head_bytes).framing() {
            RequestFraming::Chunked if body.is_empty() => {
                [&self.head_bytes[..], b"0\r\n\r\n"].concat()
            }
            RequestFraming::Chunked => {
                let size = format!("{:x}\r\n", body.len());
                [&self.head_bytes, size.as_bytes(), body, b"\r\n0\r\n\r\n"].concat()
            }
            RequestFraming::None | RequestFraming::Length(_) => {
                [&self.head_bytes[..], body].concat()
            }
        }
    }
}

/// The destination of a body's bytes.
#[derive(Debug)]
pub(crate) enum Spool {
    /// Memory, or a file for a body of more than `memory_bytes_max` bytes.
    Keep { body: Body, memory_bytes_max: usize },
    /// None: the handler does not want the body.
    Discard,
}

impl Spool {
    pub(crate) fn keep(memory_bytes_max: usize) -> Self {
        Self::Keep { body: Body::empty(), memory_bytes_max }
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// The file cannot be created or written: the disk is full.
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

    /// Finishes the body, which is read from its start.
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
    use thruway_http1::{Limits, Piece};

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

    /// A request that has been read.
    fn upload(bytes: &str) -> (Upload, usize) {
        let limits = Limits::default();
        let mut head = Head::new();
        assert_eq!(head.parse(bytes.as_bytes(), 0, &limits), Ok(true));
        let (head_bytes, rest) = bytes.as_bytes().split_at(head.length_bytes());
        let framing = head.request(head_bytes).framing();
        let (mut decoder, mut spool) =
            (BodyDecoder::new(framing, &limits).unwrap(), Spool::keep(1 << 10));
        let mut at = 0;
        loop {
            let (used, piece) = decoder.next(&rest[at..], &limits).unwrap();
            at += used;
            match piece {
                Piece::Data(data) => spool.write(data).unwrap(),
                Piece::More => panic!("it is not whole"),
                Piece::End => break,
            }
        }
        let head_bytes = head_bytes.to_vec();
        (Upload { head, head_bytes, decoder, spool, is_whole: true }, rest.len() - at)
    }

    #[test]
    fn a_request_is_written_so_that_it_is_read_again() {
        let head = "POST / HTTP/1.1\r\nHost: a\r\n";
        for (request, written) in [
            ("Content-Length: 4\r\n\r\nbody", "Content-Length: 4\r\n\r\nbody"),
            (
                "Transfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2;a=b\r\ndy\r\n0\r\nDigest: x\r\n\r\n",
                "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
            ),
            (
                "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            ),
        ] {
            let (first, rest) = upload(&format!("{head}{request}GET /next"));
            let bytes = String::from_utf8(first.to_bytes()).unwrap();
            assert_eq!((&bytes[head.len()..], rest), (written, "GET /next".len()));
            let (again, rest) = upload(&bytes);
            assert_eq!((again.to_bytes(), rest), (bytes.into_bytes(), 0));
            assert!(again.bytes_in_memory().unwrap() >= again.to_bytes().len());
        }
    }

    #[test]
    fn a_discarded_body_is_stored_nowhere() {
        let mut spool = Spool::Discard;
        spool.write(&[0; 1000]).unwrap();
        assert_eq!(spool.finish().unwrap().length_bytes(), 0);
    }
}
