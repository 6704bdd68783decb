//! The stack of a call: which code asked for a file.

/// A stack, which many calls may share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// The number of the stack in its recording.
    pub id: u32,
    /// The frames, from the innermost, which made the call, outwards.
    pub frames: Vec<Frame>,
}

/// A function on a stack, with the place that it had reached.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Frame {
    /// The function; empty if unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub function: String,
    /// The source file; empty if the program has no debugging information about it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// The line in the source file; 0 if unknown.
    #[serde(skip_serializing_if = "is_zero")]
    pub line: u32,
    /// The program or library that contains the function; empty for code of an interpreter.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub object: String,
}

use serde::{Deserialize, Serialize};

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(line: &u32) -> bool {
    *line == 0
}
