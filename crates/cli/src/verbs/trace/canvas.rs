//! The canvas of a report: its width, its colours, and shared pieces of lines.
//!
//! Every text from outside, such as a name or a command, passes [`Canvas::fit`], [`Canvas::cut`] or
//! [`Canvas::wrapped`], which escape control characters.

use std::borrow::Cow;
use std::io::IsTerminal;
use std::os::fd::AsFd;

use anstyle::{AnsiColor, Style};

use crate::output::colourful;
use crate::screen;

/// The destination of a report.
#[derive(Debug, Clone, Copy)]
pub(super) struct Canvas {
    pub(super) width: usize,
    is_colourful: bool,
    /// Whether the reader's locale is not UTF-8.
    is_ascii: bool,
}

/// The meaning of a piece of text, which decides its colour.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ink {
    /// A heading.
    Heading,
    /// Wasted look-ups.
    Waste,
    /// Used look-ups.
    Use,
    /// A cure.
    Cure,
    /// Secondary text.
    Faint,
}

/// The width for files and pipes.
const WIDTH_USUAL: usize = 100;
/// The width from which all columns fit.
const WIDTH_WIDE: usize = 80;
const WIDTHS: std::ops::RangeInclusive<usize> = 60..=140;

impl Canvas {
    pub(super) fn of(stream: &(impl IsTerminal + AsFd)) -> Self {
        let width = screen::columns().or_else(|| screen::width(stream)).unwrap_or(WIDTH_USUAL);
        let width = width.clamp(*WIDTHS.start(), *WIDTHS.end());
        Self { width, is_colourful: colourful(stream), is_ascii: screen::is_ascii() }
    }

    /// Returns the text in the colour of `ink`, if the stream shows colours.
    pub(super) fn paint(&self, ink: Ink, text: &str) -> String {
        let colour = |colour: AnsiColor| Style::new().fg_color(Some(colour.into()));
        let style = match ink {
            _ if !self.is_colourful || text.is_empty() => return text.to_owned(),
            Ink::Heading => Style::new().bold(),
            Ink::Waste => colour(AnsiColor::Red),
            Ink::Use => colour(AnsiColor::Green),
            Ink::Cure => colour(AnsiColor::Cyan),
            Ink::Faint => Style::new().dimmed(),
        };
        format!("{style}{text}{style:#}")
    }

    /// Draws a bar of `width` characters, filled to the share of `part` in `whole`.
    pub(super) fn bar(&self, ink: Ink, part: u64, whole: u64, width: usize) -> String {
        const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
        let whole = whole.max(1);
        if self.is_ascii {
            let full = u128::from(part.min(whole)) * width as u128;
            let full = full.div_ceil(u128::from(whole)) as usize;
            let drawn = self.paint(ink, &"#".repeat(full));
            return format!("[{drawn}{}]", " ".repeat(width - full));
        }
        let filled =
            (u128::from(part.min(whole)) * (width as u128 * 8)).div_ceil(u128::from(whole));
        let (full, rest) = (filled as usize / 8, filled as usize % 8);
        let drawn = format!("{}{}", "█".repeat(full), EIGHTHS[rest]);
        let space = " ".repeat(width - full - usize::from(rest > 0));
        format!("▕{}{space}▏", self.paint(ink, &drawn))
    }
}

impl Canvas {
    /// Escapes a text, and replaces the characters that the terminal does not show.
    pub(super) fn printable<'a>(&self, text: &'a str) -> Cow<'a, str> {
        screen::printable(text, self.is_ascii)
    }

    /// Replaces the characters of a whole report that the terminal does not show. Names in it are replaced already.
    pub(super) fn finished(&self, report: &str) -> String {
        screen::substituted(report, self.is_ascii).into_owned()
    }

    /// Whether lines with several columns need the whole width.
    pub(super) fn is_narrow(&self) -> bool {
        self.width < WIDTH_WIDE
    }

    /// Fits a text into a width: padded with spaces, or cut at the front, where paths tell least.
    pub(super) fn fit(&self, text: &str, width: usize) -> String {
        let text = &*self.printable(text);
        let length = text.chars().count();
        if length <= width {
            return format!("{text}{}", " ".repeat(width - length));
        }
        let dots = self.printable("…");
        let room = width.saturating_sub(dots.chars().count());
        let kept: String = text.chars().skip(length - room).collect();
        // The cut moves to the start of a component if one is near.
        match kept.find('/') {
            Some(slash) if kept[..slash].chars().count() * 4 < width => {
                let component = format!("{dots}{}", &kept[slash..]);
                format!("{component:<width$}")
            }
            _ => format!("{dots}{kept}"),
        }
    }

    /// Cuts a text at its end to a width.
    pub(super) fn cut(&self, text: &str, width: usize) -> String {
        let text = &*self.printable(text);
        if text.chars().count() <= width {
            return text.to_owned();
        }
        let dots = self.printable("…");
        let kept: String = text.chars().take(width.saturating_sub(dots.chars().count())).collect();
        format!("{kept}{dots}")
    }

    /// Breaks a text at spaces into lines of at most `width` characters. A longer word stays whole.
    pub(super) fn wrapped(&self, text: &str, width: usize) -> Vec<String> {
        let text = self.printable(text);
        let mut lines: Vec<String> = Vec::new();
        for word in text.split(' ') {
            match lines.last_mut() {
                Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                    line.push(' ');
                    line.push_str(word);
                }
                _ => lines.push(word.to_owned()),
            }
        }
        lines
    }
}

/// Formats a share in whole percent. Only nothing is 0, and only the whole is 100.
pub(super) fn percent(part: u64, whole: u64) -> String {
    let (part, whole) = (u128::from(part), u128::from(whole.max(1)));
    match (part * 100 + whole / 2) / whole {
        0 if part > 0 => "<1 %".to_owned(),
        100 if part < whole => "99 %".to_owned(),
        share => format!("{share} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_share() {
        let canvas = Canvas { width: 100, is_colourful: false, is_ascii: false };
        assert_eq!(canvas.bar(Ink::Waste, 0, 10, 4), "▕    ▏");
        assert_eq!(canvas.bar(Ink::Waste, 5, 10, 4), "▕██  ▏");
        assert_eq!(canvas.bar(Ink::Waste, 10, 10, 4), "▕████▏");
        assert_eq!(canvas.bar(Ink::Waste, 1, 1000, 4), "▕▏   ▏");
        assert_eq!(canvas.bar(Ink::Waste, 9, 0, 4), "▕████▏");
    }

    #[test]
    fn a_locale_without_utf_8_gets_ascii_of_the_same_width() {
        let canvas = Canvas { width: 100, is_colourful: false, is_ascii: true };
        assert_eq!(canvas.bar(Ink::Waste, 5, 10, 4), "[##  ]");
        assert_eq!(canvas.bar(Ink::Waste, 1, 1000, 4), "[#   ]");
        assert_eq!(canvas.bar(Ink::Waste, 9, 0, 4), "[####]");
        assert_eq!(canvas.fit("/usr/lib/ruby/json", 13), ".../ruby/json");
        assert_eq!(canvas.cut("ruby -e 'µ'", 9), "ruby -...");
    }

    #[test]
    fn paths_are_cut_in_front_and_commands_at_the_end() {
        let canvas = Canvas { width: 100, is_colourful: false, is_ascii: false };
        assert_eq!(canvas.fit("/usr/lib", 10), "/usr/lib  ");
        assert_eq!(canvas.fit("/usr/lib/ruby", 8), "…ib/ruby");
        assert_eq!(canvas.fit("/usr/lib/ruby/json", 13), "…/ruby/json  ");
        assert_eq!(canvas.cut("ruby -e 1", 6), "ruby …");
    }

    #[test]
    fn text_is_broken_at_spaces() {
        let canvas = Canvas { width: 100, is_colourful: false, is_ascii: false };
        assert_eq!(canvas.wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(canvas.wrapped("overlong word", 3), ["overlong", "word"]);
    }

    #[test]
    fn a_share_is_never_rounded_to_nothing() {
        assert_eq!(percent(1, 1000), "<1 %");
        assert_eq!(percent(0, 1000), "0 %");
        assert_eq!(percent(999, 1000), "99 %");
        assert_eq!(percent(666, 1000), "67 %");
    }
}
