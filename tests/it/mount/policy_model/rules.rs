//! The verdicts of a policy, computed in the plainest way: every rule for every path.

use rustix::io::Errno;

use crate::mount::differential::Numbers;

/// A user of the mount. The user's group has the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) groups: &'static [u32],
}

pub(super) const USERS: [User; 3] = [
    User { uid: 0, groups: &[] },
    User { uid: 1000, groups: &[] },
    User { uid: 1001, groups: &[2000] },
];

/// The facts that a rule about data would see; `None` for anything but a regular file.
pub(super) type Facts = Option<(bool, bool)>;

/// Whether data begins as some rules demand, and whether it is larger than they permit.
pub(super) fn facts(data: &[u8]) -> Facts {
    Some((data.first() == Some(&b'S'), data.len() > LARGE))
}

pub(super) const LARGE: usize = 3;

const ALL_FACTS: [Facts; 5] =
    [None, Some((false, false)), Some((false, true)), Some((true, false)), Some((true, true))];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Allow,
    ReadOnly,
    Deny,
    Hide,
}

/// Patterns, and the paths that each matches. A pattern also matches everything below those paths.
type Pattern = (&'static str, fn(&[&str]) -> bool);

const PATTERNS: [Pattern; 8] = [
    ("s", |path| path.last() == Some(&"s")),
    (".*", |path| path.last().is_some_and(|name| name.starts_with('.'))),
    (".w", |path| path.last() == Some(&".w")),
    ("*.k", |path| path.last().is_some_and(|name| name.ends_with(".k"))),
    ("*/d/s", |path| path.len() == 3 && path[1..] == ["d", "s"]),
    ("*/d", |path| path.len() == 2 && path[1] == "d"),
    ("*/e/**/s", |path| path.len() > 2 && path[1] == "e" && path.last() == Some(&"s")),
    ("a", |path| path.last() == Some(&"a")),
];

#[derive(Debug)]
struct Rule {
    patterns: Vec<Pattern>,
    uids: &'static [u32],
    gids: &'static [u32],
    /// Writing, or reading.
    access: Option<bool>,
    begins: bool,
    is_large: bool,
    verdict: Verdict,
}

#[derive(Debug)]
pub(super) struct Rules(Vec<Rule>);

impl Rules {
    /// Chooses one to five rules. Rules that hide a name from all users come first, so that no user is allowed a hidden
    /// name.
    pub(super) fn random(numbers: &mut Numbers) -> Self {
        let mut rules = Vec::new();
        let paths_alone = |pattern: Pattern, verdict| Rule {
            patterns: vec![pattern],
            uids: &[],
            gids: &[],
            access: None,
            begins: false,
            is_large: false,
            verdict,
        };
        if numbers.below(2) == 0 {
            if numbers.below(2) == 0 {
                rules.push(paths_alone(PATTERNS[2], Verdict::Allow));
            }
            let hidden = numbers.of(&[PATTERNS[1], PATTERNS[1], PATTERNS[0], PATTERNS[4]]);
            rules.push(paths_alone(hidden, Verdict::Hide));
        }
        for _ in 0..=numbers.below(3) {
            let mut patterns: Vec<_> =
                (0..=numbers.below(2)).map(|_| numbers.of(&PATTERNS)).collect();
            // Of two patterns in a rule, one may match everything below a folder that the other matches. The mount does
            // not search for such a case, and does not rename the folder.
            if patterns.iter().any(|(text, _)| text.ends_with("/s")) {
                patterns.truncate(1);
            }
            let verdicts = [Verdict::Allow, Verdict::ReadOnly, Verdict::Deny, Verdict::Deny];
            let mut rule = Rule {
                patterns,
                uids: numbers.of(&[&[], &[1000], &[1000], &[1001], &[1000, 1001]]),
                gids: numbers.of(&[&[], &[], &[], &[2000], &[1000]]),
                access: numbers.of(&[None, None, Some(false), Some(false), Some(true)]),
                begins: numbers.below(3) == 0,
                is_large: numbers.below(5) == 0,
                verdict: numbers.of(&verdicts),
            };
            if !rule.uids.is_empty() {
                rule.gids = &[];
                rule.verdict = if numbers.below(5) == 0 { Verdict::Hide } else { rule.verdict };
            }
            rules.push(rule);
        }
        Self(rules)
    }

    /// Returns the rules as written in a file.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for rule in &self.0 {
            let paths: Vec<_> = rule.patterns.iter().map(|(text, _)| text).collect();
            text.push_str(&format!("[[rule]]\npaths = {paths:?}\n"));
            if !rule.uids.is_empty() {
                text.push_str(&format!("uids = {:?}\n", rule.uids));
            }
            if !rule.gids.is_empty() {
                text.push_str(&format!("gids = {:?}\n", rule.gids));
            }
            if let Some(writes) = rule.access {
                let access = if writes { "write" } else { "read" };
                text.push_str(&format!("access = {access:?}\n"));
            }
            if rule.begins {
                text.push_str("content = { magic = '53' }\n");
            }
            if rule.is_large {
                text.push_str(&format!("larger_than = {LARGE}\n"));
            }
            let verdict = match rule.verdict {
                Verdict::Allow => "allow",
                Verdict::ReadOnly => "read-only",
                Verdict::Deny => "deny",
                Verdict::Hide => "hide",
            };
            text.push_str(&format!("verdict = {verdict:?}\n"));
        }
        text
    }

    fn verdict(&self, user: User, path: &[&str], access: (bool, bool), facts: Facts) -> Verdict {
        let fits = |rule: &&Rule| rule.fits(user, path, access, facts);
        self.0.iter().find(fits).map_or(Verdict::Allow, |rule| rule.verdict)
    }

    /// Whether reading, writing or both is allowed.
    pub(super) fn judge(
        &self,
        user: User,
        path: &[&str],
        (reads, writes): (bool, bool),
        facts: Facts,
    ) -> Result<(), Errno> {
        let are_told_apart = self.0.iter().any(|rule| rule.access.is_some());
        let accesses = match (reads && writes, are_told_apart) {
            (true, true) => vec![(true, false), (false, true)],
            _ => vec![(reads, writes)],
        };
        accesses.into_iter().try_for_each(|access| match self.verdict(user, path, access, facts) {
            Verdict::Deny => Err(Errno::ACCESS),
            Verdict::Hide => Err(Errno::NOENT),
            Verdict::ReadOnly if access.1 => Err(Errno::ROFS),
            _ => Ok(()),
        })
    }

    pub(super) fn may_read(&self, user: User, path: &[&str], facts: Facts) -> bool {
        self.judge(user, path, (true, false), facts).is_ok()
    }

    /// Whether the user might read the file if it had other content.
    pub(super) fn could_read(&self, user: User, path: &[&str]) -> bool {
        ALL_FACTS[1..].iter().any(|&facts| self.may_read(user, path, facts))
    }

    /// Whether a rule depends on the content of a file at this path.
    pub(super) fn look_into(&self, path: &[&str]) -> bool {
        self.0.iter().any(|rule| rule.begins && rule.fits_path(path))
    }

    /// Whether the name is hidden from all users.
    pub(super) fn hides(&self, path: &[&str]) -> bool {
        let is_of_paths_alone = |rule: &&Rule| {
            rule.uids.is_empty()
                && rule.gids.is_empty()
                && rule.access.is_none()
                && !rule.begins
                && !rule.is_large
        };
        let mut fitting = self.0.iter().filter(|rule| rule.fits_path(path));
        fitting.find(is_of_paths_alone).is_some_and(|rule| rule.verdict == Verdict::Hide)
    }

    /// Whether the same rules are about both.
    pub(super) fn are_same(&self, old: &[&str], new: &[&str]) -> bool {
        self.0.iter().all(|rule| rule.fits_path(old) == rule.fits_path(new))
    }

    /// Whether no user is allowed more at the new path, with any content, and this user is refused nothing there.
    pub(super) fn is_stricter_for_others(&self, user: User, old: &[&str], new: &[&str]) -> bool {
        let accesses = [(true, false), (false, true), (true, true)];
        let other = User { uid: 77, groups: &[] };
        let is_stricter = USERS.iter().chain([&other]).all(|&user| {
            let all = accesses.iter().flat_map(|access| ALL_FACTS.map(|facts| (*access, facts)));
            all.into_iter().all(|(access, facts)| {
                self.verdict(user, new, access, facts) >= self.verdict(user, old, access, facts)
            })
        });
        let is_refused = |facts| {
            self.judge(user, new, (true, false), facts).is_err()
                || self.judge(user, new, (false, true), facts).is_err()
        };
        is_stricter && !ALL_FACTS.iter().any(|&facts| is_refused(facts))
    }
}

impl Rule {
    fn fits(&self, user: User, path: &[&str], (reads, writes): (bool, bool), facts: Facts) -> bool {
        let is_in = |gid: &u32| *gid == user.uid || user.groups.contains(gid);
        let (begins, is_large) = facts.unwrap_or((false, false));
        self.fits_path(path)
            && (self.uids.is_empty() || self.uids.contains(&user.uid))
            && (self.gids.is_empty() || self.gids.iter().any(is_in))
            && self.access.is_none_or(|is_write| if is_write { writes } else { reads })
            && (!self.begins || begins)
            && (!self.is_large || is_large)
    }

    fn fits_path(&self, path: &[&str]) -> bool {
        let mut beginnings = (1..=path.len()).map(|length| &path[..length]);
        beginnings.any(|path| self.patterns.iter().any(|(_, fits)| fits(path)))
    }
}
