//! Patterns of paths, as in `.gitignore`.
//!
//! A pattern matches a path and everything below it. A pattern with a slash before its end starts at the mount's root;
//! any other pattern matches in every folder. `*` and `?` do not match a slash, and `**` matches any number of folders.
//! `[…]` matches any of its characters, and `\` escapes the next character.

use regex::bytes::{Regex, RegexBuilder};

/// A set of patterns, any of which may match.
#[derive(Debug)]
pub(super) struct Globs {
    regex: Regex,
    patterns: Vec<Vec<Component>>,
}

/// The part of a pattern between two slashes.
#[derive(Debug)]
enum Component {
    /// `**`: any number of folders.
    Folders,
    /// A pattern for a single name.
    Name(Regex),
}

/// The progress of matching a path. If two paths have the same state, the patterns match the same names below both.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MatchState {
    /// A pattern matches the path, and so everything below it.
    Matches,
    /// The components of each pattern at which matching may continue, by index.
    Partial(Vec<Vec<usize>>),
}

impl Globs {
    /// Compiles patterns.
    pub(super) fn new<'a>(patterns: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut alternatives = Vec::new();
        let mut all = Vec::new();
        for pattern in patterns {
            let components = components(pattern)?;
            alternatives.push(alternative(&components)?);
            all.push(components.iter().map(|text| component(text)).collect::<Result<_, _>>()?);
        }
        let regex = compiled(&format!("(?:{})(?:/.*)?", alternatives.join("|")))?;
        Ok(Self { regex, patterns: all })
    }

    pub(super) fn matches(&self, path: &[u8]) -> bool {
        self.regex.is_match(path)
    }

    /// Returns the state after matching the path.
    pub(super) fn match_state(&self, path: &[u8]) -> MatchState {
        if self.matches(path) {
            return MatchState::Matches;
        }
        let matched = |pattern: &Vec<Component>| {
            let names = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
            names.fold(closed(pattern, vec![0]), |matched, name| step(pattern, &matched, name))
        };
        MatchState::Partial(self.patterns.iter().map(matched).collect())
    }
}

/// Returns the components at which matching may continue after another name.
fn step(pattern: &[Component], matched: &[usize], name: &[u8]) -> Vec<usize> {
    let after = |&at: &usize| match pattern.get(at) {
        Some(Component::Folders) => Some(at),
        Some(Component::Name(regex)) => regex.is_match(name).then_some(at + 1),
        None => None,
    };
    closed(pattern, matched.iter().filter_map(after).collect())
}

/// Adds the components that are reached without consuming a name, since `**` also matches no folder.
fn closed(pattern: &[Component], mut matched: Vec<usize>) -> Vec<usize> {
    let mut next = 0;
    while let Some(&at) = matched.get(next) {
        if matches!(pattern.get(at), Some(Component::Folders)) && !matched.contains(&(at + 1)) {
            matched.push(at + 1);
        }
        next += 1;
    }
    matched.sort_unstable();
    matched.dedup();
    matched
}

/// Splits the pattern at slashes. A pattern that matches in every folder gets a leading `**`.
fn components(pattern: &str) -> Result<Vec<String>, String> {
    let pattern = pattern.strip_suffix('/').unwrap_or(pattern);
    let mut components = vec![String::new()];
    let mut rest = pattern.strip_prefix('/').unwrap_or(pattern);
    if rest.is_empty() {
        return Err("an empty pattern matches nothing; write * for everything".into());
    }
    while let Some(character) = rest.chars().next() {
        let length = match character {
            '/' => {
                components.push(String::new());
                rest = &rest[1..];
                continue;
            }
            // An escaped slash is still a slash.
            '\\' if rest[1..].starts_with('/') => {
                rest = &rest[1..];
                continue;
            }
            '\\' => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            '[' => class_length(rest)?,
            other => other.len_utf8(),
        };
        let (piece, behind) = rest.split_at(length);
        components.last_mut().ok_or("no component")?.push_str(piece);
        rest = behind;
    }
    if !pattern.contains('/') {
        components.insert(0, "**".into());
    }
    Ok(components)
}

fn component(text: &str) -> Result<Component, String> {
    match text {
        "**" => Ok(Component::Folders),
        name => Ok(Component::Name(compiled(&translated(name)?)?)),
    }
}

/// Translates the pattern to a regular expression for paths.
fn alternative(components: &[String]) -> Result<String, String> {
    let mut regex = String::new();
    for (index, text) in components.iter().enumerate() {
        let is_last = index + 1 == components.len();
        match text.as_str() {
            "**" if is_last => regex.push_str(".*"),
            "**" => regex.push_str("(?:.*/)?"),
            name => {
                regex.push_str(&translated(name)?);
                regex.push_str(if is_last { "" } else { "/" });
            }
        }
    }
    Ok(regex)
}

fn compiled(regex: &str) -> Result<Regex, String> {
    let mut builder = RegexBuilder::new(&format!("^(?:{regex})$"));
    let regex = builder.unicode(false).dot_matches_new_line(true).build();
    regex.map_err(|_| "invalid pattern".to_owned())
}

/// Translates the part between two slashes to a regular expression for names.
fn translated(component: &str) -> Result<String, String> {
    let mut regex = String::new();
    let mut rest = component;
    while let Some(character) = rest.chars().next() {
        let behind = &rest[character.len_utf8()..];
        rest = match character {
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
                let escaped = behind.chars().next().ok_or("a pattern must not end in \\")?;
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

/// Returns the length in bytes of the class at the start of `rest`.
fn class_length(rest: &str) -> Result<usize, String> {
    let negated = rest[1..].starts_with(['!', '^']);
    let start = if negated { 2 } else { 1 };
    // A closing bracket at the very start is an ordinary character of the class.
    let end = rest[start..].char_indices().skip(1).find(|&(_, character)| character == ']');
    let end = start + end.ok_or("unclosed [")?.0 + 1;
    if rest[..end].contains('/') {
        return Err("a / between [ and ]".into());
    }
    Ok(end)
}

/// Translates the class at the start of `rest`, and returns the rest of the pattern.
fn class<'a>(rest: &'a str, regex: &mut String) -> Result<&'a str, String> {
    let negated = rest.starts_with(['!', '^']);
    let inner = if negated { &rest[1..] } else { rest };
    // A closing bracket at the very start is an ordinary character of the class.
    let end = inner.char_indices().skip(1).find(|&(_, character)| character == ']');
    let (end, _) = end.ok_or("unclosed [")?;
    if !inner[..end].is_ascii() {
        return Err("only ASCII characters are allowed between [ and ]".into());
    }
    // A range may include the slash, which must not match.
    regex.push_str(if negated { "[[^/" } else { "[[" });
    for character in inner[..end].chars() {
        if character == '-' {
            regex.push('-');
        } else {
            push_literal(character, regex);
        }
    }
    regex.push_str("]&&[^/]]");
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
