//! `thruway serve`: a folder, or a Rack application, to every client its turn.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use thruway_serve::{Address, Folder, Listener, Server, Settings, raise_descriptor_limit};

use crate::output::{Answer, Failure, print};

/// Serve a folder
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The folder
    #[arg(value_name = "DIR", default_value = ".")]
    target: PathBuf,
    /// The port to listen on; 0 lets the system choose
    #[arg(short, long, value_name = "PORT", default_value_t = 9292, conflicts_with = "bind")]
    port: u16,
    /// Where to listen: may be repeated
    #[arg(short, long, value_name = "tcp://HOST:PORT | unix://PATH", value_parser = address)]
    bind: Vec<Address>,
    /// How many threads serve the folder [default: one for each processor]
    #[arg(short, long, value_name = "N")]
    workers: Option<usize>,
    /// Show the entries of folders that have no index.html
    #[arg(long)]
    list: bool,
}

impl Serve {
    pub(crate) fn run(self) -> Answer {
        let start = Instant::now();
        raise_descriptor_limit();
        let workers = self.workers.unwrap_or_else(processors).max(1);
        let folders = (0..workers)
            .map(|_| Folder::new(&self.target, self.list))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| cannot_serve(&self.target, &error))?;
        let listeners = self.listen()?;
        let server =
            Server::start(&Settings::default(), &listeners, folders).map_err(Failure::new)?;
        announce(&self.target, &listeners, start)?;
        server.join();
        Ok(ExitCode::SUCCESS)
    }

    fn listen(&self) -> Result<Vec<Listener>, Failure> {
        let local = [Address::Tcp { host: "127.0.0.1".into(), port: self.port }];
        let addresses = if self.bind.is_empty() { &local[..] } else { &self.bind };
        addresses
            .iter()
            .map(|address| Listener::new(address).map_err(|e| cannot_listen(&e)))
            .collect()
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn announce(target: &Path, listeners: &[Listener], start: Instant) -> Result<(), Failure> {
    let addresses: Vec<_> = listeners.iter().map(|l| l.address().to_string()).collect();
    let line = format!(
        "serving {} on {} (ready in {} ms)\n",
        target.display(),
        addresses.join(", "),
        start.elapsed().as_millis()
    );
    print(line.as_bytes())
}

fn cannot_serve(target: &Path, error: &dyn std::error::Error) -> Failure {
    Failure::new(format_args!("cannot serve {}: {error}", target.display()))
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

/// `tcp://HOST:PORT` or `unix://PATH`, as Puma writes them.
fn address(text: &str) -> Result<Address, String> {
    if let Some(path) = text.strip_prefix("unix://") {
        return Ok(Address::Unix { path: PathBuf::from(path), mode: None });
    }
    let rest = text.strip_prefix("tcp://").unwrap_or(text);
    let (host, port) = rest.rsplit_once(':').ok_or("write it as tcp://HOST:PORT or unix://PATH")?;
    let port = port.parse().map_err(|_| format!("{port} is not a port"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok(Address::Tcp { host: host.to_owned(), port })
}
