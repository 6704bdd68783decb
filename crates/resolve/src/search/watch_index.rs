//! An index of folders whose changes the system reports. A miss costs no query, a hit one.
//!
//! Meant for long-running programs, since the setup costs more than a search. Folders that cannot be watched
//! (on a network file system, or unreadable ones) are queried each time, so an answer is never older than the
//! request.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::listings::{Entries, hits_among, listed};
use super::{Bases, Folders, Hits, Lister, LookupFailure, Query};

/// A mechanism of the system that reports changes of folders.
pub trait Watch {
    /// Starts or restarts watching `base` with all folders on its way. Returns `false` if changes will not be
    /// reported.
    fn watch(&mut self, number: usize, base: &[u8]) -> bool;

    /// Adds the numbers of the bases that may have changed since their last call of `watch`.
    fn changed(&mut self, numbers: &mut Vec<usize>);
}

/// A lister with an index of watched folders.
#[derive(Debug)]
pub struct WatchIndex<F, W> {
    folders: F,
    watch: W,
    bases: Bases,
    numbers: HashMap<Vec<u8>, usize>,
    /// The entries of each base; `None` for a base that is not watched.
    entries: Vec<Option<Entries>>,
    /// For each name, the bases that hold an entry with that name, in order.
    holders: HashMap<Vec<u8>, Vec<usize>>,
}

impl<F: Folders, W: Watch> WatchIndex<F, W> {
    /// Watches and lists `bases`, which are those of a [`Plan`](super::Plan).
    pub fn new(folders: F, watch: W, bases: &Bases) -> Self {
        let mut watched = Self {
            folders,
            watch,
            bases: bases.clone(),
            numbers: bases.iter().map(<[u8]>::to_vec).zip(0..).collect(),
            entries: vec![None; bases.len()],
            holders: HashMap::new(),
        };
        (0..bases.len()).for_each(|number| watched.refresh_base(number));
        watched
    }

    /// Returns the number of watched bases. The others are queried each time.
    #[must_use]
    pub fn watched(&self) -> usize {
        self.entries.iter().flatten().count()
    }

    /// Updates the index with all reported changes.
    fn refresh(&mut self) {
        let mut changed = Vec::new();
        self.watch.changed(&mut changed);
        changed.sort_unstable();
        changed.dedup();
        changed.into_iter().for_each(|number| self.refresh_base(number));
    }

    /// Watches and lists a base again. The watch comes first, so that a change during the listing is
    /// reported.
    fn refresh_base(&mut self, number: usize) {
        let base = self.bases.get(number).unwrap_or_default();
        let is_watched = self.watch.watch(number, base);
        let entries = if is_watched { self.list(number) } else { None };
        let old = std::mem::replace(&mut self.entries[number], entries);
        for (name, _) in old.into_iter().flatten() {
            if let Entry::Occupied(mut holders) = self.holders.entry(name) {
                holders.get_mut().retain(|holder| *holder != number);
                if holders.get().is_empty() {
                    holders.remove();
                }
            }
        }
        for (name, _) in self.entries[number].iter().flatten() {
            let holders = self.holders.entry(name.clone()).or_default();
            if let Err(place) = holders.binary_search(&number) {
                holders.insert(place, number);
            }
        }
    }

    /// Lists a base. A missing folder has no entries; a folder that cannot be listed is unknown.
    fn list(&mut self, number: usize) -> Option<Entries> {
        match listed(&mut self.folders, self.bases.get(number).unwrap_or_default()) {
            Ok(entries) => entries,
            Err(LookupFailure::Missing) => Some(Vec::new()),
            Err(_) => None,
        }
    }

    /// Whether the base may hold a wanted name: it is not watched, or has an entry with such a name.
    fn may_hold(&self, number: usize, names: &[&[usize]]) -> bool {
        self.entries[number].is_none()
            || names.iter().any(|holders| holders.binary_search(&number).is_ok())
    }
}

impl<F: Folders, W: Watch> Lister for WatchIndex<F, W> {
    fn look(&mut self, base: &[u8], query: &Query) -> Result<Hits, LookupFailure> {
        let entries = self.numbers.get(base).and_then(|number| self.entries[*number].as_ref());
        match entries {
            Some(entries) if self.folders.list_is_enough() && !query.may_be_short_name() => {
                Ok(hits_among(entries, query))
            }
            _ => self.folders.look(base, query),
        }
    }

    fn skip_to(&mut self, bases: &Bases, from: usize, query: &Query) -> usize {
        self.refresh();
        if query.may_be_short_name() {
            return from;
        }
        let mut name = query.folded().to_vec();
        let holders = query.suffixes().iter().filter_map(|suffix| {
            name.truncate(query.folded().len());
            name.extend_from_slice(suffix);
            self.holders.get(&name).map(Vec::as_slice)
        });
        let holders: Vec<_> = holders.collect();
        let is_same = *bases == self.bases;
        let number = |place: usize| {
            if is_same {
                Some(place)
            } else {
                self.numbers.get(bases.get(place).unwrap_or_default()).copied()
            }
        };
        let is_worth = |place: &usize| number(*place).is_none_or(|n| self.may_hold(n, &holders));
        (from..bases.len()).find(is_worth).unwrap_or(bases.len())
    }

    fn lookups(&self) -> u64 {
        self.folders.lookups()
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use crate::search::{Inotify, Places, Plan, Posix, Rules, Search};
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;
    use thruway_testing::skipped;

    /// Three folders, `a`, `b` and `c`, the second of them behind two links.
    struct Setting {
        folder: tempfile::TempDir,
        path: String,
    }

    impl Setting {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let base = folder.path();
            for sub in ["a", "deep/er/b", "c"] {
                fs::create_dir_all(base.join(sub)).unwrap();
            }
            symlink("deep/er", base.join("link")).unwrap();
            symlink(base.join("link/b"), base.join("b")).unwrap();
            let path = ["a", "b", "c"].map(|sub| base.join(sub).display().to_string()).join(":");
            Self { folder, path }
        }

        fn at(&self, sub: &str) -> std::path::PathBuf {
            self.folder.path().join(sub)
        }

        fn watched(&self) -> WatchIndex<Posix, Inotify> {
            let watch = Inotify::new().unwrap();
            WatchIndex::new(Posix::default(), watch, self.plan("x").bases())
        }

        fn plan(&self, name: &str) -> Plan {
            let places = Places { path: self.path.as_bytes(), before: &[] };
            Plan::new(&Rules::exec(), name.as_bytes(), &places).unwrap()
        }

        /// Returns the folders in which `name` is found, and the number of queries.
        fn find(&self, watched: &mut WatchIndex<Posix, Inotify>, name: &str) -> (Vec<usize>, u64) {
            let before = watched.lookups();
            let plan = self.plan(name);
            let found = Search::new(&plan, watched).map(|found| found.unwrap().base);
            (found.collect(), watched.lookups() - before)
        }
    }

    fn program(path: &Path) {
        fs::write(path, "").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_hit_is_one_question_and_a_miss_none() {
        let setting = Setting::new();
        program(&setting.at("c/x"));
        let mut watched = setting.watched();
        assert_eq!(watched.watched(), 3);
        assert_eq!(setting.find(&mut watched, "x"), (vec![2], 1));
        assert_eq!(setting.find(&mut watched, "none"), (vec![], 0));
    }

    #[test]
    fn a_new_file_in_an_earlier_folder_is_found_first() {
        let setting = Setting::new();
        program(&setting.at("c/x"));
        let mut watched = setting.watched();
        program(&setting.at("link/b/x"));
        assert_eq!(setting.find(&mut watched, "x").0, [1, 2]);
        fs::remove_file(setting.at("b/x")).unwrap();
        fs::rename(setting.at("c/x"), setting.at("a/x")).unwrap();
        assert_eq!(setting.find(&mut watched, "x"), (vec![0], 1 + 3 * 2));
    }

    #[test]
    fn a_file_that_becomes_a_program_is_found() {
        let setting = Setting::new();
        fs::write(setting.at("a/x"), "").unwrap();
        let mut watched = setting.watched();
        assert_eq!(setting.find(&mut watched, "x").0, []);
        program(&setting.at("a/x"));
        assert_eq!(setting.find(&mut watched, "x").0, [0]);
    }

    #[test]
    fn a_link_that_leads_elsewhere_is_followed_again() {
        let setting = Setting::new();
        let mut watched = setting.watched();
        fs::create_dir(setting.at("other")).unwrap();
        fs::create_dir(setting.at("other/b")).unwrap();
        program(&setting.at("other/b/x"));
        assert_eq!(setting.find(&mut watched, "x").0, []);
        fs::remove_file(setting.at("link")).unwrap();
        symlink("other", setting.at("link")).unwrap();
        assert_eq!(setting.find(&mut watched, "x").0, [1]);
        fs::rename(setting.at("other"), setting.at("gone")).unwrap();
        assert_eq!(setting.find(&mut watched, "x").0, []);
        fs::rename(setting.at("gone"), setting.at("other")).unwrap();
        assert_eq!(setting.find(&mut watched, "x").0, [1]);
    }

    #[test]
    fn a_folder_that_goes_and_comes_back_is_reported() {
        let setting = Setting::new();
        program(&setting.at("a/x"));
        let mut watched = setting.watched();
        fs::rename(setting.at("a"), setting.at("away")).unwrap();
        assert_eq!(setting.find(&mut watched, "x").0, []);
        fs::create_dir(setting.at("a")).unwrap();
        program(&setting.at("a/x"));
        assert_eq!(setting.find(&mut watched, "x").0, [0]);
        fs::remove_dir_all(setting.at("a")).unwrap();
        fs::write(setting.at("a"), "no folder").unwrap();
        assert_eq!(setting.find(&mut watched, "x").0, []);
        fs::remove_file(setting.at("a")).unwrap();
        fs::rename(setting.at("away"), setting.at("a")).unwrap();
        assert_eq!(setting.find(&mut watched, "x").0, [0]);
        assert_eq!(watched.watched(), 3);
    }

    #[test]
    fn a_folder_that_cannot_be_watched_is_looked_at_each_time() {
        let setting = Setting::new();
        let places = Places { path: b"/proc/self:/sys", before: &[] };
        let plan = Plan::new(&Rules::exec(), b"x", &places).unwrap();
        let mut watched = WatchIndex::new(Posix::default(), Inotify::new().unwrap(), plan.bases());
        assert_eq!(watched.watched(), 0);
        assert_eq!(Search::new(&plan, &mut watched).next(), None);
        assert_eq!(watched.lookups(), 2);
        assert_eq!(setting.find(&mut watched, "x"), (vec![], 3), "unknown bases too");
    }

    #[test]
    fn a_cycle_of_links_ends_the_search_as_without_an_index() {
        let setting = Setting::new();
        symlink("x", setting.at("a/x")).unwrap();
        symlink("loop", setting.at("loop")).unwrap();
        let base = setting.at("loop").display().to_string();
        for path in [setting.path.as_str(), &base] {
            let places = Places { path: path.as_bytes(), before: &[] };
            let plan = Plan::new(&Rules::exec(), b"x", &places).unwrap();
            let mut watched =
                WatchIndex::new(Posix::default(), Inotify::new().unwrap(), plan.bases());
            let indexed: Vec<_> = Search::new(&plan, &mut watched).collect();
            let plain: Vec<_> = Search::new(&plan, &mut Posix::default()).collect();
            assert_eq!(format!("{indexed:?}"), format!("{plain:?}"));
            assert!(indexed[0].is_err() && indexed.len() == 1);
        }
    }

    /// Runs in namespaces of its own, where mounting is allowed and invisible to other processes.
    #[test]
    fn a_mount_over_a_folder_is_noticed_and_others_cost_nothing() {
        const NAME: &str =
            "search::watch_index::tests::a_mount_over_a_folder_is_noticed_and_others_cost_nothing";
        if std::env::var_os("THRUWAY_MOUNTS").is_some() {
            return mount_over_a_folder();
        }
        let apart = |program: &str| {
            let mut unshare = std::process::Command::new("unshare");
            unshare.args(["--map-root-user", "--mount", program]).env("THRUWAY_MOUNTS", "1");
            unshare
        };
        if !apart("true").output().is_ok_and(|output| output.status.success()) {
            return skipped("no namespaces to mount in");
        }
        let this = std::env::current_exe().unwrap();
        let output = apart(this.to_str().unwrap()).args(["--exact", NAME]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    fn mount_over_a_folder() {
        let mount = |arguments: &[&str], at: &Path| {
            let status = std::process::Command::new("mount").args(arguments).arg(at).status();
            assert!(status.unwrap().success());
        };
        let setting = Setting::new();
        fs::create_dir(setting.at("away")).unwrap();
        program(&setting.at("away/x"));
        let mut watched = setting.watched();
        mount(&["-t", "tmpfs", "none"], &setting.at("c"));
        assert_eq!(setting.find(&mut watched, "x"), (vec![], 2), "one folder listed");
        fs::create_dir(setting.at("far")).unwrap();
        mount(&["-t", "tmpfs", "none"], &setting.at("far"));
        assert_eq!(setting.find(&mut watched, "x"), (vec![], 0), "none");
        let away = setting.at("away").display().to_string();
        mount(&["--bind", &away], &setting.at("deep/er/b"));
        assert_eq!(setting.find(&mut watched, "x"), (vec![1], 1 + 2));
        mount(&["--move", setting.at("b").to_str().unwrap()], &setting.at("a"));
        assert_eq!(setting.find(&mut watched, "x").0, [0]);
    }

    /// Most entries are missing: creating folders takes the disk some time, and a watch for a future folder
    /// is a watch, too.
    #[test]
    fn ten_thousand_entries_are_watched() {
        const ENTRIES: usize = 10_000;
        let folder = tempfile::tempdir().unwrap();
        let at = |number: usize| folder.path().join(number.to_string());
        (0..ENTRIES).step_by(100).for_each(|number| fs::create_dir(at(number)).unwrap());
        let entries = (0..ENTRIES).map(|number| at(number).display().to_string());
        let path = entries.collect::<Vec<_>>().join(":");
        let places = Places { path: path.as_bytes(), before: &[] };
        let plan = Plan::new(&Rules::exec(), b"x", &places).unwrap();
        let mut watched = WatchIndex::new(Posix::default(), Inotify::new().unwrap(), plan.bases());
        assert_eq!(watched.watched(), ENTRIES);
        let before = watched.lookups();
        assert!(Search::new(&plan, &mut watched).next().is_none());
        assert_eq!(watched.lookups(), before);
        for number in [7_000, 6_999] {
            let _ = fs::create_dir(at(number));
            program(&at(number).join("x"));
            let found = Search::new(&plan, &mut watched).next().unwrap().unwrap();
            assert_eq!(found.base, number);
        }
    }

    #[test]
    fn more_changes_than_the_queue_holds_are_all_taken_in() {
        let setting = Setting::new();
        let mut watched = setting.watched();
        let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        let rounds = limit.trim().parse::<usize>().unwrap().min(70_000) / 2 + 100;
        let noise = setting.at("a/noise");
        for _ in 0..rounds {
            fs::write(&noise, "").unwrap();
            fs::remove_file(&noise).unwrap();
        }
        program(&setting.at("c/x"));
        assert_eq!(setting.find(&mut watched, "x").0, [2]);
    }

    #[test]
    fn watches_go_with_what_they_were_for() {
        let setting = Setting::new();
        let mut watched = setting.watched();
        let descriptor = watched.watch.descriptor();
        let watches = || {
            let info = fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).unwrap();
            info.lines().filter(|line| line.starts_with("inotify")).count()
        };
        let before = watches();
        for _ in 0..10 {
            fs::rename(setting.at("a"), setting.at("away")).unwrap();
            setting.find(&mut watched, "x");
            fs::rename(setting.at("away"), setting.at("a")).unwrap();
            setting.find(&mut watched, "x");
        }
        assert_eq!(watches(), before);
    }
}
