//! `cargo x check`: the lints, then every test, with as many steps at once as the machine has room for.
//!
//! `plan` has the steps, `schedule` decides which may run side by side, `step` runs one, `screen` shows their output
//! above the line of `progress`, and `report` collects the final lines.

mod plan;
mod progress;
mod report;
pub(crate) mod runners;
mod schedule;
mod screen;
mod step;

use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::process::ExitStatus;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::Scope;
use std::time::Instant;

use clap::Args;

use crate::durations::Durations;
use progress::StepProgress;
use report::Report;
use schedule::Schedule;
use screen::Screen;
use step::{Step, StepEvent};

/// Run everything that CI runs: lints, then every test
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Run only steps whose title contains TEXT; may be repeated
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
}

impl Check {
    /// Runs the steps. After the first failure, no other step starts. The last lines are the summaries of all test
    /// runners in their own words.
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        let steps = plan::chosen(plan::steps(root), &self.only)?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            let start = |number: usize| start(scope, &steps, root, number, sender.clone());
            let mut run = Run::new(&steps, root, processors);
            loop {
                while let Some(number) = run.schedule.start() {
                    run.start(number);
                    start(number);
                }
                if run.schedule.running().next().is_none() {
                    return run.end();
                }
                match receiver.recv_timeout(run.screen.silence_left()) {
                    Ok((number, StepEvent::Line(line))) => run.line(number, line),
                    Ok((number, StepEvent::End(end))) => run.end_of_step(number, end),
                    Err(RecvTimeoutError::Timeout) => run.show_progress(),
                    Err(RecvTimeoutError::Disconnected) => return run.end(),
                }
            }
        })
    }
}

/// Runs a step in a thread of its own.
fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    steps: &'scope [Step],
    root: &'scope Path,
    number: usize,
    events: mpsc::Sender<(usize, StepEvent)>,
) {
    scope.spawn(move || steps[number].run(root, number, &events));
}

/// A check in progress.
struct Run<'a> {
    steps: &'a [Step],
    schedule: Schedule<'a>,
    screen: Screen<io::Stdout>,
    report: Report,
    durations: Durations,
    /// The time at which each running step started.
    starts: Vec<Option<Instant>>,
    /// The first failure.
    failure: Option<String>,
}

impl<'a> Run<'a> {
    fn new(steps: &'a [Step], root: &Path, processors: usize) -> Self {
        Self {
            steps,
            schedule: Schedule::new(steps, processors),
            screen: Screen::new(io::stdout(), io::stdout().is_terminal()),
            report: Report::default(),
            durations: Durations::read(root.join("target/check-durations.tsv")),
            starts: vec![None; steps.len()],
            failure: None,
        }
    }

    fn start(&mut self, number: usize) {
        let title = self.steps[number].title;
        self.starts[number] = Some(Instant::now());
        let heading = match self.durations.of(title) {
            Some(seconds) => format!("\n== {title} ({seconds} s the last time)"),
            None => format!("\n== {title}"),
        };
        self.screen.start(number, heading);
    }

    fn line(&mut self, number: usize, line: String) {
        self.report.line(number, &line);
        self.screen.line(number, line);
    }

    fn end_of_step(&mut self, number: usize, end: io::Result<ExitStatus>) {
        let step = &self.steps[number];
        let seconds = self.starts[number].take().map_or(0.0, |start| start.elapsed().as_secs_f64());
        self.report.step(step.title, seconds);
        let end = match end {
            Ok(status) if status.success() => {
                self.durations.keep(step.title, seconds.round() as u64);
                self.schedule.end(number);
                self.screen.end(number, format!("== {}: {seconds:.0} s", step.title));
                return;
            }
            Ok(status) => status.to_string(),
            Err(error) => {
                let program = step.program.display();
                if step.is_skipped_for(&error) {
                    let skip =
                        format!("{}: skipped, because this machine lacks {program}", step.title);
                    self.report.line(number, &skip);
                    self.schedule.end(number);
                    return self.screen.end(number, skip);
                }
                format!("cannot start {program}: {error}")
            }
        };
        self.schedule.fail(number);
        self.screen.fail(number, format!("== {} failed after {seconds:.0} s ({end})", step.title));
        let failure = self.report.failure(number, step.title, &end, &step.alone());
        let running = self.running();
        if !running.is_empty() {
            self.screen.note(&format!("== nothing else starts; waiting for {running}"));
        }
        self.failure.get_or_insert(failure);
    }

    /// The running steps, each with its seconds so far.
    fn running(&self) -> String {
        let told = |number: usize| {
            let seconds = self.starts[number].map_or(0, |start| start.elapsed().as_secs());
            format!("{} ({seconds} s)", self.steps[number].title)
        };
        self.schedule.running().map(told).collect::<Vec<_>>().join(", ")
    }

    /// Shows how far the check is: in the line of progress on a terminal, in a line of its own elsewhere.
    fn show_progress(&mut self) {
        if self.screen.has_progress() {
            return self.draw_progress();
        }
        let line = format!(".. {}", self.running());
        self.screen.note(&line);
    }

    fn draw_progress(&mut self) {
        let progress = |number: usize| match self.starts[number] {
            Some(start) => StepProgress::Running { seconds: start.elapsed().as_secs() },
            None if self.schedule.has_ended(number) => StepProgress::Ended,
            None => StepProgress::Waiting,
        };
        let steps = || self.steps.iter().enumerate();
        let expected =
            |(number, step): (usize, &Step)| (self.durations.of(step.title), progress(number));
        let percent = progress::percent(steps().map(expected));
        let ended = steps().filter(|(number, _)| self.schedule.has_ended(*number)).count();
        let columns = terminal_columns();
        let line = progress::line(percent, ended, self.steps.len(), &self.running(), columns);
        self.screen.set_progress(line);
    }

    fn end(mut self) -> Result<(), String> {
        self.screen.erase_progress();
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        self.report.lines().iter().for_each(|line| println!("{line}"));
        Ok(())
    }
}

/// Returns the columns of the terminal that standard output is.
fn terminal_columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    size.map_or(80, |size| usize::from(size.ws_col))
}
