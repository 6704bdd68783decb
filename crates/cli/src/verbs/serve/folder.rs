//! A folder is served by this very process.

use std::path::Path;
use std::process::ExitCode;

use thruway_serve::{Folder, Listener, Server, Settings, monotonic_us, raise_descriptor_limit};

use super::Serve;
use crate::output::{Answer, Failure, print};

pub(super) fn run(serve: &Serve, started_us: u64) -> Answer {
    raise_descriptor_limit();
    let target = &serve.target;
    let workers = serve.workers.unwrap_or_else(processors).max(1);
    let folders = (0..workers)
        .map(|_| Folder::new(target, serve.list))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| {
            Failure::new(format_args!("cannot serve {}: {error}", target.display()))
        })?;
    let listeners = serve
        .addresses()?
        .iter()
        .map(|address| Listener::new(address).map_err(|error| cannot_listen(&error)))
        .collect::<Result<Vec<_>, _>>()?;
    let server = Server::start(&Settings::default(), &listeners, folders).map_err(Failure::new)?;
    announce(target, &listeners, started_us)?;
    server.join();
    Ok(ExitCode::SUCCESS)
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn announce(target: &Path, listeners: &[Listener], started_us: u64) -> Result<(), Failure> {
    let addresses: Vec<_> = listeners.iter().map(|l| l.address().to_string()).collect();
    let ms = monotonic_us().saturating_sub(started_us) / 1000;
    let (target, addresses) = (target.display(), addresses.join(", "));
    print(format!("serving {target} on {addresses} (ready in {ms} ms)\n").as_bytes())
}

fn cannot_listen(error: &thruway_serve::Error) -> Failure {
    let failure = Failure::new(error);
    if error.is_in_use() {
        failure.hint("another process listens there; stop it, or choose another port with -p")
    } else if error.is_denied() {
        failure.hint("ports below 1024 need root or CAP_NET_BIND_SERVICE; choose one above")
    } else {
        failure
    }
}
