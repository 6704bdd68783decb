//! Packs on disk: which files are trusted, and how a pack is replaced.

use std::fs::{DirBuilder, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use thruway_sys::map::ReadOnlyMap;

#[cfg(unix)]
use crate::disk_posix as disk;
#[cfg(windows)]
use crate::disk_windows as disk;
use crate::error::Kind;
use crate::identity::{Inode, start_of};
use crate::layout::MAGIC;
use crate::pack::Layout;
use crate::{Builder, Error, Pack};

/// The amount of a pack written at a time, in bytes. The page cache keeps the bytes of one write together in
/// a large folio, and a process that reads one of them gets the whole folio mapped: up to two megabytes.
const CHUNK_BYTES: usize = 64 << 10;

/// A mapped pack. The mapping stays valid while this value lives, even if the file is replaced or removed.
#[derive(Debug)]
pub struct PackFile {
    path: PathBuf,
    map: ReadOnlyMap,
    layout: Layout,
    inode: Inode,
    #[cfg(windows)]
    is_by_this_user: bool,
}

/// The outcome of writing a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The new pack is in place.
    Replaced {
        /// The size of the pack, in bytes.
        bytes: usize,
    },
    /// Another process writes the same pack, or has just written it. The new pack was discarded.
    Busy,
}

impl PackFile {
    /// Maps the pack at `path`.
    ///
    /// On POSIX, the file is trusted if it belongs to this user or to root, and neither group nor others may
    /// write it. On Windows, it is trusted if it belongs to this user, the administrators or the system, and
    /// the access list lets no other user write it. The open file is examined, not its name.
    ///
    /// Windows does not let a pack be replaced while it is mapped. The newer one lies beside it then
    /// ([`replace`]), and takes its place here as soon as that is possible.
    ///
    /// # Errors
    /// The file is missing, must not be trusted, or is not a pack of this format.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let place = disk::newest(path);
        match Self::open_exactly(&place) {
            // Another process may have moved the newer pack into place meanwhile, or the file beside is not a pack.
            Err(_) if place != path => Self::open_exactly(path),
            opened => opened,
        }
    }

    fn open_exactly(path: &Path) -> Result<Self, Error> {
        let (file, inode) = disk::open_trusted(path)?;
        let map = ReadOnlyMap::new(&file).map_err(|error| Error::system(path, "map", error))?;
        let layout = Layout::of(&map).map_err(|kind| Error::new(path, kind))?;
        Ok(Self {
            path: path.to_owned(),
            map,
            layout,
            inode,
            #[cfg(windows)]
            is_by_this_user: thruway_sys::owner::is_this_user(&file).unwrap_or(false),
        })
    }

    /// Like [`open`](Self::open), for a pack with the given identity.
    ///
    /// # Errors
    /// See [`open`](Self::open). Also fails if the identity differs ([`Error::is_other_identity`]).
    pub fn open_for(path: &Path, identity: &[u8]) -> Result<Self, Error> {
        let file = Self::open(path)?;
        if file.pack().identity() == identity {
            Ok(file)
        } else {
            Err(Error::new(path, Kind::OtherIdentity))
        }
    }

    /// The content of the pack.
    #[must_use]
    pub fn pack(&self) -> Pack<'_> {
        Pack::new(&self.map, self.layout)
    }

    /// Keeps the pack mapped until the process ends.
    #[must_use]
    pub fn leak(self) -> &'static Self {
        Box::leak(Box::new(self))
    }

    /// Releases the memory of all data. Data that is used again is read from the file again.
    pub fn release_data(&self) {
        self.map.release(self.layout.data_at());
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the pack belongs to this user, rather than to the administrators or the system.
    #[cfg(windows)]
    #[must_use]
    pub fn is_by_this_user(&self) -> bool {
        self.is_by_this_user
    }

    /// The device and inode, which distinguish this pack from its successor.
    #[must_use]
    pub fn inode(&self) -> Inode {
        self.inode
    }
}

/// Writes a new pack and moves it to `path` atomically. Missing folders are created. The folder of the pack
/// is created for this user alone, since a pack reveals the content of files that others may not be able to
/// read.
///
/// The bytes are written to `path` + `.partial`, synced, and moved into place by a rename, so a reader sees
/// either the old or the new pack. The partial file is locked: of several processes one writes, and the
/// others get [`WriteOutcome::Busy`]. The leftovers of a killed process are overwritten by the next one. The
/// new file has the mode 0444, so that nothing edits it in place while others have it mapped.
///
/// Windows may refuse the rename while the old pack is mapped. Then the new one is moved to `path` + `.next`,
/// and takes the place when a pack is opened while no process has the old one mapped.
///
/// # Errors
/// The file at `path` is not a pack ([`check_place`]), the folder is not writable, the disk is full, or a
/// limit of [`layout`](crate::layout) is exceeded. The old file stays in place.
pub fn replace(path: &Path, builder: &Builder<'_>, now_ns: i64) -> Result<WriteOutcome, Error> {
    check_place(path)?;
    let bytes = builder.finish(now_ns).ok_or_else(|| Error::new(path, Kind::TooLarge))?;
    let partial = partial(path);
    let failed = |doing| move |error: std::io::Error| Error::system(path, doing, error);
    if let Some(folder) = path.parent() {
        make_folder(folder).map_err(failed("make the folder of"))?;
    }
    disk::check_size(bytes.len()).map_err(failed("write"))?;
    let Some(mut file) = disk::lock(&partial, true).map_err(failed("write"))? else {
        return Ok(WriteOutcome::Busy);
    };
    let written =
        fill(&mut file, &bytes).and_then(|()| disk::move_into_place(file, &partial, path));
    if !matches!(written, Ok(true)) {
        // The file is incomplete, or cannot be moved into place. If removing it fails, the next writer overwrites it.
        let _ = std::fs::remove_file(&partial);
    }
    let is_in_place = written.map_err(failed("write"))?;
    Ok(if is_in_place { WriteOutcome::Replaced { bytes: bytes.len() } } else { WriteOutcome::Busy })
}

/// Removes the partial file that a killed process left when it was writing the pack at `path`. A file that is
/// still being written, or does not begin like a pack, stays.
///
/// # Errors
/// The file cannot be opened, locked or removed.
pub fn remove_partial(path: &Path) -> Result<(), Error> {
    let partial = partial(path);
    let failed = |error: std::io::Error| Error::system(&partial, "remove", error);
    if check_place(&partial).is_err() {
        return Ok(());
    }
    match disk::lock(&partial, false) {
        Ok(Some(_locked)) => std::fs::remove_file(&partial).map_err(failed),
        Ok(None) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

/// Checks that writing a pack to `path` does not destroy another file.
///
/// # Errors
/// The path holds something other than a pack of any format or an empty file.
pub fn check_place(path: &Path) -> Result<(), Error> {
    let Some(file) = disk::open_to_check(path)? else { return Ok(()) };
    let start = start_of(file).map_err(|error| Error::system(path, "read", error))?;
    if start.is_empty() || start == MAGIC { Ok(()) } else { Err(Error::new(path, Kind::NotAPack)) }
}

/// Returns the name of a pack while it is written.
fn partial(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// Creates the folder for this user alone, and missing parents with the mode of the umask.
fn make_folder(folder: &Path) -> std::io::Result<()> {
    let make = || {
        let mut builder = DirBuilder::new();
        disk::for_this_user_alone(&mut builder);
        builder.create(folder)
    };
    let made = match (make(), folder.parent()) {
        (Err(error), Some(above)) if error.kind() == ErrorKind::NotFound => {
            std::fs::create_dir_all(above)?;
            make()
        }
        (made, _) => made,
    };
    match made {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        made => made,
    }
}

fn fill(file: &mut File, bytes: &[u8]) -> std::io::Result<()> {
    file.set_len(0)?;
    bytes.chunks(CHUNK_BYTES).try_for_each(|chunk| file.write_all(chunk))?;
    disk::forbid_writing(file)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Item, Stamp};
    #[cfg(unix)]
    use std::os::unix::fs::PermissionsExt;

    fn builder(text: &str) -> Builder<'_> {
        let mut builder = Builder::new(b"id");
        builder.insert(1, b"a".as_slice(), Item::new(Stamp::default(), text.as_bytes()));
        builder
    }

    fn text(file: &PackFile) -> String {
        let data = file.pack().find(1, b"a").unwrap().data().unwrap();
        String::from_utf8(data.to_vec()).unwrap()
    }

    #[test]
    fn a_pack_is_written_with_its_folder_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tmp/cache/a.pack");
        let written = replace(&path, &builder("one"), 0).unwrap();
        let file = PackFile::open_for(&path, b"id").unwrap();
        assert_eq!(written, WriteOutcome::Replaced { bytes: file.pack().bytes() });
        assert_eq!(text(&file), "one");
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_pipe_in_the_place_of_the_partial_file_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pack");
        let pipe = folder.path().join("a.pack.partial");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let error = replace(&path, &builder("one"), 0).unwrap_err().to_string();
        assert!(error.contains("No such device"), "{error}");
        let _reader = File::options().read(true).write(true).open(&pipe).unwrap();
        let error = replace(&path, &builder("one"), 0).unwrap_err().to_string();
        assert!(error.contains("a.pack.partial is not a regular file of this user"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "only the pipe is there");
    }

    #[test]
    fn a_mapped_pack_outlives_its_replacement() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pack");
        replace(&path, &builder("one"), 0).unwrap();
        let old = PackFile::open(&path).unwrap();
        replace(&path, &builder("two"), 0).unwrap();
        let new = PackFile::open(&path).unwrap();
        assert_eq!((text(&old).as_str(), text(&new).as_str()), ("one", "two"));
        assert_ne!(old.inode(), new.inode());
    }

    #[cfg(windows)]
    #[test]
    fn a_pack_that_cannot_be_moved_into_place_waits_for_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pack");
        let next = folder.path().join("a.pack.next");
        replace(&path, &builder("one"), 0).unwrap();
        std::fs::write(&next, "mine").unwrap();
        assert_eq!(text(&PackFile::open(&path).unwrap()), "one", "what is no pack stays");
        assert_eq!(std::fs::read(&next).unwrap(), b"mine");
        std::fs::remove_file(&next).unwrap();
        let beside = folder.path().join("beside.pack");
        replace(&beside, &builder("two"), 0).unwrap();
        std::fs::rename(&beside, &next).unwrap();
        assert_eq!(text(&PackFile::open(&path).unwrap()), "two");
        assert!(std::fs::metadata(&next).is_err());
    }

    #[test]
    fn another_identity_is_distinguished_from_other_errors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pack");
        assert!(PackFile::open(&path).unwrap_err().is_not_found());
        replace(&path, &builder("one"), 0).unwrap();
        assert!(PackFile::open_for(&path, b"other").unwrap_err().is_other_identity());
    }

    #[cfg(unix)]
    #[test]
    fn a_pack_that_others_may_write_is_not_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pack");
        replace(&path, &builder("one"), 0).unwrap();
        for mode in [0o664, 0o646] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let error = PackFile::open(&path).unwrap_err();
            assert!(error.is_untrusted(), "{error}");
        }
        assert!(PackFile::open(folder.path()).unwrap_err().to_string().contains("not a regular"));
    }

    #[test]
    fn a_file_that_is_not_a_pack_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        std::fs::write(&path, "mine").unwrap();
        let error = replace(&path, &builder("one"), 0).unwrap_err();
        assert!(error.to_string().ends_with("notes.txt is not a pack"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(check_place(folder.path()).is_err());
        #[cfg(unix)]
        assert!(check_place("/dev/null".as_ref()).is_err());
        for mine in [&b""[..], b"THRUPACK of another format, and torn"] {
            std::fs::write(&path, mine).unwrap();
            replace(&path, &builder("one"), 0).unwrap();
        }
    }

    #[test]
    fn a_partial_file_that_was_left_behind_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pack");
        std::fs::write(partial(&path), vec![0; 100_000]).unwrap();
        replace(&path, &builder("one"), 0).unwrap();
        assert_eq!(text(&PackFile::open(&path).unwrap()), "one");
        assert!(std::fs::metadata(partial(&path)).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_is_made_for_a_pack_is_its_users_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache/thruway/a.pack");
        replace(&path, &builder("one"), 0).unwrap();
        let mode = |folder: &Path| std::fs::metadata(folder).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        let shared = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(path.parent().unwrap(), shared).unwrap();
        replace(&path, &builder("two"), 0).unwrap();
        assert_eq!(mode(path.parent().unwrap()), 0o755, "what was there is left as it is");
    }

    #[test]
    fn only_the_partial_file_of_a_killed_writer_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pack");
        let is_there = || std::fs::metadata(partial(&path)).is_ok();
        remove_partial(&path).unwrap();
        std::fs::write(partial(&path), [&MAGIC[..], &[0; 1000]].concat()).unwrap();
        let writer = disk::lock(&partial(&path), true).unwrap().unwrap();
        remove_partial(&path).unwrap();
        assert!(is_there(), "its writer is alive");
        drop(writer);
        remove_partial(&path).unwrap();
        assert!(!is_there());
        std::fs::write(partial(&path), "not a pack").unwrap();
        remove_partial(&path).unwrap();
        assert!(is_there());
    }

    #[test]
    fn a_writer_does_not_wait_for_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pack");
        let held = disk::lock(&partial(&path), true).unwrap().unwrap();
        assert_eq!(replace(&path, &builder("one"), 0).unwrap(), WriteOutcome::Busy);
        drop(held);
        assert_ne!(replace(&path, &builder("one"), 0).unwrap(), WriteOutcome::Busy);
    }

    #[cfg(unix)]
    #[test]
    fn many_writers_leave_one_whole_pack() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pack");
        let texts: Vec<_> = (0..8).map(|n| n.to_string().repeat(50_000)).collect();
        std::thread::scope(|scope| {
            for text in &texts {
                scope.spawn(|| {
                    for _ in 0..20 {
                        replace(&path, &builder(text), 0).unwrap();
                    }
                });
            }
            for _ in 0..200 {
                match PackFile::open(&path) {
                    Ok(file) => assert!(texts.contains(&text(&file))),
                    Err(error) => assert!(error.is_not_found(), "{error}"),
                }
            }
        });
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        let error = replace(&folder.path().join("file/a.pack"), &builder("one"), 0).unwrap_err();
        assert!(error.to_string().starts_with("cannot make the folder of "), "{error}");
    }
}
