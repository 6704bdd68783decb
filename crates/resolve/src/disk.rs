//! Opens names beneath a folder, each by a single look-up.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::{DenyList, Error, Name, Refusal, beneath};

/// A folder beneath which names are opened. Nothing outside the folder can be reached through it.
///
/// Containment is enforced by the kernel: every open is one `openat2` with `RESOLVE_BENEATH` and
/// `RESOLVE_NO_MAGICLINKS` (Linux 5.6), so symbolic links are followed only while they stay inside. An
/// absolute link that leads back inside is followed, too. On a kernel without `openat2`, components are
/// opened one at a time.
#[derive(Debug)]
pub struct Boundary {
    base: OwnedFd,
    path: PathBuf,
    deny: DenyList,
}

/// An open regular file or directory, with the stat of the same descriptor.
#[derive(Debug)]
pub struct OpenFile {
    descriptor: OwnedFd,
    stat: Stat,
}

/// The file opened by a search, and the suffix by which it was found.
#[derive(Debug)]
pub struct FileMatch {
    /// The open file.
    pub file: OpenFile,
    /// The index of the suffix among the given ones.
    pub suffix: usize,
}

/// The type of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file, whose bytes can be read.
    Regular,
    /// A directory, whose entries can be listed.
    Directory,
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The name of the entry: one component.
    pub name: Vec<u8>,
    /// Whether the directory reports the entry as a directory. A symbolic link is not one.
    pub is_directory: bool,
}

impl Boundary {
    /// Opens the folder at `path`, relative to the working directory. Names in `deny` are refused.
    ///
    /// # Errors
    /// The system's error: the folder is missing, is not a folder, or must not be read.
    pub fn new(path: &Path, deny: DenyList) -> Result<Self, Error> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let base = fs::openat(CWD, path, flags, Mode::empty())
            .map_err(|errno| Error::system("open folder", path.as_os_str().as_bytes(), errno))?;
        Ok(Self { base, path: path.to_owned(), deny })
    }

    /// The folder's path, as given.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens `name` beneath the folder, with one system call to open and one to stat.
    ///
    /// # Errors
    /// A refusal ([`Error::refusal`]) for a denied name or one that leads outside; otherwise the system's
    /// error ([`Error::errno`]). Anything but a regular file or a directory is `EACCES`.
    pub fn open(&self, name: &Name) -> Result<OpenFile, Error> {
        if self.deny.denies(name) {
            return Err(Error::refused(name.as_bytes(), Refusal::Denied));
        }
        let file = self.open_bytes(name.as_bytes())?;
        refuse_short_name(name, &file)?;
        if name.is_directory() && file.kind() != FileKind::Directory {
            return Err(Error::system("open", name.as_bytes(), Errno::NOTDIR));
        }
        Ok(file)
    }

    /// Opens the first `name` + suffix that exists as a regular file, in the given order.
    ///
    /// # Errors
    /// See [`open`](Self::open); if no candidate exists, the error is `ENOENT` for `name`. Any error other
    /// than "not found" ends the search, so that an unreadable file is not replaced by another one.
    pub fn search(&self, name: &Name, suffixes: &[&[u8]]) -> Result<FileMatch, Error> {
        if self.deny.denies(name) {
            return Err(Error::refused(name.as_bytes(), Refusal::Denied));
        }
        let mut candidate = name.as_bytes().to_vec();
        for (suffix, bytes) in suffixes.iter().enumerate() {
            candidate.truncate(name.as_bytes().len());
            candidate.extend_from_slice(bytes);
            match self.open_bytes(&candidate) {
                Ok(file) if file.kind() == FileKind::Regular => {
                    refuse_short_name(name, &file)?;
                    return Ok(FileMatch { file, suffix });
                }
                Ok(_) => {}
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::system("open", name.as_bytes(), Errno::NOENT))
    }

    fn open_bytes(&self, name: &[u8]) -> Result<OpenFile, Error> {
        // With NONBLOCK, opening a FIFO does not wait for a writer.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let path = if name.is_empty() { b".".as_slice() } else { name };
        let opened = match beneath::open(&self.base, path, flags, within) {
            Err(Errno::XDEV) => self.open_by_absolute_link(path, flags),
            opened => opened,
        };
        let descriptor = opened.map_err(|errno| match errno {
            // `openat2` returns these errors for links that lead outside and for magic links.
            Errno::XDEV | Errno::LOOP => Error::refused(name, Refusal::OutsideBase),
            errno => Error::system("open", name, errno),
        })?;
        OpenFile::new(descriptor).map_err(|errno| Error::system("open", name, errno))
    }

    /// Opens the target of a link that is absolute or leads through the outside. The target is only located;
    /// the open starts beneath the folder again and follows no link.
    fn open_by_absolute_link(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let look = OFlags::PATH | OFlags::CLOEXEC;
        let anywhere = ResolveFlags::NO_MAGICLINKS;
        // Whether a file outside exists is not revealed.
        let target = beneath::open(&self.base, path, look, anywhere);
        let target = target.map_err(|_| Errno::XDEV)?;
        let (target, base) = (place_of(&target)?, place_of(&self.base)?);
        let inside = Path::new(OsStr::from_bytes(&target)).strip_prefix(OsStr::from_bytes(&base));
        let inside = inside.map_err(|_| Errno::XDEV)?;
        let is_denied = |part: &OsStr| self.deny.denies_component(part.as_bytes());
        if inside.iter().any(is_denied) {
            return Err(Errno::XDEV);
        }
        let inside = if inside.as_os_str().is_empty() { Path::new(".") } else { inside };
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        beneath::open(&self.base, inside.as_os_str().as_bytes(), flags, within)
    }
}

/// Refuses a short name on a file system that has them, because it may stand for another name, which may be
/// denied.
fn refuse_short_name(name: &Name, file: &OpenFile) -> Result<(), Error> {
    let is_kept =
        || fs::fstatfs(file).is_ok_and(|system| HAVE_SHORT_NAMES.contains(&system.f_type));
    match name.has_short_form() && is_kept() {
        true => Err(Error::refused(name.as_bytes(), Refusal::ShortName)),
        false => Ok(()),
    }
}

/// File systems of Windows, by their magic numbers (statfs(2)): FAT, two drivers of NTFS, and three network
/// file systems.
const HAVE_SHORT_NAMES: [i64; 6] =
    [0x4d44, 0x5346_544e, 0x7366_746e, 0x517b, 0xff53_4d42, 0xfe53_4d42];

/// Returns the path of an open file according to the kernel.
fn place_of(file: &OwnedFd) -> Result<Vec<u8>, Errno> {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(fs::readlinkat(CWD, link, Vec::new())?.into_bytes())
}

impl OpenFile {
    fn new(descriptor: OwnedFd) -> Result<Self, Errno> {
        let stat = fs::fstat(&descriptor)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile | FileType::Directory => Ok(Self { descriptor, stat }),
            _ => Err(Errno::ACCESS),
        }
    }

    /// The type of the file.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        match FileType::from_raw_mode(self.stat.st_mode) {
            FileType::Directory => FileKind::Directory,
            _ => FileKind::Regular,
        }
    }

    /// The size when the file was opened, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        u64::try_from(self.stat.st_size).unwrap_or(0)
    }

    /// The time of the last modification: seconds and nanoseconds since 1970.
    #[must_use]
    pub fn modified(&self) -> (i64, u32) {
        let nanoseconds = u32::try_from(self.stat.st_mtime_nsec).unwrap_or(0);
        (self.stat.st_mtime, nanoseconds)
    }

    /// The device and inode, which are equal for all names of a file.
    #[must_use]
    pub fn identity(&self) -> (u64, u64) {
        (self.stat.st_dev, self.stat.st_ino)
    }

    /// Returns the entries of a directory, sorted by name, without `.` and `..`.
    ///
    /// # Errors
    /// The system's error; `EOVERFLOW` for more than `entries_max` entries.
    pub fn listing(&self, entries_max: usize) -> Result<Vec<Entry>, Error> {
        let failed = |errno| Error::system("list", b".", errno);
        let mut entries = Vec::new();
        for entry in Dir::read_from(&self.descriptor).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            if entries.len() == entries_max {
                return Err(failed(Errno::OVERFLOW));
            }
            let is_directory = entry.file_type() == FileType::Directory;
            entries.push(Entry { name: name.to_vec(), is_directory });
        }
        entries.sort_unstable();
        Ok(entries)
    }

    /// Returns the type, the size in bytes, and the time of the last modification, in seconds since 1970, of
    /// an entry of a directory. Links are followed beneath the directory only; `None` for links that lead
    /// outside, and for anything but files and directories.
    #[must_use]
    pub fn look_at(&self, entry: &Entry) -> Option<(FileKind, u64, i64)> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let mut stat =
            fs::statat(&self.descriptor, &*entry.name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
            let descriptor = &self.descriptor;
            let target = beneath::open(descriptor, &entry.name, flags, within).ok()?;
            stat = fs::fstat(target).ok()?;
        }
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => FileKind::Directory,
            FileType::RegularFile => FileKind::Regular,
            _ => return None,
        };
        Some((kind, u64::try_from(stat.st_size).unwrap_or(0), stat.st_mtime))
    }

    /// Returns the descriptor as a file, for `read` and `sendfile`.
    #[must_use]
    pub fn into_file(self) -> File {
        File::from(self.descriptor)
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    fn boundary() -> (tempfile::TempDir, Boundary) {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("base");
        std::fs::create_dir_all(base.join("inside/deep")).unwrap();
        std::fs::write(folder.path().join("secret"), "outside").unwrap();
        std::fs::write(base.join("inside/file.txt"), "inside").unwrap();
        let boundary = Boundary::new(&base, DenyList::new().hidden()).unwrap();
        (folder, boundary)
    }

    fn name(path: &str) -> Name {
        Name::from_url_path(path.as_bytes()).unwrap()
    }

    #[test]
    fn a_file_is_opened_with_its_own_stat() {
        let (_folder, boundary) = boundary();
        let file = boundary.open(&name("/inside/file.txt")).unwrap();
        assert_eq!((file.kind(), file.size_bytes()), (FileKind::Regular, 6));
        let mut text = String::new();
        file.into_file().read_to_string(&mut text).unwrap();
        assert_eq!(text, "inside");
    }

    #[test]
    fn links_are_followed_inside_and_refused_outside() {
        let (folder, boundary) = boundary();
        let base = folder.path().join("base");
        symlink("inside/file.txt", base.join("within")).unwrap();
        symlink("../secret", base.join("escape")).unwrap();
        symlink("/etc/passwd", base.join("absolute")).unwrap();
        symlink("/proc/self/root", base.join("magic")).unwrap();
        assert!(boundary.open(&name("/within")).is_ok());
        for escape in ["/escape", "/absolute", "/magic/etc/passwd"] {
            let error = boundary.open(&name(escape)).unwrap_err();
            assert_eq!(error.refusal(), Some(Refusal::OutsideBase), "{escape}");
        }
    }

    #[test]
    fn absolute_links_are_followed_while_they_lead_inside() {
        let (folder, boundary) = boundary();
        let base = folder.path().join("base");
        std::fs::write(base.join(".hidden"), "hidden").unwrap();
        symlink(base.join("inside/file.txt"), base.join("file")).unwrap();
        symlink(base.join("inside"), base.join("folder")).unwrap();
        symlink(&base, base.join("itself")).unwrap();
        symlink("../base/inside", base.join("around")).unwrap();
        for inside in ["/file", "/folder/file.txt", "/around/file.txt", "/itself/file", "/itself/"]
        {
            assert!(boundary.open(&name(inside)).is_ok(), "{inside}");
        }
        symlink(base.join(".hidden"), base.join("hidden")).unwrap();
        symlink(base.join("../secret"), base.join("outside")).unwrap();
        symlink(folder.path().join("base2"), base.join("none")).unwrap();
        std::fs::create_dir(folder.path().join("base-beside")).unwrap();
        symlink(folder.path().join("base-beside"), base.join("beside")).unwrap();
        for outside in ["/hidden", "/outside", "/none", "/beside", "/itself/outside"] {
            let error = boundary.open(&name(outside)).unwrap_err();
            assert_eq!(error.refusal(), Some(Refusal::OutsideBase), "{outside}");
        }
    }

    #[test]
    fn a_cycle_of_links_is_refused_and_does_not_hang() {
        let (folder, boundary) = boundary();
        symlink("b", folder.path().join("base/a")).unwrap();
        symlink("a", folder.path().join("base/b")).unwrap();
        assert!(boundary.open(&name("/a")).is_err());
    }

    #[test]
    fn a_fifo_is_refused_at_once() {
        let (folder, boundary) = boundary();
        let fifo = folder.path().join("base/fifo");
        fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert_eq!(boundary.open(&name("/fifo")).unwrap_err().errno(), Some(13));
    }

    #[test]
    fn a_slash_at_the_end_asks_for_a_directory() {
        let (_folder, boundary) = boundary();
        assert!(boundary.open(&name("/inside/")).is_ok());
        assert!(boundary.open(&name("/inside/file.txt/")).unwrap_err().is_not_found());
        assert!(boundary.open(&name("/inside/file.txt/x")).unwrap_err().is_not_found());
    }

    #[test]
    fn the_search_opens_the_first_suffix_that_exists() {
        let (folder, boundary) = boundary();
        std::fs::write(folder.path().join("base/inside/file.txt.gz"), "gz").unwrap();
        let suffixes: [&[u8]; 3] = [b".br", b".gz", b""];
        let found = boundary.search(&name("/inside/file.txt"), &suffixes).unwrap();
        assert_eq!((found.suffix, found.file.size_bytes()), (1, 2));
        let missing = boundary.search(&name("/inside/none"), &suffixes).unwrap_err();
        assert!(missing.is_not_found());
        let directory = boundary.search(&name("/inside"), &[b"".as_slice()]).unwrap_err();
        assert!(directory.is_not_found());
    }

    #[test]
    fn a_denied_name_is_refused_before_the_disk_is_asked() {
        let (_folder, boundary) = boundary();
        let error = boundary.open(&name("/.env")).unwrap_err();
        assert_eq!(error.refusal(), Some(Refusal::Denied));
        assert_eq!(error.to_string(), "refused \".env\": the name is on the deny list");
    }

    #[test]
    fn a_listing_is_sorted_and_limited() {
        let (_folder, boundary) = boundary();
        let inside = boundary.open(&name("/inside")).unwrap();
        let names: Vec<_> = inside.listing(10).unwrap();
        assert_eq!(names[0], Entry { name: b"deep".to_vec(), is_directory: true });
        assert_eq!(names[1], Entry { name: b"file.txt".to_vec(), is_directory: false });
        assert!(inside.listing(1).is_err());
    }

    #[test]
    fn an_error_names_the_file_and_the_cause() {
        let (_folder, boundary) = boundary();
        let error = boundary.open(&name("/inside/none")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot open inside/none: No such file or directory (os error 2)"
        );
    }
}
