//! Who may do what: rules from a file, asked when a file is opened or changed.
//!
//! The first rule that fits decides; where none fits, all is allowed. A rule fits if everything that
//! it says of the path, the caller, the access, the size and the content is so.

mod content;
mod glob;
mod text;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::Error;
use glob::Globs;

pub(crate) use content::Content;

/// A policy as it stands in a file, found to be without errors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyFile {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl PolicyFile {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// It cannot be read, or something in it is wrong: the error says in which line and column.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path)
            .map_err(|cause| Error::new("cannot read the policy", path, cause))?;
        let file = Self { path: path.to_owned(), text };
        file.policy().map(|_| file)
    }

    pub(crate) fn policy(&self) -> Result<Policy, Error> {
        Policy::parse(&self.text).map_err(|fault| {
            Error::plain(format_args!("in the policy {}, {fault}", self.path.display()))
                .with_hint("no rule of a file with an error is used")
        })
    }
}

/// What is wrong with a policy, and where. Lines and columns count from 1; columns are characters.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    line: usize,
    column: usize,
    message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}, column {}: {}", self.line, self.column, self.message)
    }
}

/// What a rule says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// Nothing is in the way.
    Allow,
    /// It is refused: `EACCES`.
    Deny,
    /// It is as if it were not there: `ENOENT`.
    Hide,
    /// It can be read, and not changed: `EROFS`.
    ReadOnly,
    /// Its data goes through the daemon, and each read is judged again.
    DaemonIo,
}

/// What somebody wants to do with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

/// A question to the policy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question<'a> {
    /// Below the mount, without a slash at its start.
    pub(crate) path: &'a [u8],
    pub(crate) uid: u32,
    /// The group that the kernel names; the caller may be in others.
    pub(crate) gid: u32,
    pub(crate) access: Access,
}

/// What a policy may have to look at, besides the question itself.
pub(crate) trait Evidence {
    /// Whether one of these is among the caller's supplementary groups.
    fn is_in_one_of(&self, gids: &[u32]) -> Result<bool, Errno>;
    /// In bytes; `None` for what is not a regular file.
    fn size(&self) -> Result<Option<u64>, Errno>;
    /// Whether the content is as the rule wants it.
    fn fits(&self, content: &Content) -> Result<bool, Errno>;
}

/// What the policy says, and the rule that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Judgement {
    pub(crate) verdict: Verdict,
    /// Rules count from 1; zero is "no rule fits".
    pub(crate) rule: usize,
}

impl Judgement {
    /// The errno of a refusal.
    pub(crate) fn refusal(self, access: Access) -> Option<Errno> {
        match self.verdict {
            Verdict::Deny => Some(Errno::ACCESS),
            Verdict::Hide => Some(Errno::NOENT),
            Verdict::ReadOnly if access.writes => Some(Errno::ROFS),
            Verdict::Allow | Verdict::ReadOnly | Verdict::DaemonIo => None,
        }
    }
}

/// One rule; what it does not mention is of no matter to it.
#[derive(Debug)]
struct Rule {
    paths: Option<Globs>,
    uids: Option<Vec<u32>>,
    gids: Option<Vec<u32>>,
    access: Option<AccessKind>,
    larger_than: Option<u64>,
    smaller_than: Option<u64>,
    content: Option<Content>,
    verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum AccessKind {
    Read,
    Write,
}

/// All rules, in their order.
#[derive(Debug)]
pub(crate) struct Policy {
    rules: Vec<Rule>,
    /// Refusals are written to the log.
    pub(crate) logs: bool,
}

impl Policy {
    /// Reads rules.
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        text::parse(text)
    }

    /// What the first rule that fits says.
    pub(crate) fn judge(
        &self,
        question: &Question<'_>,
        evidence: &impl Evidence,
    ) -> Result<Judgement, Errno> {
        for (index, rule) in self.rules.iter().enumerate() {
            if rule.fits_question(question)
                && rule.fits_groups(question.gid, evidence)?
                && rule.fits_file(evidence)?
            {
                return Ok(Judgement { verdict: rule.verdict, rule: index + 1 });
            }
        }
        Ok(Judgement { verdict: Verdict::Allow, rule: 0 })
    }

    /// Whether nobody sees the name. What depends on who asks is left to opens: the kernel keeps names
    /// for everyone.
    pub(crate) fn hides(&self, path: &[u8]) -> bool {
        let fits = |rule: &&Rule| rule.fits_path(path) && rule.is_of_paths_alone();
        self.rules.iter().find(fits).is_some_and(|rule| rule.verdict == Verdict::Hide)
    }

    /// Whether the path of something below the folder matters to a rule that is not about the folder
    /// itself: such a folder cannot be renamed with all that is in it.
    pub(crate) fn looks_below(&self, folder: &[u8]) -> bool {
        let restricts = |rule: &&Rule| rule.verdict != Verdict::Allow;
        self.rules
            .iter()
            .filter(restricts)
            .any(|rule| rule.paths.as_ref().is_some_and(|paths| paths.looks_below(folder)))
    }

    /// Whether contents are read before an open is answered, which may take long.
    pub(crate) fn scans(&self) -> bool {
        self.rules.iter().any(|rule| rule.content.is_some())
    }

    pub(crate) fn len(&self) -> usize {
        self.rules.len()
    }
}

impl Rule {
    fn fits_question(&self, question: &Question<'_>) -> bool {
        let access = match self.access {
            None => true,
            Some(AccessKind::Read) => question.access.reads,
            Some(AccessKind::Write) => question.access.writes,
        };
        access
            && self.uids.as_ref().is_none_or(|uids| uids.contains(&question.uid))
            && self.fits_path(question.path)
    }

    fn fits_path(&self, path: &[u8]) -> bool {
        self.paths.as_ref().is_none_or(|paths| paths.fit(path))
    }

    fn fits_groups(&self, gid: u32, evidence: &impl Evidence) -> Result<bool, Errno> {
        match &self.gids {
            Some(gids) if !gids.contains(&gid) => evidence.is_in_one_of(gids),
            _ => Ok(true),
        }
    }

    fn fits_file(&self, evidence: &impl Evidence) -> Result<bool, Errno> {
        if self.larger_than.is_some() || self.smaller_than.is_some() {
            let Some(size) = evidence.size()? else { return Ok(false) };
            let is_larger = self.larger_than.is_none_or(|limit| size > limit);
            if !is_larger || self.smaller_than.is_some_and(|limit| size >= limit) {
                return Ok(false);
            }
        }
        self.content.as_ref().map_or(Ok(true), |content| evidence.fits(content))
    }

    fn is_of_paths_alone(&self) -> bool {
        let of_caller = self.uids.is_some() || self.gids.is_some() || self.access.is_some();
        let of_file = self.larger_than.is_some() || self.smaller_than.is_some();
        !of_caller && !of_file && self.content.is_none()
    }
}

#[cfg(test)]
mod tests;
