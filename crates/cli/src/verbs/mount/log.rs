//! Where a daemon's lines go.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use thruway_mount::{Error, Level, Log, LogTarget};

/// systemd's journal, for whoever is not started by it.
const JOURNAL: &str = "/run/systemd/journal/socket";

/// Standard error for a daemon that stays with its user, else the journal where there is one.
pub(super) fn default_target(foreground: bool) -> LogTarget {
    match foreground {
        true => LogTarget::Stderr,
        false if journal().is_ok() => LogTarget::Journal,
        false => LogTarget::Nowhere,
    }
}

/// Opens it.
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

/// Whether standard error goes to the journal, which then reads a level at the start of each line
/// (systemd.exec(5), `$JOURNAL_STREAM`).
fn is_journal_stream() -> bool {
    let stderr = io::stderr().as_fd().try_clone_to_owned().map(File::from);
    let stat = stderr.and_then(|stderr| stderr.metadata());
    let (Ok(stat), Some(stream)) = (stat, std::env::var_os("JOURNAL_STREAM")) else {
        return false;
    };
    stream.to_str() == Some(&format!("{}:{}", stat.dev(), stat.ino()))
}

/// The journal's number of a level (sd-daemon(3)).
fn priority(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warning => 4,
    }
}

// Nobody is left to be told that a line could not be written.

fn to_stderr(level: Level, line: &str, prefixes: bool) {
    let prefix = if prefixes { format!("<{}>", priority(level)) } else { "thruway: ".into() };
    let _ = io::stderr().write_all(format!("{prefix}{line}\n").as_bytes());
}

fn to_file(mut file: &File, level: Level, line: &str) {
    let _ = file.write_all(format!("<{}>{line}\n", priority(level)).as_bytes());
}

fn to_journal(socket: &UnixDatagram, level: Level, line: &str) {
    let line = line.replace('\n', " ");
    let priority = priority(level);
    let fields = format!("PRIORITY={priority}\nSYSLOG_IDENTIFIER=thruway\nMESSAGE={line}\n");
    let _ = socket.send(fields.as_bytes());
}
