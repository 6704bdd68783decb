//! Access rules from a file, applied when a file is opened or changed.
//!
//! The first rule that matches decides; if none matches, everything is allowed. A rule matches if all of its conditions
//! hold: on the path, the caller, the access, the size and the content.
//!
//! Reading order: [`Policy::decide`] in this file, then [`text`], [`glob`] and [`content`].

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

/// An error in a policy's text. Lines and columns count from 1; columns are characters.
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

/// The decision of a rule, from permissive to strict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// All access is allowed.
    Allow,
    /// The data goes through the daemon, which checks each read.
    DaemonIo,
    /// Changes fail with `EROFS`.
    ReadOnly,
    /// All access fails with `EACCES`.
    Deny,
    /// All access fails with `ENOENT`, as if the file did not exist.
    Hide,
}

/// The kinds of access that a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

impl Access {
    /// Returns the accesses to check in succession. With `by_access`, reading and writing are separate.
    pub(crate) fn parts(self, by_access: bool) -> impl Iterator<Item = Self> {
        let is_both = by_access && self.reads && self.writes;
        let parts = match is_both {
            true => [Some(Self { writes: false, ..self }), Some(Self { reads: false, ..self })],
            false => [Some(self), None],
        };
        parts.into_iter().flatten()
    }
}

/// A request for access.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AccessRequest<'a> {
    /// The path below the mount, without a leading slash.
    pub(crate) path: &'a [u8],
    pub(crate) uid: u32,
    /// The group that the request names. The caller may have other groups.
    pub(crate) gid: u32,
    pub(crate) access: Access,
}

/// The facts that a rule may need besides the request.
pub(crate) trait Facts {
    /// Whether one of these groups is among the caller's supplementary groups.
    fn is_in_one_of(&self, gids: &[u32]) -> Result<bool, Errno>;
    /// Returns the size in bytes, or `None` if the file is not a regular file.
    fn size(&self) -> Result<Option<u64>, Errno>;
    /// Whether the file meets the condition on its content.
    fn matches(&self, content: &Content) -> Result<bool, Errno>;
}

/// A verdict, and the rule that gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) verdict: Verdict,
    /// The number of the rule, counted from 1; zero if no rule matched.
    pub(crate) rule: usize,
}

impl Decision {
    /// Returns the errno of a refusal, if the verdict refuses this access.
    pub(crate) fn refusal(self, access: Access) -> Option<Errno> {
        match self.verdict {
            Verdict::Deny => Some(Errno::ACCESS),
            Verdict::Hide => Some(Errno::NOENT),
            Verdict::ReadOnly if access.writes => Some(Errno::ROFS),
            Verdict::Allow | Verdict::ReadOnly | Verdict::DaemonIo => None,
        }
    }
}

/// A rule. A condition that is `None` always holds.
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

/// The rules, in order.
#[derive(Debug)]
pub(crate) struct Policy {
    rules: Vec<Rule>,
    /// Whether refusals are logged.
    pub(crate) logs: bool,
}

impl Policy {
    /// Returns the decision of the first rule that matches.
    pub(crate) fn decide(
        &self,
        request: &AccessRequest<'_>,
        facts: &impl Facts,
    ) -> Result<Decision, Errno> {
        for (index, rule) in self.rules.iter().enumerate() {
            if rule.matches_request(request)
                && rule.matches_groups(request.gid, facts)?
                && rule.matches_file(facts)?
            {
                return Ok(Decision { verdict: rule.verdict, rule: index + 1 });
            }
        }
        Ok(Decision { verdict: Verdict::Allow, rule: 0 })
    }

    /// Whether the name is hidden from all callers. The kernel's cache of names serves all callers, so rules about
    /// callers apply only to opens.
    pub(crate) fn hides(&self, path: &[u8]) -> bool {
        let matches = |rule: &&Rule| rule.matches_path(path) && rule.has_only_paths();
        self.rules.iter().find(matches).is_some_and(|rule| rule.verdict == Verdict::Hide)
    }

    /// Whether the same rules match a folder at `old` and at `new`, and every path below it.
    pub(crate) fn is_same(&self, old: &[u8], new: &[u8]) -> bool {
        self.globs().all(|globs| globs.match_state(old) == globs.match_state(new))
    }

    /// Whether the same rules match a file at both paths.
    pub(crate) fn is_same_for_file(&self, old: &[u8], new: &[u8]) -> bool {
        self.globs().all(|globs| globs.matches(old) == globs.matches(new))
    }

    /// Whether no caller may do more with a file at `new` than at `old`: the rules there are at least as strict.
    pub(crate) fn is_stricter(&self, old: &[u8], new: &[u8]) -> bool {
        // The loop runs from the last rule to the first, so that the strictest verdict after each rule is known.
        let mut strictest_after = Verdict::Allow;
        self.rules.iter().rev().all(|rule| {
            let (matches_old, matches_new) = (rule.matches_path(old), rule.matches_path(new));
            let is_stricter = match (matches_old, matches_new) {
                // The rule matches the old path only; at the new path, later rules decide.
                (true, false) => rule.verdict == Verdict::Allow,
                // The rule matches the new path only, where it decides before later rules.
                (false, true) => rule.verdict >= strictest_after,
                _ => true,
            };
            if matches_old || matches_new {
                strictest_after = strictest_after.max(rule.verdict);
            }
            is_stricter
        })
    }

    /// Whether a file at the path could be refused to the caller, for any content and any access.
    pub(crate) fn may_refuse(&self, request: &AccessRequest<'_>, facts: &impl Facts) -> bool {
        for rule in self.rules.iter().filter(|rule| rule.matches_caller(request)) {
            let group = rule.matches_groups(request.gid, facts);
            if group == Ok(false) {
                continue;
            }
            let is_certain = group.is_ok() && rule.access.is_none() && !rule.depends_on_data();
            match rule.verdict {
                Verdict::Allow | Verdict::DaemonIo if is_certain => return false,
                Verdict::Allow | Verdict::DaemonIo => {}
                Verdict::ReadOnly | Verdict::Deny | Verdict::Hide => return true,
            }
        }
        false
    }

    /// Whether reading could be allowed if the file had other data.
    pub(crate) fn could_allow(&self, request: &AccessRequest<'_>, facts: &impl Facts) -> bool {
        for rule in self.rules.iter().filter(|rule| rule.matches_request(request)) {
            let refuses = matches!(rule.verdict, Verdict::Deny | Verdict::Hide);
            let matches = match rule.matches_groups(request.gid, facts) {
                Ok(matches) => matches,
                Err(_) => refuses,
            };
            if matches && !(refuses && rule.depends_on_data()) {
                return !refuses;
            }
        }
        true
    }

    /// Whether rules distinguish reading and writing.
    pub(crate) fn distinguishes_accesses(&self) -> bool {
        self.rules.iter().any(|rule| rule.access.is_some())
    }

    /// Whether rules depend on the contents of files, which may take long to read.
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
    fn matches_request(&self, request: &AccessRequest<'_>) -> bool {
        let access = match self.access {
            None => true,
            Some(AccessKind::Read) => request.access.reads,
            Some(AccessKind::Write) => request.access.writes,
        };
        access && self.matches_caller(request)
    }

    /// Whether the path and the user match. `matches_groups` checks groups.
    fn matches_caller(&self, request: &AccessRequest<'_>) -> bool {
        self.uids.as_ref().is_none_or(|uids| uids.contains(&request.uid))
            && self.matches_path(request.path)
    }

    fn matches_path(&self, path: &[u8]) -> bool {
        self.paths.as_ref().is_none_or(|paths| paths.matches(path))
    }

    fn matches_groups(&self, gid: u32, facts: &impl Facts) -> Result<bool, Errno> {
        match &self.gids {
            Some(gids) if !gids.contains(&gid) => facts.is_in_one_of(gids),
            _ => Ok(true),
        }
    }

    fn matches_file(&self, facts: &impl Facts) -> Result<bool, Errno> {
        if self.larger_than.is_some() || self.smaller_than.is_some() {
            let Some(size) = facts.size()? else { return Ok(false) };
            let is_larger = self.larger_than.is_none_or(|limit| size > limit);
            if !is_larger || self.smaller_than.is_some_and(|limit| size >= limit) {
                return Ok(false);
            }
        }
        self.content.as_ref().map_or(Ok(true), |content| facts.matches(content))
    }

    fn has_only_paths(&self) -> bool {
        let of_caller = self.uids.is_some() || self.gids.is_some() || self.access.is_some();
        !of_caller && !self.depends_on_data()
    }

    /// Whether the rule has a condition on a file's data.
    fn depends_on_data(&self) -> bool {
        self.larger_than.is_some() || self.smaller_than.is_some() || self.content.is_some()
    }
}

#[cfg(test)]
mod tests;
