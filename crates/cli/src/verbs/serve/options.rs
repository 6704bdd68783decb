//! The options of `thruway serve`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use thruway_serve::{Bind, FairBy};
use thruway_sys::printable;

use super::acme::AcmeOptions;
use crate::output::Failure;
use crate::quantities::{bytes, bytes_of_head};

/// Serve a folder or a Rack application
///
/// A folder with a config.ru is a Rack application (a Rails application is one), and is served by Ruby
/// with the gem. Any other folder is served as it is, without Ruby.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// A folder, or a config.ru
    #[arg(value_name = "DIR | CONFIG.RU", default_value = ".")]
    pub(super) target: PathBuf,
    /// The port to listen on; with 0, the system chooses one [default: 9292]
    #[arg(short, long, value_name = "PORT")]
    pub(super) port: Option<u16>,
    /// An address to listen on, such as tcp://HOST:PORT or unix://PATH; may be repeated and combined with -p
    #[arg(short, long, value_name = "URI")]
    pub(super) bind: Vec<String>,
    /// Processes that serve an application [default: 0, one process without a supervisor], or
    /// threads that serve a folder [default: one for each processor]; auto is the number of processors
    #[arg(short, long, value_name = "N")]
    pub(super) workers: Option<Workers>,
    /// Whose requests take turns: connection, address (of the client), or header:NAME (a field that names the client,
    /// as set by a proxy in front) [default: connection]
    #[arg(long, value_name = "KIND")]
    pub(super) fair_by: Option<FairBy>,
    /// An address at which Prometheus reads metrics: tcp://HOST:PORT or unix://PATH
    #[arg(long, value_name = "URI")]
    pub(super) metrics: Option<String>,
    /// Also serve a live status page at the address of --metrics
    #[arg(long)]
    pub(super) status: bool,
    /// Speak only HTTP/1.1, and do not offer HTTP/2
    #[arg(long)]
    pub(super) no_http2: bool,
    /// The longest request line [default: 8K]
    #[arg(long, value_name = "SIZE", value_parser = bytes_of_head, help_heading = "Limits")]
    pub(super) request_line_limit: Option<u32>,
    /// The largest head of a request [default: 32K]
    #[arg(long, value_name = "SIZE", value_parser = bytes_of_head, help_heading = "Limits")]
    pub(super) head_limit: Option<u32>,
    /// The most header fields of a request [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=128), help_heading = "Limits")]
    pub(super) head_fields_limit: Option<u16>,
    #[command(flatten)]
    pub(super) acme: AcmeOptions,
    /// Size of a cache, such as 64M, in memory that all workers share; it keeps responses that are declared public, and
    /// answers from them without Ruby [default: no cache]
    #[arg(long, value_name = "SIZE", help_heading = "For applications")]
    pub(super) cache: Option<Size>,
    /// The longest body in the cache, such as 512K [default: 1M]
    #[arg(long, value_name = "SIZE", help_heading = "For applications")]
    pub(super) cache_item_limit: Option<Size>,
    /// Threads in each process; of MIN:MAX, threads beyond MIN start when they are needed [default: 5]
    #[arg(short, long, value_name = "N", help_heading = "For applications")]
    pub(super) threads: Option<String>,
    /// Threads that may start in addition while requests wait in the application [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=1024))]
    #[arg(help_heading = "For applications")]
    pub(super) waiting_threads: Option<u16>,
    /// Run requests in fibers, at most this many at a time in each process [default: 0, in threads]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=30_000))]
    #[arg(help_heading = "For applications")]
    pub(super) fibers: Option<u16>,
    /// The environment of the application: RACK_ENV and RAILS_ENV
    #[arg(short, long, value_name = "ENV", help_heading = "For applications")]
    pub(super) environment: Option<String>,
    /// The configuration file, or - for none [default: the first that exists of config/thruway.rb,
    /// config/puma/ENV.rb and config/puma.rb]
    #[arg(short = 'C', long, value_name = "FILE", help_heading = "For applications")]
    pub(super) config: Option<PathBuf>,
    /// The file to write the process number to
    #[arg(long, value_name = "PATH", help_heading = "For applications")]
    pub(super) pidfile: Option<PathBuf>,
    /// Send files beneath DIR that the application names in X-Sendfile, or in X-Accel-Redirect by a
    /// path that begins with PREFIX; may be repeated
    #[arg(long, value_name = "[PREFIX=]DIR", help_heading = "For applications")]
    pub(super) sendfile: Vec<OsString>,
    /// Show the entries of folders that have no index.html
    #[arg(long, help_heading = "For folders")]
    pub(super) list: bool,
}

impl Serve {
    /// Fails if an option without effect on a folder is given.
    pub(super) fn refuse_what_needs_an_application(&self) -> Result<(), Failure> {
        let said = [
            (self.threads.is_some(), "--threads"),
            (self.waiting_threads.is_some(), "--waiting-threads"),
            (self.fibers.is_some(), "--fibers"),
            (self.environment.is_some(), "--environment"),
            (self.config.is_some(), "--config"),
            (self.pidfile.is_some(), "--pidfile"),
            (!self.sendfile.is_empty(), "--sendfile"),
            (self.cache.is_some(), "--cache"),
            (self.cache_item_limit.is_some(), "--cache-item-limit"),
        ];
        let Some((_, option)) = said.iter().find(|(is_said, _)| *is_said) else { return Ok(()) };
        let folder = printable::path(&self.target);
        let message = format!("{option} is for an application, and {folder} has no config.ru");
        Err(Failure::new(message).hint("name the application's folder, or its config.ru"))
    }

    /// Returns the address of the metrics.
    pub(super) fn metrics_bind(&self) -> Result<Option<Bind>, Failure> {
        if self.status && self.metrics.is_none() {
            let failure = Failure::new("--status needs a metrics listener");
            return Err(failure.hint("add --metrics URI"));
        }
        self.metrics.as_ref().map(|text| text.parse().map_err(Failure::new)).transpose()
    }

    /// Returns the addresses to listen on, as written, without automatic certificates.
    pub(super) fn addresses(&self) -> Vec<String> {
        let port = self.port.or(self.bind.is_empty().then_some(9292));
        let port = port.map(|port| format!("tcp://127.0.0.1:{port}"));
        port.into_iter().chain(self.bind.iter().cloned()).collect()
    }

    /// Parses `addresses`, and adds the settings of HSTS.
    pub(super) fn binds(&self, addresses: &[String]) -> Result<Vec<Bind>, Failure> {
        let parse = |text: &String| {
            let mut bind: Bind = text.parse().map_err(Failure::new)?;
            if bind.tls.is_some() && bind.hsts_s.is_none() {
                bind.hsts_s = self.acme.hsts;
            }
            Ok(bind)
        };
        let binds = addresses.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        if self.acme.hsts.is_some() && binds.iter().all(|bind| bind.tls.is_none()) {
            let failure = Failure::new("hsts needs an address that speaks TLS");
            let hint = "add --bind ssl://HOST:PORT?cert=FILE&key=FILE, or --acme-domain NAME";
            return Err(failure.hint(hint));
        }
        Ok(binds)
    }
}

/// A size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size(pub(super) u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        bytes(text).map(Self)
    }
}

/// The number of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Workers {
    /// One worker for each processor.
    Auto,
    /// A fixed number of workers.
    Count(u16),
}

impl Workers {
    /// The most workers. A larger number is probably a typing error.
    const MAX: u16 = 1024;
}

impl FromStr for Workers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let count = text.parse().ok().filter(|count| *count <= Self::MAX);
        count
            .map(Self::Count)
            .ok_or_else(|| format!("must be auto, or a number from 0 to {}", Self::MAX))
    }
}

impl std::fmt::Display for Workers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => formatter.write_str("auto"),
            Self::Count(count) => count.fmt(formatter),
        }
    }
}
