//! Frames of Python scripts, read from the memory of a stopped process.
//!
//! The layout is that of CPython 3.11 on 64-bit systems, or of 3.13, which describes its layout in a table at the start
//! of its state. Each structure is checked as it is read. If a structure does not fit, for example because the
//! interpreter was built with other options, there are no frames.

use super::memory::Memory;
use crate::stack::Frame;

/// The most frames of scripts that are read.
const FRAMES_MAX: usize = 256;
/// The longest name of a file or a function that is read, in bytes.
const TEXT_MAX: u64 = 4096;
/// The most bytes of a function's table of lines: some 20,000 instructions.
const TABLE_MAX: u64 = 1 << 17;
/// The most interpreters of a process, and the most threads of an interpreter.
const INTERPRETERS_MAX: usize = 64;
const THREADS_MAX: usize = 1 << 12;

/// The places in a process at which its interpreter can be found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interpreter {
    /// The address of `_PyRuntime`.
    pub(super) runtime: u64,
    /// The address of `Py_Version`.
    pub(super) version: u64,
}

impl Interpreter {
    /// Returns the places in a process, from those in the interpreter's file.
    pub(super) fn moved(self, bias: u64) -> Self {
        let Self { runtime, version } = self;
        Self { runtime: runtime.wrapping_add(bias), version: version.wrapping_add(bias) }
    }
}

/// Offsets in the structures of a version.
#[derive(Debug, Clone, Copy)]
struct Layout {
    first_interpreter: u64,
    next_interpreter: u64,
    first_thread: u64,
    next_thread: u64,
    interpreter_of_thread: u64,
    native_id_of_thread: u64,
    /// The pointer in a thread that leads to its frames.
    frames_of_thread: u64,
    /// The offset of the current frame behind that pointer; `None` if the pointer itself is the current frame.
    frame_of_c_frame: Option<u64>,
    previous_frame: u64,
    code_of_frame: u64,
    instruction_of_frame: u64,
    owner_of_frame: u64,
    file_of_code: u64,
    name_of_code: u64,
    lines_of_code: u64,
    first_line_of_code: u64,
    instructions_of_code: u64,
    bytes_of_ascii: u64,
}

const OF_3_11: Layout = Layout {
    first_interpreter: 40,
    next_interpreter: 0,
    first_thread: 16,
    next_thread: 8,
    interpreter_of_thread: 16,
    native_id_of_thread: 152,
    frames_of_thread: 56,
    frame_of_c_frame: Some(8),
    previous_frame: 48,
    code_of_frame: 32,
    instruction_of_frame: 56,
    owner_of_frame: 69,
    file_of_code: 112,
    name_of_code: 128,
    lines_of_code: 136,
    first_line_of_code: 72,
    instructions_of_code: 184,
    bytes_of_ascii: 48,
};

/// Places of offsets in the table with which the state of CPython 3.13 begins (`_Py_DebugOffsets`).
mod table {
    pub(super) const COOKIE: &[u8] = b"xdebugpy";
    pub(super) const IS_FREE_THREADED: u64 = 16;
    pub(super) const FIRST_INTERPRETER: u64 = 40;
    pub(super) const NEXT_INTERPRETER: u64 = 64;
    pub(super) const FIRST_THREAD: u64 = 72;
    pub(super) const NEXT_THREAD: u64 = 168;
    pub(super) const INTERPRETER_OF_THREAD: u64 = 176;
    pub(super) const FRAME_OF_THREAD: u64 = 184;
    pub(super) const ID_OF_THREAD: u64 = 192;
    pub(super) const PREVIOUS_FRAME: u64 = 232;
    pub(super) const CODE_OF_FRAME: u64 = 240;
    pub(super) const INSTRUCTION_OF_FRAME: u64 = 248;
    pub(super) const OWNER_OF_FRAME: u64 = 264;
    pub(super) const FILE_OF_CODE: u64 = 280;
    pub(super) const QUALIFIED_NAME_OF_CODE: u64 = 296;
    pub(super) const LINES_OF_CODE: u64 = 304;
    pub(super) const FIRST_LINE_OF_CODE: u64 = 312;
    pub(super) const INSTRUCTIONS_OF_CODE: u64 = 344;
    pub(super) const BYTES_OF_ASCII: u64 = 560;
}

/// Offsets that both versions share.
mod offset {
    pub(super) const TYPE: u64 = 8;
    pub(super) const NAME_OF_TYPE: u64 = 24;
    pub(super) const SIZE: u64 = 16;
    pub(super) const DATA_OF_BYTES: u64 = 32;
    pub(super) const LENGTH_OF_TEXT: u64 = 16;
    pub(super) const STATE_OF_TEXT: u64 = 32;
    /// The fields of other texts than ASCII, which precede the characters.
    pub(super) const MORE_OF_TEXT: u64 = 16;
    pub(super) const MORE_OF_TEXT_3_11: u64 = 24;
}

/// Owners of frames.
const OWNED_BY_GENERATOR: u8 = 1;
const OWNED_BY_C_STACK: u8 = 3;

/// Returns the frames of the script that a stopped thread runs, the innermost first; `None` if they are not known.
/// `native_thread` is the thread's number for its C library, which is its fs base.
pub(super) fn frames(
    interpreter: Interpreter,
    native_thread: u64,
    memory: &mut Memory,
) -> Option<Vec<Frame>> {
    let reader = Reader::new(interpreter, memory)?;
    reader.frames(interpreter, native_thread)
}

/// The layout and the memory of a process.
struct Reader<'a> {
    layout: Layout,
    memory: &'a mut Memory,
    is_3_11: bool,
}

impl<'a> Reader<'a> {
    fn new(interpreter: Interpreter, memory: &'a mut Memory) -> Option<Self> {
        let version = memory.half(interpreter.version)? >> 16;
        let layout = match version {
            0x030b => OF_3_11,
            0x030d => described(interpreter.runtime, memory)?,
            _ => return None,
        };
        Some(Self { layout, memory, is_3_11: version == 0x030b })
    }

    fn frames(mut self, interpreter: Interpreter, native_thread: u64) -> Option<Vec<Frame>> {
        let layout = self.layout;
        let thread = self.thread(interpreter, native_thread)?;
        let mut frame = self.memory.word(thread + layout.frames_of_thread)?;
        if let Some(current) = layout.frame_of_c_frame {
            frame = self.memory.word(frame.checked_add(current)?)?;
        }
        let mut frames = Vec::new();
        while frame != 0 && frames.len() < FRAMES_MAX {
            frames.extend(self.frame(frame)?);
            frame = self.memory.word(frame.checked_add(layout.previous_frame)?)?;
        }
        (!frames.is_empty()).then_some(frames)
    }

    /// Finds the thread whose native thread has this ID.
    fn thread(&mut self, interpreter: Interpreter, native: u64) -> Option<u64> {
        let layout = self.layout;
        let mut state = self.memory.word(interpreter.runtime + layout.first_interpreter)?;
        for _ in 0..INTERPRETERS_MAX {
            if state == 0 {
                return None;
            }
            let mut thread = self.memory.word(state + layout.first_thread)?;
            for _ in 0..THREADS_MAX {
                if thread == 0 {
                    break;
                }
                if self.memory.word(thread + layout.interpreter_of_thread)? != state {
                    return None;
                }
                if self.memory.word(thread + layout.native_id_of_thread)? == native {
                    return Some(thread);
                }
                thread = self.memory.word(thread + layout.next_thread)?;
            }
            state = self.memory.word(state + layout.next_interpreter)?;
        }
        None
    }

    /// Reads a frame. The inner `None` stands for a frame of the interpreter, or for one whose first instruction has
    /// not begun; Python shows neither.
    fn frame(&mut self, frame: u64) -> Option<Option<Frame>> {
        let layout = self.layout;
        let owner = self.memory.byte(frame + layout.owner_of_frame)?;
        if owner == OWNED_BY_C_STACK {
            return Some(None);
        }
        let code = self.memory.word(frame + layout.code_of_frame)?;
        if self.type_name(code)? != b"code" {
            return None;
        }
        let instruction = self.memory.word(frame + layout.instruction_of_frame)?;
        let Some(at) = instruction.checked_sub(code + layout.instructions_of_code) else {
            return (owner != OWNED_BY_GENERATOR).then_some(None);
        };
        let file = self.memory.word(code + layout.file_of_code)?;
        let name = self.memory.word(code + layout.name_of_code)?;
        let (file, function) = (self.text(file)?, self.text(name)?);
        let line = self.line(code, at)?;
        Some(Some(Frame { function, file, line, object: String::new() }))
    }

    fn type_name(&mut self, object: u64) -> Option<Vec<u8>> {
        let of = self.memory.word(object.checked_add(offset::TYPE)?)?;
        let name = self.memory.word(of.checked_add(offset::NAME_OF_TYPE)?)?;
        self.memory.text(name, 16)
    }

    /// Returns the line of the instruction `at` bytes behind the first one; 0 if the instruction has none.
    fn line(&mut self, code: u64, at: u64) -> Option<u32> {
        let table = self.memory.word(code + self.layout.lines_of_code)?;
        let length = self.memory.word(table + offset::SIZE)?;
        let table = self.memory.bytes(table + offset::DATA_OF_BYTES, length.min(TABLE_MAX))?;
        let first = self.memory.half(code + self.layout.first_line_of_code)?;
        line_at(&table, first.cast_signed(), at)
    }

    /// Returns a text: an object of type `str`.
    fn text(&mut self, text: u64) -> Option<String> {
        const IS_COMPACT: u32 = 1 << 5;
        const IS_ASCII: u32 = 1 << 6;
        if self.type_name(text)? != b"str" {
            return None;
        }
        let length = self.memory.word(text + offset::LENGTH_OF_TEXT)?;
        let state = self.memory.half(text + offset::STATE_OF_TEXT)?;
        if state & IS_COMPACT == 0 {
            return None;
        }
        let more = if self.is_3_11 { offset::MORE_OF_TEXT_3_11 } else { offset::MORE_OF_TEXT };
        let more = if state & IS_ASCII == 0 { more } else { 0 };
        let width = u64::from(state >> 2 & 7);
        let start = text + self.layout.bytes_of_ascii + more;
        let bytes = self.memory.bytes(start, length.checked_mul(width)?.min(TEXT_MAX))?;
        let character = |bytes: &[u8]| {
            let code = bytes.iter().rev().fold(0, |code, byte| code << 8 | u32::from(*byte));
            char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
        };
        Some(bytes.chunks(usize::try_from(width.max(1)).ok()?).map(character).collect())
    }
}

/// Reads the table of CPython 3.13; `None` for a build without the interpreter lock, whose objects have another layout.
fn described(runtime: u64, memory: &mut Memory) -> Option<Layout> {
    let is_table = memory.bytes(runtime, table::COOKIE.len() as u64)? == table::COOKIE;
    if !is_table || memory.word(runtime + table::IS_FREE_THREADED)? != 0 {
        return None;
    }
    // No structure has a million bytes.
    let mut at = |place| memory.word(runtime + place).filter(|offset| *offset < 1 << 20);
    Some(Layout {
        first_interpreter: at(table::FIRST_INTERPRETER)?,
        next_interpreter: at(table::NEXT_INTERPRETER)?,
        first_thread: at(table::FIRST_THREAD)?,
        next_thread: at(table::NEXT_THREAD)?,
        interpreter_of_thread: at(table::INTERPRETER_OF_THREAD)?,
        native_id_of_thread: at(table::ID_OF_THREAD)?,
        frames_of_thread: at(table::FRAME_OF_THREAD)?,
        frame_of_c_frame: None,
        previous_frame: at(table::PREVIOUS_FRAME)?,
        code_of_frame: at(table::CODE_OF_FRAME)?,
        instruction_of_frame: at(table::INSTRUCTION_OF_FRAME)?,
        owner_of_frame: at(table::OWNER_OF_FRAME)?,
        file_of_code: at(table::FILE_OF_CODE)?,
        name_of_code: at(table::QUALIFIED_NAME_OF_CODE)?,
        lines_of_code: at(table::LINES_OF_CODE)?,
        first_line_of_code: at(table::FIRST_LINE_OF_CODE)?,
        instructions_of_code: at(table::INSTRUCTIONS_OF_CODE)?,
        bytes_of_ascii: at(table::BYTES_OF_ASCII)?,
    })
}

/// Finds a line in a function's table, whose format is described in `Objects/locations.md` of CPython 3.11. Returns 0
/// if the instruction has no line.
fn line_at(table: &[u8], first: i32, at: u64) -> Option<u32> {
    const UNIT_BYTES: u64 = 2;
    let (mut end, mut line) = (0, first);
    // The byte with which an entry begins is marked by its highest bit.
    for entry in table.chunk_by(|_, next| next & 0x80 == 0) {
        let [head, rest @ ..] = entry else { return None };
        let form = head >> 3 & 15;
        line = line.checked_add(match form {
            // Lines are the same, or up to two further.
            0..=9 | 15 => 0,
            10..=12 => i32::from(form) - 10,
            _ => signed(rest)?,
        })?;
        end += (u64::from(head & 7) + 1) * UNIT_BYTES;
        if at < end {
            return Some(if form == 15 { 0 } else { u32::try_from(line).unwrap_or(0) });
        }
    }
    None
}

/// Returns the number at the start of an entry: six bits a byte, the lowest first, and the sign in the lowest bit.
fn signed(bytes: &[u8]) -> Option<i32> {
    let mut number = 0_u32;
    for (place, byte) in bytes.iter().take(5).enumerate() {
        number |= u32::from(byte & 0x3f) << (6 * place);
        if byte & 0x40 == 0 {
            let size = (number >> 1).cast_signed();
            return Some(if number & 1 == 0 { size } else { -size });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_has_the_line_of_its_entry() {
        // Two units of the first line; one of two lines further; three without a line; one of ten lines before.
        let table = [0x80 | 1, 0, 0x80 | 12 << 3, 0, 0, 0x80 | 15 << 3 | 2, 0x80 | 13 << 3, 21];
        let lines = |at| line_at(&table, 40, at);
        assert_eq!([0, 2, 3].map(lines), [Some(40); 3]);
        assert_eq!([4, 6, 11].map(lines), [Some(42), Some(0), Some(0)]);
        assert_eq!([12, 14].map(lines), [Some(32), None]);
        assert_eq!(line_at(&[], 1, 0), None);
        assert_eq!(line_at(&[0x80 | 14 << 3, 0x40], 1, 0), None);
    }

    #[test]
    fn numbers_of_several_bytes_are_read() {
        assert_eq!(signed(&[0x40 | 0x3e, 1]), Some(63));
        assert_eq!(signed(&[0x40 | 0x3f, 1]), Some(-63));
        assert_eq!(signed(&[0x40; 5]), None);
    }
}
