//! Every `console` block in the README and the docs is run, and must print what it shows.
//!
//! - Each page runs in one `sh`, which starts at the top of the checkout with `thruway` on PATH, as a reader's shell
//!   does. A line `$ COMMAND` is run in that shell.
//! - The lines below a command, up to the next command, are its stdout and stderr.
//! - `[..]` stands for any text within a line, and a line `...` for any number of lines.
//! - In a block that begins with `console figures`, all numbers, units and bars may differ.
//! - In a block of `console report`, absolute paths and the number of successive rows with a path may differ, too.
//! - A command with `&` runs in the background until the page or the end of the page stops it.
//! - Port 9292 is replaced by a free port.
//! - Blocks that mount run only for root, and only with FUSE.
#![forbid(unsafe_code)]
#![cfg(unix)]

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::SystemTime;

use tempfile::TempDir;

/// One block.
#[derive(Debug, Default, PartialEq, Eq)]
struct Session {
    exchanges: Vec<Exchange>,
    varies: Varies,
}

/// Text that may differ from the page.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Varies {
    #[default]
    Nothing,
    Figures,
    FiguresAndPaths,
}

/// One command and what it must print.
#[derive(Debug, PartialEq, Eq)]
struct Exchange {
    command: String,
    expected: Vec<String>,
}

/// The shell of a page. It is killed when the value is dropped, with all that it started.
struct Shell {
    child: Child,
    commands: ChildStdin,
    output: BufReader<ChildStdout>,
    /// The outputs of commands in the background, kept open because a server may print more.
    jobs: Vec<Lines<BufReader<File>>>,
    /// The folder of their outputs.
    folder: TempDir,
    /// The port that replaces 9292.
    port: String,
}

#[test]
fn every_console_block_prints_what_it_shows() {
    assert_extension_is_new();
    let (mut exchanges_run, mut differences) = (0, Vec::new());
    for page in pages() {
        let sessions = sessions(&fs::read_to_string(&page).unwrap());
        if sessions.iter().any(Session::mounts) && !can_mount(&page) {
            continue;
        }
        let mut shell = Shell::start();
        // Runs to the end, also after a difference: the last block of a page removes the files that the page has made.
        for session in sessions {
            differences.extend(session.run(&page, &mut shell));
            exchanges_run += session.exchanges.len();
        }
    }
    assert!(exchanges_run > 0, "the README has a transcript");
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
}

/// Whether this process may mount as the pages do. If not, prints that the blocks are skipped.
fn can_mount(page: &Path) -> bool {
    let fuse = File::options().read(true).write(true).open("/dev/fuse");
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    let lacks = match fuse {
        Ok(_) if is_root => return true,
        Ok(_) => "only root may mount".to_owned(),
        Err(error) => format!("/dev/fuse: {error}"),
    };
    let name = page.file_name().unwrap_or_default().display().to_string();
    thruway_testing::skipped(format_args!("{name}: {lacks}"));
    false
}

/// Fails if the extension is old. Ruby's own error would not name the cause.
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

/// Returns the time at which the newest file below a folder was written.
fn newest(folder: &Path) -> Option<SystemTime> {
    let entries = fs::read_dir(folder).expect("the folder can be listed").flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter_map(|path| if path.is_dir() { newest(&path) } else { modified(&path) }).max()
}

fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).expect("it is in crates").to_owned()
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
                let varies = match kind.split_once(' ') {
                    Some((_, "figures")) => Varies::Figures,
                    Some((_, "report")) => Varies::FiguresAndPaths,
                    _ => Varies::Nothing,
                };
                sessions.push(Session { varies, ..Session::default() });
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

    fn mounts(&self) -> bool {
        self.exchanges.iter().any(|exchange| exchange.command.starts_with("thruway mount "))
    }

    /// The differences between page and output: a text for each command.
    fn run(&self, page: &Path, shell: &mut Shell) -> Vec<String> {
        let port = shell.port.clone();
        let mut differences = Vec::new();
        // The pages do not quote paths, so a path must not contain a space.
        let checkout = root().display().to_string();
        for Exchange { command, expected } in &self.exchanges {
            let asked = command.replace("9292", &port);
            let mut printed = match asked.strip_suffix(" &") {
                None => shell.run(&asked),
                Some(asked) => shell.start_job(asked, expected.len()),
            };
            printed.iter_mut().for_each(|line| {
                *line = line.replace(&port, "9292").replace(&checkout, "/srv/thruway");
            });
            let (expected, masked) = (self.varies.mask(expected), self.varies.mask(&printed));
            let place = format!("{}: $ {command}", page.display());
            let wanted = expected.join("\n");
            if !matches(&expected, &masked) {
                differences.push(format!("{place}\n{wanted}\n--- but\n{printed:#?}"));
            }
        }
        differences
    }
}

/// The mark after a command's output.
const MARK: &str = "(the command has ended)";

/// A script that runs one line after another. Commands do not read these lines as their input.
const LOOP: &str = "exec 9<&0 </dev/null 2>&1\n\
    while IFS= read -r line <&9; do eval \"$line\"; printf '\\n%s\\n' \"$MARK\"; done";

impl Shell {
    /// At the top of the checkout, with the binary first on its PATH.
    fn start() -> Self {
        let binary = Path::new(env!("CARGO_BIN_EXE_thruway"));
        let mut path = OsString::from(binary.parent().expect("it lies in a folder"));
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let mut sh = Command::new("sh");
        sh.current_dir(root()).env("PATH", path).env("NO_COLOR", "1").env("MARK", MARK);
        // Cargo sets the variable for tests; a user's shell does not have it.
        sh.env_remove("LD_LIBRARY_PATH");
        sh.args(["-c", LOOP]).process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = sh.spawn().expect("sh starts");
        let commands = child.stdin.take().expect("it is a pipe");
        let output = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let folder = tempfile::tempdir().expect("a folder");
        Self {
            child,
            commands,
            output,
            jobs: Vec::new(),
            folder,
            port: thruway_testing::free_port().to_string(),
        }
    }

    /// Runs a command and returns its output.
    fn run(&mut self, command: &str) -> Vec<String> {
        writeln!(self.commands, "{command}").expect("the shell reads");
        let mut printed = Vec::new();
        let mark = format!("\n{MARK}\n");
        while !printed.ends_with(mark.as_bytes()) {
            let read = self.output.read_until(b'\n', &mut printed).expect("the shell can be heard");
            assert!(read > 0, "{command} has ended the page's shell");
        }
        printed.truncate(printed.len() - mark.len());
        String::from_utf8_lossy(&printed).lines().map(str::to_owned).collect()
    }

    /// Starts a command in the background, and waits for its expected lines. A command that prints fewer is ended after
    /// a while.
    fn start_job(&mut self, command: &str, lines: usize) -> Vec<String> {
        let pipe = self.folder.path().join(self.jobs.len().to_string());
        let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo starts");
        assert!(made.success(), "{}", pipe.display());
        self.run(&format!("timeout --foreground 60 {command} >{} 2>&1 &", pipe.display()));
        let mut output = BufReader::new(File::open(&pipe).expect("the job opens it")).lines();
        let printed = output.by_ref().take(lines).map_while(Result::ok).collect();
        self.jobs.push(output);
        printed
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.child.wait();
    }
}

impl Varies {
    /// Returns the lines without the parts that may differ.
    fn mask(self, lines: &[String]) -> Vec<String> {
        let lines = lines.iter();
        match self {
            Self::Nothing => lines.cloned().collect(),
            Self::Figures => lines.map(|line| without_figures(line)).collect(),
            Self::FiguresAndPaths => {
                let lines = with_command_in_title(lines.cloned().collect());
                let mut masked: Vec<_> = lines.iter().map(|line| without_paths(line)).collect();
                masked.dedup_by(|a, b| a == b && a.starts_with('/'));
                masked
            }
        }
    }
}

/// Returns the lines of a report with its command in the title. If the title shows the estimate of a time that only a
/// long run allows, the line may be too short for the command, which then has the next line.
fn with_command_in_title(mut lines: Vec<String>) -> Vec<String> {
    const TITLE: &str = "thruway trace ";
    let rest = |line: &String| line.strip_prefix(TITLE).map(|rest| rest.trim_start().to_owned());
    let folded = lines.iter().position(|line| rest(line).is_some_and(|it| it.starts_with("exit ")));
    if let Some(title) = folded.filter(|title| title + 1 < lines.len()) {
        let command = lines.remove(title + 1);
        let end = rest(&lines[title]).unwrap_or_default();
        lines[title] = format!("{TITLE}{} {end}", command.trim());
    }
    lines
}

/// Returns a line without figures and paths, and without the estimate of a time that only a long run allows. The
/// estimate makes the line longer, so that a command's last paths may be cut off.
fn without_paths(line: &str) -> String {
    let line = line.split(" (untraced").next().unwrap_or_default();
    let is_path = |word: &str| word.contains('/') || word.ends_with('…');
    let plain = |word| match word {
        "nothing" | "–" => "0",
        word if is_path(word) => "/",
        word => word,
    };
    let mut words: Vec<_> = line.split_whitespace().map(plain).collect();
    words.dedup_by(|a, b| a == b && *a == "/");
    without_figures(&words.join(" "))
}

/// Returns a line in which every number is 0, without units, bars and the spaces that align them.
fn without_figures(line: &str) -> String {
    const UNITS: [&str; 9] = ["ns", "µs", "ms", "s", "B/s", "kB/s", "MB/s", "GB/s", "/s"];
    let is_bar = |word: &str| word.chars().all(|c| matches!(c, '▁'..='▏' | '▕'));
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
fn a_report_may_have_other_paths_and_more_of_them() {
    let mask = |text: &str| {
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        Varies::FiguresAndPaths.mask(&lines)
    };
    let shown = "gcc -o t/a.o t/a.c  exit 0 · 6.11 s\n 2 FOLDERS: 3 misses\n /usr/lib ▕███▏ 3 nothing\n 1 folder";
    let same = "gcc -o t/a… exit 0 · 980 ms (untraced ≈ 900 ms)\n 9 FOLDERS: 7 misses\n …/a ▕█▋▏ 4 12\n \
                /b ▕ ▏ 1 1\n 1 folder";
    assert_eq!(mask(shown), mask(same));
    assert_ne!(mask(shown), mask(&shown.replace("misses", "hits")));
    assert_ne!(mask("a\na"), mask("a"));
    let folded = "thruway trace   exit 0 · 2 s (untraced ≈ 1 s)\n  gcc -c t/a.c\n\n found 9";
    assert_eq!(mask("thruway trace  gcc -c t/a.c  exit 0 · 3 ms\n\n found 7"), mask(folded));
}

#[test]
fn only_console_blocks_are_read() {
    let page = "$ no\n```console\n$ yes\nout\n```\n```sh\n$ no\n```\n```console figures\n```\n";
    let exchange = Exchange { command: "yes".into(), expected: vec!["out".into()] };
    let plain = Session { exchanges: vec![exchange], varies: Varies::Nothing };
    assert_eq!(sessions(page), [plain, Session { exchanges: vec![], varies: Varies::Figures }]);
}
