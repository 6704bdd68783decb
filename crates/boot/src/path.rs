//! Absolute paths as bytes, taken apart without touching the disk.

use std::hash::Hasher;

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// Whether the path is absolute and spells every component once: no `.`, `..`, empty component or
/// separator at the end. Only such a path names the same file for us and for the kernel, whatever
/// links it runs through.
#[must_use]
pub fn is_clean(path: &[u8]) -> bool {
    match path.split_first() {
        Some((b'/', [])) => true,
        Some((b'/', rest)) => rest
            .split(|byte| *byte == b'/')
            .all(|component| !matches!(component, b"" | b"." | b"..") && !component.contains(&0)),
        _ => false,
    }
}

/// The folder and the last component of a clean path; `None` for the root.
#[must_use]
pub fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let slash = path.iter().rposition(|byte| *byte == b'/')?;
    let (folder, name) = (&path[..slash], &path[slash + 1..]);
    if name.is_empty() {
        return None;
    }
    Some((if folder.is_empty() { b"/" } else { folder }, name))
}

/// `folder` + `/` + `name`.
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

/// Whether one clean path is the other, or leads through it.
#[must_use]
pub fn is_at_or_below(path: &[u8], above: &[u8]) -> bool {
    path.strip_prefix(above).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
}

/// A hash of the path, of 128 bits: in practice no other path has the same one.
#[must_use]
pub fn mark(path: &[u8]) -> u128 {
    xxh3_128(path)
}

/// Paths hash with XXH3: the table is asked several times a feature, and only about trusted paths.
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
