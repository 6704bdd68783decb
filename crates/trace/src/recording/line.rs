//! The lines of a recording.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use thruway_sys::process::Change;

use crate::call::Call;
use crate::event::{Event, EventKind, Syscall};
use crate::{Frame, Header, Outcome, Stack};

/// Any line but the first. In format 1, the units were not in the names.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Line<'a> {
    #[serde(alias = "at", skip_serializing_if = "is_default")]
    pub(super) at_ns: u64,
    #[serde(skip_serializing_if = "is_default")]
    process: i32,
    /// Left out for the first thread of a process.
    #[serde(skip_serializing_if = "is_default")]
    thread: i32,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    call: Option<Cow<'a, str>>,
    #[serde(alias = "took", skip_serializing_if = "is_default")]
    took_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<i64>,
    #[serde(skip_serializing_if = "is_default")]
    flags: u32,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    name: Option<NameText<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    second: Option<NameText<'a>>,
    /// The number of the call's stack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stack: Option<u32>,
    /// The frames of the stack, where it occurs for the first time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) frames: Vec<Frame>,
    #[serde(skip_serializing_if = "Option::is_none")]
    made: Option<i32>,
    #[serde(skip_serializing_if = "is_default")]
    is_thread: bool,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    became: Option<Vec<NameText<'a>>>,
    #[serde(skip_serializing_if = "is_default")]
    ended: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) end: Option<End>,
}

/// The content of the last line.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct End {
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    #[serde(alias = "wall")]
    wall_ns: u64,
    stops: u64,
    traced: u64,
    #[serde(skip_serializing_if = "is_default")]
    is_cut_short: bool,
}

/// A name: as text if it is UTF-8, otherwise as hexadecimal bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum NameText<'a> {
    #[serde(borrow)]
    Text(Cow<'a, str>),
    Bytes {
        hex: String,
    },
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl<'a> Line<'a> {
    pub(super) fn of(event: &Event<'a>) -> Self {
        let thread = if event.thread == event.process { 0 } else { event.thread };
        let line = Self { at_ns: event.at_ns, process: event.process, thread, ..Self::default() };
        match &event.kind {
            EventKind::Syscall(syscall) => Self {
                call: Some(syscall.call.name.into()),
                took_ns: syscall.duration_ns,
                result: Some(syscall.result),
                flags: syscall.flags,
                name: NameText::of(syscall.names[0]),
                second: NameText::of(syscall.names[1]),
                stack: syscall.stack.map(|stack| stack.id),
                ..line
            },
            EventKind::Spawn { child, is_thread } => {
                Self { made: Some(*child), is_thread: *is_thread, ..line }
            }
            EventKind::Exec(words) => {
                let words = words.iter().map(|word| NameText::new(word)).collect();
                Self { became: Some(words), ..line }
            }
            EventKind::Exit => Self { ended: true, ..line },
        }
    }

    pub(super) fn of_end(outcome: &Outcome) -> Self {
        let (status, signal) = match outcome.end {
            Some(Change::Exited(status)) => (Some(status), None),
            Some(Change::Killed(signal)) => (None, Some(signal)),
            _ => (None, None),
        };
        let Outcome { wall_ns, stops, traced, is_cut_short, .. } = *outcome;
        Self {
            end: Some(End { status, signal, wall_ns, stops, traced, is_cut_short }),
            ..Self::default()
        }
    }

    /// Decodes the event of the line; `None` for an unknown kind. `names` provides storage for names that are
    /// not UTF-8, and `stacks` has the stacks so far.
    pub(super) fn event<'b>(
        &'b self,
        names: &'b mut Vec<Vec<u8>>,
        stacks: &'b HashMap<u32, Stack>,
    ) -> Option<Event<'b>> {
        let all = [self.name.as_ref(), self.second.as_ref()].into_iter().flatten();
        names.clear();
        names.extend(all.chain(self.became.iter().flatten()).filter_map(NameText::decoded));
        let mut decoded = names.iter();
        let mut bytes = |name: &'b NameText<'a>| match name {
            NameText::Text(text) => Some(text.as_bytes()),
            NameText::Bytes { .. } => decoded.next().map(Vec::as_slice),
        };
        let mut name =
            |name: &'b Option<NameText<'a>>| name.as_ref().map_or(Some(&b""[..]), &mut bytes);
        let kind = if let Some(call) = &self.call {
            EventKind::Syscall(Syscall {
                call: Call::named(call)?,
                duration_ns: self.took_ns,
                result: self.result?,
                flags: self.flags,
                names: [name(&self.name)?, name(&self.second)?],
                stack: self.stack.and_then(|id| stacks.get(&id)),
            })
        } else if let Some(child) = self.made {
            EventKind::Spawn { child, is_thread: self.is_thread }
        } else if let Some(words) = &self.became {
            EventKind::Exec(words.iter().map(bytes).collect::<Option<_>>()?)
        } else if self.ended {
            EventKind::Exit
        } else {
            return None;
        };
        let thread = if self.thread == 0 { self.process } else { self.thread };
        Some(Event { at_ns: self.at_ns, process: self.process, thread, kind })
    }
}

impl End {
    pub(super) fn outcome(&self) -> Outcome {
        Outcome {
            end: self.status.map(Change::Exited).or(self.signal.map(Change::Killed)),
            wall_ns: self.wall_ns,
            stops: self.stops,
            traced: self.traced,
            is_cut_short: self.is_cut_short,
        }
    }
}

impl<'a> NameText<'a> {
    fn of(bytes: &'a [u8]) -> Option<Self> {
        (!bytes.is_empty()).then(|| Self::new(bytes))
    }

    fn new(bytes: &'a [u8]) -> Self {
        match str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.into()),
            Err(_) => {
                let hex = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                Self::Bytes { hex }
            }
        }
    }

    /// Decodes hexadecimal bytes, up to the first invalid digit.
    fn decoded(&self) -> Option<Vec<u8>> {
        let Self::Bytes { hex } = self else { return None };
        let digits = hex.as_bytes().chunks(2);
        let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
        Some(digits.map_while(byte).collect())
    }
}

/// Decodes the first line.
pub(super) fn header(line: &[u8]) -> Result<Header, String> {
    /// The fields that the first line of every format has.
    #[derive(Deserialize)]
    struct FormatLine {
        thruway: String,
        format: u32,
    }
    const OTHER: &str = "not a recording of thruway trace";
    let kind: FormatLine = serde_json::from_slice(line).map_err(|_| OTHER)?;
    if kind.thruway != "trace" {
        return Err(OTHER.to_owned());
    }
    if kind.format > super::FORMAT {
        return Err(format!(
            "format {} is too new: this thruway reads formats up to {}",
            kind.format,
            super::FORMAT
        ));
    }
    Ok(serde_json::from_slice(line).map_err(|_| OTHER)?)
}
