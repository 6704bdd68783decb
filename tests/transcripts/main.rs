//! Every `console` block in the README and the docs is run, and must print what it shows.
//!
//! A line `$ COMMAND` is run by `sh` at the top of the checkout, with `thruway` on PATH; the lines
//! below it, up to the next command, are its stdout and stderr. `[..]` stands for any text within a
//! line, and a line `...` for any number of lines.
#![forbid(unsafe_code)]
#![cfg(unix)]

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One command and what it must print.
#[derive(Debug, PartialEq, Eq)]
struct Exchange {
    command: String,
    expected: Vec<String>,
}

#[test]
fn every_console_block_prints_what_it_shows() {
    let mut exchanges_run = 0;
    for page in pages() {
        for exchange in exchanges(&fs::read_to_string(&page).unwrap()) {
            let printed = exchange.run();
            let place = format!("{}: $ {}", page.display(), exchange.command);
            let expected = exchange.expected.join("\n");
            assert!(
                matches(&exchange.expected, &printed),
                "{place}\n{expected}\n--- but\n{printed:#?}"
            );
            exchanges_run += 1;
        }
    }
    assert!(exchanges_run > 0, "the README has a transcript");
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

fn exchanges(page: &str) -> Vec<Exchange> {
    let mut exchanges: Vec<Exchange> = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if let (true, Some(command)) = (inside, line.strip_prefix("$ ")) {
            exchanges.push(Exchange { command: command.to_owned(), expected: Vec::new() });
        } else if let (true, Some(exchange)) = (inside, exchanges.last_mut()) {
            exchange.expected.push(line.to_owned());
        }
    }
    exchanges
}

impl Exchange {
    fn run(&self) -> Vec<String> {
        let binary = Path::new(env!("CARGO_BIN_EXE_thruway"));
        let mut path = OsString::from(binary.parent().expect("it lies in a folder"));
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let script = format!("exec 2>&1\n{}", self.command);
        let mut sh = Command::new("sh");
        sh.current_dir(root()).env("PATH", path).env("NO_COLOR", "1").args(["-c", &script]);
        let output = sh.output().expect("sh starts");
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    }
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
fn only_console_blocks_are_read() {
    let page = "$ no\n```console\n$ yes\nout\n```\n```sh\n$ no\n```\n";
    let expected = Exchange { command: "yes".into(), expected: vec!["out".into()] };
    assert_eq!(exchanges(page), [expected]);
}
