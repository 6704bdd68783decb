//! Reports changes of folders on Windows, by `ReadDirectoryChangesW`.
//!
//! Each folder on the way to a base is watched for the entry that continues the path, as on Linux. A path
//! through a link or with a short name is not watched, because its changes would be reported under another
//! name. Changes are reported with a slight delay.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use thruway_sys::changes::{Changes, FolderChange};

use super::{Calls, System, nt_path};
use crate::expand::windows::{Form, Place};
use crate::fold::fold;
use crate::name::is_short_name;
use crate::search::Watch;
use crate::search::interests::{Interests, Onward};
use crate::wtf8;

/// Watches folders by `ReadDirectoryChangesW`, from a thread that must outlive the value.
#[derive(Debug, Default)]
pub struct DirectoryChanges {
    system: System,
    /// Watched folders by path, folded.
    folders: HashMap<Vec<u8>, WatchedFolder>,
    /// The folders of each base, from the root of the drive on.
    ways: HashMap<usize, Vec<(Vec<u8>, Onward)>>,
}

/// A folder with the bases that it affects.
#[derive(Debug)]
struct WatchedFolder {
    changes: Changes,
    /// Affected bases, by folded entry.
    interests: Interests,
}

impl DirectoryChanges {
    /// Creates a value that watches nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Watches every folder from the root of the drive to `base`, which is absolute; `None` if one of them
    /// cannot be watched.
    fn walk(&mut self, number: usize, base: &[u8]) -> Option<()> {
        let full = Place::new(base).expand(base);
        let Form::Drive { letter } = Form::of(full.as_slice()) else { return None };
        let root = letter + 2;
        let mut folder = full[..root].to_vec();
        for component in full[root..].split(|byte| *byte == b'\\').filter(|c| !c.is_empty()) {
            if is_short_name(component) {
                return None;
            }
            self.watch_folder(number, &folder, Some(fold(component).into_owned()))?;
            if !folder.ends_with(b"\\") {
                folder.push(b'\\');
            }
            folder.extend_from_slice(component);
            match self.system.attributes(&nt_path(&wtf8::to_wide(&folder))) {
                Ok(found) if found.is_link => return None,
                Ok(found) if found.is_directory => {}
                // A missing component will be reported by its parent's watch.
                _ => return Some(()),
            }
        }
        self.watch_folder(number, &folder, None)
    }

    fn watch_folder(&mut self, number: usize, folder: &[u8], onward: Onward) -> Option<()> {
        let key = fold(folder).into_owned();
        let watched = match self.folders.entry(key.clone()) {
            Entry::Occupied(watched) => watched.into_mut(),
            Entry::Vacant(place) => place.insert(WatchedFolder::new(&mut self.system, folder)?),
        };
        watched.interests.insert(number, onward.clone());
        self.ways.entry(number).or_default().push((key, onward));
        Some(())
    }

    /// Removes the watches that only this base needs.
    fn unwatch(&mut self, number: usize) {
        for (key, onward) in self.ways.remove(&number).unwrap_or_default() {
            let Some(watched) = self.folders.get_mut(&key) else { continue };
            watched.interests.remove(number, onward);
            if watched.interests.is_empty() {
                self.folders.remove(&key);
            }
        }
    }
}

impl WatchedFolder {
    /// Starts to watch a folder, if its file system keeps stamps.
    fn new(system: &mut System, folder: &[u8]) -> Option<Self> {
        let mut path = wtf8::to_wide(folder);
        let open = system.open(&nt_path(&path)).ok()?;
        let keeps_stamps = system.keeps_stamps(&open).unwrap_or(false);
        system.close(open);
        path.push(0);
        let changes = keeps_stamps.then(|| Changes::new(&path).ok())??;
        Some(Self { changes, interests: Interests::default() })
    }

    /// Adds the numbers of the bases that a change of these entries affects.
    fn add_concerned(&self, names: &[Vec<u16>], numbers: &mut Vec<usize>) {
        numbers.extend(self.interests.at_folder());
        for name in names {
            numbers.extend(self.interests.through(&fold(&wtf8::from_wide(name))));
        }
    }
}

impl Watch for DirectoryChanges {
    fn watch(&mut self, number: usize, base: &[u8]) -> bool {
        self.unwatch(number);
        let is_watched = Form::of(base).is_absolute() && self.walk(number, base).is_some();
        if !is_watched {
            self.unwatch(number);
        }
        is_watched
    }

    /// Also stops watching the affected bases, until the next call of `watch`: a handle still reports changes of a
    /// renamed folder, while the folder's path may lead to another folder by now.
    fn changed(&mut self, numbers: &mut Vec<usize>) {
        self.folders.retain(|_, watched| match watched.changes.take() {
            Ok(None) => true,
            Ok(Some(FolderChange::Names(names))) => {
                watched.add_concerned(&names, numbers);
                true
            }
            Ok(Some(FolderChange::Anything)) => {
                numbers.extend(watched.interests.all());
                true
            }
            // The folder is gone, or the thread that watched the folder. The next `watch` sets the watch up again.
            Err(_) => {
                numbers.extend(watched.interests.all());
                false
            }
        });
        numbers.iter().for_each(|number| self.unwatch(*number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native;
    use crate::search::{Nt, Places, Plan, Rules, Search, WatchIndex};
    use std::fs;
    use std::path::Path;
    use std::time::{Duration, Instant};

    type Index = WatchIndex<Nt<System>, DirectoryChanges>;

    struct Setting {
        folder: tempfile::TempDir,
        plan: Plan,
    }

    impl Setting {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            for sub in ["a", "deep/b", "c"] {
                fs::create_dir_all(folder.path().join(sub)).unwrap();
            }
            let subs =
                ["a", r"deep\b", "c"].map(|sub| folder.path().join(sub).display().to_string());
            let path = subs.join(";");
            let places = Places { path: path.as_bytes(), before: &[] };
            let plan = Plan::new(&Rules::cmd(b".COM;.EXE;.BAT"), b"x", &places).unwrap();
            Self { folder, plan }
        }

        fn at(&self, sub: &str) -> std::path::PathBuf {
            self.folder.path().join(sub)
        }

        fn index(&self) -> Index {
            let nt = Nt::of_this_process().unwrap();
            WatchIndex::new(nt, DirectoryChanges::new(), self.plan.bases())
        }

        fn find(&self, index: &mut Index) -> Vec<String> {
            let found = Search::new(&self.plan, index).map(|found| found.unwrap().path);
            let base = native::bytes(self.folder.path().as_os_str()).len() + 1;
            found.map(|path| String::from_utf8(path[base..].to_vec()).unwrap()).collect()
        }

        /// Waits for the system to report the change, up to a limit.
        fn expect(&self, index: &mut Index, expected: &[&str]) {
            let start = Instant::now();
            while self.find(index) != expected {
                assert!(start.elapsed() < Duration::from_secs(20), "{:?}", self.find(index));
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    fn program(path: &Path) {
        fs::write(path, "").unwrap();
    }

    #[test]
    fn a_hit_and_a_miss_ask_nothing() {
        let setting = Setting::new();
        program(&setting.at("c/x.exe"));
        let mut index = setting.index();
        assert_eq!(index.watched(), 3);
        let before = crate::search::Lister::lookups(&index);
        assert_eq!(setting.find(&mut index), [r"c\x.EXE"]);
        assert_eq!(crate::search::Lister::lookups(&index), before);
    }

    #[test]
    fn changes_are_taken_in() {
        let setting = Setting::new();
        let mut index = setting.index();
        program(&setting.at("c/x.exe"));
        setting.expect(&mut index, &[r"c\x.EXE"]);
        program(&setting.at(r"deep\b\X.bat"));
        setting.expect(&mut index, &[r"deep\b\x.BAT", r"c\x.EXE"]);
        fs::remove_file(setting.at("c/x.exe")).unwrap();
        setting.expect(&mut index, &[r"deep\b\x.BAT"]);
    }

    #[test]
    fn a_folder_that_is_created_is_reported() {
        let setting = Setting::new();
        fs::remove_dir(setting.at("a")).unwrap();
        let mut index = setting.index();
        assert_eq!(index.watched(), 3);
        assert_eq!(setting.find(&mut index), Vec::<String>::new());
        fs::create_dir(setting.at("new")).unwrap();
        program(&setting.at(r"new\x.com"));
        fs::rename(setting.at("new"), setting.at("a")).unwrap();
        setting.expect(&mut index, &[r"a\x.COM"]);
    }

    #[test]
    fn a_folder_that_is_renamed_is_not_taken_for_its_successor() {
        let setting = Setting::new();
        let [outer, inner] = ["a", r"a\sub"].map(|sub| setting.at(sub).display().to_string());
        let path = format!("{outer};{inner}");
        let places = Places { path: path.as_bytes(), before: &[] };
        let plan = Plan::new(&Rules::cmd(b".COM;.EXE;.BAT"), b"x", &places).unwrap();
        let setting = Setting { plan, ..setting };
        let mut index = setting.index();
        fs::rename(setting.at("a"), setting.at("away")).unwrap();
        fs::create_dir(setting.at("a")).unwrap();
        fs::create_dir(setting.at(r"a\sub")).unwrap();
        program(&setting.at(r"a\x.exe"));
        setting.expect(&mut index, &[r"a\x.EXE"]);
        program(&setting.at(r"away\x.exe"));
        program(&setting.at(r"a\sub\x.bat"));
        setting.expect(&mut index, &[r"a\x.EXE", r"a\sub\x.BAT"]);
        fs::remove_file(setting.at(r"a\x.exe")).unwrap();
        setting.expect(&mut index, &[r"a\sub\x.BAT"]);
    }
}
