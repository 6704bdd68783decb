//! The databases and uploads of a prepared copy, which are restored before each command, so that every command starts
//! with the same state.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The folders in which an application keeps its state.
const STATE: [&str; 2] = ["db", "storage"];

/// The size, the time of the last change and the inode of a file.
type Stamp = (u64, i64, i64, u64);

/// The files of an application's state, and the folder of their copies.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    copy: PathBuf,
    files: BTreeMap<PathBuf, Stamp>,
}

impl Snapshot {
    /// Copies the state of an application.
    pub(super) fn taken(folder: &Path, copy: PathBuf) -> Result<Self, String> {
        let failed = |error: io::Error| format!("{}: {error}", copy.display());
        for name in STATE.iter().filter(|name| folder.join(name).is_dir()) {
            let target = copy.join(name);
            fs::create_dir_all(&target).map_err(failed)?;
            super::copy::copy(&folder.join(name), &target, &[])?;
        }
        let files = files(folder).map_err(failed)?;
        Ok(Self { copy, files })
    }

    /// Restores files that have changed, and removes new ones. Unchanged files are left alone, because the pack holds
    /// their stamps.
    pub(super) fn restore(&self, folder: &Path) -> Result<(), String> {
        let failed = |error: io::Error| format!("{}: {error}", folder.display());
        let now = files(folder).map_err(failed)?;
        for path in now.keys().filter(|path| !self.files.contains_key(*path)) {
            fs::remove_file(folder.join(path)).map_err(failed)?;
        }
        for (path, stamp) in &self.files {
            if now.get(path) == Some(stamp) {
                continue;
            }
            let (from, to) = (self.copy.join(path), folder.join(path));
            let is_same =
                fs::read(&from).is_ok_and(|text| fs::read(&to).is_ok_and(|now| now == text));
            if !is_same {
                fs::create_dir_all(to.parent().unwrap_or(folder)).map_err(failed)?;
                fs::copy(from, to).map_err(failed)?;
            }
        }
        Ok(())
    }
}

/// The files of the state, by their paths in the application.
fn files(folder: &Path) -> io::Result<BTreeMap<PathBuf, Stamp>> {
    let mut found = BTreeMap::new();
    for name in STATE {
        list(folder, Path::new(name), &mut found)?;
    }
    Ok(found)
}

fn list(folder: &Path, below: &Path, found: &mut BTreeMap<PathBuf, Stamp>) -> io::Result<()> {
    let entries = match fs::read_dir(folder.join(below)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let path = below.join(entry.file_name());
        let about = entry.metadata()?;
        if about.is_dir() {
            list(folder, &path, found)?;
        } else if about.is_file() {
            found.insert(path, (about.len(), about.mtime(), about.mtime_nsec(), about.ino()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_what_it_was_and_other_files_are_left_alone() {
        let around = tempfile::tempdir().unwrap();
        let folder = around.path().join("app");
        fs::create_dir_all(folder.join("db")).unwrap();
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        ["db/a.sqlite3", "db/schema.rb", "config.ru"].iter().for_each(|name| write(name, "first"));
        let snapshot = Snapshot::taken(&folder, around.path().join("copy")).unwrap();
        let schema = fs::metadata(folder.join("db/schema.rb")).unwrap().ctime_nsec();
        write("db/a.sqlite3", "second");
        write("db/a.sqlite3-wal", "added");
        write("config.ru", "second");
        snapshot.restore(&folder).unwrap();
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        assert_eq!(read("db/a.sqlite3").as_deref(), Some("first"));
        assert_eq!(read("db/a.sqlite3-wal"), None);
        assert_eq!(read("config.ru").as_deref(), Some("second"));
        assert_eq!(fs::metadata(folder.join("db/schema.rb")).unwrap().ctime_nsec(), schema);
    }
}
