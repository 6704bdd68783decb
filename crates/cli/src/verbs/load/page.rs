//! The page of a report: its width, its characters and its colours.

use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

use anstyle::{AnsiColor, Style};

use crate::output::colourful;
use crate::screen;

/// The width of the name before a line's items, with its margins.
const NAME_WIDTH: usize = 12;
/// The narrowest page that the layout supports.
const WIDTH_MIN: usize = 40;
/// The gap between items, and between columns.
const GAP: &str = "   ";
/// A report under construction.
#[derive(Debug)]
pub(super) struct Page {
    text: String,
    width: Option<usize>,
    is_ascii: bool,
    is_colourful: bool,
}

impl Page {
    /// Creates a page for a stream, as wide as its terminal. Files and pipes have no width.
    pub(super) fn of(stream: &(impl IsTerminal + AsFd)) -> Self {
        let (is_ascii, is_colourful) = (screen::is_ascii(), colourful(stream));
        Self { text: String::new(), width: width(stream), is_ascii, is_colourful }
    }

    /// Returns the width, or `usual` if the stream is not a terminal.
    pub(super) fn width_or(&self, usual: usize) -> usize {
        self.width.unwrap_or(usual)
    }

    /// Writes a line, with characters replaced that the terminal does not show.
    pub(super) fn plain(&mut self, line: &str) {
        let shown = self.printable(line);
        self.text.push_str(&shown);
        self.text.push('\n');
    }

    /// Writes a line with a name and items. On a narrow page, the items continue on further lines.
    pub(super) fn items(&mut self, name: &str, items: &[String]) {
        self.styled(Style::new(), name, items);
    }

    /// Writes a line with a name and items in red.
    pub(super) fn alarm(&mut self, name: &str, items: &[String]) {
        self.styled(Style::new().fg_color(Some(AnsiColor::Red.into())), name, items);
    }

    fn styled(&mut self, style: Style, name: &str, items: &[String]) {
        if items.iter().all(String::is_empty) {
            return;
        }
        let room = self.width.map_or(usize::MAX, |width| width.saturating_sub(NAME_WIDTH));
        let words = items.iter().filter(|item| !item.is_empty()).map(|item| self.printable(item));
        let words: Vec<_> = words.flat_map(|item| folded(item, room)).collect();
        let mut lines = vec![String::new()];
        for word in words {
            let line = lines.last_mut().filter(|line| !line.is_empty());
            match line {
                Some(line) if length(line) + GAP.len() + length(&word) <= room => {
                    line.push_str(GAP);
                    line.push_str(&word);
                }
                Some(_) => lines.push(word),
                None => lines = vec![word],
            }
        }
        let style = if self.is_colourful { style } else { Style::new() };
        for (place, line) in lines.iter().enumerate() {
            let name = if place == 0 { name } else { "" };
            let _ = writeln!(self.text, "{style}  {name:<9} {line}{style:#}");
        }
    }

    /// Whether a table with these rows fits the width.
    pub(super) fn fits(&self, rows: &[Vec<String>]) -> bool {
        self.width.is_none_or(|width| table_width(rows) <= width)
    }

    /// Writes columns side by side: the first and the last are aligned left, the numbers between them right. If the
    /// page is too narrow, the columns with the heads in `spare` are left out, in this order.
    pub(super) fn table(&mut self, mut rows: Vec<Vec<String>>, spare: &[&str]) {
        for cell in rows.iter_mut().flatten() {
            *cell = self.printable(cell);
        }
        for head in spare {
            if self.width.is_none_or(|width| table_width(&rows) <= width) {
                break;
            }
            if let Some(place) = rows[0].iter().position(|cell| cell == head) {
                rows.iter_mut().for_each(|row| _ = row.remove(place));
            }
        }
        self.cut_names(&mut rows);
        let widths = widths(&rows);
        self.text.push('\n');
        for row in rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                let _ = match column {
                    0 => write!(line, "  {cell:<width$}"),
                    _ if column + 1 == widths.len() => write!(line, "{GAP}{cell}"),
                    _ => write!(line, "{GAP}{cell:>width$}"),
                };
            }
            self.text.push_str(line.trim_end());
            self.text.push('\n');
        }
    }

    /// Cuts the first column if the table is still too wide.
    fn cut_names(&self, rows: &mut [Vec<String>]) {
        let Some(width) = self.width else { return };
        let over = table_width(rows).saturating_sub(width);
        let widest = widths(rows)[0];
        let room = widest.saturating_sub(over).max(4);
        if over > 0 && room < widest {
            let dots = self.printable("…");
            for row in rows.iter_mut().filter(|row| length(&row[0]) > room) {
                let kept: String = row[0].chars().take(room - length(&dots)).collect();
                row[0] = kept + &dots;
            }
        }
    }

    /// Returns the text of the whole page.
    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// Escapes control characters, and replaces characters that the terminal does not show.
    pub(super) fn printable(&self, text: &str) -> String {
        screen::printable(text, self.is_ascii).into_owned()
    }
}

/// Folds a text into lines that fit.
fn folded(text: String, room: usize) -> Vec<String> {
    if length(&text) <= room {
        return vec![text];
    }
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split(' ') {
        for piece in pieces(word, room) {
            match lines.last_mut() {
                Some(line) if line.is_empty() => *line = piece,
                Some(line) if length(line) + 1 + length(&piece) <= room => {
                    line.push(' ');
                    line.push_str(&piece);
                }
                _ => lines.push(piece),
            }
        }
    }
    lines
}

fn pieces(word: &str, room: usize) -> Vec<String> {
    let letters: Vec<_> = word.chars().collect();
    letters.chunks(room.max(1)).map(|piece| piece.iter().collect()).collect()
}

fn length(text: &str) -> usize {
    text.chars().count()
}

fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| length(&row[column])).max().unwrap_or(0);
    (0..columns).map(width).collect()
}

fn table_width(rows: &[Vec<String>]) -> usize {
    let widths = widths(rows);
    2 + widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1)
}

/// Returns the width of a terminal, if the stream is one.
pub(super) fn width(stream: &(impl IsTerminal + AsFd)) -> Option<usize> {
    screen::width(stream).map(|width| width.max(WIDTH_MIN))
}

/// Creates a page for stdout.
pub(super) fn stdout() -> Page {
    Page::of(&io::stdout())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(width: usize, is_ascii: bool) -> Page {
        Page { text: String::new(), width: Some(width), is_ascii, is_colourful: false }
    }

    fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
        cells.map(str::to_owned).to_vec()
    }

    #[test]
    fn columns_are_aligned() {
        let mut page = page(80, false);
        page.table(vec![row(["a", "n", "bar"]), row(["long", "1,000", "x"])], &[]);
        assert_eq!(page.into_text(), "\n  a          n   bar\n  long   1,000   x\n");
    }

    #[test]
    fn a_narrow_page_leaves_columns_out_and_cuts_names() {
        let rows =
            || vec![row(["URL", "p50", "p90", "max"]), row(["/a/long/path", "10", "20", "30"])];
        let mut narrow = page(26, false);
        narrow.table(rows(), &["p90", "p50"]);
        assert_eq!(narrow.into_text(), "\n  URL            p50   max\n  /a/long/path    10   30\n");
        let mut narrower = page(16, false);
        narrower.table(rows(), &["p90", "p50"]);
        assert_eq!(narrower.into_text(), "\n  URL        max\n  /a/long…   30\n");
    }

    #[test]
    fn items_continue_on_the_next_line() {
        let items = ["p50 1 ms", "p90 2 ms", "max 3 ms"].map(str::to_owned);
        let mut narrow = page(12 + 19, false);
        narrow.items("latency", &items);
        assert_eq!(narrow.into_text(), "  latency   p50 1 ms   p90 2 ms\n            max 3 ms\n");
        let mut long = page(20, false);
        long.items("errors", &["a reason is longer".to_owned()]);
        assert_eq!(long.into_text(), "  errors    a reason\n            is\n            longer\n");
    }

    #[test]
    fn a_terminal_without_utf_8_gets_ascii() {
        let mut page = page(80, true);
        page.items("shares", &["▁█ 5 µs – ü \u{1b}[31m".to_owned()]);
        let text = page.into_text();
        assert!(text.is_ascii() && text.contains("_# 5 us - \\303\\274 \\033[31m"), "{text}");
    }
}
