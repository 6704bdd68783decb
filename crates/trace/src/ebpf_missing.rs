//! The kernel's back end in a thruway that was built without it.

use crate::recording::Sink;
use crate::{Command, Error, Outcome};

/// There is none.
#[derive(Debug)]
pub enum KernelRecorder {}

impl KernelRecorder {
    /// Says that there is none.
    ///
    /// # Errors
    /// Always.
    pub fn start(_command: &Command) -> Result<Self, Error> {
        Err(Error::no_programs("this thruway was built without the feature".to_owned(), false))
    }

    /// This cannot be called: no value exists.
    ///
    /// # Errors
    /// None.
    pub fn run(self, _sink: &mut impl Sink) -> Result<Outcome, Error> {
        match self {}
    }
}
