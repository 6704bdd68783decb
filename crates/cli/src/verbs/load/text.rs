//! Formats a report for people.

use std::collections::BTreeMap;

use thruway_load::{
    BroadcastReport, ConnectionReport, Fairness, GroupReport, Histogram, Latency, Report,
    StreamReport, Url, UrlReport,
};

use super::bins::bins;
use super::limits::trimmed;
use super::page::Page;
use crate::units::{thousands, throughput, time, whole};

/// The percentiles that are printed if the user chooses none.
const PERCENTILES_DEFAULT: [f64; 4] = [50.0, 90.0, 99.0, 99.9];
/// The width of a page without a terminal, and the width around the bars.
const WIDTH_USUAL: usize = 100;
const SHARES_MARGIN: usize = 13;
/// The columns of a histogram before its bars.
const HISTOGRAM_MARGIN: usize = 40;
/// The number of connections whose bars fit into one line.
const BARS_MAX: usize = 60;
/// The width of a connection's own bar, in characters.
const BAR_WIDTH: u64 = 24;

/// The parts of a report that are printed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts<'a> {
    pub(super) percentiles: &'a [f64],
    pub(super) histogram: bool,
    pub(super) per_connection: bool,
}

pub(super) fn report(page: &mut Page, urls: &[Url], report: &Report, parts: Parts<'_>) {
    let total = &report.total;
    let plural = if total.connections == 1 { "" } else { "s" };
    let (connections, seconds) = (thousands(total.connections), report.seconds);
    let target = target(urls);
    page.plain(&format!("{target}: {connections} connection{plural}, {seconds:.2} s"));
    page.plain("");
    page.items("requests", &requests(total));
    page.items("latency", &percentiles(&report.histogram, parts.percentiles));
    if parts.histogram || !parts.percentiles.is_empty() {
        page.items("", &spread(&total.latency));
    }
    page.items("broadcast", &report.broadcasts.as_ref().map_or_else(Vec::new, broadcasts));
    page.items("status", &counts(&total.status));
    page.items("", &statuses(&total.statuses));
    page.items("encoded", &encoded(total));
    page.items("retried", &retried(total));
    let last = report.connect_error.as_deref().or(report.tls_error.as_deref());
    let last = last.or_else(|| other_protocol(report));
    page.alarm("errors", &errors(total, last));
    page.items("fairness", &fairness(total));
    page.items("streams", &total.streams.as_ref().map_or_else(Vec::new, streams));
    shares(page, &report.connections);
    page.alarm("starved", &starved(total));
    if parts.histogram {
        histogram(page, &report.histogram);
    }
    if report.urls.len() > 1 {
        by_url(page, &report.urls);
    }
    if report.classes.len() > 1 {
        classes(page, &report.classes);
    }
    if parts.per_connection {
        rows(page, &report.connections);
    }
}

/// Returns the most frequent description of responses that do not begin like those of HTTP/1.
pub(super) fn other_protocol(report: &Report) -> Option<&str> {
    let strange =
        report.failures.iter().filter(|one| matches!(one.kind, "malformed" | "truncated"));
    strange.max_by_key(|one| one.count).map(|one| one.reason.as_str())
}

pub(super) fn is_fair(fairness: &Fairness, least: f64) -> bool {
    fairness.starved == 0 && fairness.index.is_some_and(|index| index >= least)
}

pub(super) fn verdict(fairness: &Fairness, least: f64) -> String {
    let (word, sign) =
        if is_fair(fairness, least) { ("fair", "at least") } else { ("unfair", "asked for:") };
    let index = fairness.index.unwrap_or(0.0);
    format!("{word}: Jain {index:.4}, {sign} {least}; {} starved", fairness.starved)
}

fn requests(group: &GroupReport) -> Vec<String> {
    vec![
        thousands(group.requests),
        format!("{}/s", whole(group.requests_per_second)),
        throughput(group.bytes_per_second),
    ]
}

/// Formats the time until all connections had a message.
fn broadcasts(all: &BroadcastReport) -> Vec<String> {
    let (sent, whole) = (thousands(all.sent), thousands(all.whole));
    let rate = format!("{:.1}/s", all.whole_per_second);
    let counts = vec![format!("{sent} sent"), format!("{whole} to all"), rate];
    if all.latency.max_ns == 0 {
        return counts;
    }
    let named = QUANTILES.iter().zip(quantiles(&all.latency));
    [counts, named.map(|(name, value)| format!("{name} {value}")).collect()].concat()
}

fn streams(streams: &StreamReport) -> Vec<String> {
    let (each, starved) = (thousands(streams.each), thousands(streams.starved));
    let index = streams.index.map_or_else(|| "–".to_owned(), |index| format!("{index:.4}"));
    vec![format!("{each} a connection"), format!("Jain {index}"), format!("{starved} starved")]
}

/// Formats the chosen percentiles and the longest latency. Without a response, returns nothing.
fn percentiles(histogram: &Histogram, percentiles: &[f64]) -> Vec<String> {
    if histogram.total() == 0 {
        return Vec::new();
    }
    let chosen = if percentiles.is_empty() { &PERCENTILES_DEFAULT } else { percentiles };
    let named = chosen.iter().map(|percentile| {
        format!("p{} {}", trimmed(*percentile), time(histogram.quantile(percentile / 100.0)))
    });
    named.chain([format!("max {}", time(histogram.largest()))]).collect()
}

/// Formats the percentiles of a picture.
pub(super) fn percentile_row(histogram: &Histogram) -> Vec<String> {
    percentiles(histogram, &[])
}

fn spread(latency: &Latency) -> Vec<String> {
    if latency.max_ns == 0 {
        return Vec::new();
    }
    let (mean, deviation) = (time(latency.mean_ns), time(latency.deviation_ns));
    vec![format!("mean {mean}"), format!("standard deviation {deviation}")]
}

pub(super) fn counts(counts: &BTreeMap<&str, u64>) -> Vec<String> {
    let named = counts.iter().map(|(name, count)| format!("{name} {}", thousands(*count)));
    named.map(|text| text.replace('_', " ")).collect()
}

/// Formats the count of each status, if statuses other than 200 occurred.
fn statuses(statuses: &BTreeMap<u16, u64>) -> Vec<String> {
    if statuses.keys().all(|status| *status == 200) {
        return Vec::new();
    }
    statuses.iter().map(|(status, count)| format!("{status} {}", thousands(*count))).collect()
}

fn encoded(group: &GroupReport) -> Vec<String> {
    if group.encoded == 0 {
        return Vec::new();
    }
    vec![format!("{} responses with a content coding, such as gzip", thousands(group.encoded))]
}

fn retried(group: &GroupReport) -> Vec<String> {
    if group.retried == 0 {
        return Vec::new();
    }
    vec![format!("{} on connections that the server had closed", thousands(group.retried))]
}

fn errors(group: &GroupReport, last: Option<&str>) -> Vec<String> {
    if group.errors.is_empty() {
        return Vec::new();
    }
    let lost = format!("({} requests lost)", thousands(group.failed));
    let lost = last.map_or(lost.clone(), |error| format!("{lost}; last: {error}"));
    [counts(&group.errors), vec![lost]].concat()
}

fn fairness(group: &GroupReport) -> Vec<String> {
    let fairness = &group.fairness;
    let index = fairness.index.map_or_else(|| "–".to_owned(), |index| format!("{index:.4}"));
    let mut items =
        vec![format!("Jain {index}"), format!("{} starved", thousands(fairness.starved))];
    if fairness.pending > 0 {
        let (pending, age) = (thousands(fairness.pending), time(fairness.oldest_pending_ns));
        items.push(format!("{pending} pending, the oldest for {age}"));
    }
    items
}

/// Formats the number of starved connections, if any.
fn starved(group: &GroupReport) -> Vec<String> {
    let (starved, all) = (group.fairness.starved, group.connections);
    if starved == 0 {
        return Vec::new();
    }
    let (starved, all) = (thousands(starved), thousands(all));
    vec![format!("{starved} of {all} connections got nothing, or less than a tenth of the mean")]
}

fn shares(page: &mut Page, connections: &[ConnectionReport]) {
    let shares: Vec<_> = connections.iter().map(|connection| connection.requests).collect();
    let room = page.width_or(WIDTH_USUAL).saturating_sub(SHARES_MARGIN).min(BARS_MAX);
    let (bars, each) = sparkline(&shares, room);
    page.items("shares", &[bars]);
    if each > 1 {
        page.items("", &[format!("each bar is the least of {each} connections")]);
    }
}

/// Draws a bar for each share, relative to the largest share. If there are more than `room`, each bar shows the least
/// of several shares, so that a starved connection stays visible. Returns the bars and the number of shares in a bar.
pub(super) fn sparkline(shares: &[u64], room: usize) -> (String, usize) {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let largest = shares.iter().copied().max().unwrap_or(0).max(1);
    let each = shares.len().div_ceil(room.max(1)).max(1);
    let bar = |shares: &[u64]| match shares.iter().copied().min().unwrap_or(0) {
        0 => '·',
        share => {
            let height = (u128::from(share) * 7 + u128::from(largest) / 2) / u128::from(largest);
            BARS[usize::try_from(height).unwrap_or(7).min(7)]
        }
    };
    (shares.chunks(each).map(bar).collect(), each)
}

/// Writes a row for each bin of latencies.
#[expect(clippy::cast_precision_loss, reason = "the bars show rounded numbers")]
fn histogram(page: &mut Page, histogram: &Histogram) {
    let bins = bins(histogram);
    let largest = bins.iter().map(|bin| bin.count).max().unwrap_or(0).max(1);
    let mut rows = vec![row(["latency below", "requests", "share", ""])];
    let room = page.width_or(WIDTH_USUAL).saturating_sub(HISTOGRAM_MARGIN) as u64;
    let longest = u128::from(BAR_WIDTH.min(room));
    rows.extend(bins.iter().map(|bin| {
        let width = (u128::from(bin.count) * longest).div_ceil(u128::from(largest));
        vec![
            time(bin.to_ns),
            thousands(bin.count),
            format!("{:.1} %", bin.count as f64 / histogram.total() as f64 * 100.0),
            "█".repeat(usize::try_from(width).unwrap_or(0)),
        ]
    }));
    page.table(rows, &[]);
}

/// Returns the target of the run: a URL, or the number of URLs and their server.
fn target(urls: &[Url]) -> String {
    match urls {
        [only] => only.to_string(),
        _ => format!("{}, {} URLs", urls[0].origin(), thousands(urls.len() as u64)),
    }
}

fn by_url(page: &mut Page, urls: &[UrlReport]) {
    let mut rows = vec![row(["URL", "requests", "/s"])];
    rows[0].extend([&QUANTILES[..], &["Jain", "lost"]].concat().into_iter().map(str::to_owned));
    rows.extend(urls.iter().map(|url| {
        let name = vec![url.url.clone(), thousands(url.requests), whole(url.requests_per_second)];
        let fate = vec![index(url.index), thousands(url.failed)];
        [name, quantiles(&url.latency), fate].concat()
    }));
    page.table(rows, &SPARE);
}

fn classes(page: &mut Page, classes: &[GroupReport]) {
    let mut rows = vec![row(["class", "n", "requests", "/s"])];
    rows[0].extend([&QUANTILES[..], &["Jain", "starved"]].concat().into_iter().map(str::to_owned));
    rows.extend(classes.iter().map(|class| {
        let name = vec![
            name(class.name, class.url.as_deref()),
            thousands(class.connections),
            thousands(class.requests),
            whole(class.requests_per_second),
        ];
        let fate = vec![index(class.fairness.index), thousands(class.fairness.starved)];
        [name, quantiles(&class.latency), fate].concat()
    }));
    page.table(rows, &SPARE);
}

/// Columns that a narrow table leaves out.
const SPARE: [&str; 6] = ["p99.9", "p90", "Jain", "/s", "p50", "lost"];
const QUANTILES: [&str; 5] = ["p50", "p90", "p99", "p99.9", "max"];

fn quantiles(latency: &Latency) -> Vec<String> {
    let Latency { p50_ns, p90_ns, p99_ns, p999_ns, max_ns, .. } = *latency;
    [p50_ns, p90_ns, p99_ns, p999_ns, max_ns].map(time).to_vec()
}

fn index(index: Option<f64>) -> String {
    index.map_or_else(String::new, |index| format!("{index:.4}"))
}

/// Returns the name of a class, with the URL if the class has one of its own.
fn name(class: &str, url: Option<&str>) -> String {
    url.map_or_else(|| class.to_owned(), |url| format!("{class} {url}"))
}

fn rows(page: &mut Page, connections: &[ConnectionReport]) {
    let largest = connections.iter().map(|one| one.requests).max().unwrap_or(0).max(1);
    let mut rows = vec![row(["connection", "requests", "p50", "p99", "max", "pending for", ""])];
    rows.extend(connections.iter().enumerate().map(|(place, one)| {
        let pending = if one.pending > 0 { time(one.oldest_pending_ns) } else { String::new() };
        let width = (one.requests * BAR_WIDTH + largest / 2) / largest;
        vec![
            format!("{} {}", name(one.class, one.url.as_deref()), place + 1),
            thousands(one.requests),
            time(one.latency.p50_ns),
            time(one.latency.p99_ns),
            time(one.latency.max_ns),
            pending,
            if one.starved {
                "starved".to_owned()
            } else {
                "█".repeat(usize::try_from(width).unwrap_or(0))
            },
        ]
    }));
    page.table(rows, &["", "p50", "max"]);
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_share_has_a_full_bar_and_none_has_a_dot() {
        assert_eq!(sparkline(&[0, 1, 50, 100], 60), ("·▁▅█".to_owned(), 1));
        assert_eq!(sparkline(&[9, 9, 0, 9, 9], 3), ("█·█".to_owned(), 2));
    }

    #[test]
    fn a_starved_connection_is_unfair_whatever_the_index() {
        let mut fairness =
            Fairness { index: Some(0.99), starved: 0, pending: 0, oldest_pending_ns: 0 };
        assert!(is_fair(&fairness, 0.99));
        assert!(!is_fair(&fairness, 0.991));
        fairness.starved = 1;
        assert!(!is_fair(&fairness, 0.5));
        fairness = Fairness { index: None, starved: 0, ..fairness };
        assert!(!is_fair(&fairness, 0.0));
    }
}
