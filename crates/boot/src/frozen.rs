//! The check of `--frozen`: whether a whole pack can be trusted without queries about each file.

use std::collections::HashSet;
use std::path::Path;

use thruway_pack::{Entry, Pack, Stamp};

use crate::disk;
use crate::kind;
use crate::learned_entries::{after_nul, is_current};
use crate::listing::{self, Listing, NameKind};
use crate::path;

/// Returns the first path that differs from the pack; `None` if nothing differs. A folder must have its
/// stamp, or else the same names and, in it, features with their stamps. A document must have its stamp. A
/// path through links must lead to the same folder.
///
/// Where a folder's stamp differs, its names are compared, because writing the pack changes the stamp of its own
/// folder. A stamp includes the change time, which no program can set, and the inode. A release unpacked over
/// an older one is therefore noticed whatever times its files are given. A file edited in place is not
/// noticed, since its folder stays the same.
pub(crate) fn first_change<'a>(pack: &Pack<'a>, place: &Path) -> Option<&'a [u8]> {
    let folders = pack.entries().filter(|entry| entry.kind() == kind::FOLDER);
    let (listed, others): (Vec<_>, Vec<_>) =
        folders.partition(|entry| entry.flags() & kind::LISTED != 0);
    let (same, changed): (Vec<_>, Vec<_>) =
        listed.into_iter().partition(|entry| has_its_stamp(entry, NameKind::Folder));
    let same: HashSet<_> = same.iter().map(Entry::name).collect();
    let is_in_same =
        |path: &[u8]| path::split(path).is_some_and(|(folder, _)| same.contains(folder));
    let is_right = |entry: &Entry<'_>| match entry.kind() {
        kind::ALIAS => leads_to_its_place(entry),
        kind::FEATURE => is_in_same(entry.name()) || has_its_stamp(entry, NameKind::File),
        // No folder entry covers these files, and they are few.
        kind::YAML | kind::ZONE => is_current(entry),
        _ => true,
    };
    let is_folder = |entry: &Entry<'_>| stamp(entry.name(), NameKind::Folder).is_some();
    let gone = others.into_iter().find(|entry| !is_folder(entry));
    let gone = gone.or_else(|| changed.into_iter().find(|entry| !has_its_names(entry, place)));
    let first = gone.or_else(|| pack.entries().find(|entry| !is_right(entry)));
    first.map(|entry| match entry.kind() {
        kind::YAML | kind::ZONE => after_nul(entry.name()),
        _ => entry.name(),
    })
}

fn has_its_stamp(entry: &Entry<'_>, kind: NameKind) -> bool {
    stamp(entry.name(), kind).is_some_and(|now| now == entry.stamp())
}

/// Returns the stamp of a path, if the file has the given type.
fn stamp(path: &[u8], kind: NameKind) -> Option<Stamp> {
    let status = disk::status(path).ok()?;
    (disk::kind(&status) == kind).then(|| disk::stamp(&status))
}

fn leads_to_its_place(alias: &Entry<'_>) -> bool {
    let place = alias.data().and_then(disk::status_of_target);
    let found = disk::status_of_target(alias.name());
    place.zip(found).is_some_and(|(place, found)| disk::is_same_file(&place, &found))
}

fn has_its_names(entry: &Entry<'_>, place: &Path) -> bool {
    let (Some((_, mut now)), Some(then)) = (disk::read_folder(entry.name()), entry.data()) else {
        return false;
    };
    listing::sort(&mut now);
    let is_counted = |name: &[u8]| !is_of_pack(entry.name(), name, place);
    let now = now.iter().map(|(name, kind)| (&name[..], *kind));
    let now = now.filter(|(name, _)| is_counted(name));
    now.eq(Listing::new(then).iter().filter(|(name, _): &(&[u8], NameKind)| is_counted(name)))
}

/// Whether a name is that of the pack, or the temporary name under which it is written.
fn is_of_pack(folder: &[u8], name: &[u8], place: &Path) -> bool {
    let here = place.parent().is_some_and(|parent| parent == disk::native_path(folder));
    let pack = place.file_name().map(|pack| disk::path_bytes(pack.as_ref()));
    here && pack.is_some_and(|pack| name.starts_with(&pack))
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use crate::folders::Folders;
    use crate::learned_entries::put_folders;
    use rustix::fs::{self, AtFlags, CWD, Timespec, Timestamps};
    use std::os::unix::ffi::OsStrExt;
    use thruway_pack::Builder;

    fn is_unchanged(pack: &Pack<'_>, place: &Path) -> bool {
        first_change(pack, place).is_none()
    }

    /// Builds a pack of a folder with one file.
    fn pack_of(folder: &Path) -> Vec<u8> {
        let mut folders = Folders::new(None, false, true);
        std::thread::sleep(std::time::Duration::from_millis(25));
        let id = folders.id(folder.as_os_str().as_bytes());
        assert!(folders.names(id).is_some());
        let mut builder = Builder::new(b"");
        put_folders(&folders, &mut builder);
        builder.finish(0).unwrap()
    }

    fn set_time(folder: &Path, tv_sec: i64) {
        let time = Timespec { tv_sec, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        fs::utimensat(CWD, folder, &times, AtFlags::empty()).unwrap();
    }

    #[test]
    fn a_folder_with_another_time_is_judged_by_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        std::fs::write(folder.join("a.rb"), "").unwrap();
        let (bytes, place) = (pack_of(folder), folder.join("a.pack"));
        let pack = Pack::from_bytes(&bytes).unwrap();
        assert!(is_unchanged(&pack, &place));
        set_time(folder, 7);
        assert!(is_unchanged(&pack, &place), "the names are the same");
        std::fs::write(&place, "").unwrap();
        assert!(is_unchanged(&pack, &place), "the pack itself does not count");
        std::fs::write(folder.join("b.rb"), "").unwrap();
        assert!(!is_unchanged(&pack, &place), "a new name does");
        std::fs::remove_file(folder.join("b.rb")).unwrap();
        std::fs::remove_file(folder.join("a.rb")).unwrap();
        assert!(!is_unchanged(&pack, &place), "a missing file does, too");
    }

    #[test]
    fn a_feature_is_looked_at_itself_if_its_folder_does_not_show_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.rb");
        std::fs::write(&file, "").unwrap();
        let stamp = Stamp::of(&fs::stat(&file).unwrap());
        let mut builder = Builder::new(b"");
        let name = file.as_os_str().as_bytes();
        builder.insert(kind::FEATURE, name, thruway_pack::Item::new(stamp, Vec::new()));
        let bytes = builder.finish(0).unwrap();
        let pack = Pack::from_bytes(&bytes).unwrap();
        assert!(is_unchanged(&pack, Path::new("/a.pack")));
        std::fs::write(&file, "1").unwrap();
        assert!(!is_unchanged(&pack, Path::new("/a.pack")), "another size");
    }

    #[test]
    fn a_file_that_another_one_replaced_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let (file, new) = (folder.path().join("a.rb"), folder.path().join("new"));
        std::fs::write(&file, "1").unwrap();
        let bytes = pack_of(folder.path());
        let mut builder = Builder::new(b"");
        let pack = Pack::from_bytes(&bytes).unwrap();
        pack.entries().for_each(|entry| builder.keep(&entry));
        let stamp = Stamp::of(&fs::stat(&file).unwrap());
        let name = file.as_os_str().as_bytes();
        builder.insert(kind::FEATURE, name, thruway_pack::Item::new(stamp, Vec::new()));
        let bytes = builder.finish(0).unwrap();
        let pack = Pack::from_bytes(&bytes).unwrap();
        assert!(is_unchanged(&pack, Path::new("/a.pack")));
        set_time(folder.path(), 7);
        assert!(is_unchanged(&pack, Path::new("/a.pack")), "the folder's time alone is nothing");
        std::fs::write(&new, "2").unwrap();
        std::fs::rename(&new, &file).unwrap();
        assert!(!is_unchanged(&pack, Path::new("/a.pack")));
    }

    #[test]
    fn a_link_that_leads_elsewhere_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let (link, one, two) =
            (folder.path().join("link"), folder.path().join("one"), folder.path().join("two"));
        [&one, &two].into_iter().for_each(|made| std::fs::create_dir(made).unwrap());
        std::os::unix::fs::symlink("one", &link).unwrap();
        let mut folders = Folders::new(None, false, true);
        let id = folders.id(link.as_os_str().as_bytes());
        assert_eq!(folders.real_path(id), Some(one.as_os_str().as_bytes()));
        let mut builder = Builder::new(b"");
        put_folders(&folders, &mut builder);
        let bytes = builder.finish(0).unwrap();
        let pack = Pack::from_bytes(&bytes).unwrap();
        assert!(is_unchanged(&pack, Path::new("/a.pack")));
        std::fs::remove_file(&link).unwrap();
        assert!(!is_unchanged(&pack, Path::new("/a.pack")), "it is gone");
        std::os::unix::fs::symlink("two", &link).unwrap();
        assert!(!is_unchanged(&pack, Path::new("/a.pack")), "it leads elsewhere");
    }

    #[test]
    fn times_that_were_set_back_hide_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (folder, file) = (folder.path(), folder.path().join("a.rb"));
        std::fs::write(&file, "1").unwrap();
        set_time(folder, 7);
        set_time(&file, 7);
        let mut builder = Builder::new(b"");
        let bytes = pack_of(folder);
        let pack = Pack::from_bytes(&bytes).unwrap();
        pack.entries().for_each(|entry| builder.keep(&entry));
        let stamp = Stamp::of(&fs::stat(&file).unwrap());
        let name = file.as_os_str().as_bytes();
        builder.insert(kind::FEATURE, name, thruway_pack::Item::new(stamp, Vec::new()));
        let bytes = builder.finish(0).unwrap();
        let pack = Pack::from_bytes(&bytes).unwrap();
        assert!(is_unchanged(&pack, Path::new("/a.pack")));
        std::fs::write(folder.join("new"), "2").unwrap();
        std::fs::rename(folder.join("new"), &file).unwrap();
        set_time(&file, 7);
        set_time(folder, 7);
        assert!(!is_unchanged(&pack, Path::new("/a.pack")));
    }
}
