//! The traced command.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::Error;
use crate::error::RUN;

/// A program with its arguments and environment, in the form that `execve` takes.
#[derive(Debug, Clone)]
pub struct Command {
    pub(crate) program: CString,
    pub(crate) arguments: Vec<CString>,
    pub(crate) environment: Vec<CString>,
}

impl Command {
    /// Finds `words[0]` in `path`, a list of folders in the form of `PATH`, unless it contains a slash.
    /// `environment` is passed on unchanged.
    ///
    /// # Errors
    /// The program does not exist or must not be executed.
    pub fn find(
        words: &[OsString],
        path: &OsStr,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, Error> {
        let name = words.first().map_or(OsStr::new(""), OsString::as_os_str);
        let program = find(name, path)?;
        let string =
            |bytes: Vec<u8>| CString::new(bytes).map_err(|_| Error::not_found(name.as_bytes()));
        let variable = |(name, value): (OsString, OsString)| {
            string([name.as_bytes(), b"=", value.as_bytes()].concat())
        };
        Ok(Self {
            program: string(program.into_os_string().into_vec())?,
            arguments: words
                .iter()
                .map(|word| string(word.as_bytes().to_vec()))
                .collect::<Result<_, _>>()?,
            environment: environment.into_iter().map(variable).collect::<Result<_, _>>()?,
        })
    }

    /// Reads the arguments and environment of a running process from `/proc`. Unreadable parts are empty.
    #[must_use]
    pub fn of_process(process: i32) -> Self {
        let words = |name: &str| -> Vec<CString> {
            let text = std::fs::read(format!("/proc/{process}/{name}")).unwrap_or_default();
            let words = text.split_inclusive(|byte| *byte == 0);
            words.filter_map(|word| CString::from_vec_with_nul(word.to_vec()).ok()).collect()
        };
        let arguments = words("cmdline");
        let program = arguments.first().cloned().unwrap_or_default();
        Self { program, arguments, environment: words("environ") }
    }

    /// Returns the environment as names and values.
    #[must_use]
    pub fn variables(&self) -> Vec<(OsString, OsString)> {
        let pair = |variable: &CString| {
            let mut parts = variable.as_bytes().splitn(2, |byte| *byte == b'=');
            let mut part = || Some(OsString::from_vec(parts.next()?.to_vec()));
            Some((part()?, part()?))
        };
        self.environment.iter().filter_map(pair).collect()
    }

    /// The path of the program.
    #[must_use]
    pub fn program(&self) -> &[u8] {
        self.program.as_bytes()
    }
}

fn find(name: &OsStr, path: &OsStr) -> Result<PathBuf, Error> {
    if name.as_bytes().contains(&b'/') {
        return Ok(name.into());
    }
    let folders = path.as_bytes().split(|byte| *byte == b':');
    let candidates = folders.map(|folder| Path::new(OsStr::from_bytes(folder)).join(name));
    let mut forbidden = None;
    for candidate in candidates.filter(|candidate| !name.is_empty() && candidate.is_file()) {
        match access(&candidate, Access::EXEC_OK) {
            Ok(()) => return Ok(candidate),
            Err(error) => {
                forbidden.get_or_insert((candidate, error));
            }
        }
    }
    Err(match forbidden {
        Some((file, error)) => Error::system(RUN, file.as_os_str().as_bytes(), error),
        None => Error::not_found(name.as_bytes()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(name: &str, path: &str) -> Result<Command, Error> {
        Command::find(&[name.into(), "-x".into()], path.as_ref(), [("A".into(), "b".into())])
    }

    #[test]
    fn the_first_program_on_the_path_is_taken() {
        let found = command("sh", "/nowhere:/usr/bin:/bin").unwrap();
        assert_eq!(found.program(), b"/usr/bin/sh");
        assert_eq!(found.arguments, [c"sh", c"-x"].map(CString::from));
        assert_eq!(found.environment, [c"A=b"].map(CString::from));
    }

    #[test]
    fn a_name_with_a_slash_is_taken_as_it_is() {
        assert_eq!(command("./sh", "/usr/bin").unwrap().program(), b"./sh");
    }

    #[test]
    fn a_file_that_may_not_be_run_is_skipped_and_reported_if_there_is_no_other() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("sh"), "").unwrap();
        let path = folder.path().display();
        assert_eq!(command("sh", &format!("{path}:/bin")).unwrap().program(), b"/bin/sh");
        let error = command("sh", &format!("/none:{path}")).unwrap_err();
        assert_eq!(error.is_command_there(), Some(true));
        let expected = format!("cannot run {path}/sh: Permission denied (os error 13)");
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn folders_and_missing_names_are_no_programs() {
        for name in ["bin", "surely-no-such-program"] {
            let error = command(name, "/usr:/usr/bin").unwrap_err();
            assert_eq!(error.to_string(), format!("cannot find the command {name}"));
        }
        let error = command("", "/usr:/usr/bin").unwrap_err();
        assert_eq!(error.to_string(), "an empty name is not a command");
    }
}
