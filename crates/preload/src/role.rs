//! What a Ruby is to be: a command that learns what it loads, or a template. It is told by a variable, which it takes
//! out of its environment before any code of the program sees it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// The variable.
pub const VARIABLE: &str = "THRUWAY_PRELOADING";

/// What a Ruby is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// It is the command itself, and writes down what it loaded.
    Learner(Post),
    /// It loads what such commands load, and waits.
    Template(Post),
    /// As [`Template`](Self::Template), for commands of the same words alone: its boot looks at its arguments.
    TemplateOfWords(Post),
}

/// Where it belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Post {
    /// The process that is meant: programs that it starts are not.
    pub process: u32,
    /// Its key's number.
    pub key: u128,
    /// Holds the key's lock; -1 is none.
    pub lock: i32,
    /// The folder of templates.
    pub folder: PathBuf,
}

impl Role {
    /// As the variable's value.
    #[must_use]
    pub fn value(&self) -> OsString {
        let (name, post) = match self {
            Self::Learner(post) => ("learner", post),
            Self::Template(post) => ("template", post),
            Self::TemplateOfWords(post) => ("template-of-words", post),
        };
        let mut value =
            format!("{name};{};{:032x};{};", post.process, post.key, post.lock).into_bytes();
        value.extend_from_slice(post.folder.as_os_str().as_bytes());
        OsString::from_vec(value)
    }

    /// What a value says to that process; `None` if it means another one.
    #[must_use]
    pub fn of(value: &OsStr, process: u32) -> Option<Self> {
        let mut fields = value.as_bytes().splitn(5, |byte| *byte == b';');
        let mut text = || std::str::from_utf8(fields.next()?).ok();
        let name = text()?;
        let post = Post {
            process: text()?.parse().ok()?,
            key: u128::from_str_radix(text()?, 16).ok()?,
            lock: text()?.parse().ok()?,
            folder: OsStr::from_bytes(fields.next()?).into(),
        };
        match name {
            _ if post.process != process => None,
            "learner" => Some(Self::Learner(post)),
            "template" => Some(Self::Template(post)),
            "template-of-words" => Some(Self::TemplateOfWords(post)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_read_by_the_process_that_is_meant() {
        let post = Post { process: 7, key: 5, lock: 9, folder: "/a;b c".into() };
        for role in
            [Role::Learner(post.clone()), Role::Template(post.clone()), Role::TemplateOfWords(post)]
        {
            assert_eq!(Role::of(&role.value(), 7), Some(role.clone()));
            assert_eq!(Role::of(&role.value(), 8), None);
        }
        assert_eq!(Role::of(OsStr::new("learner"), 7), None);
    }
}
