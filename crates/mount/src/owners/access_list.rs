//! The users and groups that access lists name, as `system.posix_acl_access` and `…_default` contain them.

use rustix::io::Errno;

use super::{OwnerIds, Owners};

/// The version of the form (linux/posix_acl_xattr.h).
const VERSION: [u8; 4] = 2_u32.to_le_bytes();

/// The size of an entry: tag, permissions, and a user or group.
const ENTRY: usize = 8;

const USER: u16 = 2;
const GROUP: u16 = 8;

/// The kind of owner that an entry names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    User,
    Group,
}

/// Returns the map for entries of this kind.
pub(crate) fn ids(owners: &Owners, kind: EntryKind) -> &OwnerIds {
    match kind {
        EntryKind::User => &owners.users,
        EntryKind::Group => &owners.groups,
    }
}

/// Replaces each user and group that the list names.
pub(crate) fn map_ids(
    list: &mut [u8],
    map: impl Fn(EntryKind, u32) -> Result<u32, Errno>,
) -> Result<(), Errno> {
    let Some((version, entries)) = list.split_first_chunk_mut::<4>() else { return Ok(()) };
    if *version != VERSION {
        return Err(Errno::OPNOTSUPP);
    }
    for entry in entries.chunks_exact_mut(ENTRY) {
        let kind = match u16::from_le_bytes([entry[0], entry[1]]) {
            USER => EntryKind::User,
            GROUP => EntryKind::Group,
            _ => continue,
        };
        let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
        entry[4..].copy_from_slice(&map(kind, id)?.to_le_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u32)]) -> Vec<u8> {
        let entry = |(tag, id): &(u16, u32)| {
            [&tag.to_le_bytes()[..], &7_u16.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let entries = entries.iter().flat_map(entry);
        VERSION.into_iter().chain(entries).collect()
    }

    #[test]
    fn named_users_and_groups_are_replaced_and_nothing_else() {
        let mut bytes = list(&[(1, u32::MAX), (USER, 5), (4, u32::MAX), (GROUP, 5), (16, 5)]);
        map_ids(&mut bytes, |kind, id| Ok(id + if kind == EntryKind::User { 100 } else { 200 }))
            .unwrap();
        let expected = [(1, u32::MAX), (USER, 105), (4, u32::MAX), (GROUP, 205), (16, 5)];
        assert_eq!(bytes, list(&expected));
    }

    #[test]
    fn an_unknown_form_and_an_owner_without_number_are_refused() {
        let other = &mut [3, 0, 0, 0];
        assert_eq!(map_ids(other, |_, id| Ok(id)), Err(Errno::OPNOTSUPP));
        let refused = map_ids(&mut list(&[(USER, 5)]), |_, _| Err(Errno::OVERFLOW));
        assert_eq!(refused, Err(Errno::OVERFLOW));
        assert_eq!(map_ids(&mut [], |_, id| Ok(id)), Ok(()));
    }
}
