//! From a feature's name to its file, along the load path.

use crate::folders::{FolderId, Folders, Probe};
use crate::listing::{LIBRARY, Stem};
use crate::path;

/// The folders of a load path, in order.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct LoadPath {
    /// `None` for an entry that only Ruby can expand: relative, from the home folder, or no string.
    bases: Vec<Option<FolderId>>,
}

/// What the load path makes of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// The feature's absolute path.
    Found(Vec<u8>),
    /// Certainly nowhere in the load path.
    Nowhere,
    /// Ruby has to search.
    Unknown,
}

impl LoadPath {
    /// The load path with these entries; `None` for an entry that is not a plain string.
    ///
    /// Ruby takes the real path of an entry when it expands its load path, and keeps that until the load
    /// path is changed. So an entry that is a link still means the same folder when the link leads
    /// elsewhere.
    pub fn new<'a>(
        folders: &mut Folders,
        entries: impl IntoIterator<Item = Option<&'a [u8]>>,
    ) -> Self {
        let base = |entry: Option<&[u8]>| {
            let path = entry.filter(|path| path::is_clean(path) && path.is_ascii())?;
            let id = folders.id(path);
            let real = folders.real_path(id).map(<[u8]>::to_vec);
            Some(real.map_or(id, |real| folders.id(&real)))
        };
        Self { bases: entries.into_iter().map(base).collect() }
    }

    /// Finds the feature as Ruby does: the first base that has it with `.rb`. If there is none, it
    /// is the first that has it as a library. A name that has a suffix is tried as it is first.
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

/// Whether the folder may hold a file of that name, as it is or with a suffix behind it; `false` is certain.
pub(crate) fn may_hold(folders: &mut Folders, base: FolderId, name: &[u8]) -> bool {
    suffixes(name).is_none() || stems(name).iter().any(|stem| folders.may_hold(base, *stem))
}

/// What a base holds one of if the feature is below it. They differ for a name that has a suffix.
fn stems(name: &[u8]) -> [Stem; 2] {
    let first = name.split(|byte| *byte == b'/').next().unwrap_or(name);
    [Stem::of(first), Stem::of(&[first, b".rb"].concat())]
}

/// The suffixes that Ruby tries; `None` for a name that it treats in a way of its own.
fn suffixes(name: &[u8]) -> Option<&'static [&'static [u8]]> {
    let plain = name.is_ascii()
        && !name.contains(&0)
        && !name.starts_with(b".")
        && !name.starts_with(b"~")
        && path::is_clean(&path::join(b"/", name));
    if !plain {
        return None;
    }
    let last = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
    match last.iter().rposition(|byte| *byte == b'.').map(|dot| &last[dot..]) {
        Some(b".rb") => Some(&[b""]),
        Some(suffix) if suffix == LIBRARY => Some(&[b"", b".rb", LIBRARY]),
        // Other platforms' words for a library mean this platform's.
        Some(b".o" | b".so" | b".dll" | b".bundle") => None,
        _ => Some(&[b".rb", LIBRARY]),
    }
}

/// What one base makes of a name with that suffix; `None` if it has no such file.
fn resolve_in(
    folders: &mut Folders,
    base: FolderId,
    name: &[u8],
    suffix: &[u8],
) -> Option<Resolution> {
    let full_name = [name, suffix].concat();
    match folders.probe(base, &full_name) {
        Probe::Absent => None,
        Probe::File => Some(found(folders, base, &full_name)),
        Probe::Present | Probe::Unknown => Some(Resolution::Unknown),
    }
}

/// Ruby names a feature by the path of its base, which was a real one when the load path was expanded.
fn found(folders: &Folders, base: FolderId, name: &[u8]) -> Resolution {
    match folders.path(base) {
        path if path.is_ascii() => Resolution::Found(path::join(path, name)),
        _ => Resolution::Unknown,
    }
}
