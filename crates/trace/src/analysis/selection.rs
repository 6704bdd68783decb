//! Selects part of a recording: calls with certain paths, programs, processes or system calls.

use std::collections::HashMap;

use super::text::base_name;
use crate::call::Call;
use crate::error_names::error_number;
use crate::event::{Event, EventKind, Syscall};
use crate::recording::Sink;

/// A selection. An event must match at least one criterion of each kind that has criteria.
#[derive(Debug, Default, Clone)]
pub struct Selection {
    paths: Vec<Pattern>,
    /// Names of programs, without folder.
    programs: Vec<Vec<u8>>,
    processes: Vec<i32>,
    calls: Vec<&'static str>,
    statuses: Vec<Status>,
    /// Whether each process runs one of `programs`.
    fitting: HashMap<i32, bool>,
    was_any: bool,
}

/// How a call ended.
#[derive(Debug, Clone, Copy)]
enum Status {
    Successful,
    Failed,
    /// With this error number.
    Error(i32),
}

/// A pattern as in `.gitignore`, which matches a name and everything below it. A pattern with a slash before
/// its end matches the whole path; one without matches in every folder. `*` and `?` do not match a slash,
/// `**` matches any folders, and `[…]` one of several characters.
#[derive(Debug, Clone)]
struct Pattern {
    is_whole: bool,
    components: Vec<Vec<u8>>,
}

impl Selection {
    /// Adds a pattern. A relative pattern starts at `folder`.
    pub fn path(&mut self, pattern: &[u8], folder: &[u8]) {
        let is_whole = pattern.strip_suffix(b"/").unwrap_or(pattern).contains(&b'/');
        let base = if is_whole && !pattern.starts_with(b"/") { folder } else { b"" };
        let components =
            base.split(|byte| *byte == b'/').chain(pattern.split(|byte| *byte == b'/'));
        let components = components.filter(|component| !matches!(*component, b"" | b"."));
        let mut components: Vec<_> = components.map(<[u8]>::to_vec).collect();
        // Repeated `**` would only slow matching down.
        components.dedup_by(|one, other| one == b"**" && other == b"**");
        self.paths.push(Pattern { is_whole, components });
    }

    /// Adds a program by its name, or a process by its ID.
    pub fn process(&mut self, name: &[u8]) {
        let id = str::from_utf8(name).ok().and_then(|name| name.parse().ok());
        match id {
            Some(id) => self.processes.push(id),
            None => self.programs.push(name.to_vec()),
        }
    }

    /// Adds a system call. Returns `false` if no recorded call has that name.
    pub fn call(&mut self, name: &str) -> bool {
        let call = Call::named(name).filter(|call| !call.name.starts_with('('));
        self.calls.extend(call.map(|call| call.name));
        call.is_some()
    }

    /// Adds an end of calls: `successful` or `failed`, as strace has them, or the name of an error. Returns
    /// `false` if no recorded call can end like that.
    pub fn status(&mut self, name: &str) -> bool {
        let status = match name {
            "successful" => Some(Status::Successful),
            "failed" => Some(Status::Failed),
            name => error_number(name).map(Status::Error),
        };
        self.statuses.extend(status);
        status.is_some()
    }

    /// Passes an event to `sink` if it matches.
    pub fn pass(&mut self, event: &Event<'_>, sink: &mut impl Sink) {
        match &event.kind {
            EventKind::Syscall(syscall) => {
                if self.fits_process(event.process) && self.fits_call(syscall) {
                    sink.event(event);
                }
            }
            EventKind::Spawn { child, is_thread } => {
                let fits = self.fits_process(event.process);
                if !is_thread && !self.programs.is_empty() {
                    self.fitting.insert(*child, fits);
                }
                if fits {
                    sink.event(event);
                }
            }
            EventKind::Exec(words) => self.became(event, words, sink),
            EventKind::Exit => {
                if self.fits_process(event.process) {
                    sink.event(event);
                }
                self.fitting.remove(&event.thread);
            }
        }
    }

    fn became(&mut self, event: &Event<'_>, words: &[&[u8]], sink: &mut impl Sink) {
        let did_fit = self.fits_process(event.process);
        if !self.programs.is_empty() {
            let name = base_name(words.first().copied().unwrap_or_default());
            let fits = self.programs.iter().any(|program| program == name);
            self.fitting.insert(event.process, fits);
        }
        if !self.fits_process(event.process) {
            return;
        }
        // The event that created the process did not match, so it is replaced.
        if !did_fit && self.was_any {
            let kind = EventKind::Spawn { child: event.process, is_thread: false };
            sink.event(&Event { kind, ..*event });
        }
        self.was_any = true;
        sink.event(event);
    }

    fn fits_process(&self, process: i32) -> bool {
        let is_named = self.fitting.get(&process).copied().unwrap_or(false);
        let is_any = self.programs.is_empty() && self.processes.is_empty();
        is_any || is_named || self.processes.contains(&process)
    }

    fn fits_call(&self, syscall: &Syscall<'_>) -> bool {
        let is_call = self.calls.is_empty() || self.calls.contains(&syscall.call.name);
        let fits = |name: &[u8]| self.paths.iter().any(|pattern| pattern.fits(name));
        let is_status =
            self.statuses.is_empty() || self.statuses.iter().any(|status| status.fits(syscall));
        is_call
            && is_status
            && (self.paths.is_empty() || syscall.names.iter().any(|name| fits(name)))
    }
}

impl Status {
    fn fits(self, syscall: &Syscall<'_>) -> bool {
        match (self, syscall.errno()) {
            (Self::Successful, None) | (Self::Failed, Some(_)) => true,
            (Self::Error(wanted), Some(errno)) => wanted == errno,
            _ => false,
        }
    }
}

impl Pattern {
    fn fits(&self, path: &[u8]) -> bool {
        if path.is_empty() {
            return false;
        }
        let components = path.split(|byte| *byte == b'/').filter(|component| !component.is_empty());
        let components: Vec<_> = components.collect();
        let starts = if self.is_whole { 1 } else { components.len().max(1) };
        (0..starts)
            .any(|start| begins(&self.components, &components[start.min(components.len())..]))
    }
}

/// Whether the beginning of a path matches a pattern.
fn begins(pattern: &[Vec<u8>], path: &[&[u8]]) -> bool {
    match (pattern.split_first(), path.split_first()) {
        (None, _) => true,
        (Some((first, rest)), _) if first == b"**" => {
            (0..=path.len()).any(|skipped| begins(rest, &path[skipped..]))
        }
        (Some((first, rest)), Some((component, others))) => {
            fits(first, component) && begins(rest, others)
        }
        (Some(_), None) => false,
    }
}

/// Whether a component matches a pattern.
fn fits(mut pattern: &[u8], mut text: &[u8]) -> bool {
    // The rest of the pattern after the last star, and the text that the star has not consumed.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        let step = match (pattern, text) {
            ([], []) => return true,
            ([b'*', rest @ ..], _) => {
                star = Some((rest, text));
                Some((rest, text))
            }
            ([b'?', rest @ ..], [_, others @ ..]) => Some((rest, others)),
            ([b'[', set @ ..], [byte, others @ ..]) if set.contains(&b']') => {
                let (is_in, rest) = one_of(set, *byte);
                is_in.then_some((rest, others))
            }
            ([b'\\', one, rest @ ..] | [one, rest @ ..], [byte, others @ ..]) => {
                (one == byte).then_some((rest, others))
            }
            _ => None,
        };
        (pattern, text) = match (step, star) {
            (Some(step), _) => step,
            (None, Some((after, [_, rest @ ..]))) => {
                star = Some((after, rest));
                (after, rest)
            }
            (None, _) => return false,
        };
    }
}

/// Whether a byte is in a set. Also returns the pattern after the set.
fn one_of(set: &[u8], byte: u8) -> (bool, &[u8]) {
    let (is_not, set) = match set {
        [b'!' | b'^', rest @ ..] => (true, rest),
        set => (false, set),
    };
    // A leading bracket is a member of the set.
    let end = set.iter().skip(1).position(|one| *one == b']').map_or(set.len(), |end| end + 1);
    let mut members = &set[..end];
    let mut is_in = false;
    while let [first, rest @ ..] = members {
        (is_in, members) = match rest {
            [b'-', last, rest @ ..] => (is_in || (*first..=*last).contains(&byte), rest),
            rest => (is_in || *first == byte, rest),
        };
    }
    (is_in != is_not, set.get(end + 1..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_fit(pattern: &str, path: &str) -> bool {
        let mut selection = Selection::default();
        selection.path(pattern.as_bytes(), b"/srv");
        selection.paths[0].fits(path.as_bytes())
    }

    #[test]
    fn patterns_are_those_of_gitignore() {
        let cases = [
            ("/usr/lib", "/usr/lib", true),
            ("/usr/lib/", "/usr/lib/a/b", true),
            ("/usr/lib", "/usr/library", false),
            ("/usr/lib", "/opt/usr/lib", false),
            ("*.rb", "/a/b/c.rb", true),
            ("*.rb", "/a/b.rb/c", true),
            ("*.rb", "/a/b.rbs", false),
            ("node_modules", "/a/node_modules/x/y", true),
            ("src/*.c", "/srv/src/a.c", true),
            ("./src", "/srv/src/a.c", true),
            ("src/*.c", "/srv/src/sub/a.c", false),
            ("/a/**/z", "/a/z", true),
            ("/a/**/z", "/a/b/c/z/d", true),
            ("/a/**/**/z", "/b/a/z", false),
            ("/a/*b*c", "/a/xbycbc", true),
            ("/a/*b*c", "/a/xbycb", false),
            ("/a/[x-z]?", "/a/y1", true),
            ("/a/[!x-z]?", "/a/y1", false),
            ("/a/[]]", "/a/]", true),
            ("/a/[", "/a/[", true),
            ("/a/\\*", "/a/*", true),
            ("/a/\\*", "/a/b", false),
            ("/", "/etc", true),
            ("*.rb", "", false),
        ];
        for (pattern, path, expected) in cases {
            assert_eq!(is_fit(pattern, path), expected, "{pattern} {path}");
        }
    }

    /// Collects calls, programs and the number of created processes.
    #[derive(Default)]
    struct Keeper(Vec<String>);

    impl Sink for Keeper {
        fn event(&mut self, event: &Event<'_>) {
            self.0.push(match &event.kind {
                EventKind::Syscall(syscall) => {
                    format!("{} {}", syscall.call.name, String::from_utf8_lossy(syscall.names[0]))
                }
                EventKind::Exec(words) => String::from_utf8_lossy(words[0]).into_owned(),
                EventKind::Spawn { child, .. } => format!("made {child}"),
                EventKind::Exit => "ended".to_owned(),
            });
        }
    }

    fn passed(choose: impl FnOnce(&mut Selection)) -> Vec<String> {
        let (mut selection, mut orphan_guard) = (Selection::default(), Keeper::default());
        choose(&mut selection);
        let called = |call, name: &'static [u8]| {
            let call = Call::named(call).unwrap();
            EventKind::Syscall(Syscall {
                call,
                duration_ns: 0,
                result: 0,
                flags: 0,
                names: [name, b""],
                stack: None,
            })
        };
        let kinds = [
            (1, EventKind::Exec(vec![b"sh"])),
            (1, called("stat", b"/a")),
            (1, EventKind::Spawn { child: 2, is_thread: false }),
            (1, EventKind::Spawn { child: 3, is_thread: false }),
            (2, EventKind::Exec(vec![b"/bin/ls"])),
            (3, EventKind::Exec(vec![b"ls"])),
            (3, called("open", b"/b")),
            (2, called("stat", b"/c")),
            (2, EventKind::Exit),
        ];
        for (process, kind) in kinds {
            let event = Event { at_ns: 0, process, thread: process, kind };
            selection.pass(&event, &mut orphan_guard);
        }
        orphan_guard.0
    }

    #[test]
    fn a_program_is_looked_at_in_all_its_processes() {
        let expected = ["/bin/ls", "made 3", "ls", "open /b", "stat /c", "ended"];
        assert_eq!(passed(|selection| selection.process(b"ls")), expected);
        assert_eq!(passed(|selection| selection.process(b"3")), ["ls", "open /b"]);
    }

    #[test]
    fn of_each_kind_one_has_to_fit() {
        let calls = |choose: fn(&mut Selection)| {
            let mut passed = passed(choose);
            passed.retain(|event| event.contains(" /"));
            passed
        };
        assert_eq!(calls(|_| ()), ["stat /a", "open /b", "stat /c"]);
        assert_eq!(calls(|selection| assert!(selection.call("stat"))), ["stat /a", "stat /c"]);
        let both = |selection: &mut Selection| {
            selection.process(b"ls");
            selection.path(b"/c", b"/");
            selection.path(b"a", b"/");
        };
        assert_eq!(calls(both), ["stat /c"]);
        assert!(!Selection::default().call("fly") && !Selection::default().call("(exit)"));
    }
}
