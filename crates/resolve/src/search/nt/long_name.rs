//! The long form of a short name, the only part of expansion that needs the disk.

use super::{Calls, Nt, SEPARATOR};
use crate::wtf8;

impl<C: Calls> Nt<C> {
    /// Returns `path` with its last component as spelled on disk, if the component may be a short (8.3) name.
    /// Other components, and those that do not exist, stay unchanged. Ruby's `File.expand_path` adds this to
    /// the lexical rules on Windows.
    ///
    /// A name that cannot be a short one costs no look-up; any other costs three or four.
    pub fn long_name(&mut self, path: &[u8]) -> Vec<u8> {
        let is_separator = |byte: &u8| matches!(byte, b'\\' | b'/' | b':');
        let start = path.iter().rposition(is_separator).map_or(0, |separator| separator + 1);
        let (folder, name) = path.split_at(start);
        if !may_be_short(name) {
            return path.to_vec();
        }
        let mut long = None;
        let base = if folder.is_empty() { b"." } else { folder };
        // A folder that is missing or unreadable offers no other name.
        let _ = self.query(base, Some(&wtf8::to_wide(name)), &mut |found, _| {
            long.get_or_insert_with(|| wtf8::from_wide(found));
        });
        [folder, long.as_deref().unwrap_or(name)].concat()
    }
}

/// Whether `name` is short enough for a short name and could exist on disk: `PROGRA~1`, but also `a.b`, since
/// a short name need not have a tilde.
fn may_be_short(name: &[u8]) -> bool {
    const NAME_MAX: usize = 8 + 1 + 3;
    const SUFFIX_MAX: usize = 3;
    let units = wtf8::to_wide(name);
    let suffix = units.iter().rev().position(|unit| *unit == u16::from(b'.')).unwrap_or(0);
    !matches!(name, b"" | b"." | b"..")
        && !name.iter().any(|byte| br#"*?<>"|"#.contains(byte))
        && !units.contains(&SEPARATOR)
        && units.len() <= NAME_MAX
        && suffix <= SUFFIX_MAX
}

#[cfg(test)]
mod tests {
    use super::super::fake::Fake;
    use super::*;
    use crate::search::Lister;

    #[test]
    fn a_short_name_is_spelled_as_the_disk_spells_it() {
        let mut fake = Fake::new("NTFS");
        let folder = r"\??\C:\a";
        fake.folder(folder).add(folder, "Longer than that.text", "LONGER~1.TEX");
        fake.add(folder, "short.rb", "SHORT.RB");
        let mut nt = Nt::new(fake, br"C:\a".to_vec(), Vec::new());
        assert_eq!(nt.long_name(br"C:\a\longer~1.tex"), br"C:\a\Longer than that.text");
        assert_eq!(nt.long_name(b"C:/a/SHORT.rb"), b"C:/a/short.rb");
        assert_eq!(nt.long_name(b"short.RB"), b"short.rb");
        assert_eq!(nt.long_name(br"C:\none\x"), br"C:\none\x");
        assert_eq!(nt.long_name(br"C:\a\none.rb"), br"C:\a\none.rb");
    }

    #[test]
    fn a_name_that_cannot_be_short_is_not_looked_up() {
        let mut nt = Nt::new(Fake::new("NTFS"), br"C:\".to_vec(), Vec::new());
        for name in [r"C:\a\thirteen-char", r"C:\a\b.text", r"C:\a\*.rb", r"C:\", "..", "C:"] {
            assert_eq!(nt.long_name(name.as_bytes()), name.as_bytes());
        }
        assert_eq!(nt.lookups(), 0);
    }
}
