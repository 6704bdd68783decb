//! A picture of a run: its latencies, and its requests over time.

use std::fmt::Write;

use thruway_load::{Report, TimelineRow};

use super::bins::bins;
use super::text::percentile_row;
use crate::units::{time, whole};

const WIDTH: f64 = 800.0;
const MARGIN: f64 = 70.0;
/// The height of each of the two diagrams, and the top of each.
const HEIGHT: f64 = 180.0;
const TOPS: [f64; 2] = [70.0, 330.0];
/// The most labels below a diagram.
const LABELS_MAX: usize = 9;
/// Colours for light and dark pages.
const STYLE: &str = "<style>text{font:13px system-ui,sans-serif;fill:#333}.axis{stroke:#999}\
                     .bar{fill:#3b76c4}.line{fill:none;stroke:#3b76c4;stroke-width:2}\
                     .lost{fill:#c43b3b}.title{font-weight:bold}\
                     @media(prefers-color-scheme:dark){text{fill:#ddd}}</style>";

/// Draws a report on `url`.
pub(super) fn picture(url: &str, report: &Report) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} 560\" role=\"img\">{STYLE}\n"
    );
    let (total, seconds) = (&report.total, report.seconds);
    text(&mut svg, "title", (MARGIN, 25.0), "start", &format!("{url}, {seconds:.2} s"));
    let figures = percentile_row(&report.histogram).join(", ");
    let rate = whole(total.requests_per_second);
    text(&mut svg, "", (MARGIN, 45.0), "start", &format!("{rate} requests/s, {figures}"));
    latencies(&mut svg, report);
    seconds_of(&mut svg, &report.timeline);
    svg.push_str("</svg>\n");
    svg
}

/// Draws a bar for each bin of latencies.
#[expect(clippy::cast_precision_loss, reason = "a picture has fewer digits")]
fn latencies(svg: &mut String, report: &Report) {
    let bins = bins(&report.histogram);
    let largest = bins.iter().map(|bin| bin.count).max().unwrap_or(0).max(1) as f64;
    frame(svg, TOPS[0], "requests by latency", &whole(largest));
    let step = (WIDTH - 2.0 * MARGIN) / bins.len().max(1) as f64;
    let every = bins.len().div_ceil(LABELS_MAX).max(1);
    for (place, bin) in bins.iter().enumerate() {
        let (x, height) = (MARGIN + step * place as f64, bin.count as f64 / largest * HEIGHT);
        rectangle(svg, "bar", (x + 1.0, TOPS[0] + HEIGHT - height), (step - 2.0, height));
        if place % every == 0 {
            let at = (x + step, TOPS[0] + HEIGHT + 18.0);
            text(svg, "", at, "middle", &time(bin.to_ns));
        }
    }
}

/// Draws the answered requests of each second, and the lost requests.
#[expect(clippy::cast_precision_loss, reason = "a picture has fewer digits")]
fn seconds_of(svg: &mut String, rows: &[TimelineRow]) {
    let largest = rows.iter().map(|row| row.requests_per_second).fold(1.0, f64::max);
    frame(svg, TOPS[1], "requests per second over time; lost ones in red", &whole(largest));
    let end = rows.last().map_or(1.0, |row| row.to_seconds).max(1e-9);
    let x = |seconds: f64| MARGIN + (WIDTH - 2.0 * MARGIN) * seconds / end;
    let mut path = String::new();
    for row in rows {
        let (from, to) = (x(row.from_seconds), x(row.to_seconds));
        let y = TOPS[1] + HEIGHT - row.requests_per_second / largest * HEIGHT;
        let command = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{command}{from:.1},{y:.1} L{to:.1},{y:.1} ");
        if row.failed > 0 {
            let share = row.failed as f64 / (row.failed + row.requests) as f64;
            let height = (share * HEIGHT).max(2.0);
            rectangle(svg, "lost", (from, TOPS[1] + HEIGHT - height), (to - from, height));
        }
    }
    let _ = writeln!(svg, "<path class=\"line\" d=\"{}\"/>", path.trim_end());
    for (share, anchor) in [(0.0, "start"), (0.5, "middle"), (1.0, "end")] {
        let at = (x(end * share), TOPS[1] + HEIGHT + 18.0);
        text(svg, "", at, anchor, &format!("{:.1} s", end * share));
    }
}

/// Draws the axes of a diagram, its title and the value at its top.
fn frame(svg: &mut String, top: f64, title: &str, largest: &str) {
    let (bottom, right) = (top + HEIGHT, WIDTH - MARGIN);
    let _ = writeln!(
        svg,
        "<path class=\"axis\" d=\"M{MARGIN},{top} V{bottom} H{right}\" fill=\"none\"/>"
    );
    text(svg, "", (MARGIN, top - 6.0), "start", title);
    text(svg, "", (MARGIN - 6.0, top + 12.0), "end", largest);
}

fn rectangle(svg: &mut String, class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) {
    let width = width.max(0.5);
    let _ = writeln!(
        svg,
        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
    );
}

fn text(svg: &mut String, class: &str, (x, y): (f64, f64), anchor: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(
        svg,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
    );
}
