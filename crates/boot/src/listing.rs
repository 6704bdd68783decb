//! The names in a folder, in the form in which a pack stores them.
//!
//! ```text
//! filter    32 bytes: two bits for each stem, so that most folders say "not here" at once
//! count     u32
//! ends      u32 each: where a name ends in `names`
//! kinds     one byte each
//! names     sorted, one after the other
//! ```

use std::borrow::Cow;
use std::cmp::Ordering;

use xxhash_rust::xxh3::xxh3_64;

const FILTER_BYTES: usize = 32;
const COUNT_AT: usize = FILTER_BYTES;
const ENDS_AT: usize = COUNT_AT + 4;

/// The suffix of the native libraries that Ruby loads on this system (`DLEXT`).
pub(crate) const LIBRARY: &[u8] = if cfg!(target_os = "macos") { b".bundle" } else { b".so" };

/// The type of a directory entry, as the directory reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link, to anything.
    Link,
    /// A socket, a device, or a type that the file system does not report.
    Other,
}

/// The sorted names of a folder. Damaged bytes are read as a listing without names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listing<'a> {
    bytes: &'a [u8],
}

/// The bits of a name in a folder's filter. The name counts without `.rb` or the suffix of libraries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stem(u64);

impl Stem {
    /// Returns the stem of one component of a feature's name, or of a directory entry.
    #[must_use]
    pub fn of(component: &[u8]) -> Self {
        let component = folded(component);
        let stem = component.strip_suffix(b".rb").or_else(|| component.strip_suffix(LIBRARY));
        Self(xxh3_64(stem.unwrap_or(&component)))
    }

    fn bits(self) -> [usize; 2] {
        [(self.0 & 0xff) as usize, (self.0 >> 8 & 0xff) as usize]
    }
}

impl NameKind {
    fn from_byte(byte: u8) -> Self {
        match byte {
            0 => Self::File,
            1 => Self::Folder,
            2 => Self::Link,
            _ => Self::Other,
        }
    }
}

impl<'a> Listing<'a> {
    /// Interprets `bytes` as a listing.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// The bytes, as a pack stores them.
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the number of names.
    #[must_use]
    pub fn len(&self) -> usize {
        let count = self.u32_at(COUNT_AT) as usize;
        let fits = count.saturating_mul(5) + ENDS_AT <= self.bytes.len();
        if fits { count } else { 0 }
    }

    /// Whether there are no names.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a name with that stem may be in the folder. `false` is exact; `true` may be wrong.
    #[must_use]
    pub fn may_hold(&self, stem: Stem) -> bool {
        stem.bits()
            .iter()
            .all(|bit| self.bytes.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1))
    }

    /// Returns the type of the entry with that name, if there is one. On Windows, an entry whose name differs
    /// in case only is [`NameKind::Other`]: it is the same file, and Ruby spells its path as the name was given.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<NameKind> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let known = self.name(middle);
            match folded(known).cmp(&folded(name)) {
                Ordering::Equal if cfg!(windows) && known != name => return Some(NameKind::Other),
                Ordering::Equal => return Some(self.kind(middle)),
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// Returns all names, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], NameKind)> {
        let listing = *self;
        (0..self.len()).map(move |place| (listing.name(place), listing.kind(place)))
    }

    fn name(&self, place: usize) -> &'a [u8] {
        let names_at = ENDS_AT + self.len() * 5;
        let end = |place: usize| self.u32_at(ENDS_AT + place * 4) as usize;
        let start = place.checked_sub(1).map_or(0, end);
        self.bytes.get(names_at + start..names_at + end(place)).unwrap_or_default()
    }

    fn kind(&self, place: usize) -> NameKind {
        let byte = self.bytes.get(ENDS_AT + self.len() * 4 + place);
        NameKind::from_byte(byte.copied().unwrap_or(u8::MAX))
    }

    fn u32_at(&self, at: usize) -> u32 {
        let four = self.bytes.get(at..).and_then(|rest| rest.first_chunk());
        four.map_or(0, |four| u32::from_le_bytes(*four))
    }
}

/// Sorts names as a listing has them.
pub(crate) fn sort(names: &mut [(Vec<u8>, NameKind)]) {
    names.sort_unstable_by(|one, other| {
        folded(&one.0).cmp(&folded(&other.0)).then_with(|| one.cmp(other))
    });
}

/// Returns the form in which names are compared. On Windows the case of ASCII letters does not count; an ASCII
/// name equals no name with other letters.
fn folded(name: &[u8]) -> Cow<'_, [u8]> {
    if cfg!(windows) { Cow::Owned(name.to_ascii_lowercase()) } else { Cow::Borrowed(name) }
}

/// Encodes a listing; `None` if the names take more than 4 GiB.
#[must_use]
pub fn encode(mut names: Vec<(Vec<u8>, NameKind)>) -> Option<Vec<u8>> {
    sort(&mut names);
    let mut bytes = vec![0; FILTER_BYTES];
    for (name, _) in &names {
        for bit in Stem::of(name).bits() {
            bytes[bit / 8] |= 1 << (bit % 8);
        }
    }
    bytes.extend(u32::try_from(names.len()).ok()?.to_le_bytes());
    let mut end = 0;
    for (name, _) in &names {
        end += name.len();
        bytes.extend(u32::try_from(end).ok()?.to_le_bytes());
    }
    bytes.extend(names.iter().map(|(_, kind)| *kind as u8));
    names.iter().for_each(|(name, _)| bytes.extend_from_slice(name));
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Vec<u8> {
        let names = [
            ("set.rb", NameKind::File),
            ("json", NameKind::Folder),
            ("json.rb", NameKind::File),
            ("link", NameKind::Link),
            ("pipe", NameKind::Other),
        ];
        encode(names.map(|(name, kind)| (name.into(), kind)).to_vec()).unwrap()
    }

    #[test]
    fn every_name_is_found_with_its_kind_and_no_other() {
        let bytes = sample();
        let listing = Listing::new(&bytes);
        assert_eq!(listing.len(), 5);
        assert_eq!(listing.find(b"set.rb"), Some(NameKind::File));
        assert_eq!(listing.find(b"json"), Some(NameKind::Folder));
        assert_eq!(listing.find(b"link"), Some(NameKind::Link));
        assert_eq!(listing.find(b"pipe"), Some(NameKind::Other));
        assert_eq!(listing.find(b"set"), None);
        let names: Vec<_> = listing.iter().map(|(name, _)| name).collect();
        assert_eq!(names, [b"json".as_slice(), b"json.rb", b"link", b"pipe", b"set.rb"]);
    }

    #[test]
    fn the_filter_knows_stems() {
        let bytes = sample();
        let listing = Listing::new(&bytes);
        for held in ["set", "set.rb", "set.so", "json", "pipe"] {
            assert!(listing.may_hold(Stem::of(held.as_bytes())), "{held}");
        }
        let others = (0..1000).filter(|n: &u32| listing.may_hold(Stem::of(&n.to_le_bytes())));
        assert!(others.count() < 50);
    }

    #[cfg(windows)]
    #[test]
    fn case_does_not_hide_a_name() {
        let names =
            ["Set.rb", "JSON", "_a.rb", "zlib.SO"].map(|name| (name.into(), NameKind::File));
        let bytes = encode(names.to_vec()).unwrap();
        let listing = Listing::new(&bytes);
        for (name, kind) in [("Set.rb", NameKind::File), ("set.RB", NameKind::Other)] {
            assert_eq!(listing.find(name.as_bytes()), Some(kind));
        }
        assert_eq!(listing.find(b"json"), Some(NameKind::Other));
        assert_eq!(listing.find(b"_A.rb"), Some(NameKind::Other));
        assert_eq!(listing.find(b"\\"), None);
        for held in ["SET", "set", "json", "_A", "ZLIB"] {
            assert!(listing.may_hold(Stem::of(held.as_bytes())), "{held}");
        }
    }

    #[test]
    fn an_empty_folder_holds_nothing() {
        let bytes = encode(Vec::new()).unwrap();
        let listing = Listing::new(&bytes);
        assert!(listing.is_empty() && !listing.may_hold(Stem::of(b"a")));
        assert_eq!(listing.find(b""), None);
    }

    proptest! {
        #[test]
        fn damaged_listings_never_panic(at in 0usize..200, byte: u8, length in 0usize..200) {
            let mut bytes = sample();
            let at = at % bytes.len();
            bytes[at] = byte;
            bytes.truncate(length);
            let listing = Listing::new(&bytes);
            prop_assert!(listing.iter().count() <= bytes.len());
            prop_assert!(listing.find(b"not there").is_none());
        }
    }
}
