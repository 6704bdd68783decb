//! The program that `cargo x bench names` drives. It creates 211 folders of 40 files, and then executes the command in
//! each line of its input. For each line it prints the time of one piece of work.
//!
//! `expand RULES`, in ns; `search`, `start`, `spawn` or `small TECHNIQUE PLACE`, in µs. PLACE is the program's folder:
//! `first`, `deep` (the 197th folder) or `miss`. One process runs all contenders, so that they are interleaved and
//! resident pages stay resident.
#![forbid(unsafe_code)]

use std::error::Error;
use std::hint::black_box;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::time::{Duration, Instant};
use std::{env, fs};

use thruway_resolve::expand::{Flavour, expand, ruby, windows::Place};
use thruway_resolve::native;
use thruway_resolve::search::{Lister, Listings, Places, Plan, Rules, Search, WatchIndex};
use thruway_spawn::{Command, Stdio};

const FOLDERS: usize = 211;
const FILES: usize = 40;
const DEEP: usize = 196;
const SEARCHES: u32 = 100;
const SPAWNS: u32 = 100;
const NAMES: usize = 1000;

#[cfg(windows)]
mod system {
    pub(crate) use thruway_resolve::search::nt::{DirectoryChanges, System};
    /// The file system that each search queries.
    pub(crate) type Disk = thruway_resolve::search::Nt<System>;
    /// The source of reports about changed folders.
    pub(crate) type Watch = DirectoryChanges;
    pub(crate) const SUFFIX: &str = ".exe";
    pub(crate) const SEPARATOR: &str = ";";

    pub(crate) fn disk() -> std::io::Result<Disk> {
        Disk::of_this_process()
    }

    pub(crate) fn watch() -> std::io::Result<Watch> {
        Ok(Watch::new())
    }
}

#[cfg(target_os = "linux")]
mod system {
    /// The file system that each search queries.
    pub(crate) type Disk = thruway_resolve::search::Posix;
    /// The source of reports about changed folders.
    pub(crate) type Watch = thruway_resolve::search::Inotify;
    pub(crate) const SUFFIX: &str = "";
    pub(crate) const SEPARATOR: &str = ":";

    pub(crate) fn disk() -> std::io::Result<Disk> {
        Ok(Disk::default())
    }

    pub(crate) fn watch() -> std::io::Result<Watch> {
        Watch::new()
    }
}

/// `posix_spawnp` of the C library, called with all it needs at hand.
#[cfg(target_os = "linux")]
mod posix {
    use std::error::Error;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, posix_spawnp};
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::Pid;

    pub(crate) struct Spawn {
        arguments: [CString; 2],
        environment: Vec<CString>,
        actions: PosixSpawnFileActions,
        attributes: PosixSpawnAttr,
    }

    impl Spawn {
        pub(crate) fn new(name: &str) -> Result<Self, Box<dyn Error>> {
            let variable = |(key, value): (std::ffi::OsString, std::ffi::OsString)| {
                CString::new([key.as_bytes(), b"=", value.as_bytes()].concat())
            };
            Ok(Self {
                arguments: [CString::new(name)?, c"end".to_owned()],
                environment: std::env::vars_os().map(variable).collect::<Result<_, _>>()?,
                actions: PosixSpawnFileActions::init()?,
                attributes: PosixSpawnAttr::init()?,
            })
        }

        pub(crate) fn spawn(&self) -> nix::Result<Pid> {
            let Self { arguments, environment, actions, attributes } = self;
            posix_spawnp(&arguments[0], actions, attributes, arguments, environment)
        }
    }

    pub(crate) fn succeeds(pid: Pid) -> bool {
        matches!(waitpid(pid, None), Ok(WaitStatus::Exited(_, 0)))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    match env::args().nth(1).as_deref() {
        // The program for measurements of starts.
        Some("end") => Ok(()),
        Some("work") => Work::new()?.run(),
        Some(folder) => prepare(Path::new(folder)),
        None => Err("which folder?".into()),
    }
}

/// Creates the folders, and replaces this process by one whose `PATH` lists the folders.
fn prepare(folder: &Path) -> Result<(), Box<dyn Error>> {
    let folders: Vec<_> = (0..FOLDERS).map(|number| folder.join(format!("d{number:03}"))).collect();
    for base in &folders {
        fs::create_dir_all(base)?;
        for file in 0..FILES {
            fs::write(base.join(format!("file{file}{}", system::SUFFIX)), "")?;
        }
    }
    let program = if cfg!(windows) { env::current_exe()? } else { PathBuf::from("/bin/true") };
    for (number, name) in [(0, "first"), (DEEP, "deep")] {
        fs::copy(&program, folders[number].join(format!("{name}{}", system::SUFFIX)))?;
        #[cfg(target_os = "linux")]
        small_program(&folders[number].join(format!("small-{name}")))?;
    }
    let path: Vec<_> = folders.iter().map(|base| base.display().to_string()).collect();
    let mut work = process::Command::new(env::current_exe()?);
    // In the C locale, `true` reads no files of another one.
    work.arg("work").env("PATH", path.join(system::SEPARATOR)).env("LC_ALL", "C");
    let status = work.status()?;
    if status.success() { Ok(()) } else { Err(format!("{status}").into()) }
}

/// A program that ends at once, without a C library: `exit_group(0)`.
#[cfg(target_os = "linux")]
fn small_program(path: &Path) -> Result<(), Box<dyn Error>> {
    let source = if cfg!(target_arch = "x86_64") {
        r#"void _start(void) { __asm__ volatile("syscall" : : "a"(231), "D"(0)); }"#
    } else {
        r#"void _start(void) {
            register long call __asm__("x8") = 94, status __asm__("x0") = 0;
            __asm__ volatile("svc 0" : : "r"(call), "r"(status));
        }"#
    };
    let mut cc = process::Command::new("cc");
    cc.args(["-static", "-nostdlib", "-x", "c", "-", "-o"]).arg(path);
    let mut cc = cc.stdin(process::Stdio::piped()).spawn()?;
    cc.stdin.take().ok_or("no input to cc")?.write_all(source.as_bytes())?;
    if cc.wait()?.success() { Ok(()) } else { Err("cc failed".into()) }
}

/// The state between two lines of input.
struct Work {
    rules: Rules,
    path: Vec<u8>,
    cold: system::Disk,
    validated: Listings<system::Disk>,
    watched: WatchIndex<system::Disk, system::Watch>,
}

impl Work {
    fn new() -> Result<Self, Box<dyn Error>> {
        let rules = if cfg!(windows) { Rules::cmd(b".COM;.EXE;.BAT;.CMD") } else { Rules::exec() };
        let path = native::bytes(&env::var_os("PATH").ok_or("no PATH")?).into_owned();
        let plan = plan(&rules, &path, "any")?;
        let watched = WatchIndex::new(system::disk()?, system::watch()?, plan.bases());
        let validated = Listings::new(system::disk()?);
        Ok(Self { rules, path, cold: system::disk()?, validated, watched })
    }

    fn run(&mut self) -> Result<(), Box<dyn Error>> {
        let mut stdout = io::stdout().lock();
        for line in io::stdin().lock().lines() {
            let line = line?;
            let words: Vec<_> = line.split_whitespace().collect();
            let time = match words.as_slice() {
                ["expand", rules] => expand_by(rules)?,
                ["search", technique, place] => self.search(technique, place)?,
                [work @ ("start" | "spawn"), technique, place] => {
                    self.spawn(work, technique, place)?
                }
                ["small", technique, place] => {
                    self.spawn("spawn", technique, &format!("small-{place}"))?
                }
                _ => return Err(format!("what is {line}?").into()),
            };
            writeln!(stdout, "{time}")?;
            stdout.flush()?;
        }
        Ok(())
    }

    fn search(&mut self, technique: &str, place: &str) -> Result<f64, Box<dyn Error>> {
        let plan = plan(&self.rules, &self.path, place)?;
        let start = Instant::now();
        for _ in 0..SEARCHES {
            let found = match technique {
                "cold" => first(&plan, &mut self.cold)?,
                "validated" => first(&plan, &mut self.validated)?,
                "watched" => first(&plan, &mut self.watched)?,
                _ => return Err(format!("no technique {technique}").into()),
            };
            if found == (place == "miss") {
                return Err(format!("{technique} is wrong about {place}").into());
            }
        }
        Ok(microseconds(start) / f64::from(SEARCHES))
    }

    /// A start ends when the program runs, a spawn when it has ended.
    fn spawn(&mut self, work: &str, technique: &str, place: &str) -> Result<f64, Box<dyn Error>> {
        let mut ours = Command::new(place).arg("end").rules(self.rules.clone());
        if cfg!(windows) {
            // `cmd.exe` reports names that it does not find, so no output is shown.
            ours = ours.stdout(Stdio::Null).stderr(Stdio::Null);
        }
        let mut theirs = theirs(technique, place);
        #[cfg(target_os = "linux")]
        let posix = posix::Spawn::new(place)?;
        let mut time = Duration::ZERO;
        for _ in 0..SPAWNS {
            let start = Instant::now();
            let started = match technique {
                "cold" => ours.spawn().ok().map(RunningProgram::Ours),
                "validated" => ours.spawn_by(&mut self.validated).ok().map(RunningProgram::Ours),
                "watched" => ours.spawn_by(&mut self.watched).ok().map(RunningProgram::Ours),
                #[cfg(target_os = "linux")]
                "posix_spawnp" => posix.spawn().ok().map(RunningProgram::Posix),
                _ => theirs.spawn().ok().map(RunningProgram::Theirs),
            };
            let until_it_runs = start.elapsed();
            let ran = started.is_some_and(RunningProgram::succeeds);
            time += if work == "start" { until_it_runs } else { start.elapsed() };
            if ran == place.ends_with("miss") {
                return Err(format!("{technique}: {place} ran: {ran}").into());
            }
        }
        Ok(time.as_secs_f64() * 1e6 / f64::from(SPAWNS))
    }
}

/// A program that runs.
enum RunningProgram {
    Ours(thruway_spawn::Child),
    Theirs(process::Child),
    #[cfg(target_os = "linux")]
    Posix(nix::unistd::Pid),
}

impl RunningProgram {
    fn succeeds(self) -> bool {
        let status = match self {
            Self::Ours(mut child) => child.wait(),
            Self::Theirs(mut child) => child.wait(),
            #[cfg(target_os = "linux")]
            Self::Posix(pid) => return posix::succeeds(pid),
        };
        status.is_ok_and(|status| status.success())
    }
}

/// The standard library's own way, or the one through `cmd.exe`.
fn theirs(technique: &str, place: &str) -> process::Command {
    let mut command = if technique == "cmd" {
        let mut cmd = process::Command::new("cmd.exe");
        cmd.args(["/d", "/c", place]);
        cmd
    } else {
        process::Command::new(place)
    };
    command.arg("end");
    if cfg!(windows) {
        command.stdout(process::Stdio::null()).stderr(process::Stdio::null());
    }
    command
}

fn microseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}

fn plan(rules: &Rules, path: &[u8], name: &str) -> Result<Plan, Box<dyn Error>> {
    Ok(Plan::new(rules, name.as_bytes(), &Places { path, before: &[] })?)
}

fn first(plan: &Plan, lister: &mut impl Lister) -> Result<bool, Box<dyn Error>> {
    Ok(Search::new(plan, lister).next().transpose()?.is_some())
}

/// Returns the nanoseconds that the expansion of a name takes. The names contain `.` and `..`.
fn expand_by(rules: &str) -> Result<f64, Box<dyn Error>> {
    const ROUNDS: u32 = 100;
    let names: Vec<_> = (0..NAMES).map(|n| format!("lib/../ext/./feature{n}.rb")).collect();
    let one: fn(&str) -> usize = match rules {
        "posix" => |name| expand(Flavour::Posix, name.as_bytes(), b"/srv/app").len(),
        "windows" => |name| expand(Flavour::Windows, name.as_bytes(), br"C:\srv\app").len(),
        "utf-16" => |name| {
            let mut wide = [0; 64];
            name.encode_utf16().zip(&mut wide).for_each(|(unit, place)| *place = unit);
            let base = [b'C', b':', b'\\', b's', b'r', b'v'].map(u16::from);
            Place::new(&base).expand(&wide[..name.len()]).len()
        },
        "ruby" => |name| {
            let surroundings = ruby::Surroundings::new(b"/");
            let base = Some(b"/srv/app".as_slice());
            let path = ruby::expand_path(Flavour::Posix, name.as_bytes(), base, &surroundings);
            path.map_or(0, |path| path.len())
        },
        "ruby-windows" => |name| {
            let surroundings = ruby::Surroundings::new(br"C:\");
            let base = Some(b"C:/srv/app".as_slice());
            let path = ruby::expand_path(Flavour::Windows, name.as_bytes(), base, &surroundings);
            path.map_or(0, |path| path.len())
        },
        "system" => |name| std::path::absolute(name).map_or(0, |path| path.as_os_str().len()),
        _ => return Err(format!("no rules {rules}").into()),
    };
    let start = Instant::now();
    for _ in 0..ROUNDS {
        for name in &names {
            black_box(one(black_box(name)));
        }
    }
    Ok(start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS) / NAMES as f64)
}
