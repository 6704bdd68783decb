//! The options of `thruway serve`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use thruway_serve::{Address, Bind, FairBy};
use thruway_sys::printable;

use crate::output::Failure;

/// Serve a folder or a Rack application
///
/// A folder with a config.ru is a Rack application (a Rails application is one), and is served by Ruby
/// with the gem. Any other folder is served as it is, without Ruby.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// A folder, or a config.ru
    #[arg(value_name = "DIR | CONFIG.RU", default_value = ".")]
    pub(super) target: PathBuf,
    /// The port to listen on; 0 lets the system choose [default: 9292]
    #[arg(short, long, value_name = "PORT")]
    pub(super) port: Option<u16>,
    /// Where to listen, such as tcp://HOST:PORT or unix://PATH: may be repeated, and beside -p
    #[arg(short, long, value_name = "URI")]
    pub(super) bind: Vec<String>,
    /// How many processes serve an application [default: 0, one without a supervisor], or how many
    /// threads a folder [default: one for each processor]; auto is the number of processors
    #[arg(short, long, value_name = "N")]
    pub(super) workers: Option<Workers>,
    /// What takes turns: connection, address (of the client), or header:NAME (whose value names the client, as
    /// a proxy in front sets it) [default: connection]
    #[arg(long, value_name = "KIND")]
    pub(super) fair_by: Option<FairBy>,
    /// Where metrics are read, as Prometheus does: tcp://HOST:PORT or unix://PATH
    #[arg(long, value_name = "URI")]
    pub(super) metrics: Option<String>,
    /// A live page for people there, too
    #[arg(long)]
    pub(super) status: bool,
    /// Speak HTTP/1.1 alone: no client is offered HTTP/2
    #[arg(long)]
    pub(super) no_http2: bool,
    /// How many bytes the first line of a request may have [default: 8192]
    #[arg(long, value_name = "BYTES", help_heading = "Limits")]
    pub(super) request_line_limit: Option<u32>,
    /// How many bytes the whole head of a request may have [default: 32768]
    #[arg(long, value_name = "BYTES", help_heading = "Limits")]
    pub(super) head_limit: Option<u32>,
    /// How many fields a request may have [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=128), help_heading = "Limits")]
    pub(super) head_fields_limit: Option<u16>,
    /// How many threads each process has; of MIN:MAX, threads beyond MIN start when they are needed [default: 5]
    #[arg(short, long, value_name = "N", help_heading = "For applications")]
    pub(super) threads: Option<String>,
    /// How many threads may start beside these while requests wait in the application [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=1024))]
    #[arg(help_heading = "For applications")]
    pub(super) waiting_threads: Option<u16>,
    /// RACK_ENV and RAILS_ENV
    #[arg(short, long, value_name = "ENV", help_heading = "For applications")]
    pub(super) environment: Option<String>,
    /// The configuration file, or - for none [default: the first of config/thruway.rb,
    /// config/puma/ENV.rb and config/puma.rb that is there]
    #[arg(short = 'C', long, value_name = "FILE", help_heading = "For applications")]
    pub(super) config: Option<PathBuf>,
    /// Where the process number is written
    #[arg(long, value_name = "PATH", help_heading = "For applications")]
    pub(super) pidfile: Option<PathBuf>,
    /// Send files beneath DIR that the application names in X-Sendfile, or in X-Accel-Redirect by a
    /// path that begins with PREFIX: may be repeated
    #[arg(long, value_name = "[PREFIX=]DIR", help_heading = "For applications")]
    pub(super) sendfile: Vec<String>,
    /// Show the entries of folders that have no index.html
    #[arg(long, help_heading = "For folders")]
    pub(super) list: bool,
}

impl Serve {
    /// Fails if an option is given that a folder has no use for.
    pub(super) fn refuse_what_needs_an_application(&self) -> Result<(), Failure> {
        let said = [
            (self.threads.is_some(), "--threads"),
            (self.waiting_threads.is_some(), "--waiting-threads"),
            (self.environment.is_some(), "--environment"),
            (self.config.is_some(), "--config"),
            (self.pidfile.is_some(), "--pidfile"),
            (!self.sendfile.is_empty(), "--sendfile"),
        ];
        let Some((_, option)) = said.iter().find(|(is_said, _)| *is_said) else { return Ok(()) };
        let folder = printable::path(&self.target);
        let message = format!("{option} is for an application, and {folder} has no config.ru");
        Err(Failure::new(message).hint("name the application's folder, or its config.ru"))
    }

    /// Where metrics are read.
    pub(super) fn metrics_bind(&self) -> Result<Option<Bind>, Failure> {
        if self.status && self.metrics.is_none() {
            let failure = Failure::new("--status needs a metrics listener");
            return Err(failure.hint("add --metrics URI"));
        }
        self.metrics.as_ref().map(|text| text.parse().map_err(Failure::new)).transpose()
    }

    /// Where to listen.
    pub(super) fn binds(&self) -> Result<Vec<Bind>, Failure> {
        let port = self.port.or(self.bind.is_empty().then_some(9292));
        let port = port.map(|port| Ok(Address::Tcp { host: "127.0.0.1".into(), port }.into()));
        let binds = self.bind.iter().map(|text| text.parse().map_err(Failure::new));
        port.into_iter().chain(binds).collect()
    }
}

/// How many workers there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Workers {
    /// As many as processors.
    Auto,
    /// A number.
    Count(u16),
}

impl Workers {
    /// More is a slip of the finger.
    const MAX: u16 = 1024;
}

impl FromStr for Workers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let count = text.parse().ok().filter(|count| *count <= Self::MAX);
        count.map(Self::Count).ok_or_else(|| format!("it is auto, or 0 to {}", Self::MAX))
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
