//! The search for a command in a single call, with the environment of this process.

use std::ffi::OsStr;
use std::path::PathBuf;

use crate::search::{Lister, Obstacle, Places, Plan, Rules, Search};
use crate::{Error, native};

/// Returns the file that this process would start as command `name`, by the rules of this system
/// ([`Rules::of_host`]), in the folders of `PATH`.
///
/// The path is relative if the entry of `PATH` or `name` itself is relative.
///
/// # Errors
/// The command does not exist ([`Error::is_not_found`]), must not be executed, or its name contains a NUL
/// byte.
///
/// ```
/// # #[cfg(unix)] {
/// let shell = thruway_resolve::which("sh")?;
/// assert!(shell.ends_with("sh"));
/// let error = thruway_resolve::which("no-such-command").unwrap_err();
/// assert!(error.is_not_found());
/// # }
/// # Ok::<(), thruway_resolve::Error>(())
/// ```
pub fn which(name: impl AsRef<OsStr>) -> Result<PathBuf, Error> {
    find(name.as_ref(), std::env::var_os("PATH").as_deref())
}

/// Like [`which`], in the folders of `path`, which has the form of the variable `PATH`.
///
/// # Errors
/// See [`which`].
///
/// ```
/// # #[cfg(unix)]
/// assert!(thruway_resolve::which_in("sh", "/nowhere").unwrap_err().is_not_found());
/// ```
pub fn which_in(name: impl AsRef<OsStr>, path: impl AsRef<OsStr>) -> Result<PathBuf, Error> {
    find(name.as_ref(), Some(path.as_ref()))
}

/// `ELOOP`, which Linux reports for scripts that are interpreters of each other.
const TOO_MANY_LEVELS: i32 = if cfg!(target_os = "linux") { 40 } else { 62 };

fn find(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, Error> {
    let rules = Rules::of_host();
    let path = path.map(native::bytes);
    let path = path.as_deref().unwrap_or(rules.default_path());
    let name = native::bytes(name);
    let plan = Plan::new(&rules, &name, &Places { path, before: &[] })?;
    let mut lister = lister(&name)?;
    let mut search = Search::new(&plan, &mut lister);
    let (mut passed_over, mut denied) = (None, None);
    while let Some(found) = search.next().transpose()? {
        match search.obstacle(&found) {
            None => return Ok(native::os_string(found.path).into()),
            Some(Obstacle::Missing(_)) => passed_over = passed_over.or(Some(found.path)),
            Some(Obstacle::Denied(_)) => denied = denied.or(Some(found.path)),
            Some(Obstacle::Nested) => return Err(Error::code("run", &found.path, TOO_MANY_LEVELS)),
            Some(Obstacle::Failed(_, code)) => return Err(Error::code("run", &found.path, code)),
        }
    }
    Err(match search.denied().first().or(denied.as_ref()) {
        Some(path) => Error::denied(path),
        None => Error::not_found(passed_over.as_deref().unwrap_or(&name)),
    })
}

#[cfg(unix)]
fn lister(_: &[u8]) -> Result<impl Lister, Error> {
    Ok(crate::search::Posix::default())
}

#[cfg(windows)]
fn lister(name: &[u8]) -> Result<impl Lister, Error> {
    let failed = |error: std::io::Error| {
        Error::code("find the current folder for", name, error.raw_os_error().unwrap_or_default())
    };
    crate::search::Nt::of_this_process().map_err(failed)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn program(path: &Path, text: &str, mode: u32) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Searches three folders, `a`, `b` and `c`, for `tool`.
    fn found(files: &[(&str, &str, u32)]) -> Result<String, Error> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text, mode) in files {
            program(&folder.path().join(name), text, *mode);
        }
        let path = ["a", "b", "c"].map(|name| folder.path().join(name).display().to_string());
        let found = which_in("tool", path.join(":"))?;
        Ok(found.strip_prefix(folder.path()).unwrap().display().to_string())
    }

    #[test]
    fn the_first_that_starts_is_found() {
        let script = "#!/bin/sh\n";
        assert_eq!(found(&[("b/tool", script, 0o755), ("c/tool", "", 0o755)]).unwrap(), "b/tool");
        assert_eq!(found(&[("a/tool", "", 0o644), ("c/tool", "", 0o755)]).unwrap(), "c/tool");
    }

    #[test]
    fn a_script_without_its_interpreter_is_passed_over_as_execvp_does() {
        let files = [("a/tool", "#!/no/sh\n", 0o755), ("b/tool", "#!/bin/sh\n", 0o755)];
        assert_eq!(found(&files).unwrap(), "b/tool");
        let error = found(&files[..1]).unwrap_err();
        assert!(error.is_not_found() && error.name().ends_with(b"a/tool"), "{error}");
    }

    #[test]
    fn an_interpreter_that_may_not_be_run_is_passed_over_and_remembered() {
        let files = [("a/tool", "#!/etc/passwd\n", 0o755), ("b/tool", "#!/bin/sh\n", 0o755)];
        assert_eq!(found(&files).unwrap(), "b/tool");
        for interpreter in ["/etc/passwd", "/etc"] {
            let script = format!("#!{interpreter}\n");
            let error = found(&[("a/tool", &script, 0o755)]).unwrap_err();
            assert!(!error.is_not_found() && error.name().ends_with(b"a/tool"), "{error}");
        }
    }

    #[test]
    fn a_file_that_may_not_be_run_is_distinguished_from_a_missing_one() {
        let error = found(&[("a/tool", "", 0o644)]).unwrap_err();
        assert!(!error.is_not_found() && error.name().ends_with(b"a/tool"), "{error}");
        assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::PermissionDenied);
        let error = found(&[]).unwrap_err();
        assert!(error.is_not_found() && error.name() == b"tool", "{error}");
        assert!(which("a\0b").unwrap_err().refusal().is_some());
    }
}
