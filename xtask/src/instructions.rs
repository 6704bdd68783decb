//! `cargo x instructions`: the number of our own instructions per request, counted by callgrind.
//!
//! A server runs under callgrind. Its first requests warm it up. The count of a case is the mean of the next ones, and
//! covers the code of the program or of the extension in the serving thread. Each request is sent when the server is at
//! rest. The instructions of Ruby and of the C library are left out, so that the count is valid on other systems. So
//! are the kernel's: `tests/budgets/serve.rs` counts the system calls.

mod profile;
mod rest;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use clap::Args;

use profile::own_instructions;

/// The number of requests before the count, and of counted requests.
const WARM: u32 = 100;
const COUNTED: u32 = 100;

/// The number of counts per case.
const COUNTS: u32 = 4;

/// A body of 2 KiB.
const BODY: [u8; 2048] = [b'b'; 2048];

/// The permitted deviation from the budget, in percent: compilers differ, and some requests meet a tick of the clock.
const TOLERANCE_PERCENT: u64 = 10;

/// The fields of a typical browser besides `Host`.
const BROWSER: &str = "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: en-US,en;q=0.5\r\nDNT: 1\r\nCookie: session=0123456789abcdef0123456789abcdef\r\n\
    Upgrade-Insecure-Requests: 1\r\nSec-Fetch-Dest: document\r\nSec-Fetch-Mode: navigate\r\n\
    Sec-Fetch-Site: none\r\nSec-Fetch-User: ?1\r\nPriority: u=0, i\r\nTE: trailers\r\n";

/// A request to which Ruby responds at once.
const SHORT: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// The file of budgets.
const BUDGETS: &str = "tests/budgets/instructions.tsv";

/// The arguments of the cargo that builds the server.
pub(crate) const BUILD: [&str; 7] =
    ["build", "--profile", "counted", "--package", "thruway-cli", "--package", "thruway-gem-ext"];

/// Our own instructions per request, by case.
type Counts = Vec<(&'static str, u64)>;

/// Count the instructions that requests take, and compare them with the budgets
#[derive(Debug, Args)]
pub(crate) struct Instructions {
    /// Build the counted programs, and count nothing
    #[arg(long)]
    build: bool,
}

impl Instructions {
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        run(root, self.build)
    }
}

fn run(root: &Path, is_build: bool) -> Result<(), String> {
    let text = std::fs::read_to_string(root.join(BUDGETS))
        .map_err(|error| format!("cannot read {BUDGETS}: {error}"))?;
    let compiler = rustc_version()?;
    if text.lines().next() != Some(&format!("rustc\t{compiler}")) {
        println!(
            "instructions: skipped, because another compiler makes other code than {BUDGETS} is for: {compiler}"
        );
        return Ok(());
    }
    build(root)?;
    if is_build {
        return Ok(());
    }
    let folder = tempfile::tempdir().map_err(|error| format!("cannot make a folder: {error}"))?;
    let counts = count(root, folder.path())?;
    let mut wrong = String::new();
    for (case, count) in counts {
        let budget = budget_of(&text, case)?;
        println!("{case}: {count} instructions (budget {budget})");
        if count.abs_diff(budget) * 100 > budget * TOLERANCE_PERCENT {
            let _ = writeln!(wrong, "{case}: {count} instructions, and {budget} in {BUDGETS}");
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// The version of the compiler, such as `1.95`.
fn rustc_version() -> Result<String, String> {
    let output = Command::new("rustc").arg("--version").output();
    let output = output.map_err(|error| format!("cannot start rustc: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.split(' ').nth(1).unwrap_or_default();
    Ok(version.split('.').take(2).collect::<Vec<_>>().join("."))
}

/// Builds the counted programs, optimised and yet quickly.
fn build(root: &Path) -> Result<(), String> {
    let mut build = Command::new(crate::command::cargo());
    build.current_dir(root).args(BUILD);
    let status = build.status().map_err(|error| format!("cannot start cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("the server does not build ({status})")) }
}

fn count(root: &Path, folder: &Path) -> Result<Counts, String> {
    let failed = |error: std::io::Error| format!("cannot prepare {}: {error}", folder.display());
    let site = folder.join("site");
    std::fs::create_dir(&site).map_err(failed)?;
    std::fs::write(site.join("a.txt"), [b'x'; 10_240]).map_err(failed)?;
    let built = root.join("target/counted");
    let mut files = Command::new("valgrind");
    let binary = built.join("thruway");
    files.args(callgrind(folder)).arg(&binary).arg("serve").arg(&site).args(["-p", "0", "-w", "1"]);
    let mut server = CountedServer::start(files, folder, "thruway")?;
    let file = server.count("GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n", 200)?;
    let browser = server.count(&format!("GET /a.txt HTTP/1.1\r\nHost: a\r\n{BROWSER}\r\n"), 200)?;
    let missing = server.count("GET /none HTTP/1.1\r\nHost: a\r\n\r\n", 404)?;
    drop(server);
    let extension = folder.join("gem/thruway");
    std::fs::create_dir_all(&extension).map_err(failed)?;
    std::fs::copy(built.join("libthruway_ext.so"), extension.join("thruway.so")).map_err(failed)?;
    let mut server = short_application(root, folder, &[])?;
    let short = server.count(SHORT, 200)?;
    let head = server.count("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", 200)?;
    let posted = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", BODY.len());
    let posted = server.count(&(posted + &String::from_utf8_lossy(&BODY)), 200)?;
    drop(server);
    let metrics = format!("unix://{}", folder.join("metrics").display());
    let measured = short_application(root, folder, &["--metrics", &metrics])?.count(SHORT, 200)?;
    Ok(vec![
        ("a file of 10 KiB", file),
        ("12 fields more in a head", browser.saturating_sub(file)),
        ("a file that is not there", missing),
        ("a short application", short),
        ("its head alone", head),
        ("a body of 2 KiB for it", posted),
        ("a short application, with metrics", measured),
    ])
}

/// Starts a server with an application that responds at once.
fn short_application(
    root: &Path,
    folder: &Path,
    options: &[&str],
) -> Result<CountedServer, String> {
    let mut ruby = Command::new("valgrind");
    ruby.args(callgrind(folder)).arg("ruby").arg("-I").arg(folder.join("gem"));
    ruby.arg("-I").arg(root.join("gem/lib")).args(["-r", "thruway/cli", "-e"]);
    ruby.args(["exit Thruway::CLI.run(ARGV)", "--", "--port", "0", "--workers", "0"]);
    ruby.args(["--threads", "1", "--environment", "production"]).args(options);
    ruby.arg("--").arg(root.join("examples/rack_hello"));
    CountedServer::start(ruby, folder, "thruway.so")
}

fn callgrind(folder: &Path) -> Vec<String> {
    let out = folder.join("callgrind.%p");
    let options = ["--tool=callgrind", "--quiet", "--instr-atstart=yes", "--separate-threads=yes"];
    let out = format!("--callgrind-out-file={}", out.display());
    options.into_iter().map(str::to_owned).chain([out]).collect()
}

fn budget_of(text: &str, case: &str) -> Result<u64, String> {
    let rows = text.lines().filter_map(|line| line.split_once('\t'));
    let mut found = rows.filter(|(name, _)| *name == case);
    let budget = found.next().and_then(|(_, budget)| budget.parse().ok());
    budget.ok_or_else(|| format!("{BUDGETS} has no number for {case:?}"))
}

/// A server under callgrind. The server ends when the value is dropped.
struct CountedServer {
    child: Child,
    client: TcpStream,
    folder: PathBuf,
    /// The file name of the object whose code is counted.
    object: &'static str,
    dumps: u32,
}

impl CountedServer {
    fn start(mut command: Command, folder: &Path, object: &'static str) -> Result<Self, String> {
        const CURE: &str = "\n\nhint: scripts/setup installs what is missing (valgrind)";
        // valgrind lists unknown system calls on stderr.
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot start valgrind: {error}{CURE}"))?;
        let mut line = String::new();
        let stdout = child.stdout.take().ok_or("it has no output")?;
        let read = BufReader::new(stdout).read_line(&mut line);
        let address = line.split("http://").nth(1).and_then(|rest| rest.split(' ').next());
        let client = read.ok().and(address).and_then(|address| TcpStream::connect(address).ok());
        let Some(client) = client else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("the server below callgrind does not start: {line:?}"));
        };
        Ok(Self { child, client, folder: folder.to_owned(), object, dumps: 0 })
    }

    /// Returns our own instructions for one such request, whose response must have the status. The result is the least
    /// of several counts, since clocks and wake-ups of other threads only add to a count.
    fn count(&mut self, request: &str, status: u16) -> Result<u64, String> {
        println!("counting {}", request.lines().next().unwrap_or_default());
        self.ask(request, status, WARM)?;
        let mut least = u64::MAX;
        for _ in 0..COUNTS {
            least = least.min(self.count_once(request, status)?);
        }
        Ok(least)
    }

    fn count_once(&mut self, request: &str, status: u16) -> Result<u64, String> {
        self.control("--zero")?;
        self.ask(request, status, COUNTED)?;
        rest::wait(self.child.id())
            .map_err(|error| format!("the server below callgrind: {error}"))?;
        self.control("--dump")?;
        self.dumps += 1;
        // The serving thread has the most; the counts of other threads depend on the speed of the machine.
        let most = self.costs_by_thread()?.into_iter().max();
        Ok(most.unwrap_or(0) / u64::from(COUNTED))
    }

    /// Our own instructions in each thread, from the newest dump, for which callgrind writes one file per thread.
    fn costs_by_thread(&self) -> Result<Vec<u64>, String> {
        let dump = format!("callgrind.{}.{}-", self.child.id(), self.dumps);
        let failed = |error: std::io::Error| format!("cannot read {dump}*: {error}");
        let mut costs = Vec::new();
        for file in std::fs::read_dir(&self.folder).map_err(failed)? {
            let path = file.map_err(failed)?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&dump)) {
                let text = std::fs::read_to_string(&path).map_err(failed)?;
                costs.push(own_instructions(&text, self.object));
            }
        }
        if costs.is_empty() { Err(format!("callgrind has written no {dump}*")) } else { Ok(costs) }
    }

    /// Sends the request `times` times. Another status is an error: the cost of such a response is of no use.
    fn ask(&mut self, request: &str, status: u16, times: u32) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("the server below callgrind: {error}");
        let (status, is_head) = (format!("HTTP/1.1 {status} "), request.starts_with("HEAD "));
        for _ in 0..times {
            rest::wait(self.child.id()).map_err(failed)?;
            self.client.write_all(request.as_bytes()).map_err(failed)?;
            let response = read_response(&mut self.client, is_head).map_err(failed)?;
            if !response.starts_with(status.as_bytes()) {
                let response = String::from_utf8_lossy(&response);
                return Err(format!("{request:?} below callgrind: {response:.200}"));
            }
        }
        Ok(())
    }

    fn control(&self, option: &str) -> Result<(), String> {
        let pid = self.child.id().to_string();
        let output = Command::new("callgrind_control")
            .args([option, &pid])
            .output()
            .map_err(|error| format!("cannot start callgrind_control: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("callgrind_control {option}: {}", String::from_utf8_lossy(&output.stderr)))
    }
}

impl Drop for CountedServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads a response to its end, as given by its length, or by the end of its head.
fn read_response(client: &mut TcpStream, is_head: bool) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut piece = [0; 16 << 10];
    loop {
        let length = client.read(&mut piece)?;
        if length == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&piece[..length]);
        let Some(head) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
        let body = text.split("content-length: ").nth(1).filter(|_| !is_head).and_then(|rest| {
            rest.split("\r\n").next().and_then(|number| number.parse::<usize>().ok())
        });
        if bytes.len() >= head + 4 + body.unwrap_or(0) {
            return Ok(bytes);
        }
    }
}
