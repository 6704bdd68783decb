//! A Ruby program of a few files, with a pack beside it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use tempfile::TempDir;

use crate::thruway;

/// Files in a folder of their own, and a pack outside of it.
pub(crate) struct Program {
    folder: TempDir,
}

impl Program {
    /// The files, each by name and content. `main.rb` is what is run; `lib` is in the load path.
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(folder.path().join("app/lib")).expect("it is made");
        let program = Self { folder };
        files.iter().for_each(|(name, text)| program.write(name, text));
        program.age();
        program
    }

    /// Waits until a file written next gets another time than the files written so far.
    pub(crate) fn age(&self) {
        std::thread::sleep(Duration::from_millis(40));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("app").join(name)
    }

    pub(crate) fn pack(&self) -> PathBuf {
        self.folder.path().join("program.pack")
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("it is in a folder")).expect("it is made");
        fs::write(path, text).expect("it is written");
    }

    /// Runs the program without a pack.
    pub(crate) fn plain(&self) -> Output {
        self.ruby(&mut Command::new("ruby"))
    }

    /// Ruby below `thruway run`, with these options.
    pub(crate) fn run(&self, options: &[&str]) -> Output {
        self.run_with(&self.pack(), options)
    }

    /// Runs the program as [`run`](Self::run) does, with another pack.
    pub(crate) fn run_with(&self, pack: &Path, options: &[&str]) -> Output {
        let mut thruway = thruway();
        self.ruby(thruway.arg("run").arg("--pack").arg(pack).args(options).args(["--", "ruby"]))
    }

    fn ruby(&self, command: &mut Command) -> Output {
        let output = command.arg("-I").arg(self.path("lib")).arg(self.path("main.rb")).output();
        output.expect("it starts")
    }

    /// Asserts that the output with the pack equals the output without, and returns it.
    pub(crate) fn same(&self, options: &[&str]) -> Output {
        let (plain, run) = (self.plain(), self.run(options));
        assert_eq!(text(&run), text(&plain), "{options:?}");
        run
    }
}

/// Formats the status and both streams of an output.
fn text(output: &Output) -> String {
    let streams = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{}\n{}\n{}", output.status, streams[0], streams[1])
}
