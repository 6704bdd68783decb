//! `cargo x bench`: times, as ratios to peers in one run. They are reports, never assertions.

mod boot;
mod context;
mod document;
mod load;
mod measure;
mod mount;
mod names;
mod process;
mod serve;
mod table;
mod trace;

use std::path::{Path, PathBuf};

use clap::Args;

use context::BenchContext;
use measure::Machine;

/// Measure a verb against its peers
///
/// Contenders run interleaved (A B A B), and medians are compared. A peer that is not a package is
/// given by its path, as in `--peer iodine=DIR`; one that is not given is left out with one line.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// The verb, or one of its tables, as in serve-short [default: all of them]
    verb: Option<String>,
    /// How often each contender runs
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How long each load on a server takes
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Where a peer is: may be repeated
    #[arg(long, value_name = "NAME=PATH", value_parser = peer)]
    peer: Vec<(String, PathBuf)>,
    /// Put the tables into docs/benchmarks.md
    #[arg(long)]
    write: bool,
}

type Benchmark = fn(&BenchContext) -> Result<String, String>;

/// By verb, or by verb and table.
const BENCHMARKS: &[(&str, Benchmark)] = &[
    ("boot-synthetic", boot::synthetic),
    ("boot-commands", boot::commands),
    ("boot-rails", boot::rails),
    ("boot-redmine", boot::redmine),
    ("load", load::run),
    ("mount-data", mount::data::run),
    ("mount-calls", mount::calls::run),
    ("mount-tree", mount::tree::handling),
    ("mount-compile", mount::tree::compiling),
    ("mount-union", mount::union::run),
    ("mount-memory", mount::memory::run),
    ("names-linux", names::linux),
    ("names-wine", names::wine),
    ("serve-short", serve::rack::short),
    ("serve-pipelined", serve::rack::pipelined),
    ("serve-sleeping", serve::rack::sleeping),
    ("serve-rails", serve::rack::rails),
    ("serve-polite", serve::rack::polite),
    ("serve-fairness", serve::fairness::within),
    ("serve-fleet", serve::fairness::across),
    ("serve-large", serve::files::large),
    ("serve-small", serve::files::small),
    ("serve-idle", serve::many_connections::idle),
    ("serve-trickle", serve::many_connections::trickle),
    ("serve-original", serve::original::per_connection),
    ("trace-slowdown", trace::slowdown),
    ("trace-ebpf", trace::ebpf),
    ("trace-long", trace::long),
];

impl Bench {
    pub(crate) fn run(self, root: &Path) -> Result<(), String> {
        let peers = self.peer.into_iter().collect();
        let (rounds, seconds) = (self.rounds, self.seconds);
        let context = BenchContext { root: root.to_owned(), rounds, seconds, peers };
        let chosen = self.verb.as_deref();
        let mut ran = 0;
        for (verb, run) in BENCHMARKS.iter().filter(|(name, _)| is_chosen(name, chosen)) {
            let before = Machine::now();
            let tables = run(&context)?;
            let section = format!("{}\n\n{tables}", before.until_now());
            println!("## {verb}\n\n{section}");
            if self.write {
                document::replace(&root.join("docs/benchmarks.md"), verb, &section)?;
            }
            ran += 1;
        }
        if ran == 0 { Err(format!("no benchmark named {}", chosen.unwrap_or(""))) } else { Ok(()) }
    }
}

fn is_chosen(name: &str, chosen: Option<&str>) -> bool {
    let verb = name.split('-').next();
    chosen.is_none_or(|chosen| chosen == name || Some(chosen) == verb)
}

fn peer(text: &str) -> Result<(String, PathBuf), String> {
    let (name, path) = text.split_once('=').ok_or("write it as NAME=PATH")?;
    Ok((name.to_owned(), PathBuf::from(path)))
}
