//! A report as people read it.

use std::collections::BTreeMap;
use std::fmt::Write;

use thruway_load::{
    BroadcastReport, ConnectionReport, Fairness, GroupReport, Latency, Report, StreamReport, Url,
    UrlReport,
};

use thruway_sys::printable;

use crate::units::{thousands, throughput, time, whole};

/// Connections that fit side by side into one line.
const BARS_MAX: usize = 60;
/// Width of a connection's own bar, in characters.
const BAR_WIDTH: u64 = 24;

pub(super) fn report(urls: &[Url], report: &Report, per_connection: bool) -> String {
    let total = &report.total;
    let plural = if total.connections == 1 { "" } else { "s" };
    let (connections, seconds) = (thousands(total.connections), report.seconds);
    let asked = asked(urls);
    let mut text = format!("{asked}: {connections} connection{plural}, {seconds:.2} s\n\n");
    let mut line = |name: &str, value: String| {
        if !value.is_empty() {
            let _ = writeln!(text, "  {name:<9} {value}");
        }
    };
    line("requests", requests(total));
    line("latency", latency(&total.latency));
    line("broadcast", report.broadcasts.as_ref().map_or_else(String::new, broadcasts));
    line("status", counts(&total.status));
    line("errors", errors(total, report.connect_error.as_deref().or(report.tls_error.as_deref())));
    line("fairness", fairness(total));
    line("streams", total.streams.as_ref().map_or_else(String::new, streams));
    line("shares", shares(&report.connections));
    if report.urls.len() > 1 {
        text.push_str(&by_url(&report.urls));
    }
    if report.classes.len() > 1 {
        text.push_str(&classes(&report.classes));
    }
    if per_connection {
        text.push_str(&rows(&report.connections));
    }
    text
}

pub(super) fn is_fair(fairness: &Fairness, least: f64) -> bool {
    fairness.starved == 0 && fairness.index.is_some_and(|index| index >= least)
}

pub(super) fn verdict(fairness: &Fairness, least: f64) -> String {
    let (word, sign) =
        if is_fair(fairness, least) { ("fair", "at least") } else { ("unfair", "asked for:") };
    let index = fairness.index.unwrap_or(0.0);
    format!("\n{word}: Jain {index:.4}, {sign} {least}; {} starved\n", fairness.starved)
}

fn requests(group: &GroupReport) -> String {
    format!(
        "{}   {}/s   {}",
        thousands(group.requests),
        whole(group.requests_per_second),
        throughput(group.bytes_per_second)
    )
}

/// How long it took until all connections had a message.
fn broadcasts(all: &BroadcastReport) -> String {
    let (sent, whole) = (thousands(all.sent), thousands(all.whole));
    let rate = all.whole_per_second;
    let counts = format!("{sent} sent   {whole} to all   {rate:.1}/s");
    [counts, latency(&all.latency)].join("   ").trim_end().to_owned()
}

fn streams(streams: &StreamReport) -> String {
    let (each, starved) = (thousands(streams.each), thousands(streams.starved));
    let index = streams.index.map_or_else(|| "–".to_owned(), |index| format!("{index:.4}"));
    format!("{each} a connection   Jain {index}   {starved} starved")
}

/// Nothing where nothing was answered.
fn latency(latency: &Latency) -> String {
    if latency.max_ns == 0 {
        return String::new();
    }
    let named = QUANTILES.iter().zip(quantiles(latency));
    named.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join("   ")
}

pub(super) fn counts(counts: &BTreeMap<&str, u64>) -> String {
    let named = counts.iter().map(|(name, count)| format!("{name} {}", thousands(*count)));
    named.collect::<Vec<_>>().join("   ").replace('_', " ")
}

fn errors(group: &GroupReport, last: Option<&str>) -> String {
    if group.errors.is_empty() {
        return String::new();
    }
    let lost = format!("{}   ({} requests lost)", counts(&group.errors), thousands(group.failed));
    match last {
        Some(error) => format!("{lost}; last: {error}"),
        None => lost,
    }
}

fn fairness(group: &GroupReport) -> String {
    let fairness = &group.fairness;
    let index = fairness.index.map_or_else(|| "–".to_owned(), |index| format!("{index:.4}"));
    let mut text = format!("Jain {index}   {} starved", thousands(fairness.starved));
    if fairness.pending > 0 {
        let (pending, age) = (thousands(fairness.pending), time(fairness.oldest_pending_ns));
        let _ = write!(text, "   {pending} pending, the oldest for {age}");
    }
    text
}

fn shares(connections: &[ConnectionReport]) -> String {
    sparkline(&connections.iter().map(|connection| connection.requests).collect::<Vec<_>>())
}

/// A bar for each share, the largest being full; nothing where there are too many.
pub(super) fn sparkline(shares: &[u64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let largest = shares.iter().copied().max().unwrap_or(0).max(1);
    if shares.len() > BARS_MAX {
        return String::new();
    }
    let bar = |share: &u64| match share {
        0 => '·',
        _ => BARS[usize::try_from((share * 7 + largest / 2) / largest).unwrap_or(7)],
    };
    shares.iter().map(bar).collect()
}

/// The target of the run: a URL, or the number of URLs and their server.
fn asked(urls: &[Url]) -> String {
    match urls {
        [only] => only.to_string(),
        _ => format!("http://{}, {} URLs", urls[0].authority(), urls.len()),
    }
}

fn by_url(urls: &[UrlReport]) -> String {
    let mut rows = vec![row(["URL", "requests", "/s"])];
    rows[0].extend([&QUANTILES[..], &["Jain", "lost"]].concat().into_iter().map(str::to_owned));
    rows.extend(urls.iter().map(|url| {
        let name = vec![url.url.clone(), thousands(url.requests), whole(url.requests_per_second)];
        let fate = vec![index(url.index), thousands(url.failed)];
        [name, quantiles(&url.latency), fate].concat()
    }));
    table(&rows)
}

fn classes(classes: &[GroupReport]) -> String {
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
    table(&rows)
}

const QUANTILES: [&str; 5] = ["p50", "p90", "p99", "p99.9", "max"];

fn quantiles(latency: &Latency) -> Vec<String> {
    let Latency { p50_ns, p90_ns, p99_ns, p999_ns, max_ns } = *latency;
    [p50_ns, p90_ns, p99_ns, p999_ns, max_ns].map(time).to_vec()
}

fn index(index: Option<f64>) -> String {
    index.map_or_else(String::new, |index| format!("{index:.4}"))
}

/// A class, with the only URL that it asks, if it has one of its own.
fn name(class: &str, url: Option<&str>) -> String {
    url.map_or_else(|| class.to_owned(), |url| format!("{class} {url}"))
}

fn rows(connections: &[ConnectionReport]) -> String {
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
    table(&rows)
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// Columns side by side: the first and the last to the left, the numbers between to the right.
pub(super) fn table(rows: &[Vec<String>]) -> String {
    let printed =
        |row: &Vec<String>| row.iter().map(|cell| printable::text(cell).into_owned()).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(printed).collect();
    let columns = rows.first().map_or(0, Vec::len);
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut text = String::from("\n");
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let _ = match column {
                0 => write!(line, "  {cell:<width$}"),
                _ if column + 1 == columns => write!(line, "   {cell}"),
                _ => write!(line, "   {cell:>width$}"),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_share_has_a_full_bar_and_none_has_a_dot() {
        assert_eq!(sparkline(&[0, 1, 50, 100]), "·▁▅█");
        assert_eq!(sparkline(&[1; BARS_MAX + 1]), "");
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [row(["a", "n", "bar"]), row(["long", "1,000", "x"])];
        assert_eq!(table(&rows), "\n  a          n   bar\n  long   1,000   x\n");
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
