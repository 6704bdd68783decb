//! The stacks that the tracer has described, and the calls that come from them.

use std::collections::HashMap;

use crate::record::{FIELD_END, Notice, Subject, View};
use crate::stack::{Frame, Stack};

/// Frames and stacks by their numbers.
#[derive(Debug, Default)]
pub(crate) struct StackTable {
    frames: HashMap<u32, Frame>,
    stacks: HashMap<u32, Stack>,
    /// The stack from which each thread's next call comes.
    next: HashMap<i32, u32>,
}

impl StackTable {
    /// Takes a notice about stacks. Returns `false` if the record is something else.
    pub(crate) fn push(&mut self, subject: Option<Subject>, view: View<'_>) -> bool {
        let Some(Subject::Notice(notice)) = subject else { return false };
        let number = view.argument(0);
        let mut names = view.names();
        let mut name = || names.next().unwrap_or_default();
        match notice {
            Notice::Frame => {
                let mut fields = name().split(|byte| *byte == FIELD_END).map(text);
                let (function, object) = (fields.next(), fields.next());
                let (function, object) = (function.unwrap_or_default(), object.unwrap_or_default());
                let frame = Frame { function, object, file: text(name()), line: view.argument(1) };
                self.frames.insert(number, frame);
            }
            Notice::Stack => {
                let numbers = str::from_utf8(name()).unwrap_or_default().split(',');
                let frames = numbers.filter_map(|number| self.frames.get(&number.parse().ok()?));
                let frames = frames.cloned().collect();
                self.stacks.insert(number, Stack { id: number, frames });
            }
            Notice::Asked => {
                self.next.insert(view.thread(), number);
            }
            Notice::Fork | Notice::Exit | Notice::Program => return false,
        }
        true
    }

    /// Returns the stack of the call of a thread that has just ended.
    pub(crate) fn of_next_call(&mut self, thread: i32) -> Option<&Stack> {
        if self.next.is_empty() {
            return None;
        }
        self.stacks.get(&self.next.remove(&thread)?)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
