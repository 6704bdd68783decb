//! Lengths of x86-64 instructions, and whether an instruction can be moved.
//!
//! The results are used only where many readings of the same bytes agree, so rare instructions may be
//! unknown.

/// The properties of an instruction that matter for patching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) length: usize,
    /// Whether the instruction has the same effect at another address and continues with the next one.
    pub(super) is_movable: bool,
    /// Whether execution always continues with the next instruction.
    pub(super) falls_through: bool,
}

/// The bytes that follow an opcode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operands {
    None,
    /// A constant of this many bytes.
    Constant(usize),
    /// A register or memory operand, and a constant of this many bytes.
    ModRm(usize),
    /// Like `ModRm`, with the constant in only the first two of eight variants.
    ModRmTest(usize),
    /// A jump distance of this many bytes.
    Jump(usize),
    /// A register or memory operand which is, in some of the eight variants, a jump target.
    ModRmJump,
    /// Execution continues elsewhere or stops; a constant of this many bytes comes first.
    End(usize),
    Unknown,
}

/// The prefixes that change lengths.
#[derive(Debug, Default, Clone, Copy)]
struct Prefixes {
    operands_16: bool,
    addresses_32: bool,
    wide: bool,
}

impl Instruction {
    /// Decodes the instruction at the start of `code`; `None` if it is unknown.
    pub(super) fn read(code: &[u8]) -> Option<Self> {
        let mut prefixes = Prefixes::default();
        let mut at = 0;
        loop {
            match code.get(at)? {
                0x66 => prefixes.operands_16 = true,
                0x67 => prefixes.addresses_32 = true,
                0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0xf0 | 0xf2 | 0xf3 => {}
                _ => break,
            }
            at += 1;
        }
        let mut opcode = *code.get(at)?;
        if opcode & 0xf0 == 0x40 {
            prefixes.wide = opcode & 8 != 0;
            at += 1;
            opcode = *code.get(at)?;
        }
        at += 1;
        let operands = match opcode {
            0x0f => {
                let second = *code.get(at)?;
                at += 1;
                match second {
                    0x38 | 0x3a => {
                        at += 1;
                        Operands::ModRm(usize::from(second == 0x3a))
                    }
                    _ => two_bytes(second),
                }
            }
            0xc4 | 0xc5 | 0x62 => {
                let (payload, map) = match opcode {
                    0xc4 => (2, *code.get(at)? & 0x1f),
                    0xc5 => (1, 1),
                    _ => (3, *code.get(at)? & 7),
                };
                at += payload + 1;
                vector(map, *code.get(at - 1)?)
            }
            _ => one_byte(opcode, prefixes),
        };
        Self::with_operands(code, at, operands, prefixes)
    }

    fn with_operands(
        code: &[u8],
        at: usize,
        operands: Operands,
        prefixes: Prefixes,
    ) -> Option<Self> {
        let rest = code.get(at..)?;
        let (length, is_movable, falls_through) = match operands {
            Operands::None => (0, true, true),
            Operands::Constant(bytes) => (bytes, true, true),
            Operands::ModRm(bytes) => {
                let (length, is_movable) = mod_rm(rest, prefixes)?;
                (length + bytes, is_movable, true)
            }
            Operands::ModRmTest(bytes) => {
                let (length, is_movable) = mod_rm(rest, prefixes)?;
                let has_constant = rest.first()? & 0x30 == 0;
                (length + if has_constant { bytes } else { 0 }, is_movable, true)
            }
            Operands::ModRmJump => {
                let (length, is_movable) = mod_rm(rest, prefixes)?;
                let goes_on = matches!(rest.first()? >> 3 & 7, 0 | 1 | 6);
                (length, is_movable && goes_on, goes_on)
            }
            Operands::Jump(bytes) | Operands::End(bytes) => (bytes, false, false),
            Operands::Unknown => return None,
        };
        const LONGEST: usize = 15;
        let length = at + length;
        (length <= LONGEST && length <= code.len()).then_some(Self {
            length,
            is_movable,
            falls_through,
        })
    }
}

/// Returns the length of a register or memory operand, and whether it is independent of the instruction's
/// address.
fn mod_rm(code: &[u8], prefixes: Prefixes) -> Option<(usize, bool)> {
    let byte = *code.first()?;
    let (mode, register) = (byte >> 6, byte & 7);
    if mode == 3 {
        return Some((1, true));
    }
    if prefixes.addresses_32 {
        // Compilers do not emit 32-bit addresses.
        return None;
    }
    let (base, index_bytes) = if register == 4 { (*code.get(1)? & 7, 1) } else { (register, 0) };
    let is_relative = mode == 0 && register == 5;
    let displacement = match mode {
        0 if base == 5 => 4,
        0 => 0,
        1 => 1,
        _ => 4,
    };
    Some((1 + index_bytes + displacement, !is_relative))
}

fn one_byte(opcode: u8, prefixes: Prefixes) -> Operands {
    use Operands::{Constant, End, Jump, ModRm, ModRmJump, ModRmTest, None, Unknown};
    let full = if prefixes.operands_16 { 2 } else { 4 };
    match opcode {
        0x06 | 0x07 | 0x0e | 0x16 | 0x17 | 0x1e | 0x1f | 0x27 | 0x2f | 0x37 | 0x3f => Unknown,
        0x00..=0x3f => match opcode & 7 {
            4 => Constant(1),
            5 => Constant(full),
            _ => ModRm(0),
        },
        0x50..=0x5f | 0x90..=0x99 | 0x9b..=0x9f | 0xa4..=0xa7 | 0xaa..=0xaf => None,
        0x63 | 0x84..=0x8e | 0xd0..=0xd3 | 0xd8..=0xdf | 0xfe => ModRm(0),
        0x8f => ModRm(0),
        0x68 | 0xa9 => Constant(full),
        0x69 | 0x81 | 0xc7 => ModRm(full),
        0x6a | 0xa8 | 0xb0..=0xb7 => Constant(1),
        0x6b | 0x80 | 0x83 | 0xc0 | 0xc1 | 0xc6 => ModRm(1),
        0x70..=0x7f | 0xeb | 0xe0..=0xe3 => Jump(1),
        0xe8 | 0xe9 => Jump(4),
        0xa0..=0xa3 => Constant(if prefixes.addresses_32 { 4 } else { 8 }),
        0xb8..=0xbf => Constant(if prefixes.wide { 8 } else { full }),
        0xc8 => Constant(3),
        0xc9 | 0xd7 | 0xf5 | 0xf8..=0xfd => None,
        0xc2 => End(2),
        0xc3 | 0xcc | 0xf4 => End(0),
        0xcd => End(1),
        0xf6 => ModRmTest(1),
        0xf7 => ModRmTest(full),
        0xff => ModRmJump,
        _ => Unknown,
    }
}

fn two_bytes(opcode: u8) -> Operands {
    use Operands::{End, Jump, ModRm, None, Unknown};
    match opcode {
        0x05 | 0x0b | 0x34 | 0x35 | 0x07 => End(0),
        0x06 | 0x08 | 0x09 | 0x30..=0x33 | 0x77 | 0xa0..=0xa2 | 0xa8..=0xaa | 0xc8..=0xcf => None,
        0x80..=0x8f => Jump(4),
        0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6 => ModRm(1),
        0x04
        | 0x0a
        | 0x0c
        | 0x0e
        | 0x0f
        | 0x24..=0x27
        | 0x36..=0x3f
        | 0x7a
        | 0x7b
        | 0xa6
        | 0xa7 => Unknown,
        _ => ModRm(0),
    }
}

/// Returns the operands of instructions with a VEX or EVEX prefix, by opcode map.
fn vector(map: u8, opcode: u8) -> Operands {
    match (map, opcode) {
        (1, 0x77) => Operands::None,
        (1, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6) | (3, _) => Operands::ModRm(1),
        (1 | 2 | 5 | 6, _) => Operands::ModRm(0),
        _ => Operands::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length(code: &[u8]) -> Option<usize> {
        let mut room = code.to_vec();
        room.resize(16, 0x90);
        Instruction::read(&room).map(|instruction| instruction.length)
    }

    #[test]
    fn lengths_are_those_of_the_manual() {
        let instructions: &[&[u8]] = &[
            &[0x48, 0x89, 0xdf],                            // mov rdi, rbx
            &[0xb8, 1, 1, 0, 0],                            // mov eax, 257
            &[0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8],          // mov rax, ...
            &[0x66, 0xb8, 1, 2],                            // mov ax, 513
            &[0x4c, 0x8b, 0x4c, 0x24, 8],                   // mov r9, [rsp + 8]
            &[0xc7, 0x44, 0x24, 8, 1, 0, 0, 0],             // mov dword ptr [rsp + 8], 1
            &[0x48, 0xc7, 0xc0, 0xff, 0xff, 0xff, 0xff],    // mov rax, -1
            &[0x48, 0x8d, 0x3d, 0x44, 0x46, 0, 0],          // lea rdi, [rip + 0x4644]
            &[0x48, 0x89, 0x04, 0x25, 0x10, 0, 0, 0],       // mov [0x10], rax
            &[0x42, 0x8b, 0x84, 0xa8, 0, 1, 0, 0],          // mov eax, [rax + r13 * 4 + 256]
            &[0xf7, 0xc7, 1, 0, 0, 0],                      // test edi, 1
            &[0xf7, 0xdf],                                  // neg edi
            &[0xf6, 0x43, 4, 1],                            // test byte ptr [rbx + 4], 1
            &[0x0f, 0x1f, 0x80, 0, 0, 0, 0],                // nop dword ptr [rax + 0]
            &[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], // the same, longer
            &[0x0f, 0x84, 1, 2, 3, 4],                      // je
            &[0x0f, 0xba, 0xe0, 3],                         // bt eax, 3
            &[0xc5, 0xf8, 0x77],                            // vzeroupper
            &[0xc5, 0xfd, 0x6f, 0x06],                      // vmovdqa ymm0, [rsi]
            &[0xc4, 0xe3, 0x7d, 0x39, 0xc1, 1],             // vextracti128 xmm1, ymm0, 1
            &[0x62, 0xf1, 0xfe, 0x48, 0x6f, 0x46, 1],       // vmovdqu64 zmm0, [rsi + 64]
            &[0x66, 0x0f, 0x3a, 0x0f, 0xc1, 8],             // palignr xmm0, xmm1, 8
            &[0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0], // mov rax, fs:[0x28]
            &[0xff, 0x25, 1, 2, 3, 4],                      // jmp [rip + ...]
        ];
        for code in instructions {
            assert_eq!(length(code), Some(code.len()), "{code:x?}");
        }
        assert_eq!(length(&[0x06]), None);
        assert_eq!(Instruction::read(&[0xb8, 1, 2]), None);
    }

    #[test]
    fn instructions_that_depend_on_their_address_are_not_movable() {
        let is_movable = |code: &[u8]| Instruction::read(code).unwrap().is_movable;
        assert!(is_movable(&[0x48, 0x89, 0xdf]) && is_movable(&[0x8b, 0x7c, 0x24, 8]));
        for fixed in [
            &[0x48, 0x8d, 0x3d, 0, 0, 0, 0][..], // lea rdi, [rip]
            &[0xe8, 0, 0, 0, 0],                 // call
            &[0x74, 0],                          // je
            &[0xff, 0xe0],                       // jmp rax
            &[0xc3],
            &[0x0f, 0x05],
        ] {
            assert!(!is_movable(fixed), "{fixed:x?}");
        }
    }
}
