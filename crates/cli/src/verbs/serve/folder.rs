//! Serves a folder in this process.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use thruway_serve::{
    Address, Bind, Folder, Listener, Server, Settings, StopSignals, monotonic_us,
    raise_descriptor_limit,
};
use thruway_sys::printable;
use thruway_sys::signal::{ignore, number};

use super::acme::AgentProcess;
use super::options::{Serve, Workers};
use crate::output::{Answer, Failure, print_report};

/// The time for responses in progress after a signal to stop, the same as for an application.
const DRAIN_MAX: Duration = Duration::from_secs(30);

pub(super) fn run(serve: &Serve, started_us: u64) -> Answer {
    let stop = StopSignals::hold().map_err(Failure::new)?;
    raise_descriptor_limit();
    // A log that exceeds the limit of file sizes fails with an error, and does not end the server.
    let _ = ignore(&[number::SIGXFSZ]);
    let target = &serve.target;
    let workers = match serve.workers {
        Some(Workers::Count(count)) => usize::from(count).max(1),
        Some(Workers::Auto) | None => processors(),
    };
    let folders = (0..workers)
        .map(|_| Folder::new(target, serve.list))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| {
            Failure::new(format_args!("cannot serve {}: {error}", printable::path(&target)))
        })?;
    if let Some(option) = serve.acme.needs_domain() {
        return Err(Failure::new(format_args!(
            "{option} needs a name to obtain a certificate for"
        ))
        .hint("add --acme-domain NAME"));
    }
    let mut addresses = serve.addresses();
    let agent = match serve.acme.is_on() {
        false => None,
        true => match AgentProcess::start(&serve.acme, &serve.bind, serve.port) {
            Err(status) => return Ok(status),
            Ok(mut agent) => {
                addresses = std::mem::take(&mut agent.addresses);
                Some(agent)
            }
        },
    };
    let binds = serve.binds(&addresses)?;
    refuse_to_serve_keys(target, &binds)?;
    let mut listeners = listen(&binds)?;
    let mut settings = settings(serve);
    let public = listeners.len();
    if let Some(bind) = serve.metrics_bind()? {
        settings.counts = true;
        settings.metrics_listener = Some(public);
        settings.has_status_page = serve.status;
        listeners.extend(listen(&[bind])?);
    }
    let server = Server::start(&settings, &listeners, folders, report).map_err(Failure::new)?;
    let (listeners_of_clients, listeners_of_metrics) = listeners.split_at(public);
    announce(target, listeners_of_clients, started_us)?;
    announce_metrics(listeners_of_metrics)?;
    if let Some(agent) = agent {
        agent.begin();
    }
    stop.wait(|name| {
        Failure::new(format_args!("{name} ignored: it has no effect on a server of a folder"))
            .show()
    })
    .map_err(Failure::new)?;
    remove_sockets(listeners);
    server.end(DRAIN_MAX);
    Ok(ExitCode::SUCCESS)
}

/// Refuses a folder that contains the keys of automatic certificates.
#[expect(clippy::disallowed_methods, reason = "only where the links lead counts")]
fn refuse_to_serve_keys(target: &Path, binds: &[Bind]) -> Result<(), Failure> {
    let automatic = binds.iter().filter_map(|bind| bind.tls.as_ref()?.automatic.as_ref());
    for storage in automatic.map(|automatic| automatic.folder.path()) {
        let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if real(storage).starts_with(real(target)) {
            let (target, storage) = (printable::path(target), printable::path(storage));
            let message =
                format_args!("cannot serve {target}: clients could read the keys in {storage}");
            return Err(Failure::new(message).hint("name a folder outside by --acme-storage"));
        }
    }
    Ok(())
}

fn settings(serve: &Serve) -> Settings {
    let mut settings = Settings::default().for_files();
    settings.has_http2 = !serve.no_http2;
    settings.fair_by = serve.fair_by.clone().unwrap_or_default();
    let size = |given: Option<u32>, default| {
        given.map_or(default, |given| usize::try_from(given).unwrap_or(usize::MAX))
    };
    let limits = &mut settings.limits;
    limits.request_line_bytes_max = size(serve.request_line_limit, limits.request_line_bytes_max);
    limits.head_bytes_max = size(serve.head_limit, limits.head_bytes_max);
    limits.fields_max = size(serve.head_fields_limit.map(u32::from), limits.fields_max);
    settings
}

/// Reports a failure of the running server.
fn report(error: &thruway_serve::Error) {
    Failure::new(error).show();
}

/// Removes the files of unix sockets while the listeners are open. Later, other processes may listen at the same paths.
fn remove_sockets(listeners: Vec<Listener>) {
    for listener in &listeners {
        if let Address::Unix { path } = listener.address()
            && !path.as_os_str().as_bytes().starts_with(b"@")
        {
            // Another program may have removed the file already.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn announce(target: &Path, listeners: &[Listener], started_us: u64) -> Result<(), Failure> {
    let ms = monotonic_us().saturating_sub(started_us) / 1000;
    let (target, addresses) = (printable::path(&target), addresses(listeners));
    print_report(&format!("serving {target} on {addresses} (ready in {ms} ms)\n"))
}

fn announce_metrics(listeners: &[Listener]) -> Result<(), Failure> {
    if listeners.is_empty() {
        return Ok(());
    }
    print_report(&format!("metrics on {}\n", addresses(listeners)))
}

fn addresses(listeners: &[Listener]) -> String {
    let addresses: Vec<_> = listeners.iter().map(ToString::to_string).collect();
    addresses.join(", ")
}

fn listen(binds: &[Bind]) -> Result<Vec<Listener>, Failure> {
    let listeners = binds
        .iter()
        .map(|bind| Listener::all(bind).map_err(|error| cannot_listen(&error)))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(listeners.into_iter().flatten().collect())
}

fn cannot_listen(error: &thruway_serve::Error) -> Failure {
    let failure = Failure::new(error);
    if error.is_in_use() {
        failure.hint("another process listens there; stop it, or choose another port with -p")
    } else if error.is_denied() {
        failure.hint("ports below 1024 need root or CAP_NET_BIND_SERVICE; choose a higher one")
    } else {
        failure
    }
}
