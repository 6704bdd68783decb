//! The stacks of calls that stop: unwound by the rules in the programs' files, or else by frame pointers.
//!
//! Each different stack is described once. Calls refer to it by its number.

mod binary;
mod interpreter;
mod mappings;
mod memory;
mod python;
mod ruby;

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{FrameAddress, Module, Unwinder};
use thruway_sys::ptrace;
use thruway_sys::ticks::ticks;

use crate::record::{FIELD_END, Notice, Record};
use crate::stack::Frame;
use binary::Binary;
use interpreter::Interpreter;
use mappings::Mapping;
use memory::Memory;

/// The most frames of a stack. Of deeper recursion, the outermost frames are left out.
const FRAMES_MAX: usize = 256;
/// The most different stacks of a recording. Calls from further stacks are recorded without a stack.
const STACKS_MAX: usize = 1 << 17;

/// A position on a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    /// A binary, by its index, and an address in its file.
    Code(usize, u64),
    /// Code that belongs to no file.
    Unknown,
    /// A frame of a script, by its number.
    Script(u32),
}

/// The stacks of all traced threads.
#[derive(Default)]
pub(super) struct Stacks {
    threads: HashMap<i32, Code>,
    binaries: Vec<Binary>,
    /// The indices of binaries by their identity in `/proc/PID/maps`.
    known: HashMap<Rc<str>, usize>,
    cache: CacheX86_64,
    /// The numbers of the frames of each place; several if functions were inlined.
    places: HashMap<Place, Vec<u32>>,
    /// The numbers of the frames of scripts.
    scripts: HashMap<Frame, u32>,
    frames: u32,
    stacks: HashMap<Vec<Place>, u32>,
}

/// The code that a thread can run.
#[derive(Default)]
struct Code {
    /// The sizes in `/proc/PID/statm` when the mappings were read. They change with each new mapping.
    sizes: String,
    mappings: Vec<(Mapping, usize, u64)>,
    unwinder: UnwinderX86_64<Arc<[u8]>>,
    /// The interpreter of scripts, and the index of its binary.
    interpreter: Option<(Interpreter, usize)>,
}

impl Stacks {
    /// Forgets a thread that has ended, or the code of its former program.
    pub(super) fn forget(&mut self, thread: i32) {
        self.threads.remove(&thread);
    }

    /// Returns the number of the stack of a thread that stopped at a call. `note` is called for each stack and frame
    /// that has not been described yet.
    pub(super) fn capture(&mut self, id: i32, note: &mut dyn FnMut(&Record)) -> Option<u32> {
        let registers = ptrace::registers(id).ok().filter(ptrace::Registers::is_64_bit)?;
        let sizes = sizes(id);
        let mut code = self.threads.remove(&id).unwrap_or_default();
        if code.sizes != sizes || sizes.is_empty() {
            code = self.code(id, sizes);
        }
        let mut memory = Memory::of(id);
        let mut places = self.unwind(&code, &registers, &mut memory);
        if let Some((interpreter, binary)) = code.interpreter
            && let Some(frames) = interpreter.frames(registers.fs_base(), &mut memory)
        {
            self.replace_interpreter(id, &mut places, binary, frames, note);
        }
        self.threads.insert(id, code);
        if let Some(known) = self.stacks.get(&places) {
            return Some(*known);
        }
        if self.stacks.len() >= STACKS_MAX {
            return None;
        }
        let number = u32::try_from(self.stacks.len()).ok()?;
        let frames: Vec<_> =
            places.iter().flat_map(|place| self.describe(id, *place, note)).collect();
        let frames: Vec<_> = frames.iter().take(FRAMES_MAX).map(u32::to_string).collect();
        let mut notice = Record::notice(Notice::Stack, id, ticks(), [number, 0]);
        notice.names[0] = frames.join(",").into_bytes();
        note(&notice);
        self.stacks.insert(places, number);
        Some(number)
    }

    /// Reads which code a thread can run.
    fn code(&mut self, id: i32, sizes: String) -> Code {
        let mut code = Code { sizes, ..Code::default() };
        for mapping in mappings::of(id) {
            let index = self.binary(id, &mapping);
            let binary = &self.binaries[index];
            let Some(bias) = binary.bias(&mapping) else { continue };
            if let Some(interpreter) = binary.interpreter() {
                code.interpreter.get_or_insert((interpreter.moved(bias), index));
            }
            let range = mapping.start..mapping.end;
            let module = Module::new(String::new(), range, bias, binary.sections());
            code.unwinder.add_module(module);
            code.mappings.push((mapping, index, bias));
        }
        code
    }

    fn binary(&mut self, id: i32, mapping: &Mapping) -> usize {
        if let Some(index) = self.known.get(&mapping.file) {
            return *index;
        }
        self.binaries.push(Binary::open(id, mapping));
        self.known.insert(Rc::clone(&mapping.file), self.binaries.len() - 1);
        self.binaries.len() - 1
    }

    fn unwind(
        &mut self,
        code: &Code,
        registers: &ptrace::Registers,
        memory: &mut Memory,
    ) -> Vec<Place> {
        let (pc, sp) = (registers.instruction_pointer(), registers.stack_pointer());
        let registers = UnwindRegsX86_64::new(pc, sp, registers.frame_pointer());
        let mut read = |address| memory.word(address).ok_or(());
        let mut frames = code.unwinder.iter_frames(pc, registers, &mut self.cache, &mut read);
        let mut places = Vec::new();
        // An error means that the rest of the stack cannot be unwound.
        while let Ok(Some(frame)) = frames.next() {
            let place = code.place(frame);
            // Outside of all code, a further frame would be a guess.
            if places.len() == FRAMES_MAX
                || (place == Place::Unknown && places.last() == Some(&place))
            {
                break;
            }
            places.push(place);
        }
        if places.last() == Some(&Place::Unknown) && places.len() > 1 {
            places.pop();
        }
        places
    }

    /// Replaces the interpreter's frames by those of its script. Frames of functions that the interpreter has called,
    /// in the C library and in extensions, stay.
    fn replace_interpreter(
        &mut self,
        id: i32,
        places: &mut Vec<Place>,
        interpreter: usize,
        frames: Vec<Frame>,
        note: &mut dyn FnMut(&Record),
    ) {
        let is_interpreter =
            |place: &Place| matches!(place, Place::Code(at, _) if *at == interpreter);
        let Some(first) = places.iter().position(is_interpreter) else { return };
        places.truncate(first);
        for frame in frames {
            let number = match self.scripts.get(&frame) {
                Some(known) => *known,
                None => {
                    note(&record(id, self.frames, &frame));
                    self.frames += 1;
                    self.scripts.insert(frame, self.frames - 1);
                    self.frames - 1
                }
            };
            places.push(Place::Script(number));
        }
    }

    /// Returns the numbers of a place's frames, and describes frames that are new.
    fn describe(&mut self, id: i32, place: Place, note: &mut dyn FnMut(&Record)) -> Vec<u32> {
        if let Some(known) = self.places.get(&place) {
            return known.clone();
        }
        let frames = match place {
            Place::Code(index, address) => self.binaries[index].frames(address),
            Place::Script(number) => return vec![number],
            Place::Unknown => vec![Frame::default()],
        };
        let mut numbers = Vec::new();
        for frame in frames {
            note(&record(id, self.frames, &frame));
            numbers.push(self.frames);
            self.frames += 1;
        }
        self.places.insert(place, numbers.clone());
        numbers
    }
}

impl Code {
    /// Finds the place of a frame. A return address belongs to the call before it.
    fn place(&self, frame: FrameAddress) -> Place {
        let address = frame.address_for_lookup();
        let after = self.mappings.partition_point(|(mapping, ..)| mapping.start <= address);
        let before = after.checked_sub(1).and_then(|at| self.mappings.get(at));
        match before.filter(|(mapping, ..)| address < mapping.end) {
            Some((_, index, bias)) => Place::Code(*index, address.wrapping_sub(*bias)),
            None => Place::Unknown,
        }
    }
}

/// Returns the notice of a frame.
fn record(id: i32, number: u32, frame: &Frame) -> Record {
    let mut notice = Record::notice(Notice::Frame, id, ticks(), [number, frame.line]);
    let end = char::from(FIELD_END);
    notice.names = [
        format!("{}{end}{}", frame.function.replace(end, " "), frame.object).into_bytes(),
        frame.file.clone().into_bytes(),
    ];
    notice
}

/// Returns the sizes of a process's memory; empty if the process has ended.
fn sizes(id: i32) -> String {
    let text = std::fs::read_to_string(format!("/proc/{id}/statm")).unwrap_or_default();
    // The second and third number, of pages in use, change all the time.
    let kept = [0, 3, 5].map(|at| text.split(' ').nth(at).unwrap_or_default());
    if text.is_empty() { text } else { kept.join(" ") }
}
