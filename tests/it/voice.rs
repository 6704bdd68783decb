//! The output of all verbs for people: lines that fit a narrow terminal, and ASCII where the locale is not UTF-8.

use std::fs;
use std::path::Path;
use std::process::Command;

use thruway_testing::http_server::HttpServer;

use crate::thruway;

const COLUMNS: usize = 60;
/// A name that a locale without UTF-8 cannot show, and characters that a terminal would obey.
const NAME: &str = "größe\u{1b}[31m\n\u{202e}";

/// Runs a command line in a terminal, with `$T` for the program, and returns the terminal's text.
fn in_terminal(folder: &Path, locale: &str, line: &str) -> String {
    let mut script = Command::new("script");
    let sized = format!("stty cols {COLUMNS} rows 40; {line}");
    script.args(["-qec", &sized, "/dev/null"]).current_dir(folder);
    script.env("T", env!("CARGO_BIN_EXE_thruway")).env("TERM", "dumb").env("LC_ALL", locale);
    script.env("NAME", NAME).env_remove("COLUMNS").env_remove("LD_LIBRARY_PATH");
    let output = script.output().expect("scripts/setup installs it");
    String::from_utf8(output.stdout).expect("it is UTF-8")
}

/// Whether a line is a message or a cure of `trace`. Both stay whole for the terminal to fold, so that commands in them
/// can be copied.
fn is_message(line: &str) -> bool {
    ["thruway: ", "hint: ", "      install "].iter().any(|start| line.starts_with(start))
        || line.starts_with("      make this report ")
}

/// Whether a line could have been folded: two words fit, and a third stands beside them.
fn is_too_long(line: &str) -> bool {
    let longest = line.split(' ').map(|word| word.chars().count()).max().unwrap_or(0);
    line.chars().count() > COLUMNS && longest < COLUMNS / 2
}

/// Returns the command lines: one at least for each verb that prints for people and ends.
fn lines(url: &str) -> Vec<String> {
    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/recordings/shell.jsonl");
    let lines = [
        "$T which sh ls",
        "$T which -a --count sh",
        "$T which \"$NAME\"",
        "$T expand \"$NAME/b\"",
        "$T doctor",
        "$T mount status \"$NAME\"",
        "$T mount where \"$NAME\"",
        "$T mount \"$NAME\" /nowhere",
        "$T unmount \"$NAME\"",
        "$T preload status",
        "$T pack info \"$NAME/pack\"",
        "$T pack verify \"$NAME/pack\"",
        "$T pack info \"$NAME\"",
        "$T certificates \"$NAME\"",
        "$T ctl stats -S \"$NAME\"",
        "$T init \"$NAME\"",
        "$T run -- \"$NAME\"",
        "$T serve \"$NAME/none\"",
        "$T --\"$NAME\"",
        "$T trace -- test -e \"$NAME\"",
        "$T trace --all -- test -e \"$NAME\"",
        "$T trace --quiet --follow --path 'gr*' -- test -e \"$NAME\"",
        "$T trace --budget 1 --from $R",
        "$T trace --all --from $R",
        "$T trace --compare $R $R",
        "$T trace --from \"$NAME\"",
        "$T load $U -n 50 -c 4 --histogram --per-connection 2>/dev/null",
        "$T load $U -n 50 --fair 0.5 --max-p99 1ns 2>/dev/null",
        "$T load \"$U$NAME\"",
        "$T load $U --compare $U -n 50 --rounds 3 2>/dev/null",
    ];
    let quoted = |line: &str| line.replace("$T", "\"$T\"").replace("$R", &format!("'{recording}'"));
    lines.map(|line| quoted(line).replace("$U", url)).to_vec()
}

#[test]
fn every_verb_fits_a_narrow_terminal_and_speaks_ascii_where_the_locale_says_so() {
    let root = tempfile::tempdir().expect("a folder");
    let folder = root.path().join(NAME);
    fs::create_dir(&folder).expect("it is made");
    fs::write(folder.join("a.rb"), "p 1").expect("it is written");
    let mut boot = thruway();
    boot.args(["run", "--pack"]).arg(folder.join("pack")).args(["--", "ruby"]);
    assert!(boot.arg(folder.join("a.rb")).status().expect("it starts").success());
    let server = HttpServer::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    for line in lines(&server.url("/")) {
        for locale in ["C", "C.UTF-8"] {
            let text = in_terminal(root.path(), locale, &line);
            assert!(!text.trim().is_empty() || line.contains("status"), "{line}: nothing");
            assert!(locale == "C.UTF-8" || text.is_ascii(), "{line}: not ASCII:\n{text}");
            let is_obeyed =
                |c: char| !matches!(c, '\r' | '\n') && (c.is_control() || c == '\u{202e}');
            assert!(!text.contains(is_obeyed), "{line}: not escaped:\n{text:?}");
            for shown in text.lines().filter(|shown| !is_message(shown)) {
                assert!(!is_too_long(shown), "{line}: too long: {shown}");
            }
            // The ratio is what a comparison is for.
            let is_comparison = line.contains("--rounds") && locale == "C.UTF-8";
            assert!(!is_comparison || text.contains("B ÷ A"), "{line}: no ratio:\n{text}");
        }
    }
}
