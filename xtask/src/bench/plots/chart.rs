//! Horizontal bars as SVG: names on the left, figures at the bars' ends.

use std::fmt::Write;

const WIDTH: f64 = 860.0;
const ROW_HEIGHT: f64 = 22.0;
const BAR_HEIGHT: f64 = 14.0;
/// The title and the room below it.
const HEAD_HEIGHT: f64 = 40.0;
const NAMES_WIDTH: f64 = 330.0;
/// Beside the longest bar.
const FIGURES_WIDTH: f64 = 170.0;
const MARGIN: f64 = 12.0;

/// Colours of GitHub's own pages, which are told apart without seeing red or green.
const STYLE: &str = "\
svg{font:13px system-ui,-apple-system,'Segoe UI',sans-serif}\
.page{fill:#fff}text{fill:#1f2328}.title{font-weight:600}\
.ours{fill:#0969da}.peer{fill:#afb8c1}.worse{fill:#bc4c00}.axis{stroke:#afb8c1}\
@media(prefers-color-scheme:dark){.page{fill:#0d1117}text{fill:#e6edf3}\
.ours{fill:#4493f8}.peer{fill:#6e7681}.worse{fill:#db6d28}.axis{stroke:#6e7681}}";

/// A row.
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) figure: String,
    /// From 0 to 1, or from -1 where it goes to the left.
    pub(super) length: f64,
    pub(super) is_ours: bool,
}

/// A picture.
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

    /// Where bars begin, and how long the longest may be.
    fn scale(&self) -> (f64, f64) {
        let left = self.bars.iter().map(|bar| -bar.length).fold(0.0, f64::max);
        let right = self.bars.iter().map(|bar| bar.length).fold(0.0, f64::max);
        // Figures stand on both sides then.
        let left_figures = if left > 0.0 { FIGURES_WIDTH } else { 0.0 };
        let room = WIDTH - NAMES_WIDTH - left_figures - FIGURES_WIDTH - MARGIN;
        let scale = room / (left + right).max(f64::MIN_POSITIVE);
        (NAMES_WIDTH + left_figures + left * scale, scale)
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
        let (end, anchor) = match self.length < 0.0 {
            true => (left - 6.0, "end"),
            false => (left + width + 6.0, "start"),
        };
        let names_end = NAMES_WIDTH - 10.0;
        let _ = writeln!(
            text,
            "<text x=\"{names_end}\" y=\"{baseline}\" text-anchor=\"end\">{name}</text>\
             <rect class=\"{colour}\" x=\"{left:.1}\" y=\"{:.1}\" width=\"{width:.1}\" \
             height=\"{BAR_HEIGHT}\" rx=\"2\"/>\
             <text x=\"{end:.1}\" y=\"{baseline}\" text-anchor=\"{anchor}\">{figure}</text>",
            top + (ROW_HEIGHT - BAR_HEIGHT) / 2.0
        );
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
