//! `thruway trace`: records the look-ups of a command, and reports wasted look-ups and their cure.

mod arguments;
mod canvas;
mod compare;
mod follow;
mod html;
mod json;
mod live;
mod progress;
mod report;
mod sinks;
mod stacks;
mod terminal;

pub(crate) use arguments::Trace;

use crate::output::Answer;

impl Trace {
    pub(crate) fn run(self) -> Answer {
        match (&self.from, self.compare.as_deref()) {
            (_, Some([before, after])) => self.compare(before, after),
            (Some(file), _) => self.report_on(file),
            _ => live::run(&self),
        }
    }
}
