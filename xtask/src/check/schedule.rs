//! Decides which steps run side by side.

use super::step::Step;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Running,
    Ended,
}

/// The steps of a check, and the state of each.
///
/// At most one step compiles and one runs tests, and together there are at most as many steps as processors. So tests
/// never share the machine with more than a compiler, and two compilers do not fill the memory. A step that measures
/// has the machine to itself.
pub(super) struct Schedule<'a> {
    steps: &'a [Step],
    states: Vec<State>,
    running_max: usize,
    is_stopped: bool,
}

impl<'a> Schedule<'a> {
    pub(super) fn new(steps: &'a [Step], processors: usize) -> Self {
        let states = vec![State::Waiting; steps.len()];
        // Two steps run even on one processor: most steps wait part of their time.
        Self { steps, states, running_max: processors.max(2), is_stopped: false }
    }

    /// Returns the first step that may start now, and marks the step as running.
    pub(super) fn start(&mut self) -> Option<usize> {
        if self.is_stopped || self.running().count() >= self.running_max {
            return None;
        }
        let may_start = |number: &usize| {
            let step = &self.steps[*number];
            let has_room =
                self.running().all(|other| step.kind.runs_beside(self.steps[other].kind));
            self.states[*number] == State::Waiting && has_room && self.is_ready(step)
        };
        let number = (0..self.steps.len()).find(may_start)?;
        self.states[number] = State::Running;
        Some(number)
    }

    /// Whether all steps that the step waits for have ended. Steps that were not chosen do not count.
    fn is_ready(&self, step: &Step) -> bool {
        let mut steps = self.steps.iter().zip(&self.states);
        !steps.any(|(other, state)| *state != State::Ended && step.after.contains(&other.title))
    }

    /// Marks a step as ended successfully.
    pub(super) fn end(&mut self, number: usize) {
        self.states[number] = State::Ended;
    }

    /// Records the failure of a step, after which no other step starts.
    pub(super) fn fail(&mut self, number: usize) {
        self.states[number] = State::Ended;
        self.is_stopped = true;
    }

    pub(super) fn has_ended(&self, number: usize) -> bool {
        self.states[number] == State::Ended
    }

    pub(super) fn running(&self) -> impl Iterator<Item = usize> + '_ {
        let states = self.states.iter().enumerate();
        states.filter(|(_, state)| **state == State::Running).map(|(number, _)| number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::step::Kind;

    fn step(title: &'static str, kind: Kind, after: &'static [&'static str]) -> Step {
        Step { title, kind, after, program: "true".into(), arguments: vec![], lints: false }
    }

    #[test]
    fn one_step_compiles_and_one_tests() {
        let steps = [
            step("build", Kind::Compiles, &[]),
            step("style", Kind::Light, &[]),
            step("tests", Kind::Tests, &["build"]),
            step("gem tests", Kind::Tests, &["build"]),
            step("systems", Kind::Compiles, &[]),
            step("more", Kind::Light, &[]),
        ];
        let mut schedule = Schedule::new(&steps, 2);
        assert_eq!(
            [schedule.start(), schedule.start(), schedule.start()],
            [Some(0), Some(1), None]
        );
        schedule.end(1);
        assert_eq!([schedule.start(), schedule.start()], [Some(5), None]);
        schedule.end(5);
        assert_eq!(schedule.start(), None, "the next one compiles, or waits for the build");
        schedule.end(0);
        assert_eq!([schedule.start(), schedule.start()], [Some(2), Some(4)]);
        schedule.end(2);
        assert_eq!([schedule.start(), schedule.start()], [Some(3), None]);
        assert_eq!(schedule.running().collect::<Vec<_>>(), [3, 4]);
    }

    #[test]
    fn a_step_that_measures_runs_alone() {
        let steps = [
            step("style", Kind::Light, &[]),
            step("counts", Kind::Measures, &[]),
            step("tests", Kind::Tests, &[]),
        ];
        let mut schedule = Schedule::new(&steps, 4);
        assert_eq!(
            [schedule.start(), schedule.start(), schedule.start()],
            [Some(0), Some(2), None]
        );
        schedule.end(0);
        assert_eq!(schedule.start(), None);
        schedule.end(2);
        assert_eq!([schedule.start(), schedule.start()], [Some(1), None]);
    }

    #[test]
    fn a_step_does_not_wait_for_what_was_not_chosen() {
        let steps = [step("tests", Kind::Tests, &["build"])];
        assert_eq!(Schedule::new(&steps, 2).start(), Some(0));
    }

    #[test]
    fn nothing_starts_after_a_failure() {
        let steps =
            [step("a", Kind::Light, &[]), step("b", Kind::Light, &[]), step("c", Kind::Light, &[])];
        let mut schedule = Schedule::new(&steps, 2);
        assert_eq!([schedule.start(), schedule.start()], [Some(0), Some(1)]);
        schedule.fail(0);
        assert_eq!(schedule.start(), None);
        assert_eq!(schedule.running().count(), 1);
    }
}
