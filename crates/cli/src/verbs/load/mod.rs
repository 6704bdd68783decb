//! `thruway load`: load on an HTTP server, and each connection's share of the responses.

mod class;
mod compare;
mod number;
mod progress;
mod source;
mod text;
mod unused;

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use thruway_load::{
    Address, Arrivals, Class, Error, GroupReport, Interrupt, Messages, Plan, Protocol, Report,
    Request, Url, WeightedRequest,
};

use crate::output::{Answer, Failure, print, print_report};
use class::{ClassText, Defaults, PAUSE_DEFAULT_MS, arrivals};
use number::{connections, index, rate, seconds, weight};
use progress::Line;

/// Exit status of a run with nothing but errors, or that was less fair than `--fair` asks.
const BAD_RESULT: u8 = 1;
/// The reason to report for a server that accepted connections and gave no complete response.
const SILENT: &str = "no complete response";
/// The message that is sent over WebSockets.
const MESSAGE_DEFAULT: &str = "load: 32 bytes, that come back.\n";
/// A body or a message is kept whole, for each URL and more than once if several are pending.
const TEXT_BYTES_MAX: u64 = 256 << 20;
/// The duration of a run without other limits.
const DURATION_DEFAULT: Duration = Duration::from_secs(10);

/// Load a server and show each connection's share
///
/// Each connection requests URL again and again, and waits for each response (a closed loop). With
/// --rate, requests leave at a constant rate (an open loop), and latency counts from the time at which a request
/// was due. Requests that are still pending at the end are counted, so a starved connection cannot hide
/// behind the average of the others. Several URLs are requested in turn, according to their weights, and
/// reported separately. Over HTTP/2 (--http2) a connection has a request pending on each of several
/// streams. For a ws:// URL, messages are sent that the server echoes, or sends to all connections (--broadcast).
#[derive(Debug, Args)]
pub(crate) struct Load {
    /// The URL: http://HOST[:PORT][/PATH], or https, ws, wss. The host is this machine, unless --allow-remote is given.
    /// Several URLs must be of one server
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,
    /// The weight of each URL, in the order of the URLs: numbers from 1 to 1000
    /// [default: 1 each]
    #[arg(long, value_name = "W,...", value_delimiter = ',', value_parser = weight)]
    weights: Vec<u32>,
    /// Number of connections
    #[arg(short, long, value_name = "N", default_value_t = 10, value_parser = connections)]
    connections: u32,
    /// Duration in seconds [default: 10, or as long as -n takes]
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
    /// Number of requests in all
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Requests per second in all, at a constant rate that does not wait for responses (an open loop)
    #[arg(long, value_name = "R", value_parser = rate)]
    rate: Option<f64>,
    /// Arrivals in an open loop: even, or poisson (at random, like those of many independent people)
    /// [default: even]
    #[arg(long, value_name = "HOW", value_parser = arrivals)]
    arrivals: Option<Arrivals>,
    /// Requests that a connection may have pending [default: 1]
    #[arg(long, value_name = "D", conflicts_with = "no_keep_alive")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pipeline: Option<u32>,
    /// Speak HTTP/2: negotiated by ALPN for https, and with prior knowledge for http
    #[arg(long)]
    http2: bool,
    /// Streams that each connection keeps open with --http2; each is a client that sends a request and waits
    #[arg(long, value_name = "M", requires = "http2", conflicts_with_all = ["pipeline", "no_keep_alive"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    streams: Option<u32>,
    /// The message to send over WebSockets, or @FILE [default: 32 bytes]. In a broadcast, {id} becomes its number
    #[arg(long, value_name = "TEXT|@FILE")]
    message: Option<String>,
    /// The first connection sends a message that the server should send to all. The next follows when all have it, or
    /// with --rate when it is due
    #[arg(long, conflicts_with_all = ["mix", "class", "streams"])]
    broadcast: bool,
    /// The first message of each WebSocket, or @FILE, such as a subscription to the broadcast
    #[arg(long, value_name = "TEXT|@FILE")]
    subscribe: Option<String>,
    /// A part of the server's confirmation. Nothing else is sent before each connection has received one
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    confirmed: Option<String>,
    /// Connections by class instead of -c, and not with --rate. Classes: greedy (always has a request pending),
    /// pipelined (has several, --pipeline or 16), polite (rests after each response). Slow ones: trickle (sends its
    /// requests a byte every 100 ms), slow-read (takes 1024 bytes every 100 ms). And idle (asks once and keeps the
    /// connection)
    #[arg(long, value_name = "CLASS=N,...", value_delimiter = ',')]
    #[arg(conflicts_with_all = ["connections", "rate", "class"])]
    mix: Vec<ClassText>,
    /// One class of connections with options of its own, instead of -c, --rate and --mix; may be repeated. Of all
    /// classes: url=K (asks the Kth URL only). Of greedy and pipelined: depth=D; of polite: pause=MS. Of scheduled
    /// (an open loop): rate=R, arrivals=HOW, depth=D. Of trickle: gap=MS; of slow-read: gap=MS, bytes=N
    #[arg(long, value_name = "CLASS=N[,OPTION=VALUE,...]")]
    #[arg(conflicts_with_all = ["connections", "rate"])]
    class: Vec<ClassText>,
    /// A polite connection's rest after a response, in milliseconds [default: 10]
    #[arg(long, value_name = "MS")]
    pause: Option<u64>,
    /// Seconds until a request without a response counts as failed
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    timeout: Duration,
    /// Exit with 1 if Jain's index of any class is below this, or a connection was starved
    #[arg(long, value_name = "INDEX", value_parser = index)]
    fair: Option<f64>,
    /// Print a row for each connection
    #[arg(long)]
    per_connection: bool,
    /// Print the whole report as JSON
    #[arg(long)]
    json: bool,
    /// Compare with an earlier run, from a file written by --json
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    compare: Option<PathBuf>,
    /// A header of the request; may be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// The request's method [default: GET, or POST with --body]
    #[arg(long)]
    method: Option<String>,
    /// The request's body, or @FILE
    #[arg(long, value_name = "TEXT|@FILE")]
    body: Option<String>,
    /// Open a new connection for each request
    #[arg(long)]
    no_keep_alive: bool,
    /// Connect to this unix socket instead of the URL's host
    #[arg(long, value_name = "PATH")]
    unix_socket: Option<PathBuf>,
    /// Allow a URL of another machine. Only with its owner's permission
    #[arg(long)]
    allow_remote: bool,
}

impl Load {
    pub(crate) fn run(self) -> Answer {
        let urls = self.parsed_urls()?;
        let earlier = self.compare.as_deref().map(compare::read).transpose()?;
        let plan = self.plan(&urls)?;
        let interrupt = Interrupt::new().map_err(failure)?;
        let mut line = Line::new();
        let ran =
            thruway_load::run(&plan, Some(interrupt.as_fd()), &mut |progress| line.show(progress));
        line.clear();
        let report = ran.map_err(failure)?;
        if self.json || report.total.connects > 0 {
            self.print(&urls, &report)?;
        }
        if let (Some(earlier), Some(path)) = (&earlier, &self.compare) {
            print_report(&compare::text(earlier, &report, path))?;
        }
        self.verdict(&urls[0], &report)
    }

    /// The URLs, all of one server.
    fn parsed_urls(&self) -> Result<Vec<Url>, Failure> {
        let parsed = self.urls.iter().map(|url| Url::parse(url).map_err(failure));
        let urls = parsed.collect::<Result<Vec<_>, _>>()?;
        let is_other = |url: &&Url| !url.has_same_server(&urls[0]);
        match urls.iter().find(is_other).filter(|_| self.unix_socket.is_none()) {
            Some(other) => Err(Failure::new(format_args!(
                "{other} and {} are of different servers",
                urls[0]
            ))
            .hint("a run loads one server: give URLs of one host and port, or run load for each")),
            None => Ok(urls),
        }
    }

    fn plan(&self, urls: &[Url]) -> Result<Plan, Failure> {
        let protocol = self.protocol(urls)?;
        Ok(Plan {
            address: self.address(&urls[0])?,
            tls: urls[0].tls(protocol.alpn()).map_err(failure)?,
            protocol,
            urls: self.requests(urls)?,
            classes: self.classes(urls.len())?,
            duration: self.duration.or(self.requests.is_none().then_some(DURATION_DEFAULT)),
            requests: self.requests,
            timeout: self.timeout,
        })
    }

    /// The request for each URL.
    fn requests(&self, urls: &[Url]) -> Result<Vec<WeightedRequest>, Failure> {
        let (weights, count) = (self.weights.len(), urls.len());
        if weights > 0 && weights != count {
            return Err(Failure::new(format_args!(
                "--weights has {weights} numbers for {count} URLs"
            ))
            .hint("give one for each URL, in their order"));
        }
        let body = self.body.as_deref().map(text_or_file).transpose()?;
        let weighted = |(place, url)| {
            let weight = self.weights.get(place).copied().unwrap_or(1);
            Ok(WeightedRequest { request: self.request(url, body.as_deref())?, weight })
        };
        urls.iter().enumerate().map(weighted).collect()
    }

    fn address(&self, url: &Url) -> Result<Address, Failure> {
        match &self.unix_socket {
            Some(path) => Ok(Address::Unix(path.clone())),
            None => url.address(self.allow_remote).map_err(failure),
        }
    }

    /// The protocol.
    fn protocol(&self, urls: &[Url]) -> Result<Protocol, Failure> {
        let given = [
            (self.message.is_some(), "--message"),
            (self.broadcast, "--broadcast"),
            (self.subscribe.is_some(), "--subscribe"),
            (self.confirmed.is_some(), "--confirmed"),
        ];
        let of_sockets = given.iter().find(|(is_given, _)| *is_given).map(|(_, name)| *name);
        let of_requests = [
            (self.http2, "--http2"),
            (self.body.is_some(), "--body"),
            (self.method.is_some(), "--method"),
            (self.no_keep_alive, "--no-keep-alive"),
            (urls.len() > 1, "a second URL"),
        ];
        let of_requests = of_requests.iter().find(|(is_given, _)| *is_given).map(|(_, name)| *name);
        match (urls[0].is_websocket(), of_sockets, of_requests) {
            (true, _, Some(name)) => {
                Err(Failure::new(format_args!("{name} is not for WebSockets"))
                    .hint("the handshake is a GET of one URL, over HTTP/1; -H adds headers to it"))
            }
            (true, ..) => self.messages().map(Protocol::WebSocket),
            (false, Some(name), _) => Err(Failure::new(format_args!("{name} is for WebSockets"))
                .hint("write the URL with ws:// or wss://")),
            (false, None, _) if self.http2 => Ok(Protocol::Http2),
            (false, ..) => Ok(Protocol::Http1),
        }
    }

    fn messages(&self) -> Result<Messages, Failure> {
        let default = if self.broadcast { "{id}" } else { MESSAGE_DEFAULT };
        let message = text_or_file(self.message.as_deref().unwrap_or(default))?;
        if self.broadcast && !message.windows(4).any(|part| part == b"{id}") {
            return Err(Failure::new("the message of a broadcast lacks {id}")
                .hint("{id} becomes the message's number, by which each connection recognizes the message"));
        }
        let subscribe = self.subscribe.as_deref().map(text_or_file).transpose()?;
        for (name, text) in [("--message", Some(&message)), ("--subscribe", subscribe.as_ref())] {
            if text.is_some_and(|text| std::str::from_utf8(text).is_err()) {
                return Err(Failure::new(format_args!("the text of {name} is not UTF-8")).hint(
                    "messages are sent as text frames, in which a server refuses other bytes",
                ));
            }
        }
        let confirmed = self.confirmed.as_ref().map(|text| text.as_bytes().to_vec());
        Ok(Messages { message, subscribe, confirmed, is_broadcast: self.broadcast })
    }

    fn request(&self, url: &Url, body: Option<&[u8]>) -> Result<Request, Failure> {
        if url.is_websocket() {
            return Request::websocket(url, &self.headers).map_err(failure);
        }
        let default = if self.body.is_some() { "POST" } else { "GET" };
        let method = self.method.as_deref().unwrap_or(default);
        Request::new(url, method, &self.headers, body, !self.no_keep_alive).map_err(failure)
    }

    fn classes(&self, urls: usize) -> Result<Vec<Class>, Failure> {
        let given = [self.mix.as_slice(), &self.class].concat();
        let plain = [ClassText::plain(self.connections, self.rate)];
        let texts = if given.is_empty() { &plain[..] } else { given.as_slice() };
        let beyond = texts.iter().filter_map(|class| class.url).find(|url| *url as usize > urls);
        if let Some(url) = beyond {
            return Err(Failure::new(format_args!("--class names URL {url} of {urls}"))
                .hint("url=K is the position of a URL among the arguments, counted from 1"));
        }
        let defaults = Defaults {
            depth: self.streams.or(self.pipeline).unwrap_or(1),
            pause_ms: self.pause.unwrap_or(PAUSE_DEFAULT_MS),
            arrivals: self.arrivals.unwrap_or(Arrivals::Even),
        };
        let classes: Vec<_> = texts.iter().map(|class| class.resolved(defaults)).collect();
        self.refuse_unused(texts, &classes)?;
        Ok(classes)
    }

    fn print(&self, urls: &[Url], report: &Report) -> Result<(), Failure> {
        if !self.json {
            return print_report(&text::report(urls, report, self.per_connection));
        }
        let mut json = serde_json::to_vec_pretty(report)
            .map_err(|error| Failure::new(format_args!("cannot write JSON: {error}")))?;
        json.push(b'\n');
        print(&json)
    }

    /// A run without a response is a failure. A run is a negative result if every response is an error, or if it is
    /// below the demanded fairness.
    fn verdict(&self, url: &Url, report: &Report) -> Answer {
        if report.total.requests == 0 {
            return Err(self.no_answer(url, report));
        }
        if let Some(errors) = only_errors(&report.total) {
            return Err(Failure::new(format_args!("every response is an error: {errors}"))
                .hint("the figures show how fast the server fails: check the path, and whether it needs a header")
                .status(BAD_RESULT));
        }
        let Some(least) = self.fair else { return Ok(ExitCode::SUCCESS) };
        let is_fair = text::is_fair(&report.total.fairness, least);
        if !self.json {
            print_report(&text::verdict(&report.total.fairness, least))?;
        }
        Ok(if is_fair { ExitCode::SUCCESS } else { ExitCode::from(BAD_RESULT) })
    }

    /// The failure to report if there was no response at all.
    fn no_answer(&self, url: &Url, report: &Report) -> Failure {
        let no_answer = |why: &str| Failure::new(format_args!("no response from {url}: {why}"));
        match (&report.connect_error, &report.tls_error) {
            (Some(why), _) => no_answer(why).hint("check that the right server listens there"),
            (None, Some(why)) => no_answer(&format!("TLS failed: {why}"))
                .hint("openssl s_client -connect HOST:PORT shows what the server agrees to"),
            (None, None) if self.http2 => no_answer(SILENT)
                .hint("check that the server speaks HTTP/2 with prior knowledge, without TLS"),
            (None, None) => {
                no_answer(SILENT).hint("check that it is the right server, and that it speaks HTTP")
            }
        }
    }
}

/// The statuses of a run that had nothing but errors.
fn only_errors(total: &GroupReport) -> Option<String> {
    let is_error = |(name, _): (&&str, &u64)| matches!(*name, "4xx" | "5xx");
    let are_errors = !total.status.is_empty() && total.status.iter().all(is_error);
    are_errors.then(|| text::counts(&total.status))
}

/// A text, or what is in the file that it names.
fn text_or_file(text: &str) -> Result<Vec<u8>, Failure> {
    match text.strip_prefix('@') {
        None => Ok(text.as_bytes().to_vec()),
        Some(file) => source::read(Path::new(file), TEXT_BYTES_MAX)
            .map_err(|error| Failure::new(format_args!("cannot read {file}: {error}"))),
    }
}

fn failure(error: Error) -> Failure {
    let failure = Failure::new(&error);
    if error.is_remote() {
        return failure
            .hint("use --allow-remote to load another machine, only with its owner's permission");
    }
    if error.is_too_many() {
        return failure.hint("ask for fewer connections, or raise the hard limit (ulimit -Hn)");
    }
    failure
}
