//! `thruway which`: finds the file that a command starts, by the rules of the operating system or language that starts
//! it.

use std::ffi::OsString;
use std::io;
#[cfg(target_os = "linux")]
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::json;
use thruway_resolve::expand::Flavour;
use thruway_resolve::native;
#[cfg(windows)]
use thruway_resolve::search::Nt;
#[cfg(unix)]
use thruway_resolve::search::Posix;
#[cfg(target_os = "linux")]
use thruway_resolve::search::Tree;
use thruway_resolve::search::{
    Lister, Obstacle, PATH_EXT, Places, Plan, Rules, SCRIPTS_MAX, Search,
};
use thruway_sys::printable;

use crate::output::{Answer, Failure, print, print_names};

/// Find the file that a command starts
///
/// Prints the path of the file by the rules of execvp, shells, cmd.exe, PowerShell, or a language's libraries on
/// Windows. The exit status is 1 if a name is not found.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Print every candidate that exists, not only the first
    #[arg(short, long)]
    all: bool,
    /// The rules of the search [default: exec; on Windows, cmd]
    #[arg(long, value_enum)]
    rules: Option<Kind>,
    /// The folders to search, written as in PATH [default: PATH]
    #[arg(long, value_name = "PATH")]
    path: Option<OsString>,
    /// The suffixes to try, written as in PATHEXT [default: PATHEXT]
    #[arg(long, value_name = "SUFFIXES")]
    path_ext: Option<OsString>,
    /// Search the current folder first, as cmd.exe does unless NoDefaultCurrentDirectoryInExePath is
    /// set
    #[arg(long)]
    current: bool,
    /// Search below this folder: it stands for the root, and for every drive of Windows
    #[cfg(target_os = "linux")]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Also print the number of look-ups
    #[arg(long)]
    count: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// The commands
    #[arg(value_name = "NAME", required = true)]
    names: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    Exec,
    Shell,
    Cmd,
    Zig,
    Rust,
    Go,
    Python,
    Libuv,
    Powershell,
}

/// The result of the search for one name.
struct Outcome {
    name: Vec<u8>,
    found: Vec<Vec<u8>>,
    denied: Vec<Vec<u8>>,
    /// Files that do not start because of their interpreters, each with the reason.
    without_interpreter: Vec<(Vec<u8>, Obstacle)>,
    bases: usize,
    lookups: u64,
    /// The file in a relative folder that ended a search by Go's rules.
    refused: Option<Vec<u8>>,
    /// Whether the paths are on this machine, and not in a tree.
    is_on_disk: bool,
}

impl Which {
    pub(crate) fn run(self) -> Answer {
        let rules = self.rules();
        let mut lister = self.lister(rules.flavour())?;
        let path = self.path.clone().or_else(|| std::env::var_os("PATH"));
        let path = path.map(|path| native::bytes(&path).into_owned());
        let path = path.as_deref().unwrap_or(rules.default_path());
        let before = self.folders_before_path();
        let before: Vec<_> = before.iter().map(Vec::as_slice).collect();
        let places = Places { path, before: &before };
        let names = self.names.iter();
        let outcomes = names
            .map(|name| self.search(&rules, &native::bytes(name), &places, &mut lister))
            .collect::<Result<Vec<_>, _>>()?;
        self.report(&outcomes)?;
        let missing = outcomes.iter().any(|outcome| outcome.found.is_empty());
        Ok(ExitCode::from(u8::from(missing)))
    }

    fn rules(&self) -> Rules {
        let path_ext = self.path_ext.clone().or_else(|| std::env::var_os("PATHEXT"));
        let path_ext = path_ext.map(|text| native::bytes(&text).into_owned());
        let path_ext = path_ext.as_deref().unwrap_or(PATH_EXT);
        let default = if cfg!(windows) { Kind::Cmd } else { Kind::Exec };
        let refused = std::env::var_os("NoDefaultCurrentDirectoryInExePath").is_some();
        let rules = match self.rules.unwrap_or(default) {
            Kind::Exec => Rules::exec(),
            Kind::Shell => Rules::shell(),
            Kind::Cmd => Rules::cmd(path_ext),
            Kind::Zig => Rules::zig(path_ext),
            Kind::Rust => Rules::rust(),
            Kind::Go => Rules::go(path_ext),
            Kind::Python => Rules::python(path_ext),
            Kind::Libuv => Rules::libuv(),
            Kind::Powershell => Rules::powershell(path_ext),
        };
        match self.rules.unwrap_or(default) {
            // The rule for the current folder is fixed here.
            Kind::Exec | Kind::Shell | Kind::Zig | Kind::Rust | Kind::Powershell => rules,
            _ => rules.current_first(self.current && !refused),
        }
    }

    /// Returns the system's folders, which Rust searches before `PATH`. Rust also searches the folder of the program
    /// that starts the command. This program cannot know that folder.
    fn folders_before_path(&self) -> Vec<Vec<u8>> {
        #[cfg(windows)]
        if matches!(self.rules, Some(Kind::Rust)) {
            return thruway_resolve::search::nt::system_folders();
        }
        Vec::new()
    }

    #[cfg(target_os = "linux")]
    fn lister(&self, flavour: Flavour) -> Result<Box<dyn Lister>, Failure> {
        match (&self.root, flavour) {
            (Some(root), _) => Ok(Box::new(Tree::new(root, flavour).map_err(Failure::new)?)),
            (None, Flavour::Posix) => Ok(Box::new(Posix::default())),
            _ => Err(Failure::new("these rules apply to the folders of Windows")
                .hint("--root DIR searches a tree of such folders")),
        }
    }

    #[cfg(all(unix, not(target_os = "linux")))]
    fn lister(&self, flavour: Flavour) -> Result<Box<dyn Lister>, Failure> {
        match flavour {
            Flavour::Posix => Ok(Box::new(Posix::default())),
            _ => Err(Failure::new("these rules apply to the folders of Windows")),
        }
    }

    #[cfg(windows)]
    fn lister(&self, flavour: Flavour) -> Result<Box<dyn Lister>, Failure> {
        if flavour == Flavour::Posix {
            return Err(Failure::new("these rules apply to the folders of POSIX systems")
                .hint("--rules cmd searches as this system does"));
        }
        let failed = |error| Failure::new(format_args!("cannot find the current folder: {error}"));
        Ok(Box::new(Nt::of_this_process().map_err(failed)?))
    }

    #[cfg(target_os = "linux")]
    fn is_on_disk(&self) -> bool {
        self.root.is_none()
    }

    #[cfg(not(target_os = "linux"))]
    fn is_on_disk(&self) -> bool {
        true
    }

    fn search(
        &self,
        rules: &Rules,
        name: &[u8],
        places: &Places<'_>,
        lister: &mut Box<dyn Lister>,
    ) -> Result<Outcome, Failure> {
        let plan = Plan::new(rules, name, places).map_err(Failure::new)?;
        let before = lister.lookups();
        let mut search = Search::new(&plan, lister);
        let mut found = Vec::new();
        let (mut without_interpreter, mut refused) = (Vec::new(), None);
        while let Some(candidate) = search.next().transpose().map_err(Failure::new)? {
            let checks = rules.checks_interpreters();
            if let Some(obstacle) = checks.then(|| search.obstacle(&candidate)).flatten() {
                let goes_on = self.all || obstacle.is_passed_over();
                without_interpreter.push((candidate.path, obstacle));
                if goes_on {
                    continue;
                }
                break;
            }
            if rules.refuses_relative() && is_relative(&candidate.path, name) {
                refused = refused.or(Some(candidate.path));
                if self.all {
                    continue;
                }
                break;
            }
            found.push(candidate.path);
            if !self.all {
                break;
            }
        }
        let denied = search.denied().to_vec();
        let lookups = lister.lookups() - before;
        let bases = plan.bases().len();
        Ok(Outcome {
            name: name.to_vec(),
            found,
            denied,
            without_interpreter,
            bases,
            lookups,
            refused,
            is_on_disk: self.is_on_disk(),
        })
    }

    fn report(&self, outcomes: &[Outcome]) -> Result<(), Failure> {
        if self.json {
            let outcomes: Vec<_> = outcomes.iter().map(Outcome::json).collect();
            return print(format!("{:#}\n", json!(outcomes)).as_bytes());
        }
        let mut lines = Vec::new();
        for outcome in outcomes {
            lines.extend_from_slice(&outcome.found);
            if self.count {
                let plural = if outcome.lookups == 1 { "" } else { "s" };
                lines.push(format!("{} look-up{plural}", outcome.lookups).into_bytes());
            }
        }
        print_names(&lines)?;
        outcomes.iter().filter(|outcome| outcome.found.is_empty()).for_each(Outcome::explain);
        Ok(())
    }
}

impl Outcome {
    fn json(&self) -> serde_json::Value {
        let texts = |paths: &[Vec<u8>]| paths.iter().map(|path| text(path)).collect::<Vec<_>>();
        json!({
            "version": 1,
            "name": text(&self.name),
            "found": texts(&self.found),
            "denied": texts(&self.denied),
            "without_interpreter": texts(
                &self.without_interpreter.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>()
            ),
            "lookups": self.lookups,
            "refused": self.refused.as_deref().map(text),
        })
    }

    /// Returns the failure to report if nothing was found.
    fn explain(&self) {
        let name = printable::bytes(&self.name);
        let mut obstacles = self.without_interpreter.iter();
        // If an obstacle ended the search, the obstacle is the last.
        let ended = obstacles.clone().next_back().filter(|(_, why)| !why.is_passed_over());
        match (ended.or(obstacles.next()), self.denied.first(), self.bases) {
            _ if self.name.is_empty() => Failure::new("an empty name is not a command"),
            _ if let Some(path) = &self.refused => Failure::new(format_args!(
                "Go does not start {}, which it finds in a relative folder (exec.ErrDot)",
                printable::bytes(path)
            ))
            .hint("give the command with its folder, or make the entry of the PATH absolute"),
            (Some((path, why)), denied, _) if ended.is_some() || denied.is_none() => {
                not_started(&printable::bytes(path), why)
            }
            (_, Some(path), _) => Failure::new(format_args!(
                "{} {}",
                printable::bytes(path),
                why_denied(path, self.is_on_disk)
            )),
            (_, None, 0) => Failure::new(format_args!("no file can have the name {name}")),
            (_, None, 1) => Failure::new(format_args!("{name} not found in 1 folder")),
            (_, None, bases) => Failure::new(format_args!("{name} not found in {bases} folders")),
        }
        .show();
    }
}

/// Whether the path of the command found depends on the current folder, and `name` contains no folder. On Windows,
/// other rules take `c:name` and `\name` for absolute. Go does not, because both depend on a current folder or drive.
fn is_relative(path: &[u8], name: &[u8]) -> bool {
    let names_a_folder = name.iter().any(|byte| b":\\/".contains(byte));
    let is_absolute =
        matches!(path, [_, b':', b'\\' | b'/', ..] | [b'\\' | b'/', b'\\' | b'/', ..]);
    !names_a_folder && !is_absolute
}

/// Returns the reason why a file may not be run, as the end of a sentence.
#[cfg(target_os = "linux")]
fn why_denied(path: &[u8], is_on_disk: bool) -> &'static str {
    use rustix::fs::{Access, FileType, StatVfsMountFlags, access, stat, statvfs};
    let Some(found) = stat(path).ok().filter(|_| is_on_disk) else { return "may not be run" };
    if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
        return "is a folder";
    }
    let is_executable = found.st_mode & 0o111 != 0 && access(path, Access::EXEC_OK).is_err();
    let forbids = |flags: StatVfsMountFlags| flags.contains(StatVfsMountFlags::NOEXEC);
    if is_executable && statvfs(path).is_ok_and(|space| forbids(space.f_flag)) {
        return "is on a file system that is mounted noexec";
    }
    "may not be run"
}

#[cfg(not(target_os = "linux"))]
fn why_denied(_: &[u8], _: bool) -> &'static str {
    "may not be run"
}

/// Returns the failure of an executable file that does not start.
fn not_started(path: &str, why: &Obstacle) -> Failure {
    match why {
        Obstacle::Missing(interpreter) => {
            let name = printable::bytes(interpreter);
            let failure = Failure::new(format_args!("{path} needs {name}, which does not exist"));
            match interpreter.ends_with(b"\r") {
                true => failure.hint("the script's lines end in CR LF; save it with LF line ends"),
                false => failure,
            }
        }
        Obstacle::Denied(interpreter) => {
            let name = printable::bytes(interpreter);
            Failure::new(format_args!("{path} needs {name}, which cannot be run"))
                .hint("the interpreter is not a file, is not executable, or is on a file system mounted noexec")
        }
        Obstacle::Nested => Failure::new(format_args!(
            "{path} is a script of a script, and so on: the system follows {SCRIPTS_MAX}"
        )),
        Obstacle::Failed(interpreter, code) => {
            let (name, error) =
                (printable::bytes(interpreter), io::Error::from_raw_os_error(*code));
            Failure::new(format_args!("{path} needs {name}: {error}"))
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
