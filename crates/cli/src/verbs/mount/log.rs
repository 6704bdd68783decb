//! The destinations of a daemon's log lines.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::SystemTime;

use thruway_mount::{Error, Level, Log, LogTarget};
use thruway_sys::printable;

/// The socket of systemd's journal, for a process that systemd has not started.
const JOURNAL: &str = "/run/systemd/journal/socket";

/// Returns standard error for a daemon in the foreground, or else the journal if there is one.
pub(super) fn default_target(foreground: bool) -> LogTarget {
    match foreground {
        true => LogTarget::Stderr,
        false if journal().is_ok() => LogTarget::Journal,
        false => LogTarget::Nowhere,
    }
}

/// Opens the destination.
pub(super) fn open(target: &LogTarget) -> Result<Log, Error> {
    Ok(match target {
        LogTarget::Stderr => {
            let prefixes = is_journal_stream();
            Log::new(move |level, line| to_stderr(level, line, prefixes))
        }
        LogTarget::Journal => {
            let socket =
                journal().map_err(|cause| Error::new("cannot reach", Path::new(JOURNAL), cause))?;
            Log::new(move |level, line| to_journal(&socket, level, line))
        }
        LogTarget::File(path) => {
            let file = OpenOptions::new().create(true).append(true).open(path);
            let file = file.map_err(|cause| Error::new("cannot open", path, cause))?;
            Log::new(move |level, line| to_file(&file, level, line))
        }
        LogTarget::Nowhere => Log::new(|_, _| ()),
    })
}

fn journal() -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(JOURNAL)?;
    Ok(socket)
}

/// Whether standard error leads to the journal, which then reads a level at the start of each line (systemd.exec(5),
/// `$JOURNAL_STREAM`).
fn is_journal_stream() -> bool {
    let stderr = io::stderr().as_fd().try_clone_to_owned().map(File::from);
    let stat = stderr.and_then(|stderr| stderr.metadata());
    let (Ok(stat), Some(stream)) = (stat, std::env::var_os("JOURNAL_STREAM")) else {
        return false;
    };
    stream.to_str() == Some(&format!("{}:{}", stat.dev(), stat.ino()))
}

/// Returns the journal's number of a level (sd-daemon(3)).
fn priority(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warning => 4,
        Level::Notice => 5,
    }
}

// A failure to write a line is ignored, because no other destination is left.

fn to_stderr(level: Level, line: &str, prefixes: bool) {
    let line = printable::text(line);
    let prefix = if prefixes { format!("<{}>", priority(level)) } else { "thruway: ".into() };
    let _ = io::stderr().write_all(format!("{prefix}{line}\n").as_bytes());
}

fn to_file(mut file: &File, level: Level, line: &str) {
    let level = match level {
        Level::Error => "error",
        Level::Warning => "warning",
        Level::Notice => "notice",
    };
    let line = printable::text(line);
    let _ = file.write_all(format!("{} {level} {line}\n", time(SystemTime::now())).as_bytes());
}

/// Formats a time by RFC 3339, in UTC.
fn time(now: SystemTime) -> String {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, second) = (since / 86_400, since % 86_400);
    // A year that begins in March has the leap day at its end (Hinnant, chrono-compatible date algorithms).
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year + era * 400 + later;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

fn to_journal(socket: &UnixDatagram, level: Level, line: &str) {
    let line = printable::text(line);
    let priority = priority(level);
    let fields = format!("PRIORITY={priority}\nSYSLOG_IDENTIFIER=thruway\nMESSAGE={line}\n");
    let _ = socket.send(fields.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_those_of_the_calendar() {
        let at = |seconds| time(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(at(1_709_251_199), "2024-02-29T23:59:59Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}
