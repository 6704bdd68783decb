//! Starts programs on Windows. Candidates come from a search of existing files, and batch files are started
//! through `cmd.exe`.

use std::ffi::OsStr;
use std::io;
use std::os::windows::ffi::OsStrExt;
use std::os::windows::io::AsHandle;
use std::os::windows::process::ExitStatusExt;
use std::process::ExitStatus;

use thruway_resolve::expand::windows::Place;
use thruway_resolve::fold::fold;
use thruway_resolve::search::{Nt, PATH_EXT, Plan, suffix_of};
use thruway_resolve::{native, wtf8};
use thruway_sys::create_process::{self, Create};
use thruway_sys::windows_folders;

use crate::Error;
use crate::command::PreparedCommand;
use crate::command_line::{self, Refusal};

/// A started process.
pub(crate) type StartedProcess = create_process::Process;

impl PreparedCommand<'_> {
    /// Starts the first startable candidate.
    pub(crate) fn start_any(&self, plan: &Plan) -> Result<StartedProcess, Error> {
        let nt = Nt::of_this_process();
        let mut nt =
            nt.map_err(|error| Error::step(&self.name, "find the current folder", error))?;
        self.start_found(plan, &mut nt)
    }

    /// Starts a single candidate. The inner error concerns the candidate alone; the outer error would be the same for
    /// every candidate.
    pub(crate) fn start(&self, path: &[u8]) -> Result<io::Result<StartedProcess>, Error> {
        let text = Text { prepared: self };
        let path = text.full_path(path)?;
        let (application, command_line) = match StartMethod::of(&path) {
            StartMethod::Program => (path.clone(), text.program()?),
            StartMethod::BatchFile => (text.command_processor()?, text.batch_file(&path)?),
            StartMethod::Document => return Ok(Err(unsupported())),
        };
        let (environment, folder) = (text.environment()?, text.folder()?);
        let create = Create {
            application: &with_nul(wtf8::to_wide(&application)),
            command_line,
            environment: environment.as_deref(),
            folder: folder.as_deref(),
            stdio: self.stdio.each_ref().map(|ends| ends.theirs.as_ref().map(AsHandle::as_handle)),
            new_group: text.new_group()?,
        };
        let started = create.start();
        if started.is_err() {
            self.check_folder()?;
        }
        Ok(started)
    }

    /// Checks the working directory. The system reports a missing directory as a missing program.
    fn check_folder(&self) -> Result<(), Error> {
        let Some(folder) = &self.command.folder else { return Ok(()) };
        let error = match std::fs::metadata(folder) {
            Ok(found) if found.is_dir() => return Ok(()),
            Ok(_) => io::Error::from(io::ErrorKind::NotADirectory),
            Err(error) => error,
        };
        Err(Error::step(&self.name, "enter the current folder", error))
    }
}

/// The method of starting a file, by suffix.
enum StartMethod {
    /// Started by `CreateProcessW`, whatever the suffix.
    Program,
    /// Run by `cmd.exe` only.
    BatchFile,
    /// A document of a registered program, whose suffix is in `PATHEXT`.
    Document,
}

impl StartMethod {
    fn of(path: &[u8]) -> Self {
        let file = path.rsplit(|byte| matches!(byte, b'\\' | b'/')).next().unwrap_or(path);
        let suffix = suffix_of(file).unwrap_or_default().to_ascii_uppercase();
        match suffix.as_slice() {
            b".BAT" | b".CMD" => Self::BatchFile,
            b".COM" | b".EXE" => Self::Program,
            other if PATH_EXT.split(|byte| *byte == b';').any(|suffix| suffix == other) => {
                Self::Document
            }
            _ => Self::Program,
        }
    }
}

/// Returns the system's error for a file in another format than a program's.
fn unsupported() -> io::Error {
    const ERROR_BAD_EXE_FORMAT: i32 = 193;
    io::Error::from_raw_os_error(ERROR_BAD_EXE_FORMAT)
}

/// The texts of a command for the system.
struct Text<'a> {
    prepared: &'a PreparedCommand<'a>,
}

impl Text<'_> {
    fn input(&self, message: impl std::fmt::Display) -> Error {
        Error::input(&self.prepared.name, message)
    }

    fn step(&self, doing: &'static str, error: io::Error) -> Error {
        Error::step(&self.prepared.name, doing, error)
    }

    /// Returns the absolute path. The system would search for a relative path again.
    fn full_path(&self, path: &[u8]) -> Result<Vec<u8>, Error> {
        let current = std::env::current_dir();
        let current = current.map_err(|error| self.step("find the current folder", error))?;
        let drive_bases = native::drive_bases();
        let drive_bases: Vec<_> = drive_bases.iter().map(Vec::as_slice).collect();
        let current = native::bytes(current.as_os_str());
        let place = Place { drive_bases: &drive_bases, ..Place::new(&current) };
        Ok(place.expand(path))
    }

    /// Returns the full path of `cmd.exe`, the only program for batch files.
    fn command_processor(&self) -> Result<Vec<u8>, Error> {
        let system = windows_folders::system();
        let system = system.map_err(|error| self.step("find cmd.exe", error))?;
        Ok(native::bytes(system.join("cmd.exe").as_os_str()).into_owned())
    }

    fn arguments(&self) -> Vec<Vec<u16>> {
        let arguments = self.prepared.command.arguments.iter();
        arguments.map(|argument| argument.encode_wide().collect()).collect()
    }

    fn program(&self) -> Result<Vec<u16>, Error> {
        let name: Vec<u16> = self.prepared.command.name.encode_wide().collect();
        command_line::of_program(&name, &self.arguments()).map_err(|refusal| self.input(refusal))
    }

    fn batch_file(&self, path: &[u8]) -> Result<Vec<u16>, Error> {
        let path = wtf8::to_wide(path);
        let line = command_line::of_batch_file(&path, &self.arguments());
        line.map_err(|refusal: Refusal| self.input(refusal))
    }

    /// Returns the block of variables, sorted by name in upper case, as the system requires.
    fn environment(&self) -> Result<Option<Vec<u16>>, Error> {
        if self.prepared.command.environment.is_unchanged() {
            return Ok(None);
        }
        let mut variables = self.prepared.command.environment.variables();
        variables.sort_by_cached_key(|(key, _)| fold(&native::bytes(key)).into_owned());
        let mut block = Vec::new();
        for (key, value) in &variables {
            block.extend(self.units(key, "its environment")?);
            block.push(u16::from(b'='));
            block.extend(self.units(value, "its environment")?);
            block.push(0);
        }
        // An empty block is two NULs.
        block.extend(std::iter::repeat_n(0, if variables.is_empty() { 2 } else { 1 }));
        Ok(Some(block))
    }

    fn folder(&self) -> Result<Option<Vec<u16>>, Error> {
        let folder = self.prepared.command.folder.as_ref();
        folder.map(|path| Ok(with_nul(self.units(path.as_os_str(), "its folder")?))).transpose()
    }

    fn new_group(&self) -> Result<bool, Error> {
        match self.prepared.command.group {
            None => Ok(false),
            Some(0) => Ok(true),
            Some(_) => Err(self.input("Windows has no process group to join")),
        }
    }

    fn units(&self, text: &OsStr, what: &str) -> Result<Vec<u16>, Error> {
        let units: Vec<u16> = text.encode_wide().collect();
        if units.contains(&0) {
            Err(self.input(format_args!("a NUL in {what}")))
        } else {
            Ok(units)
        }
    }
}

fn with_nul(mut units: Vec<u16>) -> Vec<u16> {
    units.push(0);
    units
}

/// A process, held by a handle.
#[derive(Debug)]
pub(crate) struct Process {
    started: StartedProcess,
}

impl Process {
    pub(crate) fn new(started: StartedProcess) -> Self {
        Self { started }
    }

    pub(crate) fn id(&self) -> u32 {
        self.started.id()
    }

    pub(crate) fn wait(&self) -> io::Result<ExitStatus> {
        self.started.wait().map(ExitStatus::from_raw)
    }

    pub(crate) fn try_wait(&self) -> io::Result<Option<ExitStatus>> {
        Ok(self.started.try_wait()?.map(ExitStatus::from_raw))
    }

    pub(crate) fn kill(&self) -> io::Result<()> {
        match self.started.terminate() {
            // The process has ended already.
            Err(error) if self.started.try_wait()?.is_none() => Err(error),
            _ => Ok(()),
        }
    }
}
