//! The summary with the worst and the median cell by peer, and the tables behind it.

use std::collections::BTreeMap;

use super::choice::{Cell, Load, Shape};
use super::sample::{Ratios, Sample, Spread, Worst};
use crate::measure::Series;
use crate::serve::contender::Contender;
use crate::table::{Table, at_least, at_most};

/// A row of the tables: the kind of requests and of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    pub(super) shape: Shape,
    /// The kind of a shape's requests; empty if all are alike.
    pub(super) part: &'static str,
    pub(super) load: Load,
    pub(super) cell: Cell,
}

/// All runs: by row, and by the contender's place.
#[derive(Debug, Default)]
pub(super) struct Results {
    rows: BTreeMap<Row, BTreeMap<usize, Vec<Sample>>>,
}

impl Results {
    pub(super) fn push(&mut self, row: Row, place: usize, sample: Sample) {
        self.rows.entry(row).or_default().entry(place).or_default().push(sample);
    }

    fn worst(&self, row: &Row, place: usize) -> Option<Worst> {
        Worst::of(self.rows.get(row)?.get(&place)?)
    }

    /// Compares our results with the chosen ones of others, row by row.
    fn ratios(&self, ours: usize, theirs: impl Fn(&Row) -> Option<Worst>) -> Vec<(Row, Ratios)> {
        let ratios = |row: &Row| Some(Ratios::new(self.worst(row, ours)?, theirs(row)?));
        let of_row = |row: &Row| Some((*row, ratios(row)?));
        self.rows.keys().filter_map(of_row).collect()
    }
}

impl Row {
    fn name(&self) -> String {
        format!("{}{} {} ({})", self.shape, self.part, self.load, self.cell)
    }
}

/// Returns a summary for each system, and then all rows.
pub(super) fn text(results: &Results, contenders: &[&Contender], rounds: usize) -> String {
    let ours = contenders.iter().enumerate().filter(|(_, contender)| contender.is_ours());
    let summaries = ours.map(|(place, _)| summary(results, contenders, place, rounds));
    let summaries: Vec<_> = summaries.collect();
    [summaries.join("\n\n"), tables(results, contenders)].join("\n\n")
}

/// Compares Thruway in one system with the other servers of the same system, so that the Ruby is
/// the same.
fn summary(results: &Results, contenders: &[&Contender], ours: usize, rounds: usize) -> String {
    let system = contenders[ours].system();
    let is_peer =
        |place: &usize| !contenders[*place].is_ours() && contenders[*place].system() == system;
    let peers: Vec<_> = (0..contenders.len()).filter(is_peer).collect();
    let title = format!(
        "{} ÷ its peers, each the worst of its {rounds} runs of a cell",
        contenders[ours].name
    );
    let columns = [
        "peer",
        "cells",
        "p99, worst",
        "median",
        "requests/s, worst",
        "median",
        "Jain, worst",
        "median",
    ];
    let mut table = Table::new(&title, &columns);
    for peer in &peers {
        let ratios = results.ratios(ours, |row| results.worst(row, *peer));
        table.row(contenders[*peer].name, &cells(&ratios));
    }
    let best = |row: &Row| {
        let worsts: Vec<_> = peers.iter().filter_map(|peer| results.worst(row, *peer)).collect();
        Worst::best(&worsts)
    };
    let ratios = results.ratios(ours, best);
    table.row("the best in each cell", &cells(&ratios));
    judge(&mut table, results, ours, &ratios);
    table.text()
}

fn judge(table: &mut Table, results: &Results, ours: usize, ratios: &[(Row, Ratios)]) {
    let p99 = Spread::new(figures(ratios, |ratios, _| Some(ratios.p99)), true);
    let worst = p99.as_ref().map(|spread| spread.worst);
    table.target("p99 ≤ 1.05 × the best peer's in every cell", at_most(worst, 1.05));
    let median = p99.as_ref().map(|spread| spread.median);
    table.target("p99 ≤ .9 × the best peer's in the median cell", at_most(median, 0.9));
    let indices = results.rows.keys().filter_map(|row| results.worst(row, ours)?.jain);
    table.target("Jain ≥ .98 in every closed cell", at_least(indices.min_by(f64::total_cmp), 0.98));
    let against = Spread::new(figures(ratios, |ratios, _| ratios.jain), false);
    let against = against.map(|spread| spread.worst);
    table.target("Jain ≥ the best peer's in every closed cell", at_least(against, 1.0));
}

/// The number of cells, and the worst and the median of each figure.
fn cells(ratios: &[(Row, Ratios)]) -> Vec<String> {
    let mut cells = vec![ratios.len().to_string()];
    for (figure, high_is_bad) in [
        (figures(ratios, |ratios, _| Some(ratios.p99)), true),
        (figures(ratios, speed), false),
        (figures(ratios, |ratios, _| ratios.jain), false),
    ] {
        cells.extend(match Spread::new(figure, high_is_bad) {
            Some(Spread { worst, cell, median }) => {
                [format!("{worst:.2}, {cell}"), format!("{median:.2}")]
            }
            None => ["–".to_owned(), "–".to_owned()],
        });
    }
    cells
}

/// Requests per second, for clients that send as fast as they can: in an open loop, the figure is
/// the rate.
fn speed(ratios: &Ratios, row: &Row) -> Option<f64> {
    (row.load == Load::Closed).then_some(ratios.requests_per_second)
}

fn figures(
    ratios: &[(Row, Ratios)],
    figure: impl Fn(&Ratios, &Row) -> Option<f64>,
) -> Vec<(String, f64)> {
    ratios.iter().filter_map(|(row, ratios)| Some((row.name(), figure(ratios, row)?))).collect()
}

/// Returns a table for each shape and load.
fn tables(results: &Results, contenders: &[&Contender]) -> String {
    let mut texts: Vec<String> = Vec::new();
    let rows: Vec<_> = results.rows.keys().collect();
    let is_same = |one: &&Row, other: &&Row| {
        (one.shape, one.part, one.load) == (other.shape, other.part, other.load)
    };
    for rows in rows.chunk_by(is_same) {
        let Row { shape, part, load, .. } = rows[0];
        let columns = [
            "server",
            "W, T, C",
            "requests/s",
            "±",
            "p50 ms",
            "p99 ms",
            "worst p99",
            "p99.9 ms",
            "worst Jain",
            "CPU µs",
            "lost",
        ];
        let mut table = Table::new(&format!("{shape}{part}, {load}"), &columns);
        for row in rows {
            for (place, samples) in &results.rows[row] {
                table.row(contenders[*place].name, &behind(row.cell, samples));
            }
        }
        texts.push(table.text());
    }
    texts.join("\n")
}

/// The figures of one server in one row: medians, and the worst values where those matter.
fn behind(cell: Cell, samples: &[Sample]) -> Vec<String> {
    let series = |of: &dyn Fn(&Sample) -> f64| Series::new("", samples.iter().map(of).collect());
    let median = |of: &dyn Fn(&Sample) -> f64| format!("{:.1}", series(of).median());
    let speed = series(&|sample| sample.requests_per_second);
    let index = Worst::of(samples).and_then(|worst| worst.jain);
    vec![
        cell.to_string(),
        format!("{:.0}", speed.median()),
        Some(speed.spread() * 100.0)
            .filter(|spread| spread.is_finite())
            .map_or_else(|| "–".to_owned(), |spread| format!("{spread:.0} %")),
        median(&|sample| sample.p50_ms),
        median(&|sample| sample.p99_ms),
        format!("{:.1}", series(&|sample| sample.p99_ms).largest()),
        median(&|sample| sample.p999_ms),
        index.map_or_else(|| "–".to_owned(), |index| format!("{index:.3}")),
        format!("{:.0}", series(&|sample| sample.cpu_us).median()),
        format!("{:.0}", series(&|sample| sample.lost).largest()),
    ]
}
