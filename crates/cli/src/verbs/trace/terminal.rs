//! The report on a terminal: one screen, or with `--all` every part.

use std::fmt::Write;

use thruway_trace::analysis::{AbsentCommand, Report, SearchKind, SearchPath, Totals, shell_line};

use super::canvas::{Canvas, Ink, percent};
use super::stacks::{asking_frames, frame_text, unread_interpreters};
use crate::units::{thousands, time};

/// The lines of a list on one screen.
const SEARCHES_SHOWN: usize = 3;
const FOLDERS_SHOWN: usize = 5;
const REPEATED_SHOWN: usize = 3;
const STACKS_SHOWN: usize = 3;
/// The frames of a stack on one screen, after the first.
const FRAMES_SHOWN: usize = 4;
const ADVICE_SHOWN: usize = 4;
/// The lines of a list with `--all`.
const ALL_SHOWN: usize = 50;
/// The widths of a number and of a label.
const NUMBER: usize = 11;
const LABEL: usize = 20;
/// The column of the notes on a sum.
const NOTES: usize = 2 + LABEL + NUMBER + 3;
/// The width of a row's bar, and of one on a narrow screen.
const BAR: usize = 14;
const BAR_NARROW: usize = 6;
/// The lines of a command that needs several.
const COMMAND_LINES_MAX: usize = 3;

pub(super) fn report(report: &Report, canvas: &Canvas, all: bool) -> String {
    let mut page = Page { report, canvas, all, text: String::new() };
    page.headline();
    page.sums();
    page.searches();
    page.repeated();
    page.stacks();
    if all {
        page.folders();
        page.suffixes();
        page.programs();
        page.calls();
    }
    page.advice();
    page.foot();
    canvas.finished(&page.text)
}

/// The report, as far as it is written.
struct Page<'a> {
    report: &'a Report,
    canvas: &'a Canvas,
    all: bool,
    text: String,
}

impl Page<'_> {
    fn line(&mut self, line: &str) {
        let _ = writeln!(self.text, "{}", line.trim_end());
    }

    /// Writes a heading, and the heads of the columns below it: in the same line if both fit.
    fn heading(&mut self, left: &str, right: &str) {
        let (left, width) = (format!("  {left}"), self.canvas.width);
        let (length, heads) = (left.chars().count(), right.chars().count());
        let right = self.canvas.paint(Ink::Faint, right);
        let left = self.canvas.paint(Ink::Heading, &left);
        self.line("");
        if length + 2 + heads <= width {
            self.line(&format!("{left}{}{right}", " ".repeat(width - length - heads)));
        } else {
            self.line(&left);
            self.line(&format!("{}{right}", " ".repeat(width.saturating_sub(heads))));
        }
    }

    /// Writes secondary text from a column on, in as many lines as it takes.
    fn faint(&mut self, column: usize, text: &str) {
        for line in self.canvas.wrapped(text, self.canvas.width.saturating_sub(column)) {
            let line = self.canvas.paint(Ink::Faint, &line);
            self.line(&format!("{:column$}{line}", ""));
        }
    }

    fn rows_max(&self, usual: usize) -> usize {
        if self.all { ALL_SHOWN } else { usual }
    }

    /// Writes the command and its end: in one line if both fit, and otherwise the command below.
    fn headline(&mut self) {
        let totals = &self.report.totals;
        let end = self.canvas.finished(&end(totals));
        let title = self.canvas.paint(Ink::Heading, "thruway trace");
        let command = shell_line(&totals.command);
        let room = self.canvas.width.saturating_sub(end.chars().count() + 17);
        let mut lines = self.canvas.wrapped(&command, room);
        if let ([line], true) = (&*lines, self.canvas.printable(&command).chars().count() <= room) {
            self.line(&format!("{title}  {line:<room$}  {end}"));
        } else {
            self.line(&format!("{title}{:room$}    {end}", ""));
            let room = self.canvas.width.saturating_sub(2);
            lines = self.canvas.wrapped(&command, room);
            if lines.len() > COMMAND_LINES_MAX {
                let rest = lines.split_off(COMMAND_LINES_MAX - 1).join(" ");
                lines.push(rest);
            }
            for line in lines {
                self.line(&format!("  {}", self.canvas.cut(&line, room)));
            }
        }
        self.line("");
    }

    fn sums(&mut self) {
        let totals = &self.report.totals;
        let Totals { lookups, missed, unlinked, refused, found, .. } = *totals;
        self.share("names asked for", lookups, Ink::Faint, String::new());
        self.share("  not there", missed, Ink::Waste, String::new());
        if unlinked > 0 {
            let note = counted(totals.link_names, "name", "names");
            self.share("  \"not a link\"", unlinked, Ink::Waste, note);
        }
        if refused > 0 {
            self.share("  refused", refused, Ink::Waste, String::new());
        }
        self.share("  found", found, Ink::Use, String::new());
        let opens = opens(totals);
        self.sum("files opened", totals.opened, &opens);
        let again = format!("{} of all look-ups", percent(totals.again, lookups));
        self.sum("asked again", totals.again, &again);
        if let Some(lookups_ns) = totals.lookups_ns {
            let share = percent(lookups_ns, totals.wall_ns);
            let missed = time(totals.missed_ns.unwrap_or(0));
            let note = format!("{share} of the run, misses {missed}");
            self.noted_sum("time in look-ups", &time(lookups_ns), &note);
        }
    }

    /// Writes a sum with its share of all look-ups.
    fn share(&mut self, label: &str, count: u64, ink: Ink, note: String) {
        let lookups = self.report.totals.lookups;
        let width = (self.canvas.width * 2 / 5).min(self.canvas.width.saturating_sub(50));
        let bar = self.canvas.bar(ink, count, lookups, width);
        let share = if label.starts_with(' ') { percent(count, lookups) } else { String::new() };
        let room = self.canvas.width.saturating_sub(NOTES + width + 10);
        let fits = note.chars().count() <= room;
        let beside = if fits { self.canvas.paint(Ink::Faint, &note) } else { String::new() };
        let (label, count) = (self.canvas.fit(label, LABEL), thousands(count));
        self.line(&format!("  {label}{count:>NUMBER$}   {bar} {share:>5}  {beside}"));
        if !fits {
            self.faint(NOTES, &note);
        }
    }

    fn sum(&mut self, label: &str, count: u64, note: &str) {
        self.noted_sum(label, &thousands(count), note);
    }

    fn noted_sum(&mut self, label: &str, sum: &str, note: &str) {
        let label = self.canvas.fit(label, LABEL);
        let mut lines = self.canvas.wrapped(note, self.canvas.width - NOTES).into_iter();
        let first = lines.next().unwrap_or_default();
        self.line(&format!("  {label}{sum:>NUMBER$}   {first}"));
        lines.for_each(|line| self.line(&format!("{:NOTES$}{line}", "")));
    }

    fn searches(&mut self) {
        let Totals { missed, lookups, .. } = self.report.totals;
        let is_worth = |search: &&SearchPath| match search.kind {
            // The purpose of these look-ups is unknown.
            SearchKind::Other => search.missed * 5 > lookups,
            _ => search.missed >= 10 && search.missed * 100 > missed,
        };
        let searches = self.report.searches.iter();
        let worth: Vec<_> = searches.filter(|search| self.all || is_worth(search)).collect();
        for (index, search) in worth.into_iter().take(self.rows_max(SEARCHES_SHOWN)).enumerate() {
            self.search(search, if index == 0 { FOLDERS_SHOWN } else { FOLDERS_SHOWN - 2 });
        }
    }

    fn search(&mut self, search: &SearchPath, usual: usize) {
        let count = search.folders.len();
        let title = format!(
            "{count} {}: {} misses",
            search.kind.title().to_uppercase(),
            thousands(search.missed)
        );
        let is_found = search.kind.is_satisfied_by_checks();
        self.heading(&title, if is_found { "misses       found" } else { "misses      opened" });
        let most = search.folders.first().map_or(0, |folder| folder.missed);
        for folder in search.folders.iter().take(self.rows_max(usual)) {
            let count = if is_found { folder.found } else { folder.opened };
            let last = if folder.is_used { thousands(count) } else { "nothing".to_owned() };
            let ink = if folder.is_used { Ink::Faint } else { Ink::Waste };
            let last = self.canvas.paint(ink, &format!("{last:>12}"));
            self.row(&folder.path, folder.missed, most, &last);
        }
        if search.unused > 0 {
            let (unused, missed) = (thousands(search.unused), thousands(search.unused_missed));
            let folders = if search.unused == 1 { "folder" } else { "folders" };
            let text = format!("{unused} {folders} gave nothing at all: {missed} misses");
            let text = self.canvas.paint(Ink::Waste, &text);
            self.line(&format!("    {text}"));
        }
    }

    /// Writes the number of lines that a list leaves out.
    fn more(&mut self, all: usize) {
        if self.all && all > ALL_SHOWN {
            let text = format!("and {} more: --json has them", thousands((all - ALL_SHOWN) as u64));
            let text = self.canvas.paint(Ink::Faint, &text);
            self.line(&format!("    {text}"));
        }
    }

    /// Writes a path, a bar, a number and further text.
    fn row(&mut self, path: &str, count: u64, most: u64, last: &str) {
        let width = if self.canvas.is_narrow() { BAR_NARROW } else { BAR };
        let room = self.canvas.width.saturating_sub(4 + width + 3 + 10 + 12);
        let bar = self.canvas.bar(Ink::Waste, count, most, width);
        let (path, count) = (self.canvas.fit(path, room), thousands(count));
        self.line(&format!("    {path} {bar}{count:>10}{last}"));
    }

    fn repeated(&mut self) {
        let repeated = &self.report.repeated;
        let worth = repeated.iter().filter(|one| self.all || one.asked >= 20);
        let shown: Vec<_> = worth.take(self.rows_max(REPEATED_SHOWN)).collect();
        let Some(most) = shown.first().map(|one| one.asked) else { return };
        self.heading("ASKED MOST OFTEN", "times   not there");
        for one in shown {
            let missed = if one.missed > 0 { thousands(one.missed) } else { "–".to_owned() };
            self.row(&one.name, one.asked, most, &format!("{missed:>12}"));
        }
        self.more(repeated.len());
    }

    /// Writes the stacks with the most look-ups: the start of each, its callers, and one of the names.
    fn stacks(&mut self) {
        let stacks = &self.report.stacks;
        let Some(most) = stacks.first().map(|stack| stack.asked) else { return };
        self.heading("WHO ASKS", "times   not there");
        let room = self.canvas.width.saturating_sub(6);
        for stack in stacks.iter().take(self.rows_max(STACKS_SHOWN)) {
            let missed = if stack.missed > 0 { thousands(stack.missed) } else { "–".to_owned() };
            let frames = asking_frames(stack);
            let first = frames.first().map_or("?".to_owned(), frame_text);
            self.row(&first, stack.asked, most, &format!("{missed:>12}"));
            let callers = frames.get(1..).unwrap_or_default();
            let shown = if self.all { callers.len() } else { FRAMES_SHOWN };
            for frame in callers.iter().take(shown) {
                self.line(&format!("      {}", self.canvas.cut(&frame_text(frame), room)));
            }
            if callers.len() > shown {
                let more = counted((callers.len() - shown) as u64, "caller", "callers");
                self.line(&format!(
                    "      {}",
                    self.canvas.paint(Ink::Faint, &format!("and {more}"))
                ));
            }
            let name = self.canvas.cut(&format!("such as {}", stack.name), room);
            self.line(&format!("      {}", self.canvas.paint(Ink::Faint, &name)));
        }
        self.more(stacks.len());
    }

    fn folders(&mut self) {
        let folders = &self.report.folders;
        let Some(most) = folders.first().map(|folder| folder.wasted) else { return };
        self.heading("FOLDERS BY WASTE", "wasted      opened");
        for folder in folders.iter().take(ALL_SHOWN) {
            let opened = thousands(folder.opened);
            self.row(&folder.path, folder.wasted, most, &format!("{opened:>12}"));
        }
        self.more(folders.len());
    }

    fn suffixes(&mut self) {
        let suffixes = &self.report.suffixes;
        let Some(most) = suffixes.first().map(|suffix| suffix.missed) else { return };
        self.heading("SUFFIXES", "misses       found");
        for suffix in suffixes.iter().take(ALL_SHOWN) {
            let name = if suffix.suffix.is_empty() { "(none)" } else { &suffix.suffix };
            let found = thousands(suffix.found);
            self.row(name, suffix.missed, most, &format!("{found:>12}"));
        }
        self.more(suffixes.len());
    }

    fn programs(&mut self) {
        let programs = &self.report.programs;
        let Some(most) = programs.first().map(|program| program.lookups) else { return };
        self.heading("PROGRAMS", "look-ups      misses");
        for program in programs.iter().take(ALL_SHOWN) {
            let missed = thousands(program.missed);
            let name = match program.starts {
                0 => "(before the command runs)".to_owned(),
                starts => format!("{} × {}", thousands(starts), program.program),
            };
            self.row(&name, program.lookups, most, &format!("{missed:>12}"));
        }
    }

    fn calls(&mut self) {
        let calls = &self.report.calls;
        let Some(most) = calls.first().map(|call| call.calls) else { return };
        self.heading("SYSTEM CALLS", "calls      failed");
        for call in calls {
            let failed = thousands(call.failed);
            let aside = if call.is_file_class { "" } else { "  (not in strace's %file)" };
            let name = format!("{}{aside}", call.call);
            self.row(&name, call.calls, most, &format!("{failed:>12}"));
        }
    }

    fn advice(&mut self) {
        let advice = &self.report.advice;
        if advice.is_empty() {
            return;
        }
        self.heading("WHAT WOULD FIX IT", "saves, up to");
        let room = self.canvas.width.saturating_sub(6 + 12);
        for (index, one) in advice.iter().take(self.rows_max(ADVICE_SHOWN)).enumerate() {
            let mut lines = self.canvas.wrapped(&one.title, room - 2).into_iter();
            let title = self.canvas.fit(&lines.next().unwrap_or_default(), room);
            self.line(&format!("  {:>2}  {title}{:>12}", index + 1, thousands(one.saves)));
            lines.for_each(|line| self.line(&format!("      {line}")));
            // The line is never folded, because it may be a command.
            let how = self.canvas.paint(Ink::Cure, &self.canvas.printable(&one.how));
            self.line(&format!("      {how}"));
            if let Some(note) = &one.note {
                self.faint(6, note);
            }
        }
    }

    fn foot(&mut self) {
        self.line("");
        let mut notes = notes(&self.report.totals);
        notes.extend(absent_commands(&self.report.absent_commands));
        if self.report.is_elsewhere {
            notes.push(
                "no order of PATH is advised, because what was found is not on this machine's disk"
                    .to_owned(),
            );
        }
        for interpreter in unread_interpreters(&self.report.stacks) {
            notes.push(format!("stacks show the code of {interpreter}, and not of its script"));
        }
        notes.iter().for_each(|note| self.faint(2, note));
    }
}

/// Formats the command's end and duration.
fn end(totals: &Totals) -> String {
    let end = match (totals.status, totals.signal) {
        (Some(status), _) => format!("exit {status}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "end unknown".to_owned(),
    };
    let Totals { wall_ns, untraced_ns, .. } = *totals;
    let is_slower = wall_ns - untraced_ns > wall_ns / 50;
    let untraced =
        if is_slower { format!(" (untraced ≈ {})", time(untraced_ns)) } else { String::new() };
    format!("{end} · {}{untraced}", time(wall_ns))
}

fn opens(totals: &Totals) -> String {
    if totals.opened == 0 {
        return String::new();
    }
    let each = totals.lookups / totals.opened;
    let mut text = format!("{} look-ups for each", thousands(each));
    if totals.opened_again > 0 {
        let again = thousands(totals.opened_again);
        let _ = write!(text, " · {again} of a file for a second time");
    }
    text
}

/// Formats notes on the figures.
fn notes(totals: &Totals) -> Vec<String> {
    let (calls, failed) = (thousands(totals.calls), thousands(totals.failed));
    let processes = counted(totals.processes, "process", "processes");
    let threads = match totals.threads {
        0 => String::new(),
        threads => format!(", {}", counted(threads, "further thread", "further threads")),
    };
    let mut notes = vec![format!(
        "{calls} calls of strace's class %file, {failed} of them failed · {processes}{threads}"
    )];
    notes.push(backend_note(totals));
    if !totals.without_rights.is_empty() {
        let programs = totals.without_rights.join(", ");
        notes.push(format!(
            "without the rights of their set-user-ID bits, because they were traced: {programs}"
        ));
    }
    if totals.rings > 0 {
        let rings = counted(totals.rings, "ring was", "rings were");
        notes.push(format!(
            "{rings} created for io_uring: look-ups through it are not calls, and are not counted"
        ));
    }
    if totals.is_names_full {
        notes.push(
            "too many names to keep apart: the figure for \"asked again\" is too low".to_owned(),
        );
    }
    if totals.is_cut_short {
        notes.push("the recording ends before the command: later calls are missing".to_owned());
    }
    notes
}

/// Formats a note on commands that were searched in vain.
fn absent_commands(absent: &[AbsentCommand]) -> Option<String> {
    const NAMED_MAX: usize = 3;
    let names: Vec<_> = absent.iter().take(NAMED_MAX).map(|one| one.command.as_str()).collect();
    let others = match absent.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        others => format!(" and {}", counted(others as u64, "other", "others")),
    };
    let missed = thousands(absent.iter().map(|one| one.missed).sum());
    let names = names.join(", ");
    (!absent.is_empty())
        .then(|| format!("in no folder of PATH: {names}{others}, with {missed} look-ups"))
}

fn backend_note(totals: &Totals) -> String {
    let stops = counted(totals.stops, "stop", "stops");
    match totals.backend {
        thruway_trace::Backend::Stub => {
            let traced = counted(totals.traced, "call", "calls");
            format!(
                "recorded by the programs themselves (stub): {stops}, {traced} recorded by the tracer"
            )
        }
        thruway_trace::Backend::Ptrace => {
            format!("recorded by the tracer alone (ptrace): {stops}; times include the tracer's")
        }
    }
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", thousands(count), if count == 1 { one } else { many })
}
