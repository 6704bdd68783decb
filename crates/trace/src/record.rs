//! The record of a call as it lies in a ring. The stub and the tracer write the same layout.

use std::ffi::CStr;

use thruway_sys::stub::layout;

use crate::call::{Abi, Argument, Call, Numbers};

/// A call as the tracer records it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// The call, encoded by [`number`].
    pub(crate) number: u32,
    /// The thread that made the call.
    pub(crate) thread: i32,
    /// When the call began and ended, in ticks.
    pub(crate) started: u64,
    pub(crate) ended: u64,
    /// The result; -4095 to -1 are errors.
    pub(crate) result: i64,
    /// The low halves of the first four arguments.
    pub(crate) arguments: [u32; 4],
    /// The names, without NUL.
    pub(crate) names: [Vec<u8>; 2],
}

/// Events besides calls. The low bits of `number` are then one of these values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Notice {
    /// The thread created the thread or process in the first argument, with the `clone` flags in the second.
    Fork = 1,
    /// The thread has ended.
    Exit = 2,
    /// The thread executed a program; the first argument is its previous thread ID.
    Program = 3,
    /// A frame of stacks: its number and line in the arguments, its function and binary in the first name, its
    /// source file in the second.
    Frame = 4,
    /// A stack: its number in the first argument, the numbers of its frames in the name.
    Stack = 5,
    /// The next call of the thread comes from the stack in the first argument.
    Asked = 6,
}

/// Separates the fields in the name of a notice, such as a program's arguments, since a NUL would end the name.
pub(crate) const FIELD_END: u8 = 0x1f;

const ABI_SHIFT: u32 = 16;
const NOTICE: u32 = 3 << ABI_SHIFT;

/// Combines a call's number and its ABI.
pub(crate) fn number(abi: Abi, number: u32) -> u32 {
    let abi = match abi {
        Abi::Native => 0,
        Abi::Compatible => 1,
        Abi::X32 => 2,
    };
    number & 0xffff | abi << ABI_SHIFT
}

/// The meaning of a record's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    Call(&'static Call),
    Notice(Notice),
}

/// The call numbers of all ABIs of this machine.
#[derive(Debug)]
pub(crate) struct Calls([Numbers; 3]);

impl Calls {
    pub(crate) fn new() -> Self {
        Self(Abi::ALL.map(Numbers::new))
    }

    pub(crate) fn call(&self, abi: Abi, number: u32) -> Option<&'static Call> {
        self.0[abi as usize].call(number)
    }

    /// Returns the meaning of a record's number; `None` if the record is damaged.
    pub(crate) fn subject(&self, number: u32) -> Option<Subject> {
        if number & NOTICE == NOTICE {
            let notice = match number & 0xffff {
                1 => Notice::Fork,
                2 => Notice::Exit,
                3 => Notice::Program,
                4 => Notice::Frame,
                5 => Notice::Stack,
                6 => Notice::Asked,
                _ => return None,
            };
            return Some(Subject::Notice(notice));
        }
        let numbers = self.0.get((number >> ABI_SHIFT) as usize)?;
        Some(Subject::Call(numbers.call(number & 0xffff)?))
    }

    /// Whether a record is of a call that is not recorded with its arguments.
    pub(crate) fn is_unrecorded(&self, view: View<'_>) -> bool {
        let subject = self.subject(view.number());
        matches!(subject, Some(Subject::Call(call)) if !call.is_recorded(view.argument(1).into()))
    }

    /// Returns a byte for each call number, from which the stub tells how to record the call: see
    /// [`Call::shape`]. The stub does not distinguish the commands of fcntl, so it records all of them;
    /// [`is_unrecorded`](Self::is_unrecorded) filters the result.
    pub(crate) fn shapes(&self) -> [u8; layout::SHAPES_MAX] {
        let mut shapes = [0; layout::SHAPES_MAX];
        for (number, call) in self.0[Abi::Native as usize].iter() {
            if let (Some(slot), Some(shape)) = (shapes.get_mut(number as usize), call.shape()) {
                *slot = shape;
            }
        }
        shapes
    }
}

impl Record {
    /// Creates a notice of the tracer at the current time.
    pub(crate) fn notice(notice: Notice, thread: i32, now: u64, arguments: [u32; 2]) -> Self {
        Self {
            number: NOTICE | notice as u32,
            thread,
            started: now,
            ended: now,
            result: 0,
            arguments: [arguments[0], arguments[1], 0, 0],
            names: [Vec::new(), Vec::new()],
        }
    }

    /// Creates the record of a call that a signal interrupted, from the bytes of its unfinished record. The
    /// kernel restarts the call, which is then recorded a second time.
    pub(crate) fn interrupted(bytes: &[u8], now: u64) -> Option<Self> {
        const RESTARTS: i64 = -512;
        let view = View::new(bytes)?;
        let mut names = view.names();
        Some(Self {
            number: view.number(),
            thread: view.thread(),
            started: view.started(),
            ended: now,
            result: RESTARTS,
            arguments: [0, 1, 2, 3].map(|index| view.argument(index)),
            names: [(); 2].map(|()| names.next().unwrap_or_default().to_vec()),
        })
    }

    /// Encodes the record. The length is a multiple of eight.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; layout::NAMES];
        for name in &self.names {
            bytes.extend_from_slice(&name[..name.len().min(layout::NAME_MAX - 1)]);
            bytes.push(0);
        }
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(layout::SIZE, &size.to_ne_bytes());
        put(layout::NUMBER, &self.number.to_ne_bytes());
        put(layout::THREAD, &self.thread.to_ne_bytes());
        put(layout::STARTED, &self.started.to_ne_bytes());
        put(layout::ENDED, &self.ended.to_ne_bytes());
        put(layout::RESULT, &self.result.to_ne_bytes());
        for (index, argument) in self.arguments.iter().enumerate() {
            put(layout::ARGUMENTS + 4 * index, &argument.to_ne_bytes());
        }
        bytes
    }
}

/// The bytes of a record, read in place. Traced programs can write to the ring, so no field is trusted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a>(&'a [u8]);

impl<'a> View<'a> {
    /// Returns `None` if there are too few bytes for a record.
    pub(crate) fn new(bytes: &'a [u8]) -> Option<Self> {
        (bytes.len() >= layout::NAMES).then_some(Self(bytes))
    }

    fn word(&self, at: usize) -> u64 {
        self.0[at..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    }

    fn half(&self, at: usize) -> u32 {
        self.0[at..].first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }

    pub(crate) fn number(&self) -> u32 {
        self.half(layout::NUMBER)
    }

    pub(crate) fn thread(&self) -> i32 {
        self.half(layout::THREAD).cast_signed()
    }

    pub(crate) fn started(&self) -> u64 {
        self.word(layout::STARTED)
    }

    pub(crate) fn ended(&self) -> u64 {
        self.word(layout::ENDED)
    }

    pub(crate) fn result(&self) -> i64 {
        self.word(layout::RESULT).cast_signed()
    }

    pub(crate) fn argument(&self, index: u8) -> u32 {
        if index < 4 { self.half(layout::ARGUMENTS + 4 * usize::from(index)) } else { 0 }
    }

    /// Returns the names in order. Arguments without a name are left out.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = &self.0[layout::NAMES..];
        std::iter::from_fn(move || {
            let name = CStr::from_bytes_until_nul(rest).ok()?.to_bytes();
            rest = &rest[name.len() + 1..];
            Some(name)
        })
    }

    /// Returns the names of a call, each with the argument that holds it.
    pub(crate) fn names_of(
        &self,
        call: &'static Call,
    ) -> impl Iterator<Item = (Argument, &'a [u8])> {
        let arguments = call.names.iter().copied().filter(|argument| *argument != Argument::None);
        arguments.zip(self.names())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let record = Record {
            number: number(Abi::Compatible, 302),
            thread: 4711,
            started: 1,
            ended: 2,
            result: -2,
            arguments: [3, 4, 5, 6],
            names: [b"from".to_vec(), b"to".to_vec()],
        };
        let bytes = record.bytes();
        let view = View::new(&bytes).unwrap();
        assert_eq!((view.thread(), view.result(), view.ended()), (4711, -2, 2));
        assert_eq!((view.argument(3), view.argument(9)), (6, 0));
        let Some(Subject::Call(call)) = Calls::new().subject(view.number()) else { panic!() };
        if cfg!(target_arch = "x86_64") {
            assert_eq!(call.name, "renameat");
            let names: Vec<_> = view.names_of(call).collect();
            let expected: [(_, &[u8]); 2] =
                [(Argument::At(0, 1), b"from"), (Argument::At(2, 3), b"to")];
            assert_eq!(names, expected);
        }
    }

    #[test]
    fn damage_is_no_subject() {
        let calls = Calls::new();
        assert_eq!(calls.subject(NOTICE | 99), None);
        assert_eq!(calls.subject(u32::MAX), None);
        assert_eq!(calls.subject(0x4_0000), None);
        assert!(View::new(&[0; 8]).is_none());
        let bytes = Record::notice(Notice::Exit, 1, 2, [0; 2]).bytes();
        let subject = calls.subject(View::new(&bytes).unwrap().number());
        assert_eq!(subject, Some(Subject::Notice(Notice::Exit)));
    }
}
