//! A step of the check: a command, and the steps before it.

use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

/// The main work of a step, which decides which steps run side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Reads, on one processor.
    Light,
    /// Compiles, on as many processors as it can use.
    Compiles,
    /// Runs several tests at once, which wait more than they compute.
    Tests,
    /// Counts or measures, and has the machine to itself.
    Measures,
}

impl Kind {
    /// Whether steps of these kinds may run side by side.
    pub(super) fn runs_beside(self, other: Self) -> bool {
        match (self, other) {
            (Self::Measures, _) | (_, Self::Measures) => false,
            (Self::Light, _) | (_, Self::Light) => true,
            _ => self != other,
        }
    }
}

/// One part of the check.
pub(super) struct Step {
    pub(super) title: &'static str,
    pub(super) kind: Kind,
    /// Titles of the steps that must have succeeded before.
    pub(super) after: &'static [&'static str],
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<&'static str>,
    /// Whether the program is cargo and lints the crates that it builds.
    pub(super) lints: bool,
}

/// News of a running step.
pub(super) enum StepEvent {
    /// A line of output.
    Line(String),
    /// The command has ended, or could not be started.
    End(io::Result<ExitStatus>),
}

/// How long a step waits for output after its command has ended. A process that the command left behind may hold the
/// pipe for ever.
const REST_OF_OUTPUT_MAX: Duration = Duration::from_secs(1);

impl Step {
    /// Runs the command to its end, and sends its output with the step's number.
    pub(super) fn run(&self, root: &Path, number: usize, events: &Sender<(usize, StepEvent)>) {
        let end = self.lines(root, |line| {
            // The receiver outlives all steps.
            let _ = events.send((number, StepEvent::Line(line)));
        });
        let _ = events.send((number, StepEvent::End(end)));
    }

    /// Passes on each line of stdout and stderr in the order of writing.
    fn lines(&self, root: &Path, each: impl Fn(String)) -> io::Result<ExitStatus> {
        let (reader, writer) = io::pipe()?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(root);
        if self.lints {
            command.envs(crate::linting::environment(&self.program));
        }
        command.stdout(writer.try_clone()?).stderr(writer);
        let mut child = command.spawn()?;
        // The command holds the writing ends of the pipe: without them, reading ends.
        drop(command);
        let (lines, received) = mpsc::channel();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(reader);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
                let text = String::from_utf8_lossy(&line);
                if lines.send(text.trim_end_matches('\n').to_owned()).is_err() {
                    return;
                }
                line.clear();
            }
        });
        let (ended, end) = mpsc::channel();
        std::thread::spawn(move || ended.send(child.wait()));
        loop {
            // Lines come first: most often, the last line of an ended step has already been read.
            match received.recv_timeout(Duration::from_millis(100)) {
                Ok(line) => each(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    if let Ok(status) = end.try_recv() {
                        while let Ok(line) = received.recv_timeout(REST_OF_OUTPUT_MAX) {
                            each(line);
                        }
                        return status;
                    }
                }
            }
        }
        end.recv().map_err(io::Error::other)?
    }

    /// Whether the step is skipped because its command cannot be started: read-only tools are not installed everywhere.
    pub(super) fn is_skipped_for(&self, error: &io::Error) -> bool {
        self.kind == Kind::Light && error.kind() == io::ErrorKind::NotFound
    }

    /// The command that runs this step alone.
    pub(super) fn alone(&self) -> String {
        format!("cargo x check --only {:?}", self.title)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(script: &'static str) -> Vec<(usize, StepEvent)> {
        let arguments = vec!["-c", script];
        let step = Step {
            title: "a step",
            kind: Kind::Light,
            after: &[],
            program: "sh".into(),
            arguments,
            lints: false,
        };
        let (sender, receiver) = mpsc::channel();
        step.run(Path::new("/"), 3, &sender);
        drop(sender);
        receiver.into_iter().collect()
    }

    #[test]
    fn both_outputs_come_in_their_order() {
        let events = events("echo a; echo b >&2; printf c; exit 7");
        let lines = events.iter().filter_map(|(number, event)| match event {
            StepEvent::Line(line) => Some((*number, line.as_str())),
            StepEvent::End(_) => None,
        });
        assert_eq!(lines.collect::<Vec<_>>(), [(3, "a"), (3, "b"), (3, "c")]);
        let Some((3, StepEvent::End(Ok(status)))) = events.last() else { panic!("no end") };
        assert_eq!(status.code(), Some(7));
    }

    #[test]
    fn a_tool_that_is_not_there_is_left_out() {
        let is_skipped = |kind, program: &str| {
            let step = Step {
                title: "a",
                kind,
                after: &[],
                program: program.into(),
                arguments: vec![],
                lints: false,
            };
            let (sender, receiver) = mpsc::channel();
            step.run(Path::new("/"), 0, &sender);
            let Ok((0, StepEvent::End(Err(error)))) = receiver.recv() else { return false };
            step.is_skipped_for(&error)
        };
        assert!(is_skipped(Kind::Light, "/nowhere/tool"));
        assert!(!is_skipped(Kind::Tests, "/nowhere/tool"), "tests are never left out unseen");
        assert!(!is_skipped(Kind::Light, "/etc/passwd"), "it is there, and may not be run");
    }

    #[test]
    fn a_process_that_is_left_behind_does_not_hold_the_step() {
        let events = events("echo pid $$; sleep 1000 & echo $!");
        let lines: Vec<_> = events
            .iter()
            .filter_map(|(_, event)| match event {
                StepEvent::Line(line) => Some(line.clone()),
                StepEvent::End(_) => None,
            })
            .collect();
        let left = lines.last().expect("its number");
        assert!(Command::new("kill").arg(left).status().expect("kill starts").success());
        assert!(matches!(events.last(), Some((3, StepEvent::End(Ok(status)))) if status.success()));
    }
}
