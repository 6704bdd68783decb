//! Expansion on POSIX, where only `/` has a meaning.

/// Implements [`expand`](super::expand) for [`Flavour::Posix`](super::Flavour::Posix).
pub(super) fn expand(name: &[u8], base: &[u8]) -> Vec<u8> {
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

/// Appends `/component` for each component of `name`; `..` removes the last component.
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
    use proptest::prelude::*;
    use thruway_testing::table::{byte_rows, show};

    fn posix(name: &str, base: &str) -> String {
        String::from_utf8(super::expand(name.as_bytes(), base.as_bytes())).unwrap()
    }

    #[test]
    fn every_vector_gives_its_absolute_form() {
        for row in byte_rows(include_str!("../../tests/vectors/expand_posix.tsv")) {
            let [name, base, expected] = row.as_slice() else { panic!("three columns: {row:?}") };
            assert_eq!(show(&super::expand(name, base)), show(expected), "{}", show(name));
        }
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
