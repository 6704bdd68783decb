//! Resolution of a feature's name along the load path.

use std::borrow::Cow;

use crate::folders::{FolderId, Folders, Probe};
use crate::listing::{LIBRARY, Stem};
use crate::path;

/// The folders of a load path, in order.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct LoadPath {
    /// The base folders; `None` for an entry that only Ruby can expand: relative, below the home folder, or
    /// not a string.
    bases: Vec<Option<FolderId>>,
}

/// The result of resolving a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// The absolute path of the feature.
    Found(Vec<u8>),
    /// The feature is certainly not in the load path.
    Nowhere,
    /// The cache cannot tell; Ruby has to search.
    Unknown,
}

impl LoadPath {
    /// Builds a load path from its entries; `None` stands for an entry that is not a plain string.
    ///
    /// Ruby resolves an entry's links when it expands the load path, and keeps the result until the load path
    /// changes. So an entry that is a link continues to mean the same folder after the link is changed.
    pub fn new<'a>(
        folders: &mut Folders,
        entries: impl IntoIterator<Item = Option<&'a [u8]>>,
    ) -> Self {
        let base = |entry: Option<&[u8]>| {
            let path = with_slashes(entry?);
            let path = Some(&*path).filter(|path| path::is_clean(path) && path.is_ascii())?;
            let id = folders.id(path);
            let real = folders.real_path(id).map(<[u8]>::to_vec);
            Some(real.map_or(id, |real| folders.id(&real)))
        };
        Self { bases: entries.into_iter().map(base).collect() }
    }

    /// Resolves a name as Ruby does: the first base that has it with `.rb`, or else the first that has it as
    /// a native library. A name with a suffix is first tried unchanged.
    pub fn resolve(&self, folders: &mut Folders, name: &[u8]) -> Resolution {
        let Some((first, others)) = suffixes(name).and_then(<[_]>::split_first) else {
            return Resolution::Unknown;
        };
        let stems = stems(name);
        let mut holders = Vec::new();
        for base in &self.bases {
            let Some(base) = *base else { return Resolution::Unknown };
            if stems.iter().any(|stem| folders.may_hold(base, *stem)) {
                holders.push(base);
                if let Some(resolution) = resolve_in(folders, base, name, first) {
                    return resolution;
                }
            }
        }
        for suffix in others {
            for base in &holders {
                if let Some(resolution) = resolve_in(folders, *base, name, suffix) {
                    return resolution;
                }
            }
        }
        Resolution::Nowhere
    }
}

/// Returns an entry with slashes as separators, like the entries of Ruby's own load path.
fn with_slashes(entry: &[u8]) -> Cow<'_, [u8]> {
    if cfg!(windows) && entry.contains(&b'\\') {
        entry.iter().map(|byte| if *byte == b'\\' { b'/' } else { *byte }).collect()
    } else {
        Cow::Borrowed(entry)
    }
}

/// Whether the folder may hold a file with that name, with or without a suffix. `false` is exact; `true` may be wrong.
pub(crate) fn may_hold(folders: &mut Folders, base: FolderId, name: &[u8]) -> bool {
    suffixes(name).is_none() || stems(name).iter().any(|stem| folders.may_hold(base, *stem))
}

/// Returns two stems. A base that has neither of them does not contain the feature. The stems differ only if
/// the name has a suffix.
fn stems(name: &[u8]) -> [Stem; 2] {
    let first = name.split(|byte| *byte == b'/').next().unwrap_or(name);
    [Stem::of(first), Stem::of(&[first, b".rb"].concat())]
}

/// Returns the suffixes that Ruby tries for a feature's name, in Ruby's order; `None` for a name with special rules,
/// which Ruby has to resolve itself.
fn suffixes(name: &[u8]) -> Option<&'static [&'static [u8]]> {
    let plain = name.is_ascii()
        && !name.contains(&0)
        && !name.starts_with(b".")
        && !name.starts_with(b"~")
        && name.split(|byte| *byte == b'/').all(path::is_plain_component);
    if !plain {
        return None;
    }
    let last = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
    match last.iter().rposition(|byte| *byte == b'.').map(|dot| &last[dot..]) {
        Some(b".rb") => Some(&[b""]),
        Some(suffix) if suffix == LIBRARY => Some(&[b"", b".rb", LIBRARY]),
        // The suffixes of other platforms stand for this platform's.
        Some(b".o" | b".so" | b".dll" | b".bundle") => None,
        _ => Some(&[b".rb", LIBRARY]),
    }
}

/// Tries a name with one suffix in one base; `None` if there is no such file.
fn resolve_in(
    folders: &mut Folders,
    base: FolderId,
    name: &[u8],
    suffix: &[u8],
) -> Option<Resolution> {
    let full_name = [name, suffix].concat();
    match folders.probe(base, &full_name) {
        Probe::Absent => None,
        Probe::File => Some(feature_in(folders, base, &full_name)),
        Probe::Present | Probe::Unknown => Some(Resolution::Unknown),
    }
}

/// Returns the feature's path. Ruby builds it from the base's path, which was resolved when the load path was
/// expanded.
fn feature_in(folders: &Folders, base: FolderId, name: &[u8]) -> Resolution {
    match folders.path(base) {
        path if path.is_ascii() => Resolution::Found(path::join(path, name)),
        _ => Resolution::Unknown,
    }
}
