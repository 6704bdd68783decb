//! A change of modes, in the form of chmod(1) with the extensions of bindfs.
//!
//! A rule has clauses with commas or colons between them. A clause is an octal mode, or `[ugoafd][+-=][rwxXDugo]`:
//! `f` and `d` limit the clause to files or folders, `X` is execution for folders and for files that somebody may
//! execute, and `D` is execution for folders alone. Set-id bits and the sticky bit never change.

use std::fmt;

use serde::{Deserialize, Serialize};

const PERMISSIONS: u32 = 0o777;
const EXECUTE: u32 = 0o111;

/// A change of modes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ModeRule {
    clauses: Vec<Clause>,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Clause {
    /// The bits of the users that the clause is about.
    who: u32,
    files: bool,
    folders: bool,
    change: ModeChange,
    /// The permissions for all users.
    bits: u32,
    executes_where_executable: bool,
    executes_folders: bool,
    /// The users whose permissions are copied, as shifts.
    copied: [bool; 3],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ModeChange {
    Add,
    Remove,
    Set,
}

impl ModeRule {
    /// Parses a rule.
    ///
    /// # Errors
    /// A clause is malformed. The error names the clause.
    pub fn parse(text: &str) -> Result<Self, String> {
        let clauses: Result<_, _> = text.split([',', ':']).map(Clause::parse).collect();
        Ok(Self { clauses: clauses?, text: text.into() })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.clauses.is_empty()
    }

    /// Returns the changed mode. Bits other than the permissions stay.
    pub(crate) fn apply(&self, mode: u32, is_folder: bool) -> u32 {
        let concerns = |clause: &&Clause| if is_folder { clause.folders } else { clause.files };
        let clauses = self.clauses.iter().filter(concerns);
        clauses.fold(mode, |mode, clause| clause.apply(mode, is_folder))
    }
}

impl fmt::Display for ModeRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl From<ModeRule> for String {
    fn from(rule: ModeRule) -> Self {
        rule.text
    }
}

impl TryFrom<String> for ModeRule {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.is_empty() { Ok(Self::default()) } else { Self::parse(&text) }
    }
}

impl Clause {
    fn parse(text: &str) -> Result<Self, String> {
        let malformed = || format!("'{text}' is not a mode such as 0644, go-w or a+rX");
        let mut clause = Self {
            who: 0,
            files: true,
            folders: true,
            change: ModeChange::Set,
            bits: 0,
            executes_where_executable: false,
            executes_folders: false,
            copied: [false; 3],
        };
        if text.starts_with(|first: char| first.is_ascii_digit()) {
            let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= PERMISSIONS);
            clause.bits = mode.ok_or_else(malformed)?;
            clause.who = PERMISSIONS;
            return Ok(clause);
        }
        let at = text.find(['+', '-', '=']).ok_or_else(malformed)?;
        let (who, rest) = text.split_at(at);
        let (change, permissions) = rest.split_at(1);
        clause.take_who(who).ok_or_else(malformed)?;
        clause.change = match change {
            "+" => ModeChange::Add,
            "-" => ModeChange::Remove,
            _ => ModeChange::Set,
        };
        clause.take_permissions(permissions).ok_or_else(malformed)?;
        Ok(clause)
    }

    fn take_who(&mut self, text: &str) -> Option<()> {
        for letter in text.chars() {
            match letter {
                'u' => self.who |= 0o700,
                'g' => self.who |= 0o070,
                'o' => self.who |= 0o007,
                'a' => self.who |= PERMISSIONS,
                'f' => self.folders = false,
                'd' => self.files = false,
                _ => return None,
            }
        }
        if self.who == 0 {
            self.who = PERMISSIONS;
        }
        (self.files || self.folders).then_some(())
    }

    fn take_permissions(&mut self, text: &str) -> Option<()> {
        for letter in text.chars() {
            match letter {
                'r' => self.bits |= 0o444,
                'w' => self.bits |= 0o222,
                'x' => self.bits |= EXECUTE,
                'X' => self.executes_where_executable = true,
                'D' => self.executes_folders = true,
                'u' => self.copied[0] = true,
                'g' => self.copied[1] = true,
                'o' => self.copied[2] = true,
                _ => return None,
            }
        }
        Some(())
    }

    fn apply(&self, mode: u32, is_folder: bool) -> u32 {
        let mut bits = self.bits;
        let executes = self.executes_where_executable && (is_folder || mode & EXECUTE != 0);
        if executes || self.executes_folders && is_folder {
            bits |= EXECUTE;
        }
        for (copied, shift) in self.copied.into_iter().zip([6, 3, 0]) {
            if copied {
                bits |= (mode >> shift & 7) * 0o111;
            }
        }
        match self.change {
            ModeChange::Add => mode | bits & self.who,
            ModeChange::Remove => mode & !(bits & self.who),
            ModeChange::Set => mode & !self.who | bits & self.who,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_change_modes_one_after_the_other() {
        for (rule, mode, file, folder) in [
            ("0644", 0o100_755, 0o100_644, 0o100_644),
            ("0644,a+D", 0o755, 0o644, 0o755),
            ("go-w", 0o4666, 0o4644, 0o4644),
            ("u=rwX:go=rX", 0o600, 0o644, 0o755),
            ("u=rwX:go=rX", 0o700, 0o755, 0o755),
            ("a+x", 0o600, 0o711, 0o711),
            ("+r", 0o200, 0o644, 0o644),
            ("g=u,o=", 0o640, 0o660, 0o660),
            ("gd-w", 0o660, 0o660, 0o640),
            ("fa-x", 0o755, 0o644, 0o755),
        ] {
            let parsed = ModeRule::parse(rule).unwrap();
            assert_eq!(parsed.apply(mode, false), file, "{rule} {mode:o}");
            assert_eq!(parsed.apply(mode, true), folder, "{rule} {mode:o}");
            assert_eq!(ModeRule::try_from(String::from(parsed.clone())), Ok(parsed));
        }
    }

    #[test]
    fn a_malformed_clause_is_named() {
        for text in [
            "", "1000", "8", "u", "u*r", "u+s", "a+t", "q+r", "fd+r", "0644,", "-1", "o=u-w",
            "u=rw,g=z",
        ] {
            let error = ModeRule::parse(text).unwrap_err();
            assert!(error.contains("is not a mode such as"), "{text}: {error}");
        }
        assert!(ModeRule::parse("u=rw,g=z").unwrap_err().starts_with("'g=z'"));
    }
}
