//! `thruway pack`: build, look at and verify the packs that `thruway run` uses.

mod waiting;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand, ValueHint};
use serde_json::json;
use thruway_boot::inspect::{Inspection, inspect, verify};
use thruway_boot::{Options, Trust, check_place, remove_partial};
use thruway_spawn::Command;
use thruway_sys::printable;

use super::run::{absolute, accelerated};
use crate::command::of_words;
use crate::gem::Gem;
use crate::output::{Answer, Failure, print, print_report};

/// Most entries that are named in a table; JSON names all of them.
const NAMED_MAX: usize = 20;

/// Build, inspect or verify a pack
#[derive(Debug, Args)]
pub(crate) struct Pack {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    Build(Build),
    Info(Info),
    Verify(Verify),
}

/// Build a pack from the files that a command's Ruby loads, from files that are only compiled, or from both
///
/// The pack is built anew, and replaces an older one only if everything succeeds. It also contains digests, so that
/// it can be used where stamps differ (thruway run --digest).
#[derive(Debug, Args)]
struct Build {
    /// The pack
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Compile a Ruby file, or all below a folder, and read the YAML files there, without running
    /// anything; may be given again
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    compile: Vec<PathBuf>,
    /// Also compile the files of all gems in the bundle
    #[arg(long)]
    compile_gems: bool,
    /// The command and its arguments
    #[arg(
        value_name = "COMMAND",
        required_unless_present_any = ["compile", "compile_gems"],
        trailing_var_arg = true,
        value_hint = ValueHint::CommandWithArguments
    )]
    command: Vec<OsString>,
}

/// Show the contents of a pack, and which entries are stale
#[derive(Debug, Args)]
struct Info {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// The pack
    #[arg(value_name = "FILE")]
    pack: PathBuf,
}

/// Check every byte of a pack; the exit status is 1 if the pack is damaged
#[derive(Debug, Args)]
struct Verify {
    /// The pack
    #[arg(value_name = "FILE")]
    pack: PathBuf,
}

impl Pack {
    pub(crate) fn run(self) -> Answer {
        match self.task {
            Task::Build(build) => build.run(),
            Task::Info(info) => info.run(),
            Task::Verify(verify) => verify.run(),
        }
    }
}

impl Build {
    fn run(self) -> Answer {
        let output = absolute(&self.output)?;
        let new = output.with_added_extension("new");
        [&output, &new]
            .into_iter()
            .try_for_each(|place| check_place(place).map_err(Failure::new))?;
        clear(&new)?;
        if let Some(folder) = output.parent() {
            make_folder(folder)?;
        }
        let options =
            Options { pack: Some(new.clone()), trust: Trust::Digest, ..Options::default() };
        for command in self.commands()? {
            let status = waiting::status(&accelerated(command, &options));
            if !matches!(&status, Ok(status) if status.success()) {
                clear(&new)?;
            }
            let status = status?;
            if !status.success() {
                return Err(Failure::new(format_args!("the command failed ({status})"))
                    .hint("the pack was left unchanged"));
            }
        }
        if std::fs::metadata(&new).is_err() {
            return Err(Failure::new("the command wrote no pack")
                .hint("either no Ruby of this version ran, or all of its files changed less than 20 ms ago"));
        }
        std::fs::rename(&new, &output).map_err(|error| {
            Failure::new(format_args!("cannot write {}: {error}", printable::path(&output)))
        })?;
        print_report(&inspection(&output)?.table())?;
        Ok(ExitCode::SUCCESS)
    }

    /// The commands to run for the pack, one after another.
    fn commands(&self) -> Result<Vec<Command>, Failure> {
        let given = Some(&self.command).filter(|command| !command.is_empty());
        let given = given.map(|command| of_words(command));
        Ok(self.compiler()?.into_iter().chain(given).collect())
    }

    /// The Ruby that compiles files without running them, if that is wanted.
    fn compiler(&self) -> Result<Option<Command>, Failure> {
        if self.compile.is_empty() && !self.compile_gems {
            return Ok(None);
        }
        for path in &self.compile {
            std::fs::metadata(path).map_err(|error| {
                Failure::new(format_args!("cannot compile {}: {error}", printable::path(&path)))
            })?;
        }
        let gem = Gem::find().ok_or_else(|| {
            Failure::new("cannot compile: the gem is not installed")
                .hint("install the .gem file of this version with `gem install`, or run `make build` in a checkout")
        })?;
        let folders = gem.load_path().into_iter().flat_map(|folder| ["-I".as_ref(), folder]);
        let mut command = Command::new("ruby").args(folders.map(Path::as_os_str));
        command = command.arg(gem.library().join("thruway/boot/precompiler.rb"));
        command = command.arg(if self.compile_gems { "--gems" } else { "--no-gems" });
        let paths = self.compile.iter().map(|path| absolute(path));
        Ok(Some(command.args(paths.collect::<Result<Vec<_>, _>>()?)))
    }
}

/// Makes the folder that the user names, as the umask says: another user may read its pack.
fn make_folder(folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).map_err(|error| {
        Failure::new(format_args!("cannot make the folder {}: {error}", printable::path(&folder)))
    })
}

/// Removes the new pack of a build that failed, and the partial pack of a killed Ruby.
fn clear(new: &Path) -> Result<(), Failure> {
    remove_partial(new).map_err(Failure::new)?;
    remove(new)
}

/// Removes a file that may not be there.
fn remove(path: &Path) -> Result<(), Failure> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::new(format_args!("cannot remove {}: {error}", printable::path(&path))))
        }
        _ => Ok(()),
    }
}

impl Info {
    fn run(self) -> Answer {
        let inspection = inspection(&self.pack)?;
        match self.json {
            true => print(inspection.json().as_bytes())?,
            false => print_report(&inspection.table())?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Verify {
    fn run(self) -> Answer {
        let (entries, damages) = verify(&self.pack).map_err(Failure::new)?;
        if damages.is_empty() {
            print_report(&format!("{entries} entries, none damaged\n"))?;
            return Ok(ExitCode::SUCCESS);
        }
        let lines = damages.iter().map(|damage| format!("damaged: {damage}\n"));
        print_report(&lines.collect::<String>())?;
        Ok(ExitCode::FAILURE)
    }
}

/// An inspection with its presentation.
struct InspectionReport(Inspection);

fn inspection(path: &Path) -> Result<InspectionReport, Failure> {
    inspect(path).map(InspectionReport).map_err(|error| {
        let missing = error.is_not_found();
        let failure = Failure::new(error);
        if missing {
            failure.hint("thruway pack build -o FILE -- COMMAND makes one")
        } else {
            failure
        }
    })
}

impl InspectionReport {
    fn table(&self) -> String {
        let Self(pack) = self;
        let mut table = format!("{:<12} {:>8} {:>12} {:>8}\n", "", "entries", "bytes", "stale");
        for kind in &pack.kinds {
            let (entries, bytes, stale) = (kind.entries, kind.bytes, kind.stale);
            table.push_str(&format!("{:<12} {entries:>8} {bytes:>12} {stale:>8}\n", kind.name));
        }
        table.push_str(&format!("\n{} bytes, written {} ago\n", pack.bytes, self.age()));
        pack.identity.lines().for_each(|line| table.push_str(&format!("{line}\n")));
        for name in pack.stale.iter().take(NAMED_MAX) {
            table.push_str(&format!("stale: {}\n", printable::bytes(name)));
        }
        if let Some(more) = pack.stale.len().checked_sub(NAMED_MAX + 1) {
            table.push_str(&format!("stale: {} more\n", more + 1));
        }
        table
    }

    fn json(&self) -> String {
        let Self(pack) = self;
        let kinds = pack.kinds.iter().map(|kind| {
            json!({
                "name": kind.name,
                "entries": kind.entries,
                "bytes": kind.bytes,
                "stale": kind.stale,
            })
        });
        let stale = pack.stale.iter().map(|name| String::from_utf8_lossy(name));
        let document = json!({
            "version": 1,
            "identity": pack.identity,
            "bytes": pack.bytes,
            "written_ns": pack.written_ns,
            "age_seconds": self.age_seconds(),
            "kinds": kinds.collect::<Vec<_>>(),
            "stale": stale.collect::<Vec<_>>(),
        });
        format!("{document:#}\n")
    }

    fn age_seconds(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let written = u128::try_from(self.0.written_ns).unwrap_or(0);
        u64::try_from(since.as_nanos().saturating_sub(written) / 1_000_000_000).unwrap_or(u64::MAX)
    }

    /// The age in its largest unit.
    fn age(&self) -> String {
        match self.age_seconds() {
            seconds @ 0..60 => format!("{seconds} s"),
            seconds @ 60..3600 => format!("{} min", seconds / 60),
            seconds @ 3600..86400 => format!("{} h", seconds / 3600),
            seconds => format!("{} d", seconds / 86400),
        }
    }
}
