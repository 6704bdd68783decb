//! Recordings as files of JSON lines. The first line is the [`Header`], the last the [`Outcome`]. Each line
//! between them is an [`Event`], in the order in which the calls ended.
//!
//! A file without an end is still a valid recording of its events.

mod line;
mod perfetto;
mod plain;
mod reader;
mod writer;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::{Backend, Command, Outcome};

pub use perfetto::TraceEvents;
pub use reader::Reader;
pub use writer::Writer;

/// The format that this version writes, and the newest that it reads.
const FORMAT: u32 = 2;

/// The description of a recording: the command, the machine and the way of recording.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The type of the file, always `trace`.
    pub thruway: String,
    /// The version of the format.
    pub format: u32,
    /// The version of the program that wrote the file.
    pub version: String,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// The folder in which the command was started.
    pub folder: String,
    /// A hash of the whole environment, in hexadecimal, independent of the order of variables.
    pub environment: String,
    /// The variables that decide where files are searched.
    pub variables: BTreeMap<String, String>,
    /// The mechanism that recorded the calls.
    pub backend: Backend,
    /// The name and version of the kernel.
    pub kernel: String,
    /// The machine's architecture.
    pub machine: String,
    /// The start time, in seconds since 1970.
    #[serde(rename = "started_s", alias = "started")]
    pub started: u64,
    /// The effective user ID of the recorder; missing in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// The processes that were attached to; empty for a command, and in older recordings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attached: Vec<i32>,
}

impl Header {
    /// Creates the header of a recording that starts now, for a command with this environment.
    #[must_use]
    pub fn new(command: &Command, backend: Backend, environment: &[(OsString, OsString)]) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let system = rustix::system::uname();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let variables = environment.iter().filter_map(|(name, value)| {
            let name = name.to_str().filter(|name| is_about_searches(name))?;
            Some((name.to_owned(), text(value.as_bytes())))
        });
        Self {
            thruway: "trace".to_owned(),
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command: command.arguments.iter().map(|word| text(word.as_bytes())).collect(),
            folder: text(std::env::current_dir().unwrap_or_default().as_os_str().as_bytes()),
            environment: format!("{:016x}", hash(environment)),
            variables: variables.collect(),
            backend,
            kernel: format!(
                "{} {}",
                text(system.sysname().to_bytes()),
                text(system.release().to_bytes())
            ),
            machine: text(system.machine().to_bytes()),
            started: now.map_or(0, |now| now.as_secs()),
            user: Some(rustix::process::geteuid().as_raw()),
            attached: Vec::new(),
        }
    }

    /// Returns the value of a variable in [`variables`](Self::variables).
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }
}

/// Whether a variable decides where, or in which language, files are searched.
fn is_about_searches(name: &str) -> bool {
    const NAMES: [&str; 20] = [
        "PATH",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "PYTHONPATH",
        "PYTHONHOME",
        "RUBYLIB",
        "RUBYOPT",
        "GEM_HOME",
        "GEM_PATH",
        "NODE_PATH",
        "CPATH",
        "C_INCLUDE_PATH",
        "CPLUS_INCLUDE_PATH",
        "LANG",
        "LANGUAGE",
        "TZ",
        "CLASSPATH",
        "TERM",
        "TERMINFO",
        "VIRTUAL_ENV",
    ];
    NAMES.contains(&name) || name.starts_with("LC_")
}

/// Returns the FNV-1a hash of the variables, sorted by name.
fn hash(environment: &[(OsString, OsString)]) -> u64 {
    let mut variables: Vec<_> = environment.iter().collect();
    variables.sort();
    let pieces =
        variables.iter().flat_map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes(), b"\0"]);
    pieces.flatten().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A consumer of events.
pub trait Sink {
    /// Receives the next event.
    fn event(&mut self, event: &crate::Event<'_>);

    /// Called when no further event is available at the moment. The right time for work that would cost too
    /// much per event, such as flushing.
    fn pause(&mut self) {}

    /// Called at the end of the recording.
    fn end(&mut self, _outcome: &Outcome) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    #[test]
    fn the_order_of_variables_does_not_change_the_hash() {
        let one = variables(&[("A", "1"), ("B", "2")]);
        let other = variables(&[("B", "2"), ("A", "1")]);
        assert_eq!(hash(&one), hash(&other));
        assert_ne!(hash(&one), hash(&variables(&[("A", "1"), ("B", "3")])));
        assert_ne!(hash(&one), hash(&variables(&[("A", "1B=2")])));
    }

    #[test]
    fn only_variables_about_searches_are_kept() {
        let environment = variables(&[("PATH", "/bin"), ("PASSWORD", "x"), ("LC_ALL", "C")]);
        let command = Command::find(&["/bin/true".into()], "".as_ref(), []).unwrap();
        let header = Header::new(&command, Backend::Stub, &environment);
        let kept: Vec<_> = header.variables.keys().map(String::as_str).collect();
        assert_eq!(kept, ["LC_ALL", "PATH"]);
        assert_eq!(header.variable("PATH"), Some("/bin"));
    }
}
