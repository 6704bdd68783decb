//! Who may do what: rules from a file, asked when a file is opened or changed.
//!
//! The first rule that fits decides; where none fits, all is allowed. A rule fits if everything that
//! it says of the path, the caller, the access, the size and the content is so.

mod content;
mod file;
mod glob;
mod text;

use std::fmt;

use rustix::io::Errno;
use serde::Deserialize;

use glob::Globs;

pub(crate) use content::Content;
pub use file::PolicyFile;

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

/// What a rule says; the later, the less is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// Nothing is in the way.
    Allow,
    /// Its data goes through the daemon, and each read is judged again.
    DaemonIo,
    /// It can be read, and not changed: `EROFS`.
    ReadOnly,
    /// It is refused: `EACCES`.
    Deny,
    /// It is as if it were not there: `ENOENT`.
    Hide,
}

/// What somebody wants to do with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

impl Access {
    /// What is judged one after the other: what both reads and writes has to be allowed both.
    pub(crate) fn parts(self, by_access: bool) -> impl Iterator<Item = Self> {
        let is_both = by_access && self.reads && self.writes;
        let parts = match is_both {
            true => [Some(Self { writes: false, ..self }), Some(Self { reads: false, ..self })],
            false => [Some(self), None],
        };
        parts.into_iter().flatten()
    }
}

/// A question to the policy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AccessRequest<'a> {
    /// Below the mount, without a slash at its start.
    pub(crate) path: &'a [u8],
    pub(crate) uid: u32,
    /// The group that the kernel names; the caller may be in others.
    pub(crate) gid: u32,
    pub(crate) access: Access,
}

/// What a policy may have to look at, besides the question itself.
pub(crate) trait Facts {
    /// Whether one of these is among the caller's supplementary groups.
    fn is_in_one_of(&self, gids: &[u32]) -> Result<bool, Errno>;
    /// In bytes; `None` for what is not a regular file.
    fn size(&self) -> Result<Option<u64>, Errno>;
    /// Whether the content is as the rule wants it.
    fn fits(&self, content: &Content) -> Result<bool, Errno>;
}

/// What the policy says, and the rule that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) verdict: Verdict,
    /// Rules count from 1; zero is "no rule fits".
    pub(crate) rule: usize,
}

impl Decision {
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
    /// What the first rule that fits says.
    pub(crate) fn decide(
        &self,
        request: &AccessRequest<'_>,
        facts: &impl Facts,
    ) -> Result<Decision, Errno> {
        for (index, rule) in self.rules.iter().enumerate() {
            if rule.fits_request(request)
                && rule.fits_groups(request.gid, facts)?
                && rule.fits_file(facts)?
            {
                return Ok(Decision { verdict: rule.verdict, rule: index + 1 });
            }
        }
        Ok(Decision { verdict: Verdict::Allow, rule: 0 })
    }

    /// Whether nobody sees the name. What depends on who asks is left to opens: the kernel keeps names
    /// for everyone.
    pub(crate) fn hides(&self, path: &[u8]) -> bool {
        let fits = |rule: &&Rule| rule.fits_path(path) && rule.is_of_paths_alone();
        self.rules.iter().find(fits).is_some_and(|rule| rule.verdict == Verdict::Hide)
    }

    /// Whether what has the path `old` may get the path `new` without being judged otherwise than
    /// before: itself and, whatever it holds, all that is below it.
    pub(crate) fn is_same(&self, old: &[u8], new: &[u8]) -> bool {
        self.globs().all(|globs| globs.match_state(old) == globs.match_state(new))
    }

    /// Whether a file is judged alike at both paths, by everyone's rules and whatever is in it.
    pub(crate) fn is_same_for_file(&self, old: &[u8], new: &[u8]) -> bool {
        self.globs().all(|globs| globs.fit(old) == globs.fit(new))
    }

    /// Whether a file at `new` is refused whatever it is refused at `old`, to everyone.
    pub(crate) fn is_stricter(&self, old: &[u8], new: &[u8]) -> bool {
        // From the last rule to the first, so that the strictest verdict behind each is known.
        let mut strictest_behind = Verdict::Allow;
        self.rules.iter().rev().all(|rule| {
            let (was, is) = (rule.fits_path(old), rule.fits_path(new));
            let is_well = match (was, is) {
                // A rule less: what is behind it decides instead.
                (true, false) => rule.verdict == Verdict::Allow,
                // A rule more: it decides instead of what is behind it.
                (false, true) => rule.verdict >= strictest_behind,
                _ => true,
            };
            if was || is {
                strictest_behind = strictest_behind.max(rule.verdict);
            }
            is_well
        })
    }

    /// Whether the caller may be refused something at the path, whatever a file there holds. The
    /// question's access does not matter.
    pub(crate) fn may_refuse(&self, request: &AccessRequest<'_>, facts: &impl Facts) -> bool {
        for rule in self.rules.iter().filter(|rule| rule.fits_caller(request)) {
            let group = rule.fits_groups(request.gid, facts);
            if group == Ok(false) {
                continue;
            }
            let is_certain = group.is_ok() && rule.access.is_none() && !rule.is_of_files();
            match rule.verdict {
                Verdict::Allow | Verdict::DaemonIo if is_certain => return false,
                Verdict::Allow | Verdict::DaemonIo => {}
                Verdict::ReadOnly | Verdict::Deny | Verdict::Hide => return true,
            }
        }
        false
    }

    /// Whether reading might be allowed with other data in the file.
    pub(crate) fn could_allow(&self, request: &AccessRequest<'_>, facts: &impl Facts) -> bool {
        for rule in self.rules.iter().filter(|rule| rule.fits_request(request)) {
            let refuses = matches!(rule.verdict, Verdict::Deny | Verdict::Hide);
            let fits = match rule.fits_groups(request.gid, facts) {
                Ok(fits) => fits,
                Err(_) => refuses,
            };
            if fits && !(refuses && rule.is_of_files()) {
                return !refuses;
            }
        }
        true
    }

    /// Whether reading and writing are judged by different rules.
    pub(crate) fn distinguishes_accesses(&self) -> bool {
        self.rules.iter().any(|rule| rule.access.is_some())
    }

    /// Whether contents are read before an open is answered, which may take long.
    pub(crate) fn scans(&self) -> bool {
        self.rules.iter().any(|rule| rule.content.is_some())
    }

    pub(crate) fn len(&self) -> usize {
        self.rules.len()
    }

    fn globs(&self) -> impl Iterator<Item = &Globs> {
        self.rules.iter().filter_map(|rule| rule.paths.as_ref())
    }
}

impl Rule {
    fn fits_request(&self, request: &AccessRequest<'_>) -> bool {
        let access = match self.access {
            None => true,
            Some(AccessKind::Read) => request.access.reads,
            Some(AccessKind::Write) => request.access.writes,
        };
        access && self.fits_caller(request)
    }

    /// The path, and the user as far as its number goes.
    fn fits_caller(&self, request: &AccessRequest<'_>) -> bool {
        self.uids.as_ref().is_none_or(|uids| uids.contains(&request.uid))
            && self.fits_path(request.path)
    }

    fn fits_path(&self, path: &[u8]) -> bool {
        self.paths.as_ref().is_none_or(|paths| paths.fit(path))
    }

    fn fits_groups(&self, gid: u32, facts: &impl Facts) -> Result<bool, Errno> {
        match &self.gids {
            Some(gids) if !gids.contains(&gid) => facts.is_in_one_of(gids),
            _ => Ok(true),
        }
    }

    fn fits_file(&self, facts: &impl Facts) -> Result<bool, Errno> {
        if self.larger_than.is_some() || self.smaller_than.is_some() {
            let Some(size) = facts.size()? else { return Ok(false) };
            let is_larger = self.larger_than.is_none_or(|limit| size > limit);
            if !is_larger || self.smaller_than.is_some_and(|limit| size >= limit) {
                return Ok(false);
            }
        }
        self.content.as_ref().map_or(Ok(true), |content| facts.fits(content))
    }

    fn is_of_paths_alone(&self) -> bool {
        let of_caller = self.uids.is_some() || self.gids.is_some() || self.access.is_some();
        !of_caller && !self.is_of_files()
    }

    /// Whether it asks for what changes with a file's data.
    fn is_of_files(&self) -> bool {
        self.larger_than.is_some() || self.smaller_than.is_some() || self.content.is_some()
    }
}

#[cfg(test)]
mod tests;
