//! What a program's standard input, output and error are.

use std::fs::{File, OpenOptions};
use std::io;

/// One of a program's three standard streams.
#[derive(Debug, Default)]
pub enum Stdio {
    /// This process's own.
    #[default]
    Inherit,
    /// Nothing to read; what is written goes nowhere.
    Null,
    /// A pipe; its other end is in the [`Child`](crate::Child).
    Pipe,
    /// A file, or whatever else the system reads and writes like one.
    File(File),
}

impl From<File> for Stdio {
    fn from(file: File) -> Self {
        Self::File(file)
    }
}

/// The two ends of a stream: the program's (none if it is inherited), and this process's.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    pub(crate) theirs: Option<File>,
    pub(crate) ours: Option<File>,
}

/// What a program does with a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Reads,
    Writes,
}

impl Stdio {
    /// The device that is empty and swallows everything.
    const NULL: &str = if cfg!(windows) { r"\\.\NUL" } else { "/dev/null" };

    pub(crate) fn ends(&self, direction: Direction) -> io::Result<Ends> {
        match self {
            Self::Inherit => Ok(Ends::default()),
            Self::Null => {
                let mut open = OpenOptions::new();
                open.read(direction == Direction::Reads).write(direction == Direction::Writes);
                Ok(Ends { theirs: Some(open.open(Self::NULL)?), ours: None })
            }
            Self::File(file) => Ok(Ends { theirs: Some(file.try_clone()?), ours: None }),
            Self::Pipe => {
                let (reader, writer) = io::pipe()?;
                let (reader, writer) = (into_file(reader), into_file(writer));
                Ok(match direction {
                    Direction::Reads => Ends { theirs: Some(reader), ours: Some(writer) },
                    Direction::Writes => Ends { theirs: Some(writer), ours: Some(reader) },
                })
            }
        }
    }
}

#[cfg(unix)]
fn into_file(end: impl Into<std::os::fd::OwnedFd>) -> File {
    end.into().into()
}

#[cfg(windows)]
fn into_file(end: impl Into<std::os::windows::io::OwnedHandle>) -> File {
    end.into().into()
}
