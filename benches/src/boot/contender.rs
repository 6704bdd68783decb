//! The ways to boot a program, and the measurement of one boot.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::program::Program;
use super::report::{Report, Usage};
use crate::context::BenchContext;
use crate::measure;
use crate::serve::system_root::EnteredRoot;

/// The cache, pack or server that a program boots with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Plain,
    /// Debian's bootsnap with a warm cache.
    Bootsnap,
    /// The bootsnap that `--peer bootsnap-new=DIR` names.
    NewBootsnap,
    Thruway,
    ThruwayFrozen,
    /// `thruway run` as on systems where the calls of libruby cannot be answered.
    ThruwayPortable,
    /// A fork of Spring's server, which has already booted.
    Spring,
    /// `thruway run --preload` with a finished template.
    Preload,
    /// Debian's bootsnap with an empty cache.
    BootsnapCold,
    /// `thruway run` while it learns.
    ThruwayCold,
}

/// A way to boot, and its requirements.
#[derive(Debug)]
pub(super) struct Contender {
    pub(super) way: Way,
    pub(super) name: &'static str,
    /// The folder of another bootsnap.
    library: Option<PathBuf>,
}

/// A program to boot, with a folder for caches.
pub(super) struct Boot<'a> {
    program: &'a Program,
    /// The system that boots the program; `None` for this machine's own.
    system: Option<&'a EnteredRoot>,
    root: &'a Path,
    scratch: PathBuf,
}

impl Way {
    pub(super) const WARM: [Self; 6] = [
        Self::Plain,
        Self::Bootsnap,
        Self::NewBootsnap,
        Self::Thruway,
        Self::ThruwayFrozen,
        Self::ThruwayPortable,
    ];
    pub(super) const FORKS: [Self; 6] = [
        Self::Plain,
        Self::Bootsnap,
        Self::NewBootsnap,
        Self::Spring,
        Self::Thruway,
        Self::Preload,
    ];
    pub(super) const SHORT: [Self; 3] = [Self::Plain, Self::Thruway, Self::Preload];
    pub(super) const ALL: [Self; 8] = [
        Self::Plain,
        Self::Bootsnap,
        Self::NewBootsnap,
        Self::Thruway,
        Self::ThruwayFrozen,
        Self::ThruwayPortable,
        Self::BootsnapCold,
        Self::ThruwayCold,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Bootsnap => "bootsnap",
            Self::NewBootsnap => "newer bootsnap",
            Self::Thruway => "thruway",
            Self::ThruwayFrozen => "thruway, frozen",
            Self::ThruwayPortable => "thruway, portable",
            Self::Spring => "Spring",
            Self::Preload => "thruway, preload",
            Self::BootsnapCold => "bootsnap, first boot",
            Self::ThruwayCold => "thruway, first boot",
        }
    }

    fn is_bootsnap(self) -> bool {
        matches!(self, Self::Bootsnap | Self::NewBootsnap | Self::BootsnapCold)
    }

    fn is_thruway(self) -> bool {
        !matches!(self, Self::Plain | Self::Spring) && !self.is_bootsnap()
    }

    fn is_cold(self) -> bool {
        matches!(self, Self::BootsnapCold | Self::ThruwayCold)
    }
}

impl Contender {
    /// The contenders among `ways` that are installed. Peers that are given by their paths belong to this machine.
    pub(super) fn all(
        context: &BenchContext,
        system: Option<&EnteredRoot>,
        ways: &[Way],
    ) -> Vec<Self> {
        let library = context.peers.get("bootsnap-new").filter(|_| system.is_none());
        let [has_bootsnap, has_spring] =
            ["bootsnap", "spring/version"].map(|feature| is_installed(system, feature));
        for (name, is_there) in [("bootsnap", has_bootsnap), ("Spring", has_spring)] {
            if !is_there {
                println!("left out: {name}: Ruby does not find it");
            }
        }
        let is_at_hand = |way: &Way| match way {
            Way::NewBootsnap => library.is_some(),
            Way::Spring => has_spring,
            way => has_bootsnap || !way.is_bootsnap(),
        };
        let ways = ways.iter().copied().filter(is_at_hand);
        ways.map(|way| Self {
            way,
            name: way.name(),
            library: library.filter(|_| way == Way::NewBootsnap).cloned(),
        })
        .collect()
    }
}

/// Whether a system's Ruby finds a feature.
fn is_installed(system: Option<&EnteredRoot>, feature: &str) -> bool {
    let mut ruby = command_on(system, "ruby", Path::new("/"));
    let found = ruby.args(["-r", feature, "-e", ""]).stderr(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

/// A command that runs on a system, in a folder.
fn command_on(system: Option<&EnteredRoot>, program: &str, folder: &Path) -> Command {
    match system {
        Some(system) => system.command(program, folder),
        None => {
            let mut command = Command::new(program);
            command.current_dir(folder);
            command
        }
    }
}

impl<'a> Boot<'a> {
    pub(super) fn new(
        context: &'a BenchContext,
        system: Option<&'a EnteredRoot>,
        program: &'a Program,
    ) -> Result<Self, String> {
        let scratch = context.root.join("target/bench/boot/caches").join(&program.name);
        match fs::remove_dir_all(&scratch) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(format!("{}: {error}", scratch.display()));
            }
            _ => {}
        }
        fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
        Ok(Self { program, system, root: &context.root, scratch })
    }

    /// Boots until the caches are warm.
    pub(super) fn warm(&self, contender: &Contender) -> Result<(), String> {
        let boots = if contender.way.is_cold() { 1 } else { 2 };
        (0..boots).try_for_each(|_| self.report(contender).map(|_| ()))?;
        if contender.way == Way::Preload { self.await_template() } else { Ok(()) }
    }

    /// Waits for the first boot's template: the second boot creates none while the first template is in the making.
    fn await_template(&self) -> Result<(), String> {
        const PATIENCE: Duration = Duration::from_secs(60);
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let output = self.preload(&["status"]).output().map_err(|error| error.to_string())?;
            if !output.stdout.is_empty() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err("there is no template".to_owned())
    }

    /// A `thruway preload` command for this benchmark's templates.
    fn preload(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.root.join("target/release/thruway"));
        command.arg("preload").args(words).env("XDG_RUNTIME_DIR", &self.scratch);
        command
    }

    /// Boots once.
    pub(super) fn report(&self, contender: &Contender) -> Result<Report, String> {
        if contender.way.is_cold() {
            self.forget(contender);
        }
        let written = self.scratch.join("report");
        let mut command = self.command(contender, Vec::new());
        let hook = self.root.join("benches/boot/report.rb");
        command.env("RUBYOPT", format!("-r{}", hook.display())).env("BENCH_REPORT", &written);
        let wall_ms = measure::wall(&mut command)?.as_secs_f64() * 1000.0;
        if contender.way == Way::Spring {
            // The report would be that of Spring's client.
            return Ok(Report { wall_ms, usage: None });
        }
        let text = fs::read_to_string(&written).unwrap_or_default();
        let usage = Usage::read(&text).ok_or_else(|| format!("{command:?} left no report"))?;
        Ok(Report { wall_ms, usage: Some(usage) })
    }

    /// Returns the number of calls that name a file in one boot, counted by strace. For Spring's fork the number is
    /// unknown.
    pub(super) fn file_calls(&self, contender: &Contender) -> Result<Option<u64>, String> {
        match contender.way {
            Way::Preload => return self.questions().map(Some),
            Way::Spring => return Ok(None),
            _ => {}
        }
        if contender.way.is_cold() {
            self.forget(contender);
        }
        let table = self.scratch.join("calls");
        let strace = ["strace", "-f", "-c", "-e", "trace=%file", "-o"].map(str::to_owned);
        let above = strace.into_iter().chain([table.display().to_string()]).collect();
        measure::wall(&mut self.command(contender, above))?;
        let text = fs::read_to_string(&table).unwrap_or_default();
        let total = text.lines().find(|line| line.ends_with(" total"));
        let calls = total.and_then(|line| line.split_whitespace().nth(3)?.parse().ok());
        calls.map(Some).ok_or_else(|| format!("strace said: {text}"))
    }

    /// Returns the number of questions that the template asks before a fork. strace would wait for a template started
    /// under it.
    fn questions(&self) -> Result<u64, String> {
        let output = self.preload(&["status", "--json"]).output();
        let output = output.map_err(|error| error.to_string())?.stdout;
        let text = String::from_utf8_lossy(&output);
        let rest = text.split_once("\"questions\": ").map_or("", |(_, rest)| rest);
        let number = rest.split([',', '\n']).next().and_then(|number| number.parse().ok());
        number.ok_or_else(|| format!("the template said: {text}"))
    }

    fn forget(&self, contender: &Contender) {
        // A missing cache needs no removal, and a failed removal shows in the figures.
        let _ = fs::remove_dir_all(self.cache(contender));
    }

    /// The folder of a contender's cache. A frozen pack is the pack that was learned before.
    fn cache(&self, contender: &Contender) -> PathBuf {
        let way = if contender.way == Way::ThruwayFrozen { Way::Thruway } else { contender.way };
        self.scratch.join(way.name().replace(", ", "-"))
    }

    /// The command that starts the program, under another program if there is one.
    fn command(&self, contender: &Contender, above: Vec<String>) -> Command {
        let mut words = above;
        let cache = self.cache(contender);
        if contender.way.is_thruway() {
            words.push(self.root.join("target/release/thruway").display().to_string());
            words.extend(["run", "--pack"].map(str::to_owned));
            words.push(cache.join("pack").display().to_string());
            words.extend((contender.way == Way::ThruwayFrozen).then(|| "--frozen".into()));
            words.extend((contender.way == Way::ThruwayPortable).then(|| "--portable".into()));
            words.extend((contender.way == Way::Preload).then(|| "--preload".into()));
            words.push("--".into());
        }
        let spring = contender.way == Way::Spring;
        let program = if spring { &self.program.with_spring } else { &self.program.words };
        words.extend(program.iter().map(|word| (*word).to_owned()));
        let mut command = command_on(self.system, &words[0], &self.program.folder);
        command
            .args(&words[1..])
            .envs(self.program.environment.clone())
            // cargo's library folders would be searched for each library of an extension.
            .env_remove("LD_LIBRARY_PATH");
        command.env("XDG_RUNTIME_DIR", &self.scratch).env_remove("CI");
        // Spring uses PWD.
        command.env("SPRING_TMP_PATH", &self.scratch).env("PWD", &self.program.folder);
        command.env("SPRING_QUIET", "1");
        command.env("BENCH_PRELUDE", self.root.join("benches/boot/bootsnap.rb"));
        if contender.way.is_bootsnap() {
            command.env("BENCH_BOOTSNAP", cache);
        }
        if let Some(library) = &contender.library {
            command.env("RUBYLIB", library);
        }
        command
    }
}

impl Drop for Boot<'_> {
    fn drop(&mut self) {
        // Remaining templates end by themselves.
        let _ = self.preload(&["stop", "--all"]).output();
        if !self.program.with_spring.is_empty() && is_installed(self.system, "spring/version") {
            let mut stop = command_on(self.system, "spring", &self.program.folder);
            let _ = stop.arg("stop").env("SPRING_TMP_PATH", &self.scratch).output();
        }
    }
}
