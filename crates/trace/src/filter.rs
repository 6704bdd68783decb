//! The seccomp program that selects the system calls at which a traced program stops.

use thruway_sys::seccomp::{ALLOW, Instruction, TRACE, field};

use crate::call::{Abi, Numbers, X32_BIT};

const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const AND: u16 = 0x54;
const RETURN: u16 = 0x06;

/// Builds the seccomp program for this machine. A recorded call stops unless its sixth argument is `cookie`,
/// which marks calls that the stub records. Calls of the machine's other ABIs always stop.
pub(crate) fn program(cookie: u64) -> Vec<Instruction> {
    let mut program = Assembler::default();
    let [native, compatible, allow, trace, cookie_check, command_check] = program.labels();
    program.load(field::ARCHITECTURE);
    let other = program.label();
    program.branch(JUMP_IF_EQUAL, Abi::Native.architecture(), native, other);
    program.put(other);
    program.branch(JUMP_IF_EQUAL, Abi::Compatible.architecture(), compatible, allow);

    program.put(native);
    program.load(field::NUMBER);
    program.push(AND, !X32_BIT);
    let mut calls: Vec<_> = [Abi::Native, Abi::X32].into_iter().flat_map(numbers).collect();
    calls.sort_unstable();
    calls.dedup();
    program.decide(
        &calls,
        allow,
        |is_conditional| {
            if is_conditional { command_check } else { cookie_check }
        },
    );

    program.put(compatible);
    program.load(field::NUMBER);
    program.decide(&numbers(Abi::Compatible), allow, |is_conditional| {
        if is_conditional { command_check } else { trace }
    });

    // Of fcntl, only the commands that duplicate a descriptor are recorded.
    const DUPLICATE: u32 = 0;
    const DUPLICATE_CLOEXEC: u32 = 1030;
    program.put(command_check);
    program.load(field::argument(1));
    let second = program.label();
    program.branch(JUMP_IF_EQUAL, DUPLICATE, cookie_check, second);
    program.put(second);
    program.branch(JUMP_IF_EQUAL, DUPLICATE_CLOEXEC, cookie_check, allow);

    let [low, high] = [cookie & 0xffff_ffff, cookie >> 32].map(|half| half as u32);
    let upper = program.label();
    program.put(cookie_check);
    program.load(field::argument(5));
    program.branch(JUMP_IF_EQUAL, low, upper, trace);
    program.put(upper);
    program.load(field::argument(5) + 4);
    program.branch(JUMP_IF_EQUAL, high, allow, trace);

    program.put(allow);
    program.push(RETURN, ALLOW);
    program.put(trace);
    program.push(RETURN, TRACE);
    program.finish()
}

/// Returns the numbers of all recorded calls, and whether only some commands of the call are recorded.
fn numbers(abi: Abi) -> Vec<(u32, bool)> {
    let calls = Numbers::new(abi);
    calls.iter().map(|(number, call)| (number, !call.is_always_recorded())).collect()
}

/// A position in the program that may not be known yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Label(usize);

/// An instruction's code and constant, and its targets if the comparison holds or fails.
type SymbolicInstruction = (u16, u32, Option<(Label, Label)>);

/// Assembles a program with forward jumps to labels that are placed later.
#[derive(Debug, Default)]
struct Assembler {
    instructions: Vec<SymbolicInstruction>,
    /// The instruction index of each label.
    places: Vec<usize>,
}

impl Assembler {
    fn label(&mut self) -> Label {
        self.places.push(usize::MAX);
        Label(self.places.len() - 1)
    }

    fn labels<const COUNT: usize>(&mut self) -> [Label; COUNT] {
        std::array::from_fn(|_| self.label())
    }

    fn put(&mut self, label: Label) {
        self.places[label.0] = self.instructions.len();
    }

    fn push(&mut self, code: u16, value: u32) {
        self.instructions.push((code, value, None));
    }

    fn load(&mut self, field: u32) {
        self.push(LOAD, field);
    }

    fn branch(&mut self, code: u16, value: u32, then: Label, otherwise: Label) {
        self.instructions.push((code, value, Some((then, otherwise))));
    }

    /// Branches by the loaded number, as a binary search over the numbers at which the target changes.
    fn decide(&mut self, members: &[(u32, bool)], outside: Label, inside: impl Fn(bool) -> Label) {
        let mut steps = vec![(0, outside)];
        for (number, is_conditional) in members {
            steps.retain(|(start, _)| start != number);
            steps.extend([(*number, inside(*is_conditional)), (number + 1, outside)]);
        }
        steps.dedup_by_key(|(_, label)| *label);
        let root = self.label();
        let mut trees = vec![(root, steps.as_slice())];
        while let Some((label, steps)) = trees.pop() {
            let (before, after) = steps.split_at(steps.len() / 2);
            self.put(label);
            let [left, right] = [before, after].map(|half| match half {
                [(_, only)] => *only,
                half => {
                    let label = self.label();
                    trees.push((label, half));
                    label
                }
            });
            self.branch(JUMP_IF_AT_LEAST, after[0].0, right, left);
        }
    }

    fn finish(self) -> Vec<Instruction> {
        let distance = |from: usize, to: Label| {
            // The program has a few hundred instructions; the tests cover every path, so a distance never
            // exceeds `u8`.
            u8::try_from(self.places[to.0] - from - 1).unwrap_or(u8::MAX)
        };
        let instruction = |(at, (code, value, targets)): (usize, &SymbolicInstruction)| {
            let jumps =
                targets.map(|(then, otherwise)| (distance(at, then), distance(at, otherwise)));
            let (jump_true, jump_false) = jumps.unwrap_or_default();
            Instruction { code: *code, jump_true, jump_false, value: *value }
        };
        self.instructions.iter().enumerate().map(instruction).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COOKIE: u64 = 0x1234_5678_9abc_def0;

    /// Runs the program as the kernel would.
    fn answer(program: &[Instruction], abi: Abi, number: u32, arguments: [u64; 6]) -> u32 {
        let word = |at: u32| match at {
            field::NUMBER => number,
            field::ARCHITECTURE => abi.architecture(),
            at => {
                let value = arguments[((at - 16) / 8) as usize];
                (if at % 8 == 0 { value & 0xffff_ffff } else { value >> 32 }) as u32
            }
        };
        let (mut at, mut loaded) = (0, 0);
        loop {
            let Instruction { code, jump_true, jump_false, value } = program[at];
            at += 1;
            let mut jump = |holds| at += usize::from(if holds { jump_true } else { jump_false });
            match code {
                LOAD => loaded = word(value),
                AND => loaded &= value,
                JUMP_IF_EQUAL => jump(loaded == value),
                JUMP_IF_AT_LEAST => jump(loaded >= value),
                RETURN => return value,
                _ => unreachable!("{code:#x}"),
            }
        }
    }

    #[test]
    fn every_recorded_call_stops_and_no_other() {
        let program = program(COOKIE);
        for abi in [Abi::Native, Abi::Compatible] {
            let calls = Numbers::new(abi);
            for number in 0..600 {
                let stops = match calls.call(number) {
                    Some(call) => !call.name.starts_with("fcntl"),
                    // Numbers of x32 that do not occur in the native ABI.
                    None => abi == Abi::Native && Numbers::new(Abi::X32).call(number).is_some(),
                };
                let expected = if stops { TRACE } else { ALLOW };
                let got = answer(&program, abi, number, [9; 6]);
                assert_eq!(got, expected, "{abi:?} {number}");
            }
        }
    }

    #[test]
    fn the_cookie_lets_a_call_pass_and_half_of_it_does_not() {
        let (program, open) = (program(COOKIE), 257);
        let with = |cookie| answer(&program, Abi::Native, open, [0, 0, 0, 0, 0, cookie]);
        if cfg!(target_arch = "x86_64") {
            assert_eq!(with(COOKIE), ALLOW);
            assert_eq!(with(COOKIE & 0xffff_ffff), TRACE);
            assert_eq!(with(COOKIE & !0xffff_ffff), TRACE);
            let compatible = answer(&program, Abi::Compatible, 5, [COOKIE; 6]);
            assert_eq!(compatible, TRACE);
        }
    }

    #[test]
    fn only_the_commands_of_fcntl_that_duplicate_stop() {
        let (program, fcntl) =
            (program(COOKIE), if cfg!(target_arch = "x86_64") { 72 } else { 25 });
        let with = |command| answer(&program, Abi::Native, fcntl, [3, command, 0, 0, 0, 0]);
        assert_eq!([0, 1030].map(with), [TRACE; 2]);
        assert_eq!([1, 2, 3, 4, 1031].map(with), [ALLOW; 5]);
    }

    #[test]
    fn calls_of_x32_stop() {
        if cfg!(target_arch = "x86_64") {
            let program = program(COOKIE);
            assert_eq!(answer(&program, Abi::X32, X32_BIT | 2, [0; 6]), TRACE);
            assert_eq!(answer(&program, Abi::X32, X32_BIT | 520, [0; 6]), TRACE);
            assert_eq!(answer(&program, Abi::X32, X32_BIT, [0; 6]), ALLOW);
        }
    }
}
