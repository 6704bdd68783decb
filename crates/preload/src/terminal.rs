//! The controlling terminal of a process, and the kinds of its standard streams.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::stdio;
use rustix::termios::isatty;
use thruway_sys::descriptor;

/// The session, group, terminal and scheduling of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terminal {
    /// The process group.
    pub group: i32,
    /// The session ID, which is the process ID of the session's leader.
    pub session: i32,
    /// The device number of the controlling terminal; 0 without one.
    pub device: i32,
    /// The nice value, -20 to 19.
    pub nice: i32,
    /// The scheduling policy (sched(7)).
    pub policy: i32,
}

impl Terminal {
    /// Reads the values of this process.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn of_process() -> io::Result<Self> {
        Self::parsed(&std::fs::read_to_string("/proc/self/stat")?)
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Parses `/proc/self/stat` (proc(5)). Fields are counted from the last bracket, since the name may
    /// contain brackets and spaces.
    fn parsed(text: &str) -> Option<Self> {
        let (_, fields) = text.rsplit_once(')')?;
        let fields: Vec<_> = fields.split_ascii_whitespace().collect();
        let number = |place: usize| fields.get(place)?.parse().ok();
        Some(Self {
            group: number(2)?,
            session: number(3)?,
            device: number(4)?,
            nice: number(16)?,
            policy: number(38)?,
        })
    }

    /// Whether the process has a controlling terminal. Only processes of the terminal's session can have the terminal.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.device != 0
    }

    /// Returns the terminal's device and session as a text, for the key: commands in different terminals have different
    /// templates.
    #[must_use]
    pub fn identity(&self) -> String {
        if self.is_there() {
            format!("{} {}", self.device, self.session)
        } else {
            "none".to_owned()
        }
    }
}

/// Describes each standard stream as far as a boot may depend on it: a terminal and its device, another kind
/// of file, or closed.
#[must_use]
pub fn standard_streams() -> [String; 3] {
    [stdio::stdin(), stdio::stdout(), stdio::stderr()].map(|stream| {
        let Ok(stat) = fstat(stream) else { return "closed ".to_owned() };
        let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
        if is_device && isatty(stream) {
            format!("terminal {} ", stat.st_rdev)
        } else {
            "other ".to_owned()
        }
    })
}

/// Whether a stream is a terminal.
#[must_use]
pub fn is_terminal(stream: BorrowedFd<'_>) -> bool {
    isatty(stream)
}

/// Replaces each standard stream that is a terminal by `/dev/null`, so that a waiting process does not keep
/// the terminal open.
///
/// # Errors
/// `/dev/null` cannot be opened.
pub fn detach() -> io::Result<()> {
    let nothing = openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    for number in 0..3 {
        if descriptor::with(number, is_terminal) == Some(true) {
            descriptor::put(nothing.as_fd(), number)?;
        }
    }
    Ok(())
}

/// Returns, in ascending order, the open descriptors that a program started by this process would inherit.
///
/// # Errors
/// `/proc` cannot be read.
pub fn descriptors() -> io::Result<Vec<i32>> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        numbers.extend(entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    numbers.retain(|number| descriptor::is_inherited(*number));
    numbers.sort_unstable();
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_hide_the_fields() {
        let start = "7 (a) b (c)) S 1 42 43 34816 -1 4194560 1 2 3 4 5 6 7 8 20 -5 1 0 99";
        let text = format!("{start} 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 17 0 0 5 0");
        let parsed = Terminal::parsed(&text).unwrap();
        let expected = Terminal { group: 42, session: 43, device: 34816, nice: -5, policy: 5 };
        assert_eq!(parsed, expected);
        assert_eq!(parsed.identity(), "34816 43");
        assert_eq!(Terminal { device: 0, ..expected }.identity(), "none");
    }

    #[test]
    fn descriptors_that_are_closed_on_exec_are_left_out() {
        let file = tempfile::tempfile().unwrap();
        use std::os::fd::AsRawFd;
        let numbers = descriptors().unwrap();
        assert!(!numbers.contains(&file.as_raw_fd()));
        assert!(numbers.contains(&2));
    }
}
