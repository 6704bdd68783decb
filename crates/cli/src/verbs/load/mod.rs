//! `thruway load`: load on an HTTP server, and each connection's share of the answers.

mod progress;
mod text;

use std::fs;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use thruway_load::{Address, Class, ClientKind, Error, Interrupt, Plan, Report, Request, Url};

use crate::output::{Answer, Failure, print};
use progress::Line;

/// Exit status of a run that was less fair than `--fair` asks.
const UNFAIR: u8 = 1;
/// How long a run takes that nothing else ends.
const DURATION_DEFAULT: Duration = Duration::from_secs(10);

/// Load a server and show each connection's share
///
/// Each connection asks for URL again and again, and waits for each answer (a closed loop); with
/// --rate, requests leave at a constant rate (open loop), and latency counts from when a request
/// was due. Whatever is still pending at the end is counted, so a starved connection cannot hide
/// behind the average of the others.
#[derive(Debug, Args)]
pub(crate) struct Load {
    /// What to ask for: http://HOST[:PORT][/PATH]; of this machine, unless --allow-remote
    url: String,
    /// How many connections
    #[arg(short, long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// How long [default: 10, or as long as -n takes]
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
    /// How many requests in all
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Requests a second in all, at a constant rate that does not wait for responses (open loop)
    #[arg(long, value_name = "R", value_parser = rate)]
    rate: Option<f64>,
    /// How many requests a connection may have pending
    #[arg(long, value_name = "D", default_value_t = 1, conflicts_with = "no_keep_alive")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pipeline: u32,
    /// Connections by class instead of -c, and not with --rate: greedy (always has a request pending), polite (rests
    /// after each answer), trickle (sends its requests a byte every 100 ms), idle (asks once and
    /// keeps the connection)
    #[arg(long, value_name = "CLASS=N,...", value_delimiter = ',')]
    #[arg(conflicts_with_all = ["connections", "rate"])]
    mix: Vec<Class>,
    /// A polite connection's rest after an answer, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 10)]
    pause: u64,
    /// When a request without an answer is given up, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    timeout: Duration,
    /// Exit with 1 if Jain's index of any class is below this, or a connection was starved
    #[arg(long, value_name = "INDEX", value_parser = index)]
    fair: Option<f64>,
    /// A row for each connection
    #[arg(long)]
    per_connection: bool,
    /// The report as JSON, with everything in it
    #[arg(long)]
    json: bool,
    /// A header of the request: may be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// The request's method [default: GET, or POST with --body]
    #[arg(long)]
    method: Option<String>,
    /// The request's body, or @FILE
    #[arg(long, value_name = "TEXT|@FILE")]
    body: Option<String>,
    /// A new connection for each request
    #[arg(long)]
    no_keep_alive: bool,
    /// Connect to this socket instead of the URL's host
    #[arg(long, value_name = "PATH")]
    unix_socket: Option<PathBuf>,
    /// Load another machine: only one that you may load
    #[arg(long)]
    allow_remote: bool,
}

impl Load {
    pub(crate) fn run(self) -> Answer {
        let url = Url::parse(&self.url).map_err(failure)?;
        let plan = self.plan(&url)?;
        let interrupt = Interrupt::new().map_err(failure)?;
        let mut line = Line::new();
        let ran =
            thruway_load::run(&plan, Some(interrupt.as_fd()), &mut |progress| line.show(progress));
        line.clear();
        let report = ran.map_err(failure)?;
        if self.json || report.total.connects > 0 {
            print(&self.written(&url, &report)?)?;
        }
        self.verdict(&url, &report)
    }

    fn plan(&self, url: &Url) -> Result<Plan, Failure> {
        Ok(Plan {
            address: self.address(url)?,
            request: self.request(url)?,
            classes: self.classes(),
            depth: self.pipeline,
            pause: Duration::from_millis(self.pause),
            duration: self.duration.or(self.requests.is_none().then_some(DURATION_DEFAULT)),
            requests: self.requests,
            timeout: self.timeout,
        })
    }

    fn address(&self, url: &Url) -> Result<Address, Failure> {
        match &self.unix_socket {
            Some(path) => Ok(Address::Unix(path.clone())),
            None => url.address(self.allow_remote).map_err(failure),
        }
    }

    fn request(&self, url: &Url) -> Result<Request, Failure> {
        let body = match self.body.as_deref().map(|body| (body, body.strip_prefix('@'))) {
            None => Vec::new(),
            Some((text, None)) => text.as_bytes().to_vec(),
            Some((_, Some(file))) => fs::read(file)
                .map_err(|error| Failure::new(format_args!("cannot read {file}: {error}")))?,
        };
        let default = if self.body.is_some() { "POST" } else { "GET" };
        let method = self.method.as_deref().unwrap_or(default);
        Request::new(url, method, &self.headers, &body, !self.no_keep_alive).map_err(failure)
    }

    fn classes(&self) -> Vec<Class> {
        if !self.mix.is_empty() {
            return self.mix.clone();
        }
        let kind = self.rate.map_or(ClientKind::Greedy, |rate| ClientKind::Scheduled { rate });
        vec![Class { kind, connections: self.connections }]
    }

    fn written(&self, url: &Url, report: &Report) -> Result<Vec<u8>, Failure> {
        if !self.json {
            return Ok(text::report(url, report, self.per_connection).into_bytes());
        }
        let mut json = serde_json::to_vec_pretty(report)
            .map_err(|error| Failure::new(format_args!("cannot write JSON: {error}")))?;
        json.push(b'\n');
        Ok(json)
    }

    /// A run without an answer is a failure; one that was less fair than asked, an honest no.
    fn verdict(&self, url: &Url, report: &Report) -> Answer {
        if report.total.requests == 0 {
            let why = report.connect_error.as_deref().unwrap_or("it never answered in full");
            let failure = Failure::new(format_args!("no answer from {url}: {why}"));
            return Err(failure.hint("is a server listening there, and is it the right one?"));
        }
        let Some(least) = self.fair else { return Ok(ExitCode::SUCCESS) };
        let is_fair = text::is_fair(&report.total.fairness, least);
        if !self.json {
            print(text::verdict(&report.total.fairness, least).as_bytes())?;
        }
        Ok(if is_fair { ExitCode::SUCCESS } else { ExitCode::from(UNFAIR) })
    }
}

fn failure(error: Error) -> Failure {
    let failure = Failure::new(&error);
    if error.is_remote() {
        return failure.hint("--allow-remote loads another machine: only one that you may load");
    }
    if error.is_too_many() {
        return failure.hint("ask for fewer connections, or raise the hard limit (ulimit -Hn)");
    }
    failure
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "it is not a number of seconds".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("it is not a time that passes".to_owned()),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "it is not a number".to_owned())?;
    if (1e-3..=1e8).contains(&rate) {
        Ok(rate)
    } else {
        Err("it is not a rate that can be kept".into())
    }
}

fn index(text: &str) -> Result<f64, String> {
    let index: f64 = text.parse().map_err(|_| "it is not a number".to_owned())?;
    if (0.0..=1.0).contains(&index) { Ok(index) } else { Err("an index is between 0 and 1".into()) }
}
