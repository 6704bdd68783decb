//! Patterns of paths, as they are known from `.gitignore`.
//!
//! A pattern fits a name and all that is below it. One with a slash, other than at its end, starts at
//! the root of the mount; one without fits in every folder. `*` and `?` stand for no slash, `**` for
//! any folders, `[…]` for one of some characters, `\` for the next character itself.

use regex::bytes::{Regex, RegexBuilder};

/// Several patterns, one of which has to fit.
#[derive(Debug)]
pub(super) struct Globs {
    regex: Regex,
    /// Of each pattern that starts at the root: what it begins with up to its first wildcard, in whole
    /// components.
    beginnings: Vec<Vec<u8>>,
}

impl Globs {
    /// Reads patterns.
    pub(super) fn new<'a>(patterns: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut alternatives = Vec::new();
        let mut beginnings = Vec::new();
        for pattern in patterns {
            let pattern = pattern.strip_suffix('/').unwrap_or(pattern);
            let from_root = pattern.contains('/');
            let pattern = pattern.strip_prefix('/').unwrap_or(pattern);
            if pattern.is_empty() {
                return Err("an empty pattern fits nothing; write * for everything".into());
            }
            if from_root {
                beginnings.push(beginning(pattern));
            }
            let anywhere = if from_root { "" } else { "(?:.*/)?" };
            alternatives.push(format!("{anywhere}{}", translated(pattern)?));
        }
        let all = format!("^(?:{})(?:/.*)?$", alternatives.join("|"));
        let mut builder = RegexBuilder::new(&all);
        let regex = builder.unicode(false).dot_matches_new_line(true).build();
        Ok(Self { regex: regex.map_err(|_| "not a pattern".to_owned())?, beginnings })
    }

    pub(super) fn fit(&self, path: &[u8]) -> bool {
        self.regex.is_match(path)
    }

    /// Whether a pattern that starts at the root may fit something in the folder and not the folder.
    pub(super) fn looks_below(&self, folder: &[u8]) -> bool {
        !self.fit(folder)
            && self.beginnings.iter().any(|beginning| {
                beginning.is_empty() || is_below(folder, beginning) || is_below(beginning, folder)
            })
    }
}

/// Whether the path is the folder, or below it.
fn is_below(folder: &[u8], path: &[u8]) -> bool {
    let rest = path.strip_prefix(folder);
    rest.is_some_and(|rest| rest.first().is_none_or(|&byte| byte == b'/'))
}

/// The components before the first one with a wildcard.
fn beginning(pattern: &str) -> Vec<u8> {
    let is_literal = |component: &&str| !component.contains(['*', '?', '[', '\\']);
    let literal: Vec<_> = pattern.split('/').take_while(is_literal).collect();
    literal.join("/").into_bytes()
}

/// The pattern as a regular expression.
fn translated(pattern: &str) -> Result<String, String> {
    let mut regex = String::new();
    let mut rest = pattern;
    while let Some(character) = rest.chars().next() {
        if let Some(behind) = rest.strip_prefix("**/") {
            regex.push_str("(?:.*/)?");
            rest = behind;
            continue;
        }
        let behind = &rest[character.len_utf8()..];
        rest = match character {
            '*' if behind.starts_with('*') => {
                regex.push_str(".*");
                &behind[1..]
            }
            '*' => {
                regex.push_str("[^/]*");
                behind
            }
            '?' => {
                regex.push_str("[^/]");
                behind
            }
            '[' => class(behind, &mut regex)?,
            '\\' => {
                let escaped = behind.chars().next().ok_or("nothing behind the last \\")?;
                push_literal(escaped, &mut regex);
                &behind[escaped.len_utf8()..]
            }
            other => {
                push_literal(other, &mut regex);
                behind
            }
        };
    }
    Ok(regex)
}

/// Adds the class that begins here and gives what is behind it.
fn class<'a>(rest: &'a str, regex: &mut String) -> Result<&'a str, String> {
    let negated = rest.starts_with(['!', '^']);
    let inner = if negated { &rest[1..] } else { rest };
    // A bracket that comes first is one of the characters.
    let end = inner.char_indices().skip(1).find(|&(_, character)| character == ']');
    let (end, _) = end.ok_or("a [ without its ]")?;
    if !inner[..end].is_ascii() {
        return Err("a [ ] of other characters than ASCII".into());
    }
    regex.push_str(if negated { "[^/" } else { "[" });
    for character in inner[..end].chars() {
        if character == '-' {
            regex.push('-');
        } else {
            push_literal(character, regex);
        }
    }
    regex.push(']');
    Ok(&inner[end + 1..])
}

fn push_literal(character: char, regex: &mut String) {
    for byte in character.encode_utf8(&mut [0; 4]).bytes() {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'_' | b'/' => regex.push(char::from(byte)),
            _ => regex.push_str(&format!("\\x{byte:02x}")),
        }
    }
}
