//! Reads a file that the user names, within limits, because the file may be a device or a pipe that never ends.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

/// The time after which a read fails, such as from a pipe without a writer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads a whole file.
pub(super) fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    Source::open(path, bytes_max)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// An open file with a limit on bytes and a deadline.
#[derive(Debug)]
pub(super) struct Source {
    file: File,
    bytes_max: u64,
    left: u64,
    deadline: Instant,
}

impl Source {
    /// Opens a file without waiting for a writer.
    pub(super) fn open(path: &Path, bytes_max: u64) -> io::Result<Self> {
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
        let flags = i32::try_from(flags).map_err(io::Error::other)?;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        Ok(Self { file, bytes_max, left: bytes_max, deadline: Instant::now() + PATIENCE })
    }

    /// Waits until the file has bytes to read or has ended.
    ///
    /// # Errors
    /// Neither has happened before the deadline.
    fn wait(&self) -> io::Result<()> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut polled = [PollFd::new(&self.file, PollFlags::IN)];
        if rustix::io::retry_on_intr(|| poll(&mut polled, Some(&left)))? == 0 {
            let seconds = PATIENCE.as_secs();
            let message = format!("no end of file within {seconds} s");
            return Err(io::Error::new(ErrorKind::TimedOut, message));
        }
        Ok(())
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.wait()?;
        let read = match self.file.read(buffer) {
            // Another reader of the pipe has taken the bytes.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Err(ErrorKind::Interrupted.into());
            }
            read => read?,
        };
        let left = self.left.checked_sub(read as u64).ok_or_else(|| {
            let message = format!("larger than {} MB", self.bytes_max >> 20);
            io::Error::new(ErrorKind::FileTooLarge, message)
        })?;
        self.left = left;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_read_than_is_allowed() {
        let error = read(Path::new("/dev/zero"), 3 << 20).unwrap_err();
        assert_eq!(error.to_string(), "larger than 3 MB");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "four").unwrap();
        assert_eq!(read(file.path(), 4).unwrap(), b"four");
    }
}
