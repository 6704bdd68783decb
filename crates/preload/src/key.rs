//! The key of a template: everything except the disk that a boot may depend on, one line per input.
//!
//! Two processes with equal keys boot alike as long as the disk stays the same. A line is a name for display
//! and a digest of the value. Values themselves are not kept, because variables may hold secrets.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::command::{fixed_words, script_word};
use crate::terminal::{self, Terminal};
use crate::wire;

/// Variables that differ between any two commands. The child sets them again, and they are compared only if
/// the boot reads them.
pub const VOLATILE: [&str; 5] = ["_", "SHLVL", "OLDPWD", "HISTCMD", "THRUWAY_PRELOAD"];

/// Fields of `/proc/thread-self/status` and their names for display.
const STATUS: [(&str, &str); 15] = [
    ("Umask", "umask"),
    ("Uid", "user"),
    ("Gid", "group"),
    ("Groups", "groups"),
    ("SigBlk", "blocked signals"),
    ("SigIgn", "ignored signals"),
    ("CapInh", "capabilities"),
    ("CapPrm", "capabilities"),
    ("CapBnd", "capabilities"),
    ("CapAmb", "capabilities"),
    ("NoNewPrivs", "no_new_privs"),
    ("Seccomp", "system call filter"),
    ("Seccomp_filters", "system call filter"),
    ("Cpus_allowed", "allowed processors"),
    ("Mems_allowed", "allowed memory"),
];

/// Files of `/proc/self` that describe inherited state, and their names for display.
const INHERITED: [(&str, &str); 6] = [
    ("limits", "resource limits"),
    ("cgroup", "control group"),
    ("oom_score_adj", "OOM score adjustment"),
    ("personality", "personality"),
    ("coredump_filter", "core dump filter"),
    ("attr/current", "security label"),
];

const NAMESPACES: [&str; 8] = ["cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"];

/// The inputs of a boot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Key {
    lines: Vec<(String, u64)>,
}

/// A command as it was invoked.
#[derive(Debug)]
pub struct Invocation<'a> {
    /// The words of the command.
    pub words: &'a [OsString],
    /// The environment of the command.
    pub environment: &'a [(OsString, OsString)],
    /// The versions of the programs that start templates.
    pub version: &'a str,
}

impl Key {
    /// Computes the key of a command invoked from this process.
    ///
    /// # Errors
    /// `/proc` cannot be read, or the working directory is gone.
    pub fn of_process(invocation: &Invocation<'_>, terminal: &Terminal) -> io::Result<Self> {
        let mut key = Self::default();
        key.add("version", invocation.version);
        key.add_command(invocation);
        key.add("folder", std::env::current_dir()?.as_os_str().as_bytes());
        let root = std::fs::metadata("/")?;
        key.add("root folder", format!("{}:{}", root.dev(), root.ino()));
        key.add_status(&std::fs::read_to_string("/proc/thread-self/status")?);
        for (file, name) in INHERITED {
            key.add(name, std::fs::read(format!("/proc/self/{file}")).unwrap_or_default());
        }
        key.add("namespaces", namespaces());
        key.add("priority", terminal.nice.to_string());
        key.add("scheduling policy", terminal.policy.to_string());
        key.add("I/O priority", thruway_sys::process::io_priority().to_string());
        key.add("terminal", terminal.identity());
        key.add("standard streams", terminal::standard_streams().concat());
        key.add("open descriptors", format!("{:?}", terminal::descriptors()?));
        key.add_environment(invocation.environment);
        Ok(key)
    }

    /// Returns the number of the key, which names its files.
    #[must_use]
    pub fn number(&self) -> u128 {
        xxh3_128(&self.encoded())
    }

    /// Returns the name of the first line in which two keys differ.
    #[must_use]
    pub fn differs_in<'a>(&'a self, other: &'a Self) -> Option<&'a str> {
        let lacks = |one: &Self, line: &&(String, u64)| !one.lines.contains(line);
        let here = self.lines.iter().find(|line| lacks(other, line));
        here.or_else(|| other.lines.iter().find(|line| lacks(self, line)))
            .map(|(name, _)| name.as_str())
    }

    /// Returns the number of lines that two keys share.
    #[must_use]
    pub fn likeness(&self, other: &Self) -> usize {
        self.lines.iter().filter(|line| other.lines.contains(line)).count()
    }

    /// Encodes the key for a file.
    #[must_use]
    pub fn encoded(&self) -> Vec<u8> {
        let fields = self
            .lines
            .iter()
            .flat_map(|(name, digest)| [name.as_bytes().to_vec(), digest.to_le_bytes().to_vec()]);
        wire::encoded(&fields.collect::<Vec<_>>())
    }

    /// Decodes the output of [`encoded`](Self::encoded); `None` for any other bytes.
    #[must_use]
    pub fn decoded(bytes: &[u8]) -> Option<Self> {
        let fields = wire::decoded(bytes)?;
        let lines = fields.chunks(2).map(|pair| {
            let digest = u64::from_le_bytes(pair.get(1)?.as_slice().try_into().ok()?);
            Some((String::from_utf8_lossy(&pair[0]).into_owned(), digest))
        });
        Some(Self { lines: lines.collect::<Option<_>>()? })
    }

    fn add(&mut self, name: &str, value: impl AsRef<[u8]>) {
        self.lines.push((name.to_owned(), xxh3_64(value.as_ref())));
    }

    fn add_command(&mut self, invocation: &Invocation<'_>) {
        let words: Vec<_> = invocation.words.iter().map(OsString::as_os_str).collect();
        let words = fixed_words(&words);
        let bytes: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
        self.add("command", bytes.join(&0));
        // A link that is redirected to another script may load another application.
        let script = script_word(&words).map(real_path).unwrap_or_default();
        self.add("script", script.as_os_str().as_bytes());
        // A program that now precedes the old one in `PATH` is a different program.
        let path = invocation.environment.iter().find(|(name, _)| name == "PATH");
        let path = path.map(|(_, value)| value.as_os_str());
        for program in words.first().copied().into_iter().chain([OsStr::new("ruby")]) {
            let found = resolved(program, path);
            self.add("program", found.as_deref().map_or_else(Vec::new, identity_of_file));
            if found.as_deref().is_some_and(|path| program == "ruby" && is_script(path)) {
                self.add("files that choose a Ruby", identity_of_choice(invocation.environment));
            }
        }
    }

    fn add_status(&mut self, status: &str) {
        for line in status.lines() {
            let Some((field, value)) = line.split_once(':') else { continue };
            if let Some((_, name)) = STATUS.iter().find(|(known, _)| *known == field) {
                self.add(name, value.trim());
            }
        }
    }

    fn add_environment(&mut self, environment: &[(OsString, OsString)]) {
        let mut lines: Vec<_> = environment
            .iter()
            .filter_map(|(name, value)| {
                let value = counted_value(name, value)?;
                Some((format!("variable {}", name.to_string_lossy()), xxh3_64(value.as_bytes())))
            })
            .collect();
        lines.sort_unstable();
        self.lines.append(&mut lines);
    }
}

/// Returns the part of a variable's value that counts; `None` for a variable that does not count.
fn counted_value(name: &OsStr, value: &OsStr) -> Option<OsString> {
    if VOLATILE.iter().any(|volatile| name == *volatile) {
        return None;
    }
    if name == "THRUWAY_BOOT" {
        return Some(without_report(value)).filter(|words| !words.is_empty());
    }
    Some(value.to_owned())
}

/// Removes the words that request a report, since a report does not change how Ruby boots.
fn without_report(words: &OsStr) -> OsString {
    let words = words.to_string_lossy();
    let counts = |word: &&str| *word != "explain" && !word.starts_with("explained-process-");
    words.split(',').filter(counts).collect::<Vec<_>>().join(",").into()
}

/// Finds a program as `execvp` does.
fn resolved(program: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let is_program = |file: &PathBuf| {
        std::fs::metadata(file).is_ok_and(|stat| stat.is_file() && stat.mode() & 0o111 != 0)
    };
    std::env::split_paths(path?).map(|folder| folder.join(program)).find(is_program)
}

/// Returns the path of a file together with its stamp.
fn identity_of_file(path: &Path) -> Vec<u8> {
    let stat = std::fs::metadata(path).ok();
    let stamp = stat.map(|s| (s.dev(), s.ino(), s.size(), s.mtime(), s.mtime_nsec(), s.ctime()));
    [path.as_os_str().as_bytes(), format!("{stamp:?}").as_bytes()].join(&0)
}

/// Returns a path without links; an empty path if the file does not exist.
#[expect(clippy::disallowed_methods, reason = "it is compared, and nothing is opened by it")]
fn real_path(path: &OsStr) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_default()
}

/// Whether a program is a script, like the shims of version managers.
fn is_script(path: &Path) -> bool {
    let mut start = [0; 2];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == *b"#!"
}

/// Returns the state of the files by which version managers choose a Ruby: from the current folder upwards,
/// and in the home folder.
fn identity_of_choice(environment: &[(OsString, OsString)]) -> Vec<u8> {
    const HERE: [&str; 5] =
        [".ruby-version", ".tool-versions", "mise.toml", ".mise.toml", "Gemfile"];
    const AT_HOME: [&str; 3] = [".rbenv/version", ".tool-versions", ".config/mise/config.toml"];
    let home = environment.iter().find(|(name, _)| name == "HOME").map(|(_, home)| Path::new(home));
    let at_home = home.into_iter().flat_map(|home| AT_HOME.map(|name| home.join(name)));
    let here = std::env::current_dir().unwrap_or_default();
    let here = here.ancestors().flat_map(|folder| HERE.map(|name| folder.join(name)));
    here.chain(at_home).flat_map(|path| identity_of_file(&path)).collect()
}

fn namespaces() -> Vec<u8> {
    let links = NAMESPACES.iter().map(|name| std::fs::read_link(format!("/proc/self/ns/{name}")));
    let names = links.map(|link| link.unwrap_or_default().into_os_string());
    names.collect::<Vec<_>>().join(OsStr::new(" ")).as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(words: &[&str], environment: &[(&str, &str)]) -> Key {
        let words: Vec<OsString> = words.iter().map(Into::into).collect();
        let environment: Vec<(OsString, OsString)> =
            environment.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let invocation = Invocation { words: &words, environment: &environment, version: "1" };
        Key::of_process(&invocation, &Terminal::of_process().unwrap()).unwrap()
    }

    #[test]
    fn the_first_difference_is_named() {
        let one = key(&["bin/rails", "runner", "0"], &[("A", "1"), ("SHLVL", "1")]);
        assert_eq!(
            one.number(),
            key(&["bin/rails", "runner", "1"], &[("A", "1"), ("SHLVL", "2")]).number()
        );
        for (other, name) in [
            (key(&["bin/rails", "test"], &[("A", "1")]), "command"),
            (key(&["bin/rails", "runner"], &[("A", "2")]), "variable A"),
            (key(&["bin/rails", "runner"], &[]), "variable A"),
            (key(&["bin/rails", "runner"], &[("A", "1"), ("TERM", "dumb")]), "variable TERM"),
            (key(&["bin/rails", "runner"], &[("A", "1"), ("B", "")]), "variable B"),
        ] {
            assert_eq!(one.differs_in(&other), Some(name));
            assert_ne!(one.number(), other.number());
        }
        assert_eq!(one.differs_in(&one), None);
    }

    #[test]
    fn a_link_to_a_script_that_leads_elsewhere_is_another_command() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let link = path("link");
        let keys = ["one", "two"].map(|name| {
            std::fs::write(path(name), "").unwrap();
            std::os::unix::fs::symlink(name, &link).unwrap();
            let key = key(&["ruby", "-w", link.to_str().unwrap(), "a"], &[]);
            std::fs::remove_file(&link).unwrap();
            key
        });
        assert_eq!(keys[0].differs_in(&keys[1]), Some("script"));
    }

    #[test]
    fn a_request_for_a_report_is_not_part_of_the_key() {
        let with = key(&["a"], &[("THRUWAY_BOOT", "digest,explain,explained-process-7")]);
        assert_eq!(with, key(&["a"], &[("THRUWAY_BOOT", "digest")]));
        assert_ne!(with, key(&["a"], &[("THRUWAY_BOOT", "frozen")]));
        assert_eq!(key(&["a"], &[("THRUWAY_BOOT", "explain")]), key(&["a"], &[]));
    }

    #[test]
    fn a_key_is_read_as_it_was_written() {
        let one = key(&["a"], &[("A", "1")]);
        assert_eq!(Key::decoded(&one.encoded()), Some(one));
        assert_eq!(Key::decoded(b"1"), None);
    }
}
