//! Changes of folders on Windows, as `ReadDirectoryChangesW` tells them.
//!
//! Each folder on the way to a base is watched for the one entry that the path goes on with, as on
//! Linux. A path that leads through a link or is spelled with a short name is not watched, because
//! changes would be told under another name. A change is told a moment after it was made.

use std::collections::{HashMap, HashSet};

use thruway_sys::changes::{Changed, Changes};

use super::{Calls, System, nt_path};
use crate::expand::windows::{Form, Place};
use crate::fold::fold;
use crate::name::is_short_name;
use crate::search::Watch;
use crate::wtf8;

/// Watches folders through `ReadDirectoryChangesW`, from a thread that has to outlive it.
#[derive(Debug, Default)]
pub struct DirectoryChanges {
    system: System,
    /// By the folder's path, folded.
    folders: HashMap<Vec<u8>, Watched>,
}

/// A folder, and who wants to know of it.
#[derive(Debug)]
struct Watched {
    changes: Changes,
    /// Bases that go through it, by the entry that they go on with, folded.
    through: HashMap<Vec<u8>, HashSet<usize>>,
    /// Bases that are it.
    is: HashSet<usize>,
}

impl DirectoryChanges {
    /// Watches nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Watches every folder from the drive's root to `base`, which is absolute; nothing, if one of them
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
            let watched = self.watch_folder(&folder)?;
            watched.through.entry(fold(component).into_owned()).or_default().insert(number);
            if !folder.ends_with(b"\\") {
                folder.push(b'\\');
            }
            folder.extend_from_slice(component);
            match self.system.attributes(&nt_path(&wtf8::to_wide(&folder))) {
                Ok(found) if found.is_link => return None,
                Ok(found) if found.is_directory => {}
                // What is not there yet will be told by the folder that it will be in.
                _ => return Some(()),
            }
        }
        self.watch_folder(&folder)?.is.insert(number);
        Some(())
    }

    fn watch_folder(&mut self, folder: &[u8]) -> Option<&mut Watched> {
        let key = fold(folder).into_owned();
        if !self.folders.contains_key(&key) {
            let open = self.system.open(&nt_path(&wtf8::to_wide(folder))).ok()?;
            let keeps_stamps = self.system.keeps_stamps(&open).unwrap_or(false);
            self.system.close(open);
            if !keeps_stamps {
                return None;
            }
            let mut path = wtf8::to_wide(folder);
            path.push(0);
            let changes = Changes::new(&path).ok()?;
            let watched = Watched { changes, through: HashMap::new(), is: HashSet::new() };
            self.folders.insert(key.clone(), watched);
        }
        self.folders.get_mut(&key)
    }

    /// Forgets what was watched for a base alone.
    fn unwatch(&mut self, number: usize) {
        self.folders.retain(|_, watched| {
            watched.is.remove(&number);
            watched.through.values_mut().for_each(|numbers| _ = numbers.remove(&number));
            watched.through.retain(|_, numbers| !numbers.is_empty());
            !watched.is.is_empty() || !watched.through.is_empty()
        });
    }
}

impl Watched {
    fn all(&self) -> impl Iterator<Item = usize> {
        self.is.iter().chain(self.through.values().flatten()).copied()
    }

    /// Adds the bases that a change of entries concerns.
    fn add_concerned(&self, names: &[Vec<u16>], numbers: &mut Vec<usize>) {
        numbers.extend(&self.is);
        let names = names.iter().map(|name| wtf8::from_wide(name));
        let through = names.filter_map(|name| self.through.get(&*fold(&name)));
        numbers.extend(through.flatten());
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

    fn changed(&mut self, numbers: &mut Vec<usize>) {
        self.folders.retain(|_, watched| match watched.changes.take() {
            Ok(None) => true,
            Ok(Some(Changed::Names(names))) => {
                watched.add_concerned(&names, numbers);
                true
            }
            Ok(Some(Changed::Anything)) => {
                numbers.extend(watched.all());
                true
            }
            // The folder is gone, or the thread that watched it. Watching begins anew.
            Err(_) => {
                numbers.extend(watched.all());
                false
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native;
    use crate::search::{Nt, Places, Plan, Rules, Search, Watched};
    use std::fs;
    use std::path::Path;
    use std::time::{Duration, Instant};

    type Index = Watched<Nt<System>, DirectoryChanges>;

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
            Watched::new(nt, DirectoryChanges::new(), self.plan.bases())
        }

        fn find(&self, index: &mut Index) -> Vec<String> {
            let found = Search::new(&self.plan, index).map(|found| found.unwrap().path);
            let base = native::bytes(self.folder.path().as_os_str()).len() + 1;
            found.map(|path| String::from_utf8(path[base..].to_vec()).unwrap()).collect()
        }

        /// Waits until the system has told of the change, for a while.
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
    fn a_folder_that_comes_is_told() {
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
}
