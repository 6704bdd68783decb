//! A manual page in roff: the arguments, from clap, and the sections that clap does not know.

use std::io::{self, Write};

use clap::Command;

use super::sections::{self, Rows};

/// Renders the page of `command`, a verb or the whole program.
pub(super) fn render(command: Command, is_whole: bool) -> io::Result<Vec<u8>> {
    let verb = if is_whole { String::new() } else { command.get_name().to_owned() };
    let has_verbs = command.get_subcommands().any(|verb| !verb.is_hide_set());
    let source = concat!("thruway ", env!("CARGO_PKG_VERSION"));
    let has_more = command.get_after_long_help().or(command.get_after_help()).is_some();
    let page = clap_mangen::Man::new(command).source(source).manual("Thruway");
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if has_verbs {
        page.render_subcommands_section(&mut text)?;
    }
    if has_more {
        page.render_extra_section(&mut text)?;
    }
    let sections = sections::of(&verb);
    rows(&mut text, "EXIT STATUS", sections.statuses)?;
    rows(&mut text, "ENVIRONMENT", sections.environment)?;
    rows(&mut text, "FILES", sections.files)?;
    examples(&mut text, sections.examples)?;
    see_also(&mut text, is_whole)?;
    Ok(text)
}

fn rows(text: &mut Vec<u8>, title: &str, rows: Rows) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(text, ".SH {title:?}")?;
    for (word, meaning) in rows {
        writeln!(text, ".TP\n\\fB{}\\fR\n{}", escaped(word), escaped(meaning))?;
    }
    Ok(())
}

fn examples(text: &mut Vec<u8>, examples: Rows) -> io::Result<()> {
    writeln!(text, ".SH \"EXAMPLES\"")?;
    for (command, does) in examples {
        writeln!(text, ".TP\n\\fB{}\\fR\n{}", escaped(command), escaped(does))?;
    }
    Ok(())
}

fn see_also(text: &mut Vec<u8>, is_whole: bool) -> io::Result<()> {
    let pages: &[&str] = if is_whole { &["serve", "run", "mount", "trace"] } else { &[] };
    let pages = pages.iter().map(|verb| format!("\\fBthruway\\-{verb}\\fR(1)"));
    let whole = (!is_whole).then(|| "\\fBthruway\\fR(1)".to_owned());
    let pages: Vec<_> = pages.chain(whole).collect();
    writeln!(text, ".SH \"SEE ALSO\"\n{}", pages.join(", "))
}

/// Escapes a text so that roff prints the text unchanged.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
    if text.starts_with('.') { format!("\\&{text}") } else { text }
}
