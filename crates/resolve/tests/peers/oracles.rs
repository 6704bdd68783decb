//! The programs whose searches are compared.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::layout::Query;

/// Returns the path of the program that the C library's `execvp` starts for each query, as `env` calls it.
pub(crate) fn execvp(folder: &Path, queries: &[Query]) -> Vec<Option<Vec<u8>>> {
    let start = |query: &Query| {
        let path = [b"PATH=", query.path.as_slice()].concat();
        let mut env = Command::new("/usr/bin/env");
        env.args(["-i", "--"]).arg(OsStr::from_bytes(&path)).arg(OsStr::from_bytes(&query.name));
        let output = env.current_dir(folder).stdin(Stdio::null()).output().expect("env starts");
        started(&output.stdout)
    };
    queries.iter().map(start).collect()
}

/// Returns the last path that was written. A script whose interpreter is a script has the other's path before its own.
fn started(written: &[u8]) -> Option<Vec<u8>> {
    let paths = written.strip_suffix(b"\0")?;
    paths.rsplit(|byte| *byte == 0).next().map(<[u8]>::to_vec)
}

/// A shell, and its words for a search.
pub(crate) struct Shell {
    /// The command, with options that keep it from reading its user's files.
    pub(crate) command: &'static [&'static str],
    /// Sets `PATH` to the text that follows.
    pub(crate) set_path: &'static str,
    /// Prints the path of the command whose name follows.
    pub(crate) search: &'static str,
    /// The characters that need a backslash within single quotes; of others, none is special there.
    pub(crate) escaped: &'static [u8],
}

pub(crate) const BASH: Shell = Shell {
    command: &["bash", "--norc", "--noprofile"],
    set_path: "PATH=",
    search: "type -P -- ",
    escaped: b"",
};

pub(crate) const DASH: Shell =
    Shell { command: &["dash"], set_path: "PATH=", search: "command -v -- ", escaped: b"" };

pub(crate) const ZSH: Shell =
    Shell { command: &["zsh", "-f"], set_path: "PATH=", search: "whence -p -- ", escaped: b"" };

pub(crate) const FISH: Shell = Shell {
    command: &["fish", "--no-config"],
    set_path: "set -gx PATH ",
    search: "command -s -- ",
    escaped: b"\\'",
};

impl Shell {
    /// Returns what the shell finds for each query; `None` if the shell is not installed.
    pub(crate) fn found(&self, folder: &Path, queries: &[Query]) -> Option<Vec<Option<Vec<u8>>>> {
        let output = self.run(folder, queries)?;
        let line = |answer: &[u8]| answer.strip_suffix(b"\n").unwrap_or(answer).to_vec();
        let found = |answer| Some(line(answer)).filter(|answer| !answer.is_empty());
        Some(answers(&output).into_iter().map(found).collect())
    }

    /// Returns what the shell writes for each query, with [`END`] behind it.
    fn run(&self, folder: &Path, queries: &[Query]) -> Option<Vec<u8>> {
        let mut script = Vec::new();
        for Query { path, name } in queries {
            let (path, name) = (self.quoted(path), self.quoted(name));
            let lines: [&[u8]; 6] = [
                self.set_path.as_bytes(),
                &path,
                b"\n",
                self.search.as_bytes(),
                &name,
                b"\nprintf '\\001\\0'\n",
            ];
            script.extend(lines.concat());
        }
        let file = folder.join("script");
        std::fs::write(&file, script).expect("a script");
        let [program, options @ ..] = self.command else { return None };
        let mut shell = Command::new(program);
        shell.args(options).arg(&file).current_dir(folder).env("LC_ALL", "C");
        shell.env("HOME", folder).stdin(Stdio::null()).stderr(Stdio::null());
        let output = shell.output().ok()?;
        std::fs::remove_file(file).expect("the script");
        Some(output.stdout)
    }

    /// Returns a text in single quotes.
    fn quoted(&self, text: &[u8]) -> Vec<u8> {
        let mut quoted = vec![b'\''];
        for byte in text {
            match byte {
                byte if self.escaped.contains(byte) => quoted.extend_from_slice(&[b'\\', *byte]),
                b'\'' => quoted.extend_from_slice(b"'\\''"),
                byte => quoted.push(*byte),
            }
        }
        quoted.push(b'\'');
        quoted
    }
}

/// The end of an answer.
const END: &[u8] = b"\x01\0";

/// Splits answers, each of which has [`END`] behind it.
fn answers(output: &[u8]) -> Vec<&[u8]> {
    let mut answers = Vec::new();
    let mut rest = output;
    while let Some(end) = rest.windows(END.len()).position(|bytes| bytes == END) {
        answers.push(&rest[..end]);
        rest = &rest[end + END.len()..];
    }
    answers
}

const PYTHON: &str = r"
import os, shutil, sys
words = sys.stdin.buffer.read().split(b'\0')[:-1]
for path, name in zip(words[::2], words[1::2]):
    found = shutil.which(os.fsdecode(name), path=os.fsdecode(path))
    sys.stdout.buffer.write(os.fsencode(found or '') + b'\1\0')
";

/// Returns what `shutil.which` of Python finds; `None` if Python is not installed.
pub(crate) fn python(folder: &Path, queries: &[Query]) -> Option<Vec<Option<Vec<u8>>>> {
    ask(Command::new("/usr/bin/python3").args(["-I", "-c", PYTHON]), folder, queries)
}

/// The program that asks `exec.LookPath` of Go. A result that Go refuses because it is relative (`ErrDot`) counts.
const GO: &str = r#"package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
)

func main() {
	input, _ := io.ReadAll(os.Stdin)
	words := bytes.Split(input, []byte{0})
	for i := 0; i+1 < len(words); i += 2 {
		os.Setenv("PATH", string(words[i]))
		found, err := exec.LookPath(string(words[i+1]))
		if err != nil && !errors.Is(err, exec.ErrDot) {
			found = ""
		}
		os.Stdout.WriteString(found + "\x01\x00")
	}
}
"#;

/// Builds the program that asks Go; `None` if Go is not installed.
pub(crate) fn build_go(folder: &Path) -> Option<PathBuf> {
    std::fs::write(folder.join("ask.go"), GO).expect("a source");
    let mut go = Command::new("go");
    go.args(["build", "-o", "ask", "ask.go"]).current_dir(folder);
    go.env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache"));
    go.env("GOPATH", folder).env("HOME", folder).env("GOPROXY", "off");
    go.env("GOTOOLCHAIN", "local").env("CGO_ENABLED", "0").env_remove("GOFLAGS");
    let status = go.status().ok()?;
    assert!(status.success(), "{go:?}: {status}");
    Some(folder.join("ask"))
}

/// Returns what a program answers that reads `PATH` and name of each query, each with a NUL behind it.
pub(crate) fn ask(
    program: &mut Command,
    folder: &Path,
    queries: &[Query],
) -> Option<Vec<Option<Vec<u8>>>> {
    program.current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = program.spawn().ok()?;
    let input: Vec<_> = queries
        .iter()
        .flat_map(|query| [query.path.as_slice(), b"\0", &query.name, b"\0"])
        .collect();
    process.stdin.take().expect("a pipe").write_all(&input.concat()).expect("it reads");
    let output = process.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{program:?}: {output:?}");
    let found = |answer: &[u8]| Some(answer.to_vec()).filter(|answer| !answer.is_empty());
    Some(answers(&output.stdout).into_iter().map(found).collect())
}
