//! Horizontal bars as SVG: names on the left, figures at the ends of the bars.

use std::fmt::Write;

const WIDTH: f64 = 900.0;
const ROW_HEIGHT: f64 = 22.0;
const BAR_HEIGHT: f64 = 14.0;
/// The height of the title and of the space below it.
const HEAD_HEIGHT: f64 = 40.0;
const NAMES_WIDTH: f64 = 330.0;
/// The space beside the longest bar.
const FIGURES_WIDTH: f64 = 200.0;
const MARGIN: f64 = 12.0;

/// The colours of GitHub's own pages, which readers with red-green colour blindness can
/// distinguish.
const STYLE: &str = "\
svg{font:13px system-ui,-apple-system,'Segoe UI',sans-serif}\
.page{fill:#fff}text{fill:#1f2328}.title{font-weight:600}\
.ours{fill:#0969da}.peer{fill:#afb8c1}.worse{fill:#bc4c00}.axis{stroke:#afb8c1}\
@media(prefers-color-scheme:dark){.page{fill:#0d1117}text{fill:#e6edf3}\
.ours{fill:#4493f8}.peer{fill:#6e7681}.worse{fill:#db6d28}.axis{stroke:#6e7681}}";

/// A row of the chart.
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) figure: String,
    /// The length from 0 to 1, or from -1 for a bar to the left.
    pub(super) length: f64,
    pub(super) is_ours: bool,
}

/// A chart.
pub(super) struct Chart<'a> {
    pub(super) title: &'a str,
    pub(super) bars: Vec<Bar>,
}

impl Chart<'_> {
    pub(super) fn svg(&self) -> String {
        let height = HEAD_HEIGHT + ROW_HEIGHT * self.bars.len() as f64 + MARGIN;
        let title = escaped(self.title);
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" role=\"img\" aria-label=\"{title}\">\n<style>{STYLE}</style>\n\
             <rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\" rx=\"6\"/>\n\
             <text class=\"title\" x=\"{MARGIN}\" y=\"25\">{title}</text>\n"
        );
        let (origin, scale) = self.scale();
        for (place, bar) in self.bars.iter().enumerate() {
            let top = HEAD_HEIGHT + ROW_HEIGHT * place as f64;
            bar.draw(&mut text, top, origin, scale);
        }
        let bottom = height - MARGIN;
        let _ = writeln!(
            text,
            "<line class=\"axis\" x1=\"{origin}\" x2=\"{origin}\" y1=\"{HEAD_HEIGHT}\" y2=\"{bottom}\"/>\n</svg>"
        );
        text
    }

    /// The start of bars, and the length of the longest.
    fn scale(&self) -> (f64, f64) {
        let left = self.bars.iter().map(|bar| -bar.length).fold(0.0, f64::max);
        let right = self.bars.iter().map(|bar| bar.length).fold(0.0, f64::max);
        let room = WIDTH - NAMES_WIDTH - FIGURES_WIDTH - MARGIN;
        let scale = room / (left + right).max(f64::MIN_POSITIVE);
        (NAMES_WIDTH + left * scale, scale)
    }
}

impl Bar {
    fn draw(&self, text: &mut String, top: f64, origin: f64, scale: f64) {
        let (name, figure) = (escaped(&self.name), escaped(&self.figure));
        let baseline = top + 15.0;
        let width = (self.length.abs() * scale).max(1.0);
        let left = if self.length < 0.0 { origin - width } else { origin };
        let colour = match (self.length < 0.0, self.is_ours) {
            (true, _) => "worse",
            (false, true) => "ours",
            (false, false) => "peer",
        };
        let figure_start = left + width + 6.0;
        let names_end = NAMES_WIDTH - 10.0;
        let _ = writeln!(
            text,
            "<text x=\"{names_end}\" y=\"{baseline}\" text-anchor=\"end\">{name}</text>\
             <rect class=\"{colour}\" x=\"{left:.1}\" y=\"{:.1}\" width=\"{width:.1}\" \
             height=\"{BAR_HEIGHT}\" rx=\"2\"/>\
             <text x=\"{figure_start:.1}\" y=\"{baseline}\">{figure}</text>",
            top + (ROW_HEIGHT - BAR_HEIGHT) / 2.0
        );
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
