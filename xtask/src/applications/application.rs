//! A copy of an application, and how its commands start.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::copy::copy;
use super::snapshot::Snapshot;
use super::way::Way;

/// Names at the top of an application that are not copied: they are no part of its code or state.
const LEFT_OUT: [&str; 3] = [".git", "tmp", "log"];

/// Variables of the developer's environment that would change how a command boots.
const OTHERS: [&str; 7] = [
    "CI",
    "THRUWAY_PRELOAD",
    "THRUWAY_BOOT",
    "THRUWAY_PACK",
    "RUBYOPT",
    "RUBYLIB",
    "BUNDLE_GEMFILE",
];

/// An application to copy.
pub(super) struct Source {
    pub(super) name: String,
    pub(super) folder: PathBuf,
}

/// The checkout, and the folder of the build that is tried.
pub(super) struct Programs {
    pub(super) root: PathBuf,
    pub(super) build: PathBuf,
}

/// The options that hold for all applications.
#[derive(Clone, Copy)]
pub(super) struct Choice<'a> {
    pub(super) environment: &'a str,
    pub(super) prepare: Option<&'a str>,
    pub(super) tests: Option<&'a str>,
}

/// A prepared copy.
pub(super) struct Application {
    pub(super) name: String,
    /// The copy.
    pub(super) folder: PathBuf,
    /// The folder of the copy, the pack, the templates and the servers' logs.
    around: PathBuf,
    programs: Programs,
    /// The environment of boots and pages.
    pub(super) environment: String,
    /// The words of the command that runs the tests; `None` if there are no tests.
    pub(super) tests: Option<Vec<String>>,
    snapshot: Snapshot,
}

/// A command that has ended.
#[derive(Debug)]
pub(super) struct CommandOutcome {
    pub(super) is_success: bool,
    pub(super) output: String,
    pub(super) errors: String,
}

impl Source {
    /// Checks a folder that the developer named.
    pub(super) fn named(folder: &Path, around: &Path) -> Result<Self, String> {
        let folder = std::path::absolute(folder).map_err(|error| error.to_string())?;
        if !folder.is_dir() {
            return Err(format!(
                "{} is not a folder\n\nhint: name the folder of an application",
                folder.display()
            ));
        }
        if !folder.join("config.ru").is_file() {
            return Err(format!(
                "{} has no config.ru\n\nhint: name the folder of a Rails or Rack application, with its config.ru",
                folder.display()
            ));
        }
        if folder.starts_with(around) || around.starts_with(&folder) {
            return Err(format!(
                "{} holds the copies that are tried, or is one of them\n\nhint: name the original application",
                folder.display()
            ));
        }
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, folder })
    }
}

impl Application {
    /// Copies an application and prepares the copy. The copy of an earlier run is removed.
    pub(super) fn copied(
        programs: Programs,
        around: &Path,
        source: Source,
        choice: Choice<'_>,
    ) -> Result<Self, String> {
        let around = around.join(&source.name);
        let folder = around.join("app");
        let failed = |error: io::Error| format!("{}: {error}", around.display());
        match fs::remove_dir_all(&around) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        fs::create_dir_all(&folder).map_err(failed)?;
        // Templates are made in a folder that is the user's alone.
        fs::DirBuilder::new().mode(0o700).create(around.join("run")).map_err(failed)?;
        copy(&source.folder, &folder, &LEFT_OUT)?;
        for name in ["tmp/pids", "log"] {
            fs::create_dir_all(folder.join(name)).map_err(failed)?;
        }
        let mut application = Self {
            name: source.name,
            folder,
            around,
            programs,
            environment: choice.environment.to_owned(),
            tests: None,
            snapshot: Snapshot::default(),
        };
        application.prepare(choice.prepare)?;
        application.tests = application.test_words(choice.tests);
        let copy = application.around.join("prepared");
        application.snapshot = Snapshot::taken(&application.folder, copy)?;
        Ok(application)
    }

    pub(super) fn is_rails(&self) -> bool {
        self.folder.join("bin/rails").is_file()
    }

    /// Whether Bundler has resolved the application's gems. Without a lock file, the installed gems are used.
    pub(super) fn has_bundle(&self) -> bool {
        self.folder.join("Gemfile.lock").is_file()
    }

    /// Whether the lock file has a gem, or there is no lock file.
    pub(super) fn has_gem(&self, gem: &str) -> bool {
        let lock = fs::read_to_string(self.folder.join("Gemfile.lock")).unwrap_or_default();
        !self.has_bundle() || lock.lines().any(|line| line.starts_with(&format!("    {gem} (")))
    }

    /// The environments in which boots are compared.
    pub(super) fn environments(&self) -> Vec<&str> {
        let mut names = vec![self.environment.as_str()];
        if self.environment != "development" {
            names.push("development");
        }
        names
    }

    /// Returns a path beside the copy.
    pub(super) fn beside(&self, name: &str) -> PathBuf {
        self.around.join(name)
    }

    /// Restores the state that the copy had after its preparation, except for logs and temporary files.
    pub(super) fn restore(&self) -> Result<(), String> {
        self.snapshot.restore(&self.folder)
    }

    /// Runs a command of the application and waits for its end.
    pub(super) fn run(
        &self,
        way: Way,
        environment: &str,
        words: &[String],
    ) -> Result<CommandOutcome, String> {
        let mut command = self.command(way, environment, words);
        let output = command.stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("cannot start {command:?}: {error}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(CommandOutcome {
            is_success: output.status.success(),
            output: text(&output.stdout),
            errors: text(&output.stderr),
        })
    }

    /// Returns a command in the folder of the copy. Its environment is the same for all ways of booting.
    pub(super) fn command(&self, way: Way, environment: &str, words: &[String]) -> Command {
        let verb = way.verb();
        let mut all: Vec<OsString> = Vec::new();
        if !verb.is_empty() {
            all.push(self.thruway().into());
            all.extend(verb.iter().map(OsString::from));
            all.extend(["--pack".into(), self.beside("pack").into(), "--".into()]);
        }
        all.extend(words.iter().map(OsString::from));
        let mut command = Command::new(&all[0]);
        command.args(&all[1..]);
        self.surround(&mut command, environment);
        command
    }

    pub(super) fn thruway(&self) -> PathBuf {
        self.programs.build.join("thruway")
    }

    /// The script that writes the state of a booted application.
    pub(super) fn state_script(&self) -> PathBuf {
        self.programs.root.join("xtask/src/applications/state.rb")
    }

    /// Sets the folder and the environment of a command.
    pub(super) fn surround(&self, command: &mut Command, environment: &str) {
        for name in OTHERS {
            command.env_remove(name);
        }
        if self.has_bundle() {
            command.env("BUNDLE_GEMFILE", self.folder.join("Gemfile"));
        }
        command.current_dir(&self.folder).env("PWD", &self.folder);
        command.env("RAILS_ENV", environment).env("RACK_ENV", environment);
        command.env("XDG_RUNTIME_DIR", self.beside("run"));
        // An application as `rails new` makes it needs a secret in production, and serves no files there by default.
        command.env("SECRET_KEY_BASE", "0".repeat(64)).env("RAILS_SERVE_STATIC_FILES", "1");
        command.env("DISABLE_DATABASE_ENVIRONMENT_CHECK", "1").env("DISABLE_SPRING", "1");
        let own = [self.programs.root.join("gem/lib"), self.programs.build.join("gem")];
        let own = own.map(|folder| folder.display().to_string()).join(":");
        command.env("STATE_OWN", own).env("STATE_FILE", self.beside("state"));
        // cargo sets the variable, and the loader would search those folders for each library of an extension.
        command.env_remove("LD_LIBRARY_PATH");
    }

    /// Ends all templates of the copy.
    pub(super) fn stop_templates(&self) {
        let mut command = Command::new(self.thruway());
        self.surround(&mut command, &self.environment);
        let _ = command.args(["preload", "stop", "--all"]).output();
    }

    /// Runs the command that prepares the copy.
    fn prepare(&self, own: Option<&str>) -> Result<(), String> {
        if let Some(command) = own {
            return self.shell(command, &self.environment, "run it by hand in the copy");
        }
        if self.is_rails() && self.folder.join("config/database.yml").is_file() {
            for environment in [self.environment.as_str(), "test"] {
                let cure = "name another command by --prepare, or `true` for none";
                self.shell("bin/rails db:prepare", environment, cure)?;
            }
        }
        Ok(())
    }

    fn shell(&self, text: &str, environment: &str, cure: &str) -> Result<(), String> {
        println!("  {environment}: {text}");
        let words = ["sh", "-c", text].map(str::to_owned);
        let ended = self.run(Way::Plain, environment, &words)?;
        if ended.is_success {
            return Ok(());
        }
        let said = last_lines(&format!("{}{}", ended.output, ended.errors), 12);
        Err(format!(
            "{}: `{text}` failed in {}:\n{said}\n\nhint: {cure}",
            self.name,
            self.folder.display()
        ))
    }

    fn test_words(&self, given: Option<&str>) -> Option<Vec<String>> {
        let words = |text: &str| Some(text.split_whitespace().map(str::to_owned).collect());
        let has = |name: &str| self.folder.join(name).is_file();
        match given {
            Some(text) => words(text),
            None if self.folder.join("spec").is_dir() && has("bin/rspec") => {
                words("bin/rspec --seed 1")
            }
            None if self.folder.join("spec").is_dir() => words("rspec --seed 1"),
            None if self.is_rails() && self.folder.join("test").is_dir() => {
                words("bin/rails test -v --seed 1")
            }
            None => None,
        }
    }
}

/// Returns the last lines of a text.
pub(super) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<_> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_an_application_is_named_with_its_cure() {
        let folder = tempfile::tempdir().unwrap();
        let around = folder.path().join("target/applications");
        let named = |path: &Path| Source::named(path, &around).map(|source| source.name);
        let missing = named(&folder.path().join("nowhere")).unwrap_err();
        assert!(missing.contains("nowhere is not a folder\n\nhint: "), "{missing}");
        let shop = folder.path().join("shop");
        fs::create_dir(&shop).unwrap();
        assert!(named(&shop).unwrap_err().contains("shop has no config.ru\n\nhint: "));
        fs::write(shop.join("config.ru"), "").unwrap();
        assert_eq!(named(&shop), Ok("shop".to_owned()));
        // A copy of a folder must not hold itself.
        fs::write(folder.path().join("config.ru"), "").unwrap();
        assert!(named(folder.path()).unwrap_err().contains("holds the copies"));
    }
}
