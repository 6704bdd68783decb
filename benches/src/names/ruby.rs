//! `Thruway.expand_path` beside Ruby's own method.

use std::process::Command;

use super::program::Program;
use crate::context::BenchContext;
use crate::measure::interleave;
use crate::table::{Table, at_most};

/// The words of `benches/names/expand_path.rb`, each with the name of its row.
const KINDS: [(&str, &str); 4] = [
    ("absolute", "an absolute name"),
    ("based", "a relative name and a base"),
    ("current", "a relative name alone"),
    ("home", "`~/name`"),
];

pub(super) fn expansion(context: &BenchContext) -> Result<String, String> {
    let mut gem = Command::new(xtask::command::cargo());
    xtask::command::succeed(gem.current_dir(&context.root).args(["x", "gem", "--release"]))?;
    let program = Program::of_ruby(context)?;
    let contenders = |(kind, _): &(&str, &str)| {
        ["ruby", "thruway"].map(|owner| program.contender(&format!("{owner} {kind}"), owner))
    };
    let mut contenders: Vec<_> = KINDS.iter().flat_map(contenders).collect();
    let series = interleave(context.rounds, &mut contenders)?;
    let columns = ["", "`File.expand_path`, ns", "`Thruway.expand_path`, ns", "ratio"];
    let mut table = Table::new("One name made absolute in Ruby", &columns);
    let mut slowest: f64 = 0.0;
    for ((_, what), pair) in KINDS.iter().zip(series.chunks(2)) {
        let quotient = pair[1].median() / pair[0].median();
        slowest = slowest.max(quotient);
        table.row(what, &[pair[0].cell(), pair[1].cell(), format!("{quotient:.2}")]);
    }
    table.target("each faster than Ruby's", at_most(Some(slowest), 1.0));
    Ok(table.text() + "\n\n")
}
