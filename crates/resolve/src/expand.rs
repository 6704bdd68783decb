//! Lexical expansion: a name and the folder it is relative to become one absolute name.
//!
//! Nothing here touches the disk, reads the environment or knows the current folder: whoever calls
//! passes the base. Symbolic links are therefore not followed, and `..` takes away the component
//! before it, whatever that is on a disk.

/// Whose rules a name follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Flavour {
    /// POSIX: `/` separates, every other byte but NUL is part of a name.
    Posix,
}

/// The absolute form of `name`, taken relative to `base` unless it is absolute itself.
///
/// The result has no empty, `.` or `..` component and no separator at its end, except for the root
/// itself. `base` is expected to be absolute; if it is not, it is taken relative to the root.
#[must_use]
pub fn expand(flavour: Flavour, name: &[u8], base: &[u8]) -> Vec<u8> {
    match flavour {
        Flavour::Posix => expand_posix(name, base),
    }
}

fn expand_posix(name: &[u8], base: &[u8]) -> Vec<u8> {
    let mut expanded = Vec::with_capacity(base.len() + name.len() + 2);
    if name.first() != Some(&b'/') {
        push_components(&mut expanded, base);
    }
    push_components(&mut expanded, name);
    if expanded.is_empty() {
        expanded.push(b'/');
    }
    expanded
}

/// Appends `/component` for each component of `name`; `..` takes the last one away again.
fn push_components(expanded: &mut Vec<u8>, name: &[u8]) {
    for component in name.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => {
                let parent = expanded.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                expanded.truncate(parent);
            }
            _ => {
                expanded.push(b'/');
                expanded.extend_from_slice(component);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn posix(name: &str, base: &str) -> String {
        String::from_utf8(expand(Flavour::Posix, name.as_bytes(), base.as_bytes())).unwrap()
    }

    #[test]
    fn a_relative_name_starts_at_the_base() {
        assert_eq!(posix("c", "/a/b"), "/a/b/c");
        assert_eq!(posix("", "/a/b/"), "/a/b");
        assert_eq!(posix("...", "/a"), "/a/...");
    }

    #[test]
    fn an_absolute_name_ignores_the_base() {
        assert_eq!(posix("/c//d/.", "/a/b"), "/c/d");
    }

    #[test]
    fn two_dots_take_a_component_away_and_stop_at_the_root() {
        assert_eq!(posix("../c", "/a/b"), "/a/c");
        assert_eq!(posix("../../../c", "/a/b"), "/c");
        assert_eq!(posix("..", "/"), "/");
    }

    proptest! {
        #[test]
        fn an_expanded_name_expands_to_itself(name in "[a./]{0,12}", base in "/[a./]{0,8}") {
            let once = posix(&name, &base);
            prop_assert_eq!(posix(&once, "/elsewhere"), once.clone());
            prop_assert!(once.starts_with('/'));
            prop_assert!(once == "/" || once.split('/').skip(1).all(|c| !matches!(c, "" | "." | "..")));
        }
    }
}
