//! Where an application's pack is kept.

use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

/// What marks the folder of an application.
const MARKS: [&str; 3] = ["Gemfile", "gems.rb", "config.ru"];

/// What the path depends on, besides the disk.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// `BUNDLE_GEMFILE`, which names the application.
    pub gemfile: Option<PathBuf>,
    /// `XDG_CACHE_HOME`, where it is absolute.
    pub cache_home: Option<PathBuf>,
    /// `HOME`.
    pub home: Option<PathBuf>,
}

impl Environment {
    /// Those of this process, taken from `variable`.
    pub fn from_environment(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        Self {
            gemfile: absolute("BUNDLE_GEMFILE"),
            cache_home: absolute("XDG_CACHE_HOME"),
            home: absolute("HOME"),
        }
    }

    /// The application that `start` lies in: the folder of the Gemfile, or the nearest folder above
    /// with a Gemfile or a `config.ru`, or `start` itself.
    #[must_use]
    pub fn application(&self, start: &Path) -> PathBuf {
        if let Some(folder) = self.gemfile.as_deref().and_then(Path::parent) {
            return folder.to_owned();
        }
        let is_marked = |folder: &&Path| MARKS.iter().any(|mark| is_file(&folder.join(mark)));
        start.ancestors().find(is_marked).unwrap_or(start).to_owned()
    }

    /// The pack of the application in `folder`, for a program of that identity.
    ///
    /// It is kept in `tmp/cache/thruway` if the application has a `tmp` folder, as Rails applications
    /// do. That folder must not be open to all users, as `/tmp` is, of an application in `/`.
    /// Otherwise it is kept in the user's cache, if that is this user's. The identity is part of the
    /// name, so that two versions of Ruby do not take turns at replacing one file. `None` without a
    /// folder to keep it in.
    #[must_use]
    pub fn cache_path(&self, folder: &Path, identity: &[u8]) -> Option<PathBuf> {
        let program = xxh3_64(identity);
        let own = folder.join("tmp");
        if std::fs::metadata(&own).is_ok_and(|stat| stat.is_dir() && !is_shared(&stat)) {
            return Some(own.join(format!("cache/thruway/{program:016x}.thruway-pack")));
        }
        let home = self.home.as_ref().map(|home| home.join(".cache"));
        let cache = self.cache_home.clone().or(home).filter(|cache| is_own(cache))?.join("thruway");
        let application = xxh3_64(folder.as_os_str().as_bytes());
        Some(cache.join(format!("{application:016x}-{program:016x}.thruway-pack")))
    }

    /// Whether no pack is kept for a program that is started in `folder`.
    #[must_use]
    pub fn keeps_no_pack(&self, folder: &Path) -> bool {
        self.cache_path(&self.application(folder), b"").is_none()
    }
}

/// Whether every user may put files there.
fn is_shared(stat: &Metadata) -> bool {
    stat.mode() & 0o002 != 0
}

/// Whether a folder, or the nearest one above that is there, is this user's: root may run with another
/// user's `HOME`.
fn is_own(folder: &Path) -> bool {
    let stat = folder.ancestors().find_map(|folder| std::fs::metadata(folder).ok());
    let user = rustix::process::geteuid().as_raw();
    stat.is_some_and(|stat| stat.uid() == user)
}

fn is_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|stat| stat.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_application_is_the_nearest_marked_folder() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("app/models");
        std::fs::create_dir_all(&deep).unwrap();
        let environment = Environment::default();
        assert_eq!(environment.application(&deep), deep);
        std::fs::write(folder.path().join("Gemfile"), "").unwrap();
        assert_eq!(environment.application(&deep), folder.path());
        let gemfile = Some("/other/Gemfile".into());
        let environment = Environment { gemfile, ..Environment::default() };
        assert_eq!(environment.application(&deep), Path::new("/other"));
    }

    #[test]
    fn the_pack_is_kept_with_the_application_or_in_the_cache() {
        let folder = tempfile::tempdir().unwrap();
        let none = Environment::default();
        assert_eq!(none.cache_path(folder.path(), b"a"), None);
        assert!(none.keeps_no_pack(folder.path()));
        let user = tempfile::tempdir().unwrap();
        let home = Environment { home: Some(user.path().into()), ..Environment::default() };
        let pack = home.cache_path(folder.path(), b"a").unwrap();
        assert!(pack.starts_with(user.path().join(".cache/thruway")), "{pack:?}");
        std::fs::create_dir(folder.path().join("tmp")).unwrap();
        let pack = home.cache_path(folder.path(), b"a").unwrap();
        assert!(pack.starts_with(folder.path().join("tmp/cache/thruway")), "{pack:?}");
        assert_ne!(home.cache_path(folder.path(), b"b").unwrap(), pack);
    }

    #[test]
    fn a_folder_that_every_user_may_write_keeps_no_pack() {
        let (folder, user) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let tmp = folder.path().join("tmp");
        std::fs::create_dir(&tmp).unwrap();
        std::fs::set_permissions(&tmp, Permissions::from_mode(0o1777)).unwrap();
        let home = Environment { home: Some(user.path().into()), ..Environment::default() };
        let pack = home.cache_path(folder.path(), b"a").unwrap();
        assert!(pack.starts_with(user.path()), "{pack:?}");
        assert!(home.cache_path(Path::new("/"), b"a").unwrap().starts_with(user.path()));
    }

    #[test]
    fn a_relative_environment_is_left_out() {
        let environment = Environment::from_environment(|name| Some(format!("./{name}").into()));
        assert!(environment.home.is_none() && environment.gemfile.is_none());
    }
}
