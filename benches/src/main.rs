//! `cargo x bench`: times, as ratios to peers in one run. They are reports, never assertions.
//!
//! The programs and applications that are measured are beside this folder: `boot/`, `names/` and `serve/`.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a task talks to its developer")]

mod boot;
mod context;
mod document;
mod load;
mod measure;
mod mount;
mod names;
mod plots;
mod process;
mod serve;
mod summary;
mod table;
mod trace;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use xtask::published;

use context::BenchContext;
use measure::Machine;
use serve::matrix::choice::MatrixChoice;
use serve::system_root::SystemRoot;

/// Measure a verb against its peers
///
/// Contenders run interleaved (A B A B), and medians are compared. A peer that is not packaged is given by its path, as
/// in `--peer iodine=DIR`. Without a path, the peer is left out with a line of output.
///
/// Servers of another system take part by `--root NAME=DIR`: a folder that debootstrap has created, with Ruby and
/// servers (puma, unicorn) installed from its packages. boot-roots measures boots there, which needs Rails, bundler,
/// bootsnap and strace in it. Peers that are not packaged take part if they are in its
/// /usr/bin (iodine, falcon, itsi, pitchfork). They run with that folder as their root, which requires root's rights,
/// and see this checkout at its own path. Thruway runs there with the system's Ruby, and needs its extension for that
/// Ruby. Build `thruway-gem-ext` inside such a system (or with RUBY=PATH), and copy it to
/// target/release/gem/thruway/VERSION/thruway.so. Several Rubies are several roots.
#[derive(Debug, Parser)]
#[command(name = "cargo x bench")]
struct Bench {
    /// Verb, or one of its tables, as in serve-short [default: all except serve-matrix]
    ///
    /// serve-matrix takes hours, and runs only by its own name.
    verb: Option<String>,
    /// Number of runs of each contender
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Duration of each load on a server in seconds
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Path of a peer; may be repeated
    #[arg(long, value_name = "NAME=PATH", value_parser = peer)]
    peer: Vec<(String, PathBuf)>,
    /// Another system whose servers and boots take part; may be repeated
    #[arg(long, value_name = "NAME=DIR", value_parser = peer)]
    root: Vec<(String, PathBuf)>,
    /// Leave out this machine's own servers
    #[arg(long, requires = "root")]
    roots_only: bool,
    /// Only servers whose names begin with one of these, besides thruway
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    servers: Vec<String>,
    #[command(flatten)]
    matrix: MatrixChoice,
    /// Write the tables to docs/benchmarks.md, and summarize them
    #[arg(long)]
    write: bool,
    /// Measure nothing, and summarize the tables in docs/benchmarks.md in its first table and in pictures
    #[arg(long, conflicts_with_all = ["verb", "write"])]
    summary: bool,
}

type Benchmark = fn(&BenchContext) -> Result<String, String>;

/// The benchmarks, by verb, or by verb and table.
const BENCHMARKS: &[(&str, Benchmark)] = &[
    ("boot-synthetic", boot::synthetic),
    ("boot-commands", boot::commands),
    ("preload-commands", boot::preloaded),
    ("boot-rails", boot::rails),
    ("boot-redmine", boot::redmine),
    ("boot-roots", boot::roots),
    ("load", load::run),
    ("mount-data", mount::data::run),
    ("mount-calls", mount::calls::run),
    ("mount-tree", mount::tree::handling),
    ("mount-compile", mount::tree::compiling),
    ("mount-union", mount::union::run),
    ("mount-disks", mount::disks::run),
    ("mount-memory", mount::memory::run),
    ("names-linux", names::linux),
    ("names-wine", names::wine),
    ("serve-short", serve::rack::short),
    ("serve-pipelined", serve::rack::pipelined),
    ("serve-sleeping", serve::rack::sleeping),
    ("serve-rails", serve::rack::rails),
    ("serve-polite", serve::rack::polite),
    ("serve-matrix", serve::matrix::run),
    ("serve-fairness", serve::fairness::within),
    ("serve-fleet", serve::fairness::across),
    ("serve-large", serve::files::large),
    ("serve-small", serve::files::small),
    ("serve-idle", serve::many_connections::idle),
    ("serve-trickle", serve::many_connections::trickle),
    ("serve-tls", serve::tls::run),
    ("serve-cache", serve::cache::run),
    ("serve-metrics", serve::metrics::run),
    ("serve-restart", serve::restarts::run),
    ("serve-http2", serve::http2::run),
    ("serve-attacks", serve::attacks::run),
    ("serve-sockets", serve::sockets::echo),
    ("serve-cable", serve::sockets::cable),
    ("serve-waiting", serve::waiting::mix),
    ("serve-naps", serve::waiting::naps),
    ("serve-pages", serve::waiting::pages),
    ("serve-rails-waits", serve::waiting::rails),
    ("serve-computing", serve::waiting::computing),
    ("serve-fibers", serve::waiting::short),
    ("serve-streams", serve::streams::run),
    ("serve-original", serve::original::per_connection),
    ("trace-slowdown", trace::slowdown),
    ("trace-long", trace::long),
];

fn main() -> ExitCode {
    match Bench::parse().run(&xtask::root()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("cargo x bench: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Writes the parts of the page that summarize its tables.
fn sum_up(root: &Path) -> Result<(), String> {
    summary::write(root)?;
    plots::write(root)
}

impl Bench {
    fn run(self, root: &Path) -> Result<(), String> {
        if self.summary {
            return sum_up(root);
        }
        let system = |(name, folder)| SystemRoot { name, folder };
        let context = BenchContext {
            root: root.to_owned(),
            rounds: self.rounds,
            seconds: self.seconds,
            peers: self.peer.into_iter().collect(),
            roots: self.root.into_iter().map(system).collect(),
            roots_only: self.roots_only,
            servers: self.servers,
            matrix: self.matrix,
        };
        let chosen = self.verb.as_deref();
        let mut ran = 0;
        for (verb, run) in BENCHMARKS.iter().filter(|(name, _)| is_chosen(name, chosen)) {
            let before = Machine::now();
            let tables = run(&context)?;
            ran += 1;
            if tables.is_empty() {
                println!("left out: {verb}: nothing to measure");
                continue;
            }
            let section = format!("{}\n\n{tables}", before.until_now());
            println!("## {verb}\n\n{section}");
            if self.write {
                document::replace(&published::page(root), verb, &section)?;
            }
        }
        if self.write {
            sum_up(root)?;
        }
        if ran == 0 { Err(format!("no benchmark named {}", chosen.unwrap_or(""))) } else { Ok(()) }
    }
}

/// The benchmark that takes hours, and is thus not part of its verb.
const BY_NAME_ONLY: &str = "serve-matrix";

fn is_chosen(name: &str, chosen: Option<&str>) -> bool {
    let verb = name.split('-').next().filter(|_| name != BY_NAME_ONLY);
    match chosen {
        Some(chosen) => chosen == name || Some(chosen) == verb,
        None => verb.is_some(),
    }
}

fn peer(text: &str) -> Result<(String, PathBuf), String> {
    let (name, path) = text.split_once('=').ok_or("write it as NAME=PATH")?;
    Ok((name.to_owned(), PathBuf::from(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verb_has_all_of_its_tables_but_the_matrix() {
        let chosen = |chosen| {
            let names = BENCHMARKS.iter().map(|(name, _)| *name);
            names.filter(|name| is_chosen(name, chosen)).collect::<Vec<_>>()
        };
        assert_eq!(chosen(Some("serve-matrix")), ["serve-matrix"]);
        assert_eq!(chosen(Some("trace")), ["trace-slowdown", "trace-long"]);
        assert!(chosen(Some("serve")).contains(&"serve-short"));
        assert!(!chosen(Some("serve")).contains(&"serve-matrix"));
        assert_eq!(chosen(None).len(), BENCHMARKS.len() - 1);
    }
}
