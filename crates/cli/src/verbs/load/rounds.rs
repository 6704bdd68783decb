//! Compares two servers in rounds: A B, B A, A B, so that a change during the run favours neither.

use std::os::fd::AsFd;
use std::process::ExitCode;

use serde::Serialize;
use thruway_load::{Interrupt, Plan, Report, Url};

use super::arguments::Load;
use super::page::{self, Page};
use super::plan::failure;
use super::progress::Live;
use super::statistics::{Ratio, ratio};
use crate::output::{Answer, Failure, print};
use crate::units::{time, whole};

/// The version of the JSON format.
const VERSION: u32 = 1;

/// A figure of a run.
struct Figure {
    name: &'static str,
    /// The name in JSON.
    field: &'static str,
    value: fn(&Report) -> f64,
    write: fn(f64) -> String,
    /// Whether a larger value is better.
    is_rate: bool,
}

/// The figures that are compared.
const FIGURES: [Figure; 4] = [
    Figure {
        name: "requests/s",
        field: "requests_per_second",
        value: |report| report.total.requests_per_second,
        write: whole,
        is_rate: true,
    },
    Figure {
        name: "p50",
        field: "p50_ns",
        value: |report| exact(report.total.latency.p50_ns),
        write: nanoseconds,
        is_rate: false,
    },
    Figure {
        name: "p99",
        field: "p99_ns",
        value: |report| exact(report.total.latency.p99_ns),
        write: nanoseconds,
        is_rate: false,
    },
    Figure {
        name: "mean",
        field: "mean_ns",
        value: |report| exact(report.total.latency.mean_ns),
        write: nanoseconds,
        is_rate: false,
    },
];

/// A comparison as JSON.
#[derive(Serialize)]
struct Comparison<'a> {
    version: u32,
    a: String,
    b: String,
    figures: Vec<FigureComparison>,
    runs_a: &'a [Report],
    runs_b: &'a [Report],
}

/// A figure of both servers.
#[derive(Serialize)]
struct FigureComparison {
    name: &'static str,
    a: f64,
    b: f64,
    #[serde(flatten)]
    ratio: Option<Ratio>,
    verdict: &'static str,
}

impl Load {
    /// Loads the server of `other` (A) and the server of the other URLs (B) in turn.
    pub(super) fn compare_servers(&self, other: &str) -> Answer {
        let first = vec![Url::parse(other).map_err(failure)?];
        let second = self.parsed_urls()?;
        let plans =
            [self.round_plan(&first, &[other.to_owned()])?, self.round_plan(&second, &self.urls)?];
        let urls = [first[0].to_string(), second[0].to_string()];
        let interrupt = Interrupt::new().map_err(failure)?;
        let mut runs = [Vec::new(), Vec::new()];
        let mut is_over = false;
        for round in 0..self.rounds {
            let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
            for place in order {
                let name = format!("{} {}/{}", ["A", "B"][place], round + 1, self.rounds);
                let report = self.visit(&plans[place], name, &interrupt)?;
                is_over = interrupt.is_pending();
                if is_over && report.total.requests == 0 {
                    // The visit has only begun, and does not count.
                    break;
                }
                if report.total.requests == 0 {
                    let url = if place == 0 { &first[0] } else { &second[0] };
                    return Err(self.no_answer(url, &report));
                }
                runs[place].push(report);
                if is_over {
                    break;
                }
            }
            if is_over {
                break;
            }
        }
        self.print_comparison(&urls, &runs)?;
        Ok(ExitCode::SUCCESS)
    }

    fn round_plan(&self, urls: &[Url], texts: &[String]) -> Result<Plan, Failure> {
        let mut plan = self.plan(urls, texts)?;
        if self.duration.is_none() && self.requests.is_none() {
            plan.duration = Some(super::arguments::VISIT_DEFAULT);
        }
        Ok(plan)
    }

    fn visit(&self, plan: &Plan, name: String, interrupt: &Interrupt) -> Result<Report, Failure> {
        let mut live = Live::named(name, self.quiet, self.progress);
        let ran = thruway_load::run(plan, Some(interrupt.as_fd()), &mut |now| live.show(now));
        live.clear();
        ran.map_err(failure)
    }

    fn print_comparison(&self, urls: &[String; 2], runs: &[Vec<Report>; 2]) -> Result<(), Failure> {
        let rounds = runs[0].len().min(runs[1].len());
        let compared: Vec<_> = FIGURES
            .iter()
            .map(|figure| figure.compare(&runs[0][..rounds], &runs[1][..rounds]))
            .collect();
        if self.json {
            let [runs_a, runs_b] = runs;
            let [a, b] = urls.clone();
            let whole = Comparison { version: VERSION, a, b, figures: compared, runs_a, runs_b };
            let mut json = serde_json::to_vec_pretty(&whole)
                .map_err(|error| Failure::new(format_args!("cannot write JSON: {error}")))?;
            json.push(b'\n');
            return print(&json);
        }
        let mut page = page::stdout();
        write(&mut page, urls, runs, &compared);
        print(page.into_text().as_bytes())
    }
}

impl Figure {
    fn compare(&self, a: &[Report], b: &[Report]) -> FigureComparison {
        let values = |runs: &[Report]| runs.iter().map(self.value).collect::<Vec<_>>();
        let (of_a, of_b) = (values(a), values(b));
        let ratio = ratio(&of_a, &of_b);
        let verdict = self.verdict(ratio.as_ref());
        FigureComparison { name: self.field, a: mean(&of_a), b: mean(&of_b), ratio, verdict }
    }

    /// Returns what the interval of B ÷ A shows. A larger latency is a slower server, and a larger rate a faster one.
    fn verdict(&self, ratio: Option<&Ratio>) -> &'static str {
        match (ratio, self.is_rate) {
            (None, _) => "too few rounds to tell",
            (Some(ratio), true) if ratio.low > 1.0 => "B is faster",
            (Some(ratio), false) if ratio.low > 1.0 => "B is slower",
            (Some(ratio), true) if ratio.high < 1.0 => "B is slower",
            (Some(ratio), false) if ratio.high < 1.0 => "B is faster",
            (Some(_), _) => "no difference shown",
        }
    }
}

fn write(
    page: &mut Page,
    urls: &[String; 2],
    runs: &[Vec<Report>; 2],
    compared: &[FigureComparison],
) {
    let rounds = runs[0].len().min(runs[1].len());
    page.items("A", &[urls[0].clone()]);
    page.items("B", &[urls[1].clone()]);
    page.items("rounds", &[format!("{rounds}, in the order A B, B A")]);
    let wide = rows(compared);
    if page.fits(&wide) {
        page.table(wide, &[]);
    } else {
        // The verdicts follow the table, each in a line.
        let narrow = wide.into_iter().map(|row| row.into_iter().take(4).chain([String::new()]));
        page.table(narrow.map(Iterator::collect).collect(), &[]);
        page.plain("");
        for (figure, compared) in FIGURES.iter().zip(compared) {
            page.items(figure.name, &[compared.verdict.to_owned(), range(compared)]);
        }
    }
    for (name, runs) in ["A", "B"].iter().zip(runs) {
        flaws(page, name, runs);
    }
}

/// Returns the table of figures.
fn rows(compared: &[FigureComparison]) -> Vec<Vec<String>> {
    let head = ["", "A", "B", "B ÷ A", "95 % sure", ""].map(str::to_owned).to_vec();
    let row = |(figure, compared): (&Figure, &FigureComparison)| {
        let ratio = compared.ratio.as_ref();
        vec![
            figure.name.to_owned(),
            (figure.write)(compared.a),
            (figure.write)(compared.b),
            ratio.map_or_else(String::new, |ratio| format!("{:.3} ×", ratio.ratio)),
            range(compared),
            compared.verdict.to_owned(),
        ]
    };
    std::iter::once(head).chain(FIGURES.iter().zip(compared).map(row)).collect()
}

/// Formats the interval that contains the ratio with 95 % confidence.
fn range(compared: &FigureComparison) -> String {
    let range = |ratio: &Ratio| format!("{:.3} to {:.3}", ratio.low, ratio.high);
    compared.ratio.as_ref().map_or_else(String::new, range)
}

/// Writes the reasons to doubt a figure: failed requests and starved connections.
fn flaws(page: &mut Page, name: &str, runs: &[Report]) {
    let errors: u64 = runs.iter().map(errors).sum();
    let starved = runs.iter().map(|run| run.total.fairness.starved).max().unwrap_or(0);
    let mut items = Vec::new();
    if errors > 0 {
        items.push(format!("{errors} requests were lost or answered with an error"));
    }
    if starved > 0 {
        items.push(format!("up to {starved} connections were starved"));
    }
    if !items.is_empty() {
        page.plain("");
        page.alarm(name, &items);
    }
}

fn errors(report: &Report) -> u64 {
    let statuses = report.total.statuses.iter().filter(|(status, _)| **status >= 400);
    statuses.map(|(_, count)| count).sum::<u64>() + report.total.failed
}

#[expect(clippy::cast_precision_loss, reason = "2^53 ns are 104 days")]
fn exact(number: u64) -> f64 {
    number as f64
}

#[expect(clippy::cast_precision_loss, reason = "there are few rounds")]
fn mean(values: &[f64]) -> f64 {
    // The sum of no values is -0.0, and adding 0.0 makes it 0.0.
    (values.iter().sum::<f64>() + 0.0) / values.len().max(1) as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time is positive")]
fn nanoseconds(value: f64) -> String {
    time(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_latency_is_slower_and_a_larger_rate_is_faster() {
        let [rate, p50, ..] = &FIGURES;
        for (low, high, of_rate, of_p50) in [
            (1.1, 1.2, "B is faster", "B is slower"),
            (0.8, 0.9, "B is slower", "B is faster"),
            (0.9, 1.1, "no difference shown", "no difference shown"),
            (1.0, 1.1, "no difference shown", "no difference shown"),
        ] {
            let ratio = Ratio { ratio: f64::midpoint(low, high), low, high };
            assert_eq!(rate.verdict(Some(&ratio)), of_rate, "{low} to {high}");
            assert_eq!(p50.verdict(Some(&ratio)), of_p50, "{low} to {high}");
        }
        assert_eq!(rate.verdict(None), "too few rounds to tell");
    }
}
