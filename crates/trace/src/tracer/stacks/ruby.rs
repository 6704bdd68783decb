//! Frames of Ruby scripts, read from the memory of a stopped process.
//!
//! The layout is that of Ruby 3.1 on x86-64 Linux. Each structure is checked as it is read. If a structure does not
//! fit, for example because the interpreter was built with other options, there are no frames.

use super::memory::Memory;
use crate::stack::Frame;

/// The version whose layout is known.
const KNOWN_VERSION: &[u8] = b"3.1.";
/// The most frames of scripts that are read.
const FRAMES_MAX: usize = 256;
/// The longest name of a file or a method that is read, in bytes.
const TEXT_MAX: u64 = 4096;

/// The places in a process at which its interpreter can be found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interpreter {
    /// The address of `ruby_current_vm_ptr`.
    pub(super) vm: u64,
    /// The address of `ruby_version`.
    pub(super) version: u64,
}

impl Interpreter {
    /// Returns the places in a process, from those in the interpreter's file.
    pub(super) fn moved(self, bias: u64) -> Self {
        let Self { vm, version } = self;
        Self { vm: vm.wrapping_add(bias), version: version.wrapping_add(bias) }
    }
}

/// Offsets in the structures of Ruby 3.1.
mod offset {
    pub(super) const MAIN_RACTOR_OF_VM: u64 = 32;
    pub(super) const RACTORS_OF_VM: u64 = 24;
    pub(super) const THREADS_OF_RACTOR: u64 = 304;
    pub(super) const VM_OF_THREAD: u64 = 32;
    pub(super) const CONTEXT_OF_THREAD: u64 = 40;
    pub(super) const NATIVE_ID_OF_THREAD: u64 = 80;
    pub(super) const STACK_SIZE_OF_CONTEXT: u64 = 8;
    pub(super) const FRAME_OF_CONTEXT: u64 = 16;
    pub(super) const THREAD_OF_CONTEXT: u64 = 48;
    pub(super) const FRAME_BYTES: u64 = 64;
    pub(super) const CODE_OF_FRAME: u64 = 16;
    pub(super) const BODY_OF_CODE: u64 = 16;
    pub(super) const SIZE_OF_BODY: u64 = 4;
    pub(super) const INSTRUCTIONS_OF_BODY: u64 = 8;
    pub(super) const PATH_OF_BODY: u64 = 64;
    pub(super) const LABEL_OF_BODY: u64 = 80;
    pub(super) const LINES_OF_BODY: u64 = 120;
    pub(super) const LINE_COUNT_OF_BODY: u64 = 136;
    pub(super) const LINE_INDEX_OF_BODY: u64 = 144;
}

/// Returns the frames of the script that a stopped thread runs, the innermost first; `None` if they are not known.
/// `native_thread` is the thread's number for its C library, which is its fs base.
pub(super) fn frames(
    interpreter: Interpreter,
    native_thread: u64,
    memory: &mut Memory,
) -> Option<Vec<Frame>> {
    if !memory.text(interpreter.version, 16)?.starts_with(KNOWN_VERSION) {
        return None;
    }
    let vm = memory.word(interpreter.vm).filter(|vm| *vm != 0)?;
    // Threads of further ractors are in other lists.
    if memory.half(vm + offset::RACTORS_OF_VM)? != 1 {
        return None;
    }
    let thread = thread(memory, vm, native_thread)?;
    let context = memory.word(thread + offset::CONTEXT_OF_THREAD)?;
    let is_whole = memory.word(context + offset::THREAD_OF_CONTEXT)? == thread;
    let start = memory.word(context)?;
    let bytes = memory.word(context + offset::STACK_SIZE_OF_CONTEXT)?.checked_mul(8)?;
    let end = start.checked_add(bytes)?;
    let mut frame = memory.word(context + offset::FRAME_OF_CONTEXT)?;
    if !is_whole || !(start..end).contains(&frame) || (end - frame) % 8 != 0 {
        return None;
    }
    let mut frames = Vec::new();
    // The outermost frames are a dummy of the thread's start, and the end itself.
    while frame + offset::FRAME_BYTES < end && frames.len() < FRAMES_MAX {
        let code = memory.word(frame + offset::CODE_OF_FRAME)?;
        let at = memory.word(frame)?;
        if code != 0 && at != 0 {
            frames.push(script_frame(memory, code, at)?);
        }
        frame += offset::FRAME_BYTES;
    }
    (!frames.is_empty()).then_some(frames)
}

/// Returns the address of the thread (`rb_thread_t`) of the interpreter at `vm` (`rb_vm_t`) whose native thread has the
/// ID `native`.
fn thread(memory: &mut Memory, vm: u64, native: u64) -> Option<u64> {
    const THREADS_MAX: usize = 1 << 12;
    let ractor = memory.word(vm + offset::MAIN_RACTOR_OF_VM)?;
    let list = ractor + offset::THREADS_OF_RACTOR;
    // A thread begins with its place in the list.
    let mut thread = memory.word(list)?;
    for _ in 0..THREADS_MAX {
        if thread == list {
            return None;
        }
        let is_of_vm = memory.word(thread + offset::VM_OF_THREAD)? == vm;
        if !is_of_vm {
            return None;
        }
        if memory.word(thread + offset::NATIVE_ID_OF_THREAD)? == native {
            return Some(thread);
        }
        thread = memory.word(thread)?;
    }
    None
}

/// Returns the frame of compiled code that has been run up to the instruction at `at`.
fn script_frame(memory: &mut Memory, code: u64, at: u64) -> Option<Frame> {
    let body = memory.word(code + offset::BODY_OF_CODE)?;
    let instructions = memory.word(body + offset::INSTRUCTIONS_OF_BODY)?;
    let size = memory.half(body + offset::SIZE_OF_BODY)?;
    let position = at.checked_sub(instructions)? / 8;
    if position > u64::from(size) {
        return None;
    }
    // The counter points to the instruction after the call.
    let line = line(memory, body, position.saturating_sub(1))?;
    let path = memory.word(body + offset::PATH_OF_BODY)?;
    let label = memory.word(body + offset::LABEL_OF_BODY)?;
    let (file, function) = (path_text(memory, path)?, string(memory, label)?);
    Some(Frame { function, file, line, object: String::new() })
}

/// Returns the line of the instruction at a position.
fn line(memory: &mut Memory, body: u64, position: u64) -> Option<u32> {
    const ENTRY_BYTES: u64 = 12;
    let lines = memory.word(body + offset::LINES_OF_BODY)?;
    let entry = match memory.half(body + offset::LINE_COUNT_OF_BODY)? {
        0 => return Some(0),
        1 => 0,
        count => {
            let table = memory.word(body + offset::LINE_INDEX_OF_BODY)?;
            let index = entry_index(memory, table, position)?;
            index.checked_sub(1).filter(|index| *index < u64::from(count))?
        }
    };
    memory.half(lines + entry * ENTRY_BYTES)
}

/// Counts the entries up to a position, in Ruby's table of ranks (`succ_index_table`): ranks of the first 54 positions,
/// of seven bits each, and then blocks of 512 bits with the ranks of their words.
fn entry_index(memory: &mut Memory, table: u64, position: u64) -> Option<u64> {
    const IMMEDIATE: u64 = 54;
    const IMMEDIATE_BYTES: u64 = 48;
    const BLOCK_BYTES: u64 = 80;
    let Some(after) = position.checked_sub(IMMEDIATE) else {
        let word = memory.word(table + position / 9 * 8)?;
        return Some(word >> (position % 9 * 7) & 0x7f);
    };
    let block = table + IMMEDIATE_BYTES + after / 512 * BLOCK_BYTES;
    let (word, bit) = (after % 512 / 64, after % 64);
    let ranks = memory.word(block + 8)?;
    let rank = if word == 0 { 0 } else { ranks >> ((word - 1) * 9) & 0x1ff };
    let bits = memory.word(block + 16 + word * 8)?;
    let count = (bits << (63 - bit)).count_ones();
    Some(u64::from(memory.half(block)?) + rank + u64::from(count))
}

/// The type of an object, in its flags.
const TYPE_MASK: u64 = 0x1f;
const STRING: u64 = 5;
const ARRAY: u64 = 7;
/// The first flag that depends on the type.
const FLAG: u64 = 1 << 13;

/// Returns the path of a script: a String, or an Array that begins with it.
fn path_text(memory: &mut Memory, value: u64) -> Option<String> {
    let flags = memory.word(value)?;
    if flags & TYPE_MASK != ARRAY {
        return string(memory, value);
    }
    let is_embedded = flags & FLAG != 0;
    let elements = if is_embedded { value + 16 } else { memory.word(value + 32)? };
    let first = memory.word(elements)?;
    string(memory, first)
}

/// Returns the text of a String.
fn string(memory: &mut Memory, value: u64) -> Option<String> {
    let flags = memory.word(value)?;
    if flags & TYPE_MASK != STRING {
        return None;
    }
    let is_embedded = flags & FLAG == 0;
    let (start, length) = if is_embedded {
        (value + 16, flags >> 14 & 0x1f)
    } else {
        (memory.word(value + 24)?, memory.word(value + 16)?)
    };
    let bytes = memory.bytes(start, length.min(TEXT_MAX))?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
