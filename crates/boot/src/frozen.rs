//! Whether a whole pack can be believed without asking about each file: the one check of `--frozen`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{self, AtFlags, CWD};
use thruway_pack::{Entry, Pack, Stamp};

use crate::folders::read_folder;
use crate::kind;
use crate::listing::{Listing, NameKind};

/// Whether every folder of the pack is as it was: it has its time, or the same names.
///
/// A time that was cut to whole seconds is right as well, since image layers keep no more. Names are
/// read where the time differs, because whoever puts a pack into a folder changes that one's time.
pub(crate) fn is_unchanged(pack: &Pack<'_>, place: &Path) -> bool {
    let folders = pack.entries().filter(|entry| entry.kind() == kind::FOLDER);
    folders.into_iter().all(|entry| has_its_time(&entry) || has_its_names(&entry, place))
}

/// A folder whose names are not in the pack only has to be there.
fn has_its_time(entry: &Entry<'_>) -> bool {
    let stat = fs::statat(CWD, entry.name(), AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| {
        let (now, then) = (Stamp::of(&stat).mtime_ns, entry.stamp().mtime_ns);
        let is_listed = entry.flags() & kind::LISTED != 0;
        !is_listed || now == then || now == then - then.rem_euclid(1_000_000_000)
    })
}

fn has_its_names(entry: &Entry<'_>, place: &Path) -> bool {
    let (Some((_, mut now)), Some(then)) = (read_folder(entry.name()), entry.data()) else {
        return false;
    };
    now.sort_unstable();
    let is_counted = |name: &[u8]| !is_of_pack(entry.name(), name, place);
    let now = now.iter().map(|(name, kind)| (&name[..], *kind));
    let now = now.filter(|(name, _)| is_counted(name));
    now.eq(Listing::new(then).iter().filter(|(name, _): &(&[u8], NameKind)| is_counted(name)))
}

/// Whether a name is the pack's, or one that it has while it is made.
fn is_of_pack(folder: &[u8], name: &[u8], place: &Path) -> bool {
    let here = place.parent().is_some_and(|parent| parent == Path::new(OsStr::from_bytes(folder)));
    let pack = place.file_name().map(OsStrExt::as_bytes);
    here && pack.is_some_and(|pack| name.starts_with(pack))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folders::Folders;
    use crate::learned::put_folders;
    use rustix::fs::{Timespec, Timestamps};
    use thruway_pack::Builder;

    /// A pack of a folder with one file, as it is now.
    fn pack_of(folder: &Path) -> Vec<u8> {
        let mut folders = Folders::new(None, false);
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
        assert!(!is_unchanged(&pack, &place), "one that is gone does, too");
    }

    #[test]
    fn a_time_that_lost_its_fraction_is_right() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let bytes = pack_of(folder);
        let pack = Pack::from_bytes(&bytes).unwrap();
        let stat = fs::stat(folder).unwrap();
        std::fs::write(folder.join("a.rb"), "").unwrap();
        assert!(!is_unchanged(&pack, Path::new("/a.pack")));
        set_time(folder, stat.st_mtime);
        assert!(is_unchanged(&pack, Path::new("/a.pack")));
    }
}
