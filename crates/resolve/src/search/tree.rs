//! A foreign system's folders below a local folder: an image of Linux, or a tree for Windows.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{self, CWD, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::interpreter::{self, Programs};
use super::posix::{check_runnable, failure};
use super::{Hits, Lister, LookupFailure, Obstacle, Query};
use crate::expand::{Flavour, expand};
use crate::fold::fold;
use crate::{Error, beneath};

/// A folder that stands for the root of the file system, and of every drive and share. Symbolic links stay
/// inside.
///
/// By the rules of Windows, names match in any case, and every file counts as executable.
#[derive(Debug)]
pub struct Tree {
    root: OwnedFd,
    flavour: Flavour,
    lookups: u64,
}

impl Tree {
    /// Opens the folder.
    ///
    /// # Errors
    /// The system's error: the folder is missing, is not a folder, or must not be searched.
    pub fn new(root: &Path, flavour: Flavour) -> Result<Self, Error> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::openat(CWD, root, flags, Mode::empty())
            .map_err(|errno| Error::system("open folder", root.as_os_str().as_bytes(), errno))?;
        Ok(Self { root, flavour, lookups: 0 })
    }

    /// Looks up candidates by their exact names.
    fn look_exactly(&mut self, base: &[u8], query: &Query) -> Result<Hits, LookupFailure> {
        let mut hits = Hits::default();
        for (place, suffix) in query.suffixes().iter().enumerate() {
            let name = [query.stem(), suffix].concat();
            let path = expand(Flavour::Posix, &name, base);
            match self.open(&path[1..], OFlags::PATH) {
                Ok(file) => check_runnable(&file).map(|()| hits.add(place))?,
                Err(errno) if failure(errno) == LookupFailure::Missing => {}
                Err(errno) => return Err(failure(errno)),
            }
        }
        Ok(hits)
    }

    /// Compares every entry of the folder, ignoring case.
    fn look_folded(&mut self, base: &[u8], query: &Query) -> Result<Hits, LookupFailure> {
        let mut hits = Hits::default();
        let folder = self.open_folded(base).map_err(failure)?;
        self.lookups += 1;
        for entry in Dir::read_from(&folder).map_err(failure)? {
            let entry = entry.map_err(failure)?;
            let Some(place) = query.suffix_of_entry(entry.file_name().to_bytes()) else {
                continue;
            };
            let is_directory = match entry.file_type() {
                FileType::Symlink | FileType::Unknown => self.leads_to_directory(&folder, &entry),
                kind => Some(kind == FileType::Directory),
            };
            if is_directory.is_some_and(|is_one| !is_one || query.accepts_directories()) {
                hits.add(place);
            }
        }
        Ok(hits)
    }

    /// Whether the target of an entry is a directory; `None` for a dangling link.
    fn leads_to_directory(&mut self, folder: &OwnedFd, entry: &fs::DirEntry) -> Option<bool> {
        self.lookups += 1;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let file = beneath::open(folder, entry.file_name().to_bytes(), flags, within).ok()?;
        let stat = fs::fstat(&file).ok()?;
        Some(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
    }

    /// Opens the folder that Windows calls `base`, with each component in the case that it has on disk.
    fn open_folded(&mut self, base: &[u8]) -> Result<OwnedFd, Errno> {
        let full = expand(Flavour::Windows, base, br"C:\");
        let mut path = Vec::from(b".");
        for component in components(&full) {
            let parent = path.len();
            path.push(b'/');
            path.extend_from_slice(component);
            match self.open(&path, OFlags::PATH | OFlags::DIRECTORY) {
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
                Ok(_) => continue,
            }
            path.truncate(parent);
            let name = self.spelling(&path, component)?;
            path.push(b'/');
            path.extend_from_slice(&name);
        }
        self.open(&path, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Returns the spelling of `component` in the folder at `path`.
    fn spelling(&mut self, path: &[u8], component: &[u8]) -> Result<Vec<u8>, Errno> {
        let folder = self.open(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        self.lookups += 1;
        let folded = fold(component);
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if fold(name) == folded {
                return Ok(name.to_vec());
            }
        }
        Err(Errno::NOENT)
    }

    fn open(&mut self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        self.lookups += 1;
        let path = if path.is_empty() { b".".as_slice() } else { path };
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        beneath::open(&self.root, path, flags | OFlags::CLOEXEC, within)
    }
}

impl Lister for Tree {
    fn look(&mut self, base: &[u8], query: &Query) -> Result<Hits, LookupFailure> {
        match self.flavour {
            Flavour::Windows => self.look_folded(base, query),
            _ => self.look_exactly(base, query),
        }
    }

    fn lookups(&self) -> u64 {
        self.lookups
    }

    fn obstacle(&mut self, path: &[u8]) -> Option<Obstacle> {
        match self.flavour {
            Flavour::Posix => interpreter::obstacle(path, &mut Below { root: &self.root }),
            _ => None,
        }
    }
}

/// The programs of an image, by their names inside the image.
struct Below<'a> {
    root: &'a OwnedFd,
}

impl Below<'_> {
    fn open(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = expand(Flavour::Posix, path, b"/");
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        beneath::open(self.root, &path[1..], flags | OFlags::CLOEXEC, within)
    }
}

impl Programs for Below<'_> {
    fn check(&mut self, path: &[u8]) -> Result<(), LookupFailure> {
        check_runnable(&self.open(path, OFlags::PATH).map_err(failure)?)
    }

    fn read(&mut self, path: &[u8]) -> Option<File> {
        self.open(path, OFlags::RDONLY | OFlags::NONBLOCK).ok().map(File::from)
    }
}

/// Splits a full path at backslashes. Omits empty and `.` components, the drive, and the prefixes `\\?\` and `\\.\`.
fn components(full: &[u8]) -> impl Iterator<Item = &[u8]> {
    full.split(|byte| *byte == b'\\')
        .filter(|component| !matches!(*component, [] | b"?" | b"." | [.., b':']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::{Places, Plan, Rules, Search};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn tree(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            let mode = if file.ends_with("-") { 0o644 } else { 0o755 };
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        folder
    }

    fn all(root: &Path, rules: &Rules, path: &str, name: &str) -> Vec<String> {
        let mut tree = Tree::new(root, rules.flavour()).unwrap();
        let places = Places { path: path.as_bytes(), before: &[] };
        let plan = Plan::new(rules, name.as_bytes(), &places).unwrap();
        let found = Search::new(&plan, &mut tree).map(|found| found.unwrap().path);
        found.map(|path| String::from_utf8(path).unwrap()).collect()
    }

    #[test]
    fn windows_names_are_found_in_any_case() {
        let folder = tree(&["Tools/Make.exe", "tools2/MAKE.BAT", "tools2/make.exec"]);
        let rules = Rules::cmd(b".EXE;.BAT");
        let found = all(folder.path(), &rules, r"C:\TOOLS;d:\Tools2\.;E:\none", "make");
        assert_eq!(found, [r"C:\TOOLS\make.EXE", r"d:\Tools2\.\make.BAT"]);
    }

    #[test]
    fn within_a_folder_the_order_is_that_of_the_suffixes() {
        let folder = tree(&["b/a.exe", "b/a.bat", "b/a.com", "b/a"]);
        let cmd = all(folder.path(), &Rules::cmd(b".BAT;.EXE"), r"C:\b", "a");
        assert_eq!(cmd, [r"C:\b\a.BAT", r"C:\b\a.EXE"]);
        let zig = all(folder.path(), &Rules::zig(b".EXE"), r"C:\b", "a");
        assert_eq!(zig, [r"C:\b\a", r"C:\b\a.EXE"]);
    }

    #[test]
    fn a_folder_is_a_candidate_of_rust_only() {
        let folder = tree(&["b/a.exe/x", "c/a.exe"]);
        assert_eq!(all(folder.path(), &Rules::cmd(b".EXE"), r"\b;\c", "a"), [r"\c\a.EXE"]);
        let rust = all(folder.path(), &Rules::rust(), r"\b;\c", "a");
        assert_eq!(rust, [r"\b\a.EXE", r"\c\a.EXE"]);
    }

    #[test]
    fn a_link_counts_as_what_it_leads_to() {
        let folder = tree(&["b/real.exe", "d/x"]);
        symlink("real.exe", folder.path().join("b/a.exe")).unwrap();
        symlink("nothing", folder.path().join("b/c.exe")).unwrap();
        symlink("a.exe", folder.path().join("b/loop.exe")).unwrap();
        let rules = Rules::cmd(b".EXE");
        assert_eq!(all(folder.path(), &rules, r"C:\b", "a"), [r"C:\b\a.EXE"]);
        assert!(all(folder.path(), &rules, r"C:\b", "c").is_empty());
    }

    #[test]
    fn an_image_of_linux_is_searched_beneath_its_root() {
        let folder = tree(&["bin/sh", "usr/bin/note-", "usr/bin/sh"]);
        symlink("/usr/bin", folder.path().join("sbin")).unwrap();
        symlink("/../../../bin/sh", folder.path().join("usr/bin/out")).unwrap();
        let found = |name| all(folder.path(), &Rules::exec(), "/sbin:/usr/bin:/bin", name);
        assert_eq!(found("sh"), ["/sbin/sh", "/usr/bin/sh", "/bin/sh"]);
        assert_eq!(found("out"), ["/sbin/out", "/usr/bin/out"]);
        assert!(found("note-").is_empty());
    }
}
