//! `thruway certificates`: lists the contents of the storage of automatic certificates. Also the agent that renews
//! certificates for a server.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};
use serde_json::{Value, json};
use thruway_acme::{
    Agent, Challenge, DomainName, Event, ExternalAccount, LETS_ENCRYPT, NAMES_MAX, NameReport,
    Settings, Storage,
};
use thruway_sys::printable;
use thruway_sys::signal::{ignore, number};

use crate::output::{Answer, Failure, print, print_report};
use crate::verbs::serve::AcmeOptions;

/// The first pause after a failure, in seconds, and the variable that changes it.
const RETRY_S: u64 = 60;
const RETRY_VARIABLE: &str = "THRUWAY_ACME_RETRY_SECONDS";

/// The variable with the key of an external account.
const KEY_VARIABLE: &str = "THRUWAY_ACME_EAB_KEY";

/// The permission bits that let every user read or write a key.
const FOR_ALL_USERS: u32 = 0o006;

/// Show the automatic certificates of a storage
///
/// A line for each name: the end of the certificate, the next renewal or attempt, and the last error. The exit status
/// is 1 if a name has no valid certificate.
#[derive(Debug, Args)]
pub(crate) struct Certificates {
    /// The folder with the certificates [default: as for serve --acme-storage, in this folder]
    #[arg(value_name = "DIR")]
    storage: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl Certificates {
    pub(crate) fn run(self) -> Answer {
        let root = storage_root(self.storage)?;
        let storages = Storage::list(&root).map_err(failure)?;
        let now_s = now_s();
        let reports: Vec<_> = storages
            .iter()
            .flat_map(|storage| {
                storage.reports(now_s).into_iter().map(move |report| (storage, report))
            })
            .collect();
        if self.json {
            let all: Vec<_> =
                reports.iter().map(|(storage, report)| document(storage, report)).collect();
            let text =
                json!({ "version": 2, "storage": root.to_string_lossy(), "certificates": all });
            print(format!("{text:#}\n").as_bytes())?;
        } else if reports.is_empty() {
            print_report(&format!("no certificates in {}\n", printable::path(&root)))?;
        } else {
            print_report(
                &reports.iter().map(|(_, report)| line(report, now_s)).collect::<String>(),
            )?;
        }
        let is_valid =
            |report: &NameReport| report.not_after_s.is_some_and(|not_after_s| not_after_s > now_s);
        let are_well = reports.iter().all(|(_, report)| is_valid(report));
        Ok(if are_well { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}

fn line(report: &NameReport, now_s: u64) -> String {
    let state = match report.not_after_s {
        Some(not_after_s) if not_after_s > now_s => format!("valid until {}", date(not_after_s)),
        Some(not_after_s) => format!("expired on {}", date(not_after_s)),
        None => "no certificate yet".to_owned(),
    };
    let verb = if report.state.failures > 0 { "next attempt" } else { "renewal" };
    let due = match report.due_s {
        due_s if due_s <= now_s => "now".to_owned(),
        due_s => date(due_s),
    };
    let error = report.state.last_error.as_deref();
    let error = error.map(|error| format!("; last error: {error}")).unwrap_or_default();
    format!("{}: {state}; {verb} {due}{error}\n", report.name)
}

fn document(storage: &Storage, report: &NameReport) -> Value {
    let folder = storage.folder().path().file_name().unwrap_or_default().to_string_lossy();
    json!({
        "name": report.name,
        "authority": folder,
        "not_after_seconds": report.not_after_s,
        "due_seconds": report.due_s,
        "failures": report.state.failures,
        "last_error": report.state.last_error,
    })
}

/// Obtain and renew the certificates of a server
#[derive(Debug, Args)]
pub(crate) struct CertificateAgent {
    /// The server, with which the agent ends
    #[arg(long)]
    parent: i32,
    /// The addresses and the port that the server was told to listen on.
    #[arg(long)]
    bind: Vec<String>,
    #[arg(long)]
    port: Option<u16>,
    #[command(flatten)]
    acme: AcmeOptions,
}

impl CertificateAgent {
    /// Checks the settings, prints the addresses to listen on and an empty line, waits for a line on stdin, and then
    /// works until the server ends.
    pub(crate) fn run(mut self) -> Answer {
        end_with(self.parent)?;
        // A certificate that exceeds the limit of file sizes fails with an error, and does not end the agent.
        let _ = ignore(&[number::SIGXFSZ]);
        let addresses = self.acme.plain_addresses(&self.bind, self.port);
        let settings = self.settings(&addresses)?;
        let root = storage_root(self.acme.acme_storage.take())?;
        let storage = Storage::open(&root, &settings.directory).map_err(failure)?;
        let folder = storage.folder().path().to_str();
        let folder = folder.filter(|folder| !folder.contains('\n')).ok_or_else(|| {
            Failure::new(format_args!("cannot keep certificates in {}", printable::path(&root)))
                .hint("name a folder whose path is UTF-8, by --acme-storage")
        })?;
        let addresses = self.acme.addresses(addresses, folder)?;
        let mut agent = Agent::new(settings, storage, |event| report(&event));
        agent.write_reports();
        print(format!("{}\n\n", addresses.join("\n")).as_bytes())?;
        let mut line = [0; 1];
        if io::stdin().read(&mut line).unwrap_or(0) == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        loop {
            std::thread::sleep(agent.step());
        }
    }

    fn settings(&self, addresses: &[String]) -> Result<Settings, Failure> {
        let mut names: Vec<DomainName> = Vec::new();
        for text in &self.acme.acme_domain {
            let name = text.parse::<DomainName>().map_err(cannot_obtain)?;
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if names.len() > NAMES_MAX {
            let many = format!("{} names are more than {NAMES_MAX}", names.len());
            return Err(cannot_obtain(many).hint("spread them over several servers"));
        }
        let directory = self.acme.acme_directory.clone().unwrap_or_else(|| LETS_ENCRYPT.to_owned());
        if !directory.starts_with("https://") || directory.len() <= "https://".len() {
            return Err(cannot_obtain(format!("the directory {directory:?} is not an HTTPS URL")));
        }
        let kinds = self.acme.challenges(addresses);
        let challenges = kinds.iter().map(|kind| kind.parse());
        let challenges: Vec<Challenge> =
            challenges.collect::<Result<_, _>>().map_err(cannot_obtain)?;
        let retry_s = std::env::var(RETRY_VARIABLE).ok().and_then(|text| text.parse().ok());
        Ok(Settings {
            names,
            directory,
            ca: self.acme.acme_ca.clone(),
            contacts: self
                .acme
                .acme_contact
                .iter()
                .map(|text| contact(text))
                .collect::<Result<_, _>>()?,
            external_account: self.external_account()?,
            challenges,
            retry_s: retry_s.unwrap_or(RETRY_S).max(1),
        })
    }

    fn external_account(&self) -> Result<Option<ExternalAccount>, Failure> {
        let key = match &self.acme.acme_eab_key_file {
            Some(path) => Some(secret(path)?),
            None => std::env::var(KEY_VARIABLE).ok().filter(|key| !key.is_empty()),
        };
        match (&self.acme.acme_eab_kid, key) {
            (Some(id), Some(key)) => {
                ExternalAccount::new(id.clone(), &key).map(Some).map_err(cannot_obtain)
            }
            (None, None) => Ok(None),
            (Some(_), None) => Err(cannot_obtain("--acme-eab-kid has no key".to_owned())
                .hint("add --acme-eab-key-file FILE")),
            (None, Some(_)) => {
                Err(cannot_obtain("the key of the external account has no name".to_owned())
                    .hint("add --acme-eab-kid ID"))
            }
        }
    }
}

fn cannot_obtain(reason: String) -> Failure {
    Failure::new(format_args!("cannot obtain a certificate: {reason}"))
}

fn failure(error: thruway_acme::Error) -> Failure {
    let failure = Failure::new(&error);
    match error.cure() {
        Some(cure) => failure.hint(cure),
        None => failure,
    }
}

fn contact(text: &str) -> Result<String, Failure> {
    let address = text.strip_prefix("mailto:").unwrap_or(text);
    let is_address = address.split_once('@').is_some_and(|(user, host)| {
        !user.is_empty() && !host.is_empty() && !address.contains(char::is_whitespace)
    });
    if !is_address {
        return Err(cannot_obtain(format!("the contact {text:?} is not an e-mail address")));
    }
    Ok(format!("mailto:{address}"))
}

/// Reads a key, and refuses a file that other users could read.
fn secret(path: &Path) -> Result<String, Failure> {
    use std::os::unix::fs::PermissionsExt;
    let shown = printable::path(path);
    let failed = |error: io::Error| Failure::new(format_args!("cannot read {shown}: {error}"));
    let mode = path.metadata().map_err(failed)?.permissions().mode() & 0o777;
    if mode & FOR_ALL_USERS != 0 {
        let message =
            format_args!("cannot use {shown}: every user may read this key (mode {mode:03o})");
        return Err(Failure::new(message).hint(format_args!("chmod o= {shown}")));
    }
    std::fs::read_to_string(path).map_err(failed)
}

/// Returns the folder of a storage: the given folder, or the application's, or the folder that systemd assigns to a
/// service, or the user's.
pub(super) fn storage_root(given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    if let Some(given) = given {
        return Ok(given);
    }
    if Path::new("storage").is_dir() && Path::new("config.ru").metadata().is_ok() {
        return Ok(PathBuf::from("storage/thruway"));
    }
    let absolute =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(state) = absolute("STATE_DIRECTORY") {
        return Ok(state.join("certificates"));
    }
    let home = || absolute("HOME").map(|home| home.join(".local/state"));
    let state = absolute("XDG_STATE_HOME").or_else(home);
    state.map(|state| state.join("thruway/certificates")).ok_or_else(|| {
        Failure::new(
            "no folder for certificates is known: neither XDG_STATE_HOME nor HOME names one",
        )
        .hint("add --acme-storage DIR")
    })
}

/// Ends this process as soon as the server ends.
#[expect(
    clippy::disallowed_methods,
    reason = "there is nothing to drop, and the other thread waits for the authority"
)]
fn end_with(parent: i32) -> Result<(), Failure> {
    let failed =
        |error: rustix::io::Errno| Failure::new(format_args!("cannot watch the server: {error}"));
    let pid =
        Pid::from_raw(parent).ok_or_else(|| Failure::new("the server has no process number"))?;
    let server = pidfd_open(pid, PidfdFlags::empty()).map_err(failed)?;
    if getppid() != Some(pid) {
        return Err(Failure::new("the server has ended"));
    }
    std::thread::spawn(move || {
        let mut watched = [PollFd::new(&server, PollFlags::IN)];
        while poll(&mut watched, None) == Err(rustix::io::Errno::INTR) {}
        std::process::exit(0);
    });
    Ok(())
}

/// Reports an event to the server's log.
fn report(event: &Event<'_>) {
    match event {
        Event::Obtained { name, not_after_s } => {
            let text = format!(
                "thruway: certificate for {name} obtained, valid until {}\n",
                date(*not_after_s)
            );
            // A failure to write the log does not stop a renewal.
            let _ = io::stderr().write_all(text.as_bytes());
        }
        Event::Failed { name, error, pause_s } => {
            let message =
                format_args!("no certificate for {name}: {error}; next attempt in {pause_s} s");
            let failure = Failure::new(message);
            match error.cure() {
                Some(cure) => failure.hint(cure).show(),
                None => failure.show(),
            }
        }
        Event::Damaged { error } => Failure::new(error).show(),
    }
}

pub(super) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Formats a time for people, in UTC.
pub(super) fn date(time_s: u64) -> String {
    thruway_acme::date(UNIX_EPOCH + Duration::from_secs(time_s))
}
