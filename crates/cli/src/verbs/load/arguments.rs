//! The arguments of `thruway load`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use thruway_load::Arrivals;

use super::class::{ClassText, arrivals};
use super::limits::Limits;
use super::number::{connections, duration, index, milliseconds, percentile, rate, weight};
use super::tls::TlsOptions;
use super::variables::VariableText;

/// The duration of a visit in a comparison without other limits.
pub(super) const VISIT_DEFAULT: Duration = Duration::from_secs(1);

/// Put load on a server, and show each connection's share
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
    #[arg(required_unless_present = "url_file", value_name = "URL")]
    pub(super) urls: Vec<String>,
    /// Take the URLs from a file, one per line; they are requested in random order and reported together
    #[arg(long = "urls", value_name = "FILE", conflicts_with_all = ["urls", "weights"])]
    pub(super) url_file: Option<String>,
    /// Values that take the place of {NAME} in URLs, headers and the body, in random order: id=1-1000, id=one,two or
    /// id=@FILE with one a line; may be repeated
    #[arg(long = "var", value_name = "NAME=VALUES")]
    pub(super) variables: Vec<VariableText>,
    /// The weight of each URL, in the order of the URLs: numbers from 1 to 1000
    /// [default: 1 each]
    #[arg(long, value_name = "W,...", value_delimiter = ',', value_parser = weight)]
    pub(super) weights: Vec<u32>,
    /// Number of connections
    #[arg(short, long, value_name = "N", default_value_t = 10, value_parser = connections)]
    pub(super) connections: u32,
    /// Duration, as in 500ms, 10s, 1m; a bare number is seconds [default: 10s, or as long as -n takes]
    #[arg(short, long, visible_short_alias = 'z', value_name = "TIME", value_parser = duration)]
    pub(super) duration: Option<Duration>,
    /// Number of requests in all
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) requests: Option<u64>,
    /// Requests per second in all, at a constant rate that does not wait for responses (an open loop)
    #[arg(long, value_name = "R", value_parser = rate)]
    pub(super) rate: Option<f64>,
    /// Arrivals in an open loop: even, or poisson (at random, like those of many independent people)
    /// [default: even]
    #[arg(long, value_name = "HOW", value_parser = arrivals)]
    pub(super) arrivals: Option<Arrivals>,
    /// Requests that a connection may have pending [default: 1]
    #[arg(long, value_name = "D", conflicts_with = "no_keep_alive")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) pipeline: Option<u32>,
    /// Speak HTTP/2: negotiated by ALPN for https, and with prior knowledge for http
    #[arg(long)]
    pub(super) http2: bool,
    /// Streams that each connection keeps open with --http2; each is a client that sends a request and waits
    #[arg(long, value_name = "M", requires = "http2", conflicts_with_all = ["pipeline", "no_keep_alive"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) streams: Option<u32>,
    /// The message to send over WebSockets, or @FILE [default: 32 bytes]. In a broadcast, {id} becomes its number
    #[arg(long, value_name = "TEXT|@FILE")]
    pub(super) message: Option<String>,
    /// The first connection sends a message that the server should send to all. The next follows when all have it, or
    /// with --rate when it is due
    #[arg(long, conflicts_with_all = ["mix", "class", "streams"])]
    pub(super) broadcast: bool,
    /// The first message of each WebSocket, or @FILE, such as a subscription to the broadcast
    #[arg(long, value_name = "TEXT|@FILE")]
    pub(super) subscribe: Option<String>,
    /// A part of the server's confirmation. Nothing else is sent before each connection has received one
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub(super) confirmed: Option<String>,
    /// Connections by class instead of -c, and not with --rate. Classes: greedy (always has a request pending),
    /// pipelined (has several, --pipeline or 16), polite (rests after each response). Slow ones: trickle (sends its
    /// requests a byte every 100 ms), slow-read (takes 1024 bytes every 100 ms). And idle (asks once and keeps the
    /// connection)
    #[arg(long, value_name = "CLASS=N,...", value_delimiter = ',')]
    #[arg(conflicts_with_all = ["connections", "rate", "class"])]
    pub(super) mix: Vec<ClassText>,
    /// One class of connections with options of its own, instead of -c, --rate and --mix; may be repeated. Of all
    /// classes: url=K (asks the Kth URL only). Of greedy and pipelined: depth=D; of polite: pause=MS. Of scheduled
    /// (an open loop): rate=R, arrivals=HOW, depth=D. Of trickle: gap=MS; of slow-read: gap=MS, bytes=N
    #[arg(long, value_name = "CLASS=N[,OPTION=VALUE,...]")]
    #[arg(conflicts_with_all = ["connections", "rate"])]
    pub(super) class: Vec<ClassText>,
    /// A polite connection's rest after a response; a bare number is milliseconds [default: 10ms]
    #[arg(long, value_name = "TIME", value_parser = milliseconds)]
    pub(super) pause: Option<Duration>,
    /// Time until a request without a response counts as failed
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(super) timeout: Duration,
    /// Time before the duration in which the load is the same and nothing counts
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) warm_up: Option<Duration>,
    /// Time in which the load grows: connections start one after another, and a rate rises from 0
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) ramp: Option<Duration>,
    /// Requests that are due at the same time in an open loop; the rate stays the same
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    #[arg(conflicts_with = "arrivals")]
    pub(super) burst: Option<u32>,
    /// Threads that share the connections
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(super) threads: u32,
    #[command(flatten)]
    pub(super) limits: Limits,
    /// Exit with 1 if Jain's index of any class is below this, or a connection was starved
    #[arg(long, value_name = "INDEX", value_parser = index)]
    pub(super) fair: Option<f64>,
    /// Print a row for each connection
    #[arg(long)]
    pub(super) per_connection: bool,
    /// Percentiles of latency to print, such as 50,95,99.99 [default: 50,90,99,99.9]
    #[arg(long, value_name = "P,...", value_delimiter = ',', value_parser = percentile)]
    pub(super) percentiles: Vec<f64>,
    /// Print a histogram of the latencies
    #[arg(long)]
    pub(super) histogram: bool,
    /// Write a picture of the latencies and of the run over time to this file
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,
    /// Write a row for each second of the run to this file
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
    /// Time between two lines of progress where stderr is not a terminal
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration, conflicts_with = "quiet")]
    pub(super) progress: Duration,
    /// Show no progress
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// Print the whole report as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Compare with an earlier run, from a file written by --json; or with the server of another URL, in rounds
    #[arg(long, value_name = "FILE|URL")]
    pub(super) compare: Option<PathBuf>,
    /// Rounds of --compare URL. In each, both servers are loaded for -d or -n
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(3..=1000))]
    pub(super) rounds: u32,
    /// A header of the request; may be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub(super) headers: Vec<String>,
    /// User name and password, for HTTP basic authentication
    #[arg(short = 'a', long, visible_alias = "user", value_name = "USER:PASSWORD")]
    pub(super) auth: Option<String>,
    /// The User-Agent header [default: none]
    #[arg(short = 'A', long, value_name = "TEXT")]
    pub(super) user_agent: Option<String>,
    /// Ask for compressed bodies, which are counted but not decompressed
    #[arg(long)]
    pub(super) compressed: bool,
    /// The request's method [default: GET, or POST with --body]
    #[arg(long)]
    pub(super) method: Option<String>,
    /// The request's body, or @FILE, or @- for stdin
    #[arg(long, value_name = "TEXT|@FILE")]
    pub(super) body: Option<String>,
    /// Send the body in chunks of this many bytes and without a length, as a program that streams would
    #[arg(long, value_name = "BYTES", requires = "body", conflicts_with = "http2")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(super) chunked: Option<u32>,
    /// Open a new connection for each request
    #[arg(long)]
    pub(super) no_keep_alive: bool,
    #[command(flatten)]
    pub(super) tls: TlsOptions,
    /// Connect to this address instead of the URL's, which stays in the Host header and in SNI
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "unix_socket", help_heading = None)]
    pub(super) connect_to: Option<String>,
    /// Connect to this unix socket instead of the URL's host
    #[arg(long, value_name = "PATH")]
    pub(super) unix_socket: Option<PathBuf>,
    /// Allow a URL of another machine. Use only with the permission of its owner
    #[arg(long)]
    pub(super) allow_remote: bool,
}
