//! `cargo x ruby PATH`: the extension for any Ruby, and a task that uses that Ruby.
//!
//! Each Ruby has its own copy of the checkout in `target/rubies`, with its own `target`. So a second run compiles only
//! changes, and the build for the Ruby on `PATH` is left alone.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::{command, headers, roots};

/// Build the extension for a Ruby, and run a task with it, by default the gem's tests
///
/// `rubyspec` and `bench` are tasks, too. Gems come from that Ruby and from GEM_PATH.
#[derive(Debug, Args)]
pub(crate) struct Ruby {
    /// The Ruby program, or the folder that contains bin/ruby
    path: PathBuf,
    /// Build optimised, as for users
    #[arg(long)]
    release: bool,
    /// The task with its arguments, such as `gem-tests fresh` or `rubyspec --spec DIR --mspec DIR`
    #[arg(last = true, default_values = ["gem-tests"])]
    task: Vec<OsString>,
}

/// The identity of a Ruby: its version, and a digest of its build configuration.
const KEY: &str = "require 'rbconfig'
    built = [RUBY_DESCRIPTION, *RbConfig::CONFIG.values_at('prefix', 'configure_args', 'RUBY_SO_NAME')]
    print RUBY_VERSION, '-', built.join(' ').sum(64).to_s(16)";

impl Ruby {
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        let program = self.program()?;
        let folder = root.join("target/rubies").join(key(&program)?);
        let checkout = folder.join("checkout");
        roots::bring_checkout(root, &checkout)?;
        let path = search_path(&folder, &program)?;
        let description = command::output(Command::new(&program).arg("--version"))?;
        println!("{} in {}", description.trim_end(), folder.display());
        let arguments = headers::clang_arguments(program.as_os_str(), &folder.join("headers"))?;
        let task = || {
            let mut task = Command::new(command::own_program());
            // A task finds its checkout by the variable.
            task.current_dir(&checkout).env("CARGO_MANIFEST_DIR", checkout.join("xtask"));
            task.env("PATH", &path).env("RUBY", &program);
            task.envs(arguments.as_ref().map(|words| ("BINDGEN_EXTRA_CLANG_ARGS", words)));
            task
        };
        command::succeed(task().arg("gem").args(self.release.then_some("--release")))?;
        command::succeed(task().args(&self.task))
    }

    /// The absolute path of the program.
    fn program(&self) -> Result<PathBuf, String> {
        let is_folder = self.path.is_dir();
        let path = if is_folder { self.path.join("bin/ruby") } else { self.path.clone() };
        let path = std::path::absolute(&path).map_err(|error| error.to_string())?;
        if path.is_file() {
            return Ok(path);
        }
        Err(format!(
            "{} is not a file\n\nhint: name a Ruby, such as /usr/bin/ruby3.4, or the folder that it was installed in",
            path.display()
        ))
    }
}

fn key(program: &Path) -> Result<String, String> {
    command::output(Command::new(program).args(["--disable=gems", "-e", KEY]))
}

/// Returns `PATH`, preceded by a folder in which the Ruby is called `ruby`, and by the folder of its other programs.
fn search_path(folder: &Path, program: &Path) -> Result<OsString, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let own = folder.join("bin");
    fs::create_dir_all(&own).map_err(failed)?;
    let link = own.join("ruby");
    if fs::read_link(&link).ok().as_deref() != Some(program) {
        let _ = fs::remove_file(&link);
        symlink(program, &link).map_err(failed)?;
    }
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let beside = program.parent().map(Path::to_owned);
    let folders = [own].into_iter().chain(beside).chain(std::env::split_paths(&rest));
    std::env::join_paths(folders).map_err(|error| format!("PATH: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ruby_is_named_by_its_file_or_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("bin/ruby");
        let named = |path: &Path| {
            let task = Vec::new();
            Ruby { path: path.to_owned(), release: false, task }.program()
        };
        let message = named(folder.path()).unwrap_err();
        assert!(message.contains("bin/ruby is not a file\n\nhint: name a Ruby"), "{message}");
        fs::create_dir(folder.path().join("bin")).unwrap();
        fs::write(&program, "").unwrap();
        assert_eq!(named(folder.path()), Ok(program.clone()));
        assert_eq!(named(&program), Ok(program));
    }
}
