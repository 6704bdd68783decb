//! Absolute paths as bytes, split and joined without touching the disk.

use std::borrow::Cow;
use std::hash::Hasher;

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

#[cfg(windows)]
#[path = "path/windows.rs"]
mod form;

#[cfg(windows)]
pub use form::{is_clean, is_plain_component, join, split};

/// Whether the path is absolute and has no `.`, `..`, empty component or trailing separator. Only for such a
/// path do lexical operations and the kernel agree on the file, whatever links are on the way.
#[cfg(not(windows))]
#[must_use]
pub fn is_clean(path: &[u8]) -> bool {
    match path.split_first() {
        Some((b'/', [])) => true,
        Some((b'/', rest)) => rest.split(|byte| *byte == b'/').all(is_plain_component),
        _ => false,
    }
}

/// Whether a component of a path is the name of an entry in its folder.
#[cfg(not(windows))]
#[must_use]
pub fn is_plain_component(component: &[u8]) -> bool {
    !matches!(component, b"" | b"." | b"..") && !component.contains(&0)
}

/// Splits a clean path into its folder and its last component; `None` for the root.
#[cfg(not(windows))]
#[must_use]
pub fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let slash = path.iter().rposition(|byte| *byte == b'/')?;
    let (folder, name) = (&path[..slash], &path[slash + 1..]);
    if name.is_empty() {
        return None;
    }
    Some((if folder.is_empty() { b"/" } else { folder }, name))
}

/// Returns `folder` + `/` + `name`.
#[cfg(not(windows))]
#[must_use]
pub fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(folder.len() + 1 + name.len());
    if folder != b"/" {
        path.extend_from_slice(folder);
    }
    path.push(b'/');
    path.extend_from_slice(name);
    path
}

/// Whether a clean path equals `above` or lies below it.
#[must_use]
pub fn is_at_or_below(path: &[u8], above: &[u8]) -> bool {
    let Some((start, rest)) = path.split_at_checked(above.len()) else { return false };
    is_same(start, above) && matches!(rest.first(), None | Some(b'/'))
}

/// Whether two clean paths are spelled alike. On Windows, the case of ASCII letters is ignored.
#[must_use]
pub fn is_same(one: &[u8], other: &[u8]) -> bool {
    if cfg!(windows) { one.eq_ignore_ascii_case(other) } else { one == other }
}

/// Returns the form in which changed paths are compared: on Windows, in lower case as far as ASCII goes.
#[must_use]
pub fn folded(path: &[u8]) -> Cow<'_, [u8]> {
    if cfg!(windows) { Cow::Owned(path.to_ascii_lowercase()) } else { Cow::Borrowed(path) }
}

/// Returns a 128-bit hash of the path, which identifies the path in practice.
#[must_use]
pub fn mark(path: &[u8]) -> u128 {
    xxh3_128(path)
}

/// Hashes paths with XXH3. The table is queried several times per feature, and its paths are trusted, so a
/// keyed hash is not needed.
#[derive(Debug, Default)]
pub(crate) struct PathHasher(u64);

impl Hasher for PathHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 ^= xxh3_64(bytes);
    }
}

#[cfg(test)]
#[cfg(not(windows))]
mod tests {
    use super::*;

    #[test]
    fn only_paths_with_one_meaning_are_clean() {
        for clean in ["/", "/a", "/a/b.rb", "/a/.b/...", "/a b/\u{e9}"] {
            assert!(is_clean(clean.as_bytes()), "{clean}");
        }
        for other in
            ["", "a", "./a", "/a/", "//", "//a", "/a//b", "/a/./b", "/a/../b", "/..", "/a\0"]
        {
            assert!(!is_clean(other.as_bytes()), "{other:?}");
        }
    }

    #[test]
    fn a_path_is_split_and_joined_again() {
        assert_eq!(split(b"/a/b.rb"), Some((&b"/a"[..], &b"b.rb"[..])));
        assert_eq!(split(b"/a"), Some((&b"/"[..], &b"a"[..])));
        assert_eq!(split(b"/"), None);
        assert_eq!(join(b"/", b"a"), b"/a");
        assert_eq!(join(b"/a", b"b.rb"), b"/a/b.rb");
    }
}
