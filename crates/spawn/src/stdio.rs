//! The standard streams of a program.

use std::fs::{File, OpenOptions};
use std::io;

/// A standard stream of a program.
#[derive(Debug, Default)]
pub enum Stdio {
    /// The stream of the starting process.
    #[default]
    Inherit,
    /// The null device: empty as an input, discarded as an output.
    Null,
    /// A pipe. The [`Child`](crate::Child) holds the other end.
    Pipe,
    /// A file, or another object with a descriptor or handle.
    File(File),
}

impl From<File> for Stdio {
    fn from(file: File) -> Self {
        Self::File(file)
    }
}

/// The two ends of a stream: the program's (`None` if inherited) and the starting process's.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    pub(crate) theirs: Option<File>,
    pub(crate) ours: Option<File>,
}

/// The direction in which the program uses a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Reads,
    Writes,
}

impl Stdio {
    /// The null device.
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
