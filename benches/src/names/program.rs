//! The programs of `benches/names`, on Linux or under Wine, which answer one line at a time.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::context::BenchContext;
use crate::measure::Contender;
use xtask::wine::Wine;

/// A running program, pinned to one processor.
pub(super) struct Program {
    child: Child,
    pipes: RefCell<(ChildStdin, BufReader<ChildStdout>)>,
}

const BENCH: [&str; 6] = [
    "bench",
    "--no-run",
    "--package=thruway-spawn",
    "--bench=names",
    "--quiet",
    "--message-format=json",
];

impl Program {
    pub(super) fn of_linux(context: &BenchContext) -> Result<Self, String> {
        let mut build = Command::new(xtask::command::cargo());
        let program = built(build.current_dir(&context.root).args(BENCH))?;
        let folder = context.root.join("target/bench/names");
        std::fs::create_dir_all(&folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        Self::start(pinned(&mut Command::new("taskset")).arg(program).arg(folder))
    }

    /// The server of Wine is pinned too, because this program is its first. The folders have short names: `cmd.exe`
    /// reads no `PATH` of more than 8,191 characters.
    pub(super) fn of_windows(wine: &Wine) -> Result<Self, String> {
        let program = built(&mut wine.cargo(BENCH)?)?;
        wine.stop();
        let mut taskset = wine.command("taskset");
        Self::start(pinned(&mut taskset).arg("wine").arg(program).arg(r"C:\names"))
    }

    /// Starts Ruby with the gem as users have it.
    pub(super) fn of_ruby(context: &BenchContext) -> Result<Self, String> {
        let mut ruby = Command::new("taskset");
        pinned(&mut ruby).args(["ruby", "-Itarget/release/gem", "-Igem/lib"]);
        Self::start(ruby.arg("benches/names/expand_path.rb").current_dir(&context.root))
    }

    fn start(command: &mut Command) -> Result<Self, String> {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child =
            command.spawn().map_err(|error| format!("cannot start {command:?}: {error}"))?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(stdin), Some(stdout)) => {
                let pipes = RefCell::new((stdin, BufReader::new(stdout)));
                Ok(Self { child, pipes })
            }
            _ => Err("no pipes to the program".into()),
        }
    }

    /// A contender that sends `line` to the program each time.
    pub(super) fn contender(&self, line: &str, name: &'static str) -> Contender<'_> {
        let line = line.to_owned();
        Contender { name, run: Box::new(move || self.ask(&line)) }
    }

    /// Returns the program's answer to `line`.
    pub(super) fn ask(&self, line: &str) -> Result<f64, String> {
        let (stdin, stdout) = &mut *self.pipes.borrow_mut();
        let mut answer = String::new();
        let asked = writeln!(stdin, "{line}").and_then(|()| stdout.read_line(&mut answer));
        asked.map_err(|error| format!("{line}: {error}"))?;
        answer.trim().parse().map_err(|_| format!("{line}: the program ended"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The program ends with its input, which is dropped later; a failed benchmark does not wait for that.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pinned(taskset: &mut Command) -> &mut Command {
    taskset.args(["--cpu-list", "1"])
}

/// Builds a program, and returns its path.
fn built(build: &mut Command) -> Result<PathBuf, String> {
    let output = build.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot start {build:?}: {error}"))?;
    let messages = String::from_utf8_lossy(&output.stdout);
    let executable =
        messages.lines().filter_map(|line| line.split_once("\"executable\":\"")).next_back();
    let path = executable.and_then(|(_, rest)| rest.split('"').next());
    path.map(|path| PathBuf::from(OsStr::new(path)))
        .ok_or_else(|| format!("{build:?} built nothing"))
}
