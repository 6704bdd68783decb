//! The path of an application's pack.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use crate::disk;

/// Files that mark the folder of an application.
const MARKS: [&str; 3] = ["Gemfile", "gems.rb", "config.ru"];

/// The subfolder of the user's cache for packs of programs that do not belong to an application.
const OUTSIDE: &str = "outside";

/// The most packs in [`OUTSIDE`]. Every working directory gets a pack of its own, and most are never used
/// again.
const OUTSIDE_PACKS_MAX: usize = 20;

/// The application that a program belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Application {
    /// The folder of the application, or the working directory if there is no application.
    pub folder: PathBuf,
    /// Whether the folder is marked as an application's.
    pub is_marked: bool,
}

/// The variables that determine the path.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// `BUNDLE_GEMFILE`, which selects the application.
    pub gemfile: Option<PathBuf>,
    /// `XDG_CACHE_HOME`, if absolute; on Windows otherwise `LOCALAPPDATA`.
    pub cache_home: Option<PathBuf>,
    /// `HOME`; on Windows otherwise `USERPROFILE`.
    pub home: Option<PathBuf>,
}

impl Environment {
    /// Reads the variables through `variable`.
    pub fn from_environment(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let of_windows = |name| absolute(name).filter(|_| cfg!(windows));
        Self {
            gemfile: absolute("BUNDLE_GEMFILE"),
            cache_home: absolute("XDG_CACHE_HOME").or_else(|| of_windows("LOCALAPPDATA")),
            home: absolute("HOME").or_else(|| of_windows("USERPROFILE")),
        }
    }

    /// Returns the application that `start` belongs to: the folder of `BUNDLE_GEMFILE`, or else the nearest
    /// folder above `start` with a Gemfile or `config.ru`, or else `start` itself.
    #[must_use]
    pub fn application(&self, start: &Path) -> Application {
        let has_mark = |folder: &&Path| MARKS.iter().any(|mark| is_file(&folder.join(mark)));
        let named = self.gemfile.as_deref().and_then(Path::parent);
        match named.or_else(|| start.ancestors().find(has_mark)) {
            Some(folder) => Application { folder: folder.to_owned(), is_marked: true },
            None => Application { folder: start.to_owned(), is_marked: false },
        }
    }

    /// Returns the path of an application's pack for a program with the given identity.
    ///
    /// An application with a `tmp` folder, such as a Rails application, keeps its pack in
    /// `tmp/cache/thruway`. The `tmp` folder must not be writable by all users, as `/tmp` is for an
    /// application in `/`. Otherwise the pack is kept in the user's cache, provided that the cache belongs to
    /// this user. The name includes the identity, so that two versions of Ruby do not keep replacing one
    /// file. `None` if neither folder can be used.
    #[must_use]
    pub fn cache_path(&self, application: &Application, identity: &[u8]) -> Option<PathBuf> {
        let Application { folder, is_marked } = application;
        let program = xxh3_64(identity);
        let own = folder.join("tmp");
        if is_private_folder(&own) {
            return Some(own.join(format!("cache/thruway/{program:016x}.thruway-pack")));
        }
        let home = self.home.as_ref().map(|home| home.join(".cache"));
        let mut cache = self.cache_home.clone().or(home).filter(|cache| is_own(cache))?;
        cache.push("thruway");
        if !is_marked {
            cache.push(OUTSIDE);
        }
        let application = xxh3_64(&disk::path_bytes(folder));
        Some(cache.join(format!("{application:016x}-{program:016x}.thruway-pack")))
    }

    /// Whether there is nowhere to keep a pack for a program started in `folder`.
    #[must_use]
    pub fn keeps_no_pack(&self, folder: &Path) -> bool {
        self.cache_path(&self.application(folder), b"").is_none()
    }
}

/// Removes the oldest packs beside this one, if it does not belong to an application. A process that uses a
/// removed pack has it mapped and is not disturbed.
pub(crate) fn remove_oldest_beside(pack: &Path) {
    let Some(folder) =
        pack.parent().filter(|folder| folder.ends_with(Path::new("thruway").join(OUTSIDE)))
    else {
        return;
    };
    let is_pack = |path: &PathBuf| path.extension().is_some_and(|suffix| suffix == "thruway-pack");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let dated = |path: PathBuf| Some((std::fs::metadata(&path).ok()?.modified().ok()?, path));
    let mut packs: Vec<_> =
        entries.map(|entry| entry.path()).filter(is_pack).filter_map(dated).collect();
    packs.sort_unstable_by(|a, b| b.cmp(a));
    for (_, path) in packs.into_iter().skip(OUTSIDE_PACKS_MAX).filter(|(_, path)| path != pack) {
        // Another process may have removed the file.
        let _ = std::fs::remove_file(path);
    }
}

/// Whether the folder exists and denies at least some users the right to create files in it.
#[cfg(unix)]
fn is_private_folder(folder: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(folder).is_ok_and(|stat| stat.is_dir() && stat.mode() & 0o002 == 0)
}

/// Whether the folder exists and no other user may create files in it. Outside of a user's profile, a folder is often
/// open to all users.
#[cfg(windows)]
fn is_private_folder(folder: &Path) -> bool {
    thruway_sys::owner::is_private_folder(folder)
}

/// Whether a folder, or its nearest existing parent, belongs to this user. Root may run with another user's
/// `HOME`.
#[cfg(unix)]
fn is_own(folder: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let stat = folder.ancestors().find_map(|folder| std::fs::metadata(folder).ok());
    stat.is_some_and(|stat| stat.uid() == disk::user())
}

/// Whether a folder, or its nearest existing parent, is writable for this user alone.
#[cfg(windows)]
fn is_own(folder: &Path) -> bool {
    let nearest = folder.ancestors().find(|folder| std::fs::metadata(folder).is_ok());
    nearest.is_some_and(is_private_folder)
}

fn is_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|stat| stat.is_file())
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    /// Describes a folder that is an application's or not.
    fn application(folder: &Path, is_marked: bool) -> Application {
        Application { folder: folder.to_owned(), is_marked }
    }

    #[test]
    fn the_application_is_the_nearest_marked_folder() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("app/models");
        std::fs::create_dir_all(&deep).unwrap();
        let environment = Environment::default();
        assert_eq!(environment.application(&deep), application(&deep, false));
        std::fs::write(folder.path().join("Gemfile"), "").unwrap();
        assert_eq!(environment.application(&deep), application(folder.path(), true));
        let gemfile = Some("/other/Gemfile".into());
        let environment = Environment { gemfile, ..Environment::default() };
        assert_eq!(environment.application(&deep), application(Path::new("/other"), true));
    }

    #[test]
    fn the_pack_is_kept_with_the_application_or_in_the_cache() {
        let folder = tempfile::tempdir().unwrap();
        let of_folder = application(folder.path(), true);
        let none = Environment::default();
        assert_eq!(none.cache_path(&of_folder, b"a"), None);
        assert!(none.keeps_no_pack(folder.path()));
        let user = tempfile::tempdir().unwrap();
        let home = Environment { home: Some(user.path().into()), ..Environment::default() };
        let pack = home.cache_path(&of_folder, b"a").unwrap();
        assert_eq!(pack.parent().unwrap(), user.path().join(".cache/thruway"));
        std::fs::create_dir(folder.path().join("tmp")).unwrap();
        let pack = home.cache_path(&of_folder, b"a").unwrap();
        assert!(pack.starts_with(folder.path().join("tmp/cache/thruway")), "{pack:?}");
        assert_ne!(home.cache_path(&of_folder, b"b").unwrap(), pack);
    }

    #[test]
    fn packs_outside_of_applications_do_not_pile_up() {
        let user = tempfile::tempdir().unwrap();
        let home = Environment { home: Some(user.path().into()), ..Environment::default() };
        let folder = |number: usize| application(&PathBuf::from(format!("/x/{number}")), false);
        let pack = |number| home.cache_path(&folder(number), b"a").unwrap();
        let of_application = home.cache_path(&application(Path::new("/x"), true), b"a").unwrap();
        std::fs::create_dir_all(pack(0).parent().unwrap()).unwrap();
        std::fs::write(&of_application, "").unwrap();
        let second = std::time::Duration::from_secs(1);
        for number in 0..OUTSIDE_PACKS_MAX + 3 {
            let file = std::fs::File::create(pack(number)).unwrap();
            let age = second * u32::try_from(1000 - number).unwrap();
            file.set_modified(std::time::SystemTime::now() - age).unwrap();
            remove_oldest_beside(&pack(number));
        }
        let is_there = |number: &usize| std::fs::metadata(pack(*number)).is_ok();
        let left: Vec<_> = (0..OUTSIDE_PACKS_MAX + 3).filter(is_there).collect();
        assert_eq!(left, (3..OUTSIDE_PACKS_MAX + 3).collect::<Vec<_>>());
        remove_oldest_beside(&of_application);
        assert!(std::fs::metadata(&of_application).is_ok());
    }

    #[test]
    fn a_folder_that_every_user_may_write_keeps_no_pack() {
        let (folder, user) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let tmp = folder.path().join("tmp");
        std::fs::create_dir(&tmp).unwrap();
        std::fs::set_permissions(&tmp, Permissions::from_mode(0o1777)).unwrap();
        let home = Environment { home: Some(user.path().into()), ..Environment::default() };
        let pack = home.cache_path(&application(folder.path(), true), b"a").unwrap();
        assert!(pack.starts_with(user.path()), "{pack:?}");
        let root = application(Path::new("/"), false);
        assert!(home.cache_path(&root, b"a").unwrap().starts_with(user.path()));
    }

    #[test]
    fn a_relative_environment_is_left_out() {
        let environment = Environment::from_environment(|name| Some(format!("./{name}").into()));
        assert!(environment.home.is_none() && environment.gemfile.is_none());
    }
}
