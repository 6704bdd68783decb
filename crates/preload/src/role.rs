//! The role of a Ruby process: a command that learns what to load, or a template. The command line passes the
//! role in a variable, and the process removes the variable before the program's own code runs.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// The environment variable that carries the role.
pub const VARIABLE: &str = "THRUWAY_PRELOADING";

/// The role of a Ruby process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// Runs the command itself and records what it loaded.
    Learner(Assignment),
    /// Loads what commands of its key load, and waits.
    Template(Assignment),
    /// Like [`Template`](Self::Template), but serves only commands with exactly the same words, because its
    /// boot reads its arguments.
    TemplateOfWords(Assignment),
}

/// The process and key for which a role is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The process ID. Programs started by this process inherit the variable and must ignore it.
    pub process: u32,
    /// The number of the key.
    pub key: u128,
    /// The descriptor that holds the key's lock; -1 without a lock.
    pub lock: i32,
    /// The folder of templates.
    pub folder: PathBuf,
}

impl Role {
    /// Encodes the role as the variable's value.
    #[must_use]
    pub fn value(&self) -> OsString {
        let (name, assignment) = match self {
            Self::Learner(assignment) => ("learner", assignment),
            Self::Template(assignment) => ("template", assignment),
            Self::TemplateOfWords(assignment) => ("template-of-words", assignment),
        };
        let mut value =
            format!("{name};{};{:032x};{};", assignment.process, assignment.key, assignment.lock)
                .into_bytes();
        value.extend_from_slice(assignment.folder.as_os_str().as_bytes());
        OsString::from_vec(value)
    }

    /// Parses a variable's value; `None` if it is malformed or meant for a process other than `process`.
    #[must_use]
    pub fn of(value: &OsStr, process: u32) -> Option<Self> {
        let mut fields = value.as_bytes().splitn(5, |byte| *byte == b';');
        let mut text = || std::str::from_utf8(fields.next()?).ok();
        let name = text()?;
        let assignment = Assignment {
            process: text()?.parse().ok()?,
            key: u128::from_str_radix(text()?, 16).ok()?,
            lock: text()?.parse().ok()?,
            folder: OsStr::from_bytes(fields.next()?).into(),
        };
        match name {
            _ if assignment.process != process => None,
            "learner" => Some(Self::Learner(assignment)),
            "template" => Some(Self::Template(assignment)),
            "template-of-words" => Some(Self::TemplateOfWords(assignment)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_read_by_the_process_that_is_meant() {
        let assignment = Assignment { process: 7, key: 5, lock: 9, folder: "/a;b c".into() };
        for role in [
            Role::Learner(assignment.clone()),
            Role::Template(assignment.clone()),
            Role::TemplateOfWords(assignment),
        ] {
            assert_eq!(Role::of(&role.value(), 7), Some(role.clone()));
            assert_eq!(Role::of(&role.value(), 8), None);
        }
        assert_eq!(Role::of(OsStr::new("learner"), 7), None);
    }
}
