//! `thruway expand`: the absolute form of a name, computed without access to the disk.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use thruway_resolve::expand::windows::Place;
use thruway_resolve::expand::{Devices, Flavour, expand, ruby};
use thruway_resolve::native;
use thruway_sys::printable;

use crate::output::{Answer, Failure, print_names};

/// Expand names to absolute paths, without touching the disk
///
/// Removes `.` and `..` lexically and prints one name per line. Symbolic links are not followed.
#[derive(Debug, Args)]
pub(crate) struct Expand {
    /// The system whose rules the names follow [default: this system]
    #[arg(long, value_enum, value_name = "SYSTEM")]
    flavour: Option<System>,
    /// Expand as Ruby's File.expand_path does: also `~` and `~user`, and `/` in place of `\`
    #[arg(long)]
    ruby: bool,
    /// The folder that relative names start from [default: the current folder, or the root with the names of another
    /// system]
    #[arg(long, value_name = "DIR")]
    base: Option<OsString>,
    /// The folder that `~` stands for, with --ruby [default: HOME, or else the account's home]
    #[arg(long, value_name = "DIR", requires = "ruby")]
    home: Option<OsString>,
    /// The version of Windows: since 11, `nul.txt` and `C:\con` are files, not devices
    #[arg(long, value_enum, value_name = "VERSION", default_value = "11")]
    windows: Version,
    /// The names
    #[arg(value_name = "PATH", required = true)]
    names: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum System {
    Posix,
    Windows,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Version {
    #[value(name = "10")]
    Ten,
    #[value(name = "11")]
    Eleven,
}

/// The context in which names are expanded.
struct ExpandContext {
    flavour: Flavour,
    adds_ruby: bool,
    current: io::Result<Vec<u8>>,
    base: Option<Vec<u8>>,
    home: Option<Vec<u8>>,
    drive_bases: Vec<Vec<u8>>,
    devices: Devices,
}

impl Expand {
    pub(crate) fn run(self) -> Answer {
        let setting = self.setting();
        let mut names = Vec::with_capacity(self.names.len());
        for name in &self.names {
            let name = native::bytes(name);
            names.push(if self.ruby { setting.ruby(&name)? } else { setting.expand(&name)? });
        }
        print_names(&names)?;
        Ok(ExitCode::SUCCESS)
    }

    fn setting(&self) -> ExpandContext {
        let owned = |text: &OsString| native::bytes(text).into_owned();
        let flavour = match self.flavour {
            None => Flavour::HOST,
            Some(System::Posix) => Flavour::Posix,
            Some(System::Windows) => Flavour::Windows,
        };
        ExpandContext {
            flavour,
            adds_ruby: self.ruby,
            current: current(flavour),
            base: self.base.as_ref().map(owned),
            home: self.home.clone().or_else(home).as_ref().map(owned),
            drive_bases: native::drive_bases(),
            devices: match self.windows {
                Version::Ten => Devices::Windows10,
                Version::Eleven => Devices::Windows11,
            },
        }
    }
}

impl ExpandContext {
    fn expand(&self, name: &[u8]) -> Result<Vec<u8>, Failure> {
        let current = self.current(name)?;
        let base = self.base.as_deref().unwrap_or(current);
        Ok(match self.flavour {
            Flavour::Windows => {
                let drive_bases = self.drive_bases();
                let outer =
                    Place { base: current, drive_bases: &drive_bases, devices: self.devices };
                let base = outer.expand(base);
                Place { base: &base, ..outer }.expand(name)
            }
            _ => expand(self.flavour, name, &expand(self.flavour, base, current)),
        })
    }

    /// Returns the current folder. If the folder has been removed, only names that start there fail.
    fn current(&self, name: &[u8]) -> Result<&[u8], Failure> {
        match &self.current {
            Ok(current) => Ok(current),
            Err(_) if self.starts_elsewhere(name) => Ok(b"/"),
            Err(error) => {
                Err(Failure::new(format_args!("cannot find the current folder: {error}")))
            }
        }
    }

    /// Whether `name` or the base is absolute. The rules of POSIX suffice: on Windows, nobody can remove a current
    /// folder.
    fn starts_elsewhere(&self, name: &[u8]) -> bool {
        let is_absolute =
            |path: &[u8]| path.starts_with(b"/") || (self.adds_ruby && path.starts_with(b"~"));
        is_absolute(name) || self.base.as_deref().is_some_and(is_absolute)
    }

    fn ruby(&self, name: &[u8]) -> Result<Vec<u8>, Failure> {
        let surroundings = ruby::Surroundings {
            current: self.current(name)?,
            home: self.home.as_deref(),
            home_of: &home_of,
            drive_bases: &self.drive_bases(),
            devices: self.devices,
        };
        ruby::expand_path(self.flavour, name, self.base.as_deref(), &surroundings).map_err(
            |error| {
                let name = printable::bytes(name);
                Failure::new(format_args!("cannot expand {name}: {error}"))
            },
        )
    }

    fn drive_bases(&self) -> Vec<&[u8]> {
        self.drive_bases.iter().map(Vec::as_slice).collect()
    }
}

/// Returns the current folder, or the root if the names follow another system's rules.
fn current(flavour: Flavour) -> io::Result<Vec<u8>> {
    if flavour != Flavour::HOST {
        let root: &[u8] = if flavour == Flavour::Windows { br"C:\" } else { b"/" };
        return Ok(root.to_vec());
    }
    let folder = std::env::current_dir()?;
    Ok(native::bytes(folder.as_os_str()).into_owned())
}

/// Returns `HOME`. If the variable is not set, returns Ruby's substitute: the home of the user's account, or the value
/// of other variables on Windows.
fn home() -> Option<OsString> {
    let variable = std::env::var_os;
    let windows = || {
        let drive = variable("HOMEDRIVE").zip(variable("HOMEPATH")).map(|(mut drive, path)| {
            drive.push(path);
            drive
        });
        drive.or_else(|| variable("USERPROFILE"))
    };
    let account = || std::env::home_dir().map(OsString::from);
    variable("HOME").or_else(|| if cfg!(windows) { windows() } else { account() })
}

/// Returns the home of a user in the file of local accounts.
fn home_of(user: &[u8]) -> Option<Vec<u8>> {
    let accounts = std::fs::read("/etc/passwd").ok()?;
    let mut accounts = accounts.split(|byte| *byte == b'\n');
    accounts.find_map(|account| {
        let mut fields = account.split(|byte| *byte == b':');
        (fields.next() == Some(user)).then(|| fields.nth(4))?.map(<[u8]>::to_vec)
    })
}
