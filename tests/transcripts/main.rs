//! Every `console` block in the README and the docs is run, and must print what it shows.
//!
//! A line `$ COMMAND` is run by `sh` at the top of the checkout, with `thruway` on PATH; the lines
//! below it, up to the next command, are its stdout and stderr. `[..]` stands for any text within a
//! line, and a line `...` for any number of lines. In a block that begins with `console figures`,
//! all numbers, units and bars may be others. A command that ends with `&` runs until the block
//! ends. Port 9292 stands for one that is free.
#![forbid(unsafe_code)]
#![cfg(unix)]

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::SystemTime;

/// One block.
#[derive(Debug, Default, PartialEq, Eq)]
struct Session {
    exchanges: Vec<Exchange>,
    figures_vary: bool,
}

/// One command and what it must print.
#[derive(Debug, PartialEq, Eq)]
struct Exchange {
    command: String,
    expected: Vec<String>,
}

/// A command in the background. It is killed when the value is dropped, with all that it started.
struct Job {
    child: Child,
    /// Kept open: a server may have more to say.
    _output: Lines<BufReader<ChildStdout>>,
}

#[test]
fn every_console_block_prints_what_it_shows() {
    assert_extension_is_new();
    let mut exchanges_run = 0;
    for page in pages() {
        for session in sessions(&fs::read_to_string(&page).unwrap()) {
            session.run(&page);
            exchanges_run += session.exchanges.len();
        }
    }
    assert!(exchanges_run > 0, "the README has a transcript");
}

/// Ruby would answer an old extension with an error that says nothing of it.
fn assert_extension_is_new() {
    let built = Path::new(env!("CARGO_BIN_EXE_thruway")).with_file_name("gem/thruway/thruway.so");
    let built = modified(&built);
    let source = newest(&root().join("gem/ext/thruway/src"));
    let cure = "the gem's extension is not there, or older than its source: run cargo x gem";
    assert!(built.is_some() && built >= source, "{cure}");
}

fn modified(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).and_then(|metadata| metadata.modified()).ok()
}

/// When the newest file below a folder was written.
fn newest(folder: &Path) -> Option<SystemTime> {
    let entries = fs::read_dir(folder).expect("the folder can be listed").flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter_map(|path| if path.is_dir() { newest(&path) } else { modified(&path) }).max()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// README.md and every Markdown file below `docs`.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("docs can be listed").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|suffix| suffix == "md") {
                pages.push(path);
            }
        }
    }
    pages
}

fn sessions(page: &str) -> Vec<Session> {
    let mut sessions = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        if let Some(kind) = line.strip_prefix("```") {
            inside = kind.split(' ').next() == Some("console");
            if inside {
                let figures_vary = kind.ends_with(" figures");
                sessions.push(Session { figures_vary, ..Session::default() });
            }
        } else if let (true, Some(session)) = (inside, sessions.last_mut()) {
            session.take(line);
        }
    }
    sessions
}

impl Session {
    fn take(&mut self, line: &str) {
        if let Some(command) = line.strip_prefix("$ ") {
            self.exchanges.push(Exchange { command: command.to_owned(), expected: Vec::new() });
        } else if let Some(exchange) = self.exchanges.last_mut() {
            exchange.expected.push(line.to_owned());
        }
    }

    fn run(&self, page: &Path) {
        let port = free_port();
        let mut jobs = Vec::new();
        for Exchange { command, expected } in &self.exchanges {
            let asked = command.replace("9292", &port);
            let mut printed = match asked.strip_suffix(" &") {
                None => run(&asked),
                Some(asked) => {
                    let (job, printed) = Job::start(asked, expected.len());
                    jobs.push(job);
                    printed
                }
            };
            printed.iter_mut().for_each(|line| *line = line.replace(&port, "9292"));
            let (mut expected, shown) = (expected.clone(), format!("{printed:#?}"));
            if self.figures_vary {
                expected.iter_mut().for_each(|line| *line = without_figures(line));
                printed.iter_mut().for_each(|line| *line = without_figures(line));
            }
            let place = format!("{}: $ {command}", page.display());
            let wanted = expected.join("\n");
            assert!(matches(&expected, &printed), "{place}\n{wanted}\n--- but\n{shown}");
        }
    }
}

/// `sh` at the top of the checkout, with the binary first on its PATH.
fn sh(command: &str) -> Command {
    let binary = Path::new(env!("CARGO_BIN_EXE_thruway"));
    let mut path = OsString::from(binary.parent().expect("it lies in a folder"));
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let script = format!("exec 2>&1\n{command}");
    let mut sh = Command::new("sh");
    sh.current_dir(root()).env("PATH", path).env("NO_COLOR", "1").args(["-c", &script]);
    sh
}

/// Everything that a command prints.
fn run(command: &str) -> Vec<String> {
    let output = sh(command).output().expect("sh starts");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

fn free_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it is bound").port().to_string()
}

impl Job {
    /// Starts a command, and waits for the lines that it is to print.
    fn start(command: &str, lines: usize) -> (Self, Vec<String>) {
        let mut sh = sh(&format!("exec {command}"));
        let mut child = sh.process_group(0).stdout(Stdio::piped()).spawn().expect("sh starts");
        let mut output = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
        let printed = output.by_ref().take(lines).map_while(Result::ok).collect();
        (Self { child, _output: output }, printed)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.child.wait();
    }
}

/// A line in which every number is 0, without units, bars and the spaces that align them.
fn without_figures(line: &str) -> String {
    const UNITS: [&str; 9] = ["ns", "µs", "ms", "s", "B/s", "KB/s", "MB/s", "GB/s", "/s"];
    let is_bar = |word: &str| word.chars().all(|c| ('▁'..='█').contains(&c));
    let plain = |word: &str| {
        let mut plain = String::new();
        for c in word.chars() {
            match c {
                '0'..='9' if plain.ends_with('0') => {}
                '0'..='9' => plain.push('0'),
                ',' | '.' if plain.ends_with('0') => {}
                other => plain.push(other),
            }
        }
        plain
    };
    let words = line.split_whitespace().filter(|word| !UNITS.contains(word) && !is_bar(word));
    words.map(plain).collect::<Vec<_>>().join(" ")
}

/// Whether the lines match, `...` standing for any number of them.
fn matches(expected: &[String], printed: &[String]) -> bool {
    match expected {
        [] => printed.is_empty(),
        [any, rest @ ..] if any == "..." => {
            (0..=printed.len()).any(|skipped| matches(rest, &printed[skipped..]))
        }
        [line, rest @ ..] => {
            printed.first().is_some_and(|first| line_matches(line, first))
                && matches(rest, &printed[1..])
        }
    }
}

/// Whether one line matches, `[..]` standing for any text.
fn line_matches(expected: &str, printed: &str) -> bool {
    match expected.split_once("[..]") {
        None => expected == printed,
        Some((before, after)) => printed.strip_prefix(before).is_some_and(|rest| {
            let mut ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
            ends.any(|at| line_matches(after, &rest[at..]))
        }),
    }
}

#[test]
fn elisions_stand_for_text_and_for_lines() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert!(matches(&lines("a [..] c\n...\nz"), &lines("a bb c\nx\ny\nz")));
    assert!(matches(&lines("...\nz"), &lines("z")));
    assert!(!matches(&lines("a [..] c"), &lines("a bb d")));
    assert!(!matches(&lines("a"), &lines("a\nb")));
}

#[test]
fn figures_may_be_others_and_words_may_not() {
    let same = |a: &str, b: &str| without_figures(a) == without_figures(b);
    assert!(same("  p50 70.1 µs   max 1,024 ms  ▁▂█", "  p50 9 ms   max 3.07 s  ███"));
    assert!(same("ready in 84 ms)", "ready in 1084 ms)"));
    assert!(!same("10 pending", "10 starved"));
    assert!(!same("one", ""));
}

#[test]
fn only_console_blocks_are_read() {
    let page = "$ no\n```console\n$ yes\nout\n```\n```sh\n$ no\n```\n```console figures\n```\n";
    let exchange = Exchange { command: "yes".into(), expected: vec!["out".into()] };
    let plain = Session { exchanges: vec![exchange], figures_vary: false };
    assert_eq!(sessions(page), [plain, Session { exchanges: vec![], figures_vary: true }]);
}
