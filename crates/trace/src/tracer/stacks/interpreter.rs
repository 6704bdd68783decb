//! Interpreters of scripts whose frames can be read.

use super::memory::Memory;
use super::{python, ruby};
use crate::stack::Frame;

/// An interpreter, by the addresses of its state.
#[derive(Debug, Clone, Copy)]
pub(super) enum Interpreter {
    Ruby(ruby::Interpreter),
    Python(python::Interpreter),
}

impl Interpreter {
    /// Finds the interpreter in a binary with these symbols.
    pub(super) fn of(mut address: impl FnMut(&str) -> Option<u64>) -> Option<Self> {
        let ruby = address("ruby_current_vm_ptr")
            .zip(address("ruby_version"))
            .map(|(vm, version)| Self::Ruby(ruby::Interpreter { vm, version }));
        ruby.or_else(|| {
            let (runtime, version) = address("_PyRuntime").zip(address("Py_Version"))?;
            Some(Self::Python(python::Interpreter { runtime, version }))
        })
    }

    /// Returns the places in a process, from those in the interpreter's file.
    pub(super) fn moved(self, bias: u64) -> Self {
        match self {
            Self::Ruby(interpreter) => Self::Ruby(interpreter.moved(bias)),
            Self::Python(interpreter) => Self::Python(interpreter.moved(bias)),
        }
    }

    /// Returns the frames of the script that a stopped thread runs, the innermost first; `None` if they are not known.
    /// `native_thread` is the thread's number for its C library, which is its fs base.
    pub(super) fn frames(self, native_thread: u64, memory: &mut Memory) -> Option<Vec<Frame>> {
        match self {
            Self::Ruby(interpreter) => ruby::frames(interpreter, native_thread, memory),
            Self::Python(interpreter) => python::frames(interpreter, native_thread, memory),
        }
    }
}
