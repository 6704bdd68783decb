//! Call sites: positions at which a program makes system calls, and their redirection to the stub.
//!
//! A jump replaces the instructions before `syscall`, which take at least five bytes, and a trampoline
//! executes those instructions instead. They must therefore be independent of their address. The `syscall`
//! instruction itself stays, so that a jump to it, or a thread inside it, still works. Calls that are not
//! recorded return to it.

use thruway_sys::stub::layout;

/// The length of the jump, in bytes.
pub(super) const PATCH_BYTES: usize = 5;
/// The most bytes that may be displaced: an instruction of four bytes, and a long one before it.
pub(super) const DISPLACED_MAX: usize = 16;
/// The `syscall` instruction.
pub(super) const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// The bytes read to recognize a site: one byte before, the instruction, and `syscall`.
pub(super) const SITE_BYTES: usize = 1 + PATCH_BYTES + SYSCALL.len();

/// A site that can be patched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Site {
    /// The address after `syscall`.
    pub(super) back: u64,
    /// The instructions before `syscall`, and their length.
    displaced: [u8; DISPLACED_MAX],
    length: usize,
}

impl Site {
    /// Creates the site with these instructions before the `syscall` that ends at `back`.
    pub(super) fn new(displaced: &[u8], back: u64) -> Option<Self> {
        let mut bytes = [0; DISPLACED_MAX];
        bytes.get_mut(..displaced.len())?.copy_from_slice(displaced);
        (displaced.len() >= PATCH_BYTES).then_some(Self {
            back,
            displaced: bytes,
            length: displaced.len(),
        })
    }

    /// Recognizes a site by the one instruction before the `syscall` at `at`. `number` is that of a call made
    /// here, if any.
    pub(super) fn simple(code: &[u8], at: usize, number: Option<u32>) -> Option<Self> {
        let (before, displaced) = code.get(at.checked_sub(1 + PATCH_BYTES)?..at)?.split_first()?;
        let is_move = matches!(displaced, [0xb8..=0xbf, ..]) && !is_prefix(*before);
        let is_load = matches!(
            displaced,
            // mov rax, [rsp + n] and mov r9, [rsp + n]; mov [rsp + 8], r11 in glibc's cancellable calls.
            [0x48, 0x8b, 0x44, 0x24, _]
                | [0x4c, 0x8b, 0x4c, 0x24, _]
                | [0x4c, 0x89, 0x5c, 0x24, 0x08]
        );
        let site = Self::new(displaced, (at + SYSCALL.len()) as u64)?;
        let is_other_number =
            site.number().is_some_and(|fixed| number.is_some_and(|made| made != fixed));
        let is_whole = code.get(at..at + SYSCALL.len())? == SYSCALL;
        // At a site that has not run, a move to another register than the number's proves nothing.
        let is_certain = number.is_some() || is_load || site.number().is_some();
        (is_whole && is_certain && (is_move && !is_other_number || is_load)).then_some(site)
    }

    /// The instructions that make room for the jump.
    pub(super) fn displaced(&self) -> &[u8] {
        &self.displaced[..self.length]
    }

    /// The number of every call made here, if it is constant.
    pub(super) fn number(&self) -> Option<u32> {
        match self.displaced() {
            [0xb8, number @ ..] => number.try_into().ok().map(u32::from_le_bytes),
            _ => None,
        }
    }

    /// Whether an instruction may begin inside the jump, in which case no signal handler may return there.
    pub(super) fn is_of_several(&self) -> bool {
        self.length != PATCH_BYTES
    }

    /// Returns the site in a mapping that is `distance` bytes further on.
    pub(super) fn moved(&self, distance: u64) -> Self {
        Self { back: self.back.wrapping_add(distance), ..*self }
    }

    /// Returns the original bytes of the site, from [`Self::start`] on.
    pub(super) fn bytes(&self) -> Vec<u8> {
        [self.displaced(), &SYSCALL].concat()
    }

    /// The address of the jump.
    pub(super) fn start(&self) -> u64 {
        self.back - (self.length + SYSCALL.len()) as u64
    }

    /// Returns the jump to a trampoline; `None` if the trampoline is out of reach.
    pub(super) fn jump(&self, trampoline: u64) -> Option<[u8; PATCH_BYTES]> {
        let [a, b, c, d] = displacement(self.start() + PATCH_BYTES as u64, trampoline)?;
        Some([0xe9, a, b, c, d])
    }

    /// Returns the trampoline at `address` that leads to the stub at `stub`, next to the rings' private part
    /// at `part`.
    pub(super) fn trampoline(&self, address: u64, part: u64, stub: u64) -> Option<Vec<u8>> {
        let mut code = CodeBuilder { address, bytes: self.displaced().to_vec() };
        if self.number().is_none() {
            code.push(&[0x48, 0x3d, 0x00, 0x02, 0x00, 0x00]); // cmp rax, SHAPES_MAX
            code.push(&[0x73, 14]); // jae: to the end of this test
            code.relative(&[0x4c, 0x8d, 0x1d], part + layout::SHAPES as u64)?; // lea r11, [shapes]
            code.push(&[0x41, 0xf6, 0x04, 0x03, 0x80]); // test byte ptr [r11 + rax], 0x80
            code.push(&[0x75, 5]); // jnz: over the next jump
            code.relative(&[0xe9], self.back - SYSCALL.len() as u64)?;
        }
        code.relative(&[0x48, 0x8d, 0x0d], self.back)?; // lea rcx, [back]
        if part == stub {
            code.relative(&[0xe9], stub)?;
        } else {
            code.push(&[0xff, 0x25, 0, 0, 0, 0]); // jmp [rip]
            code.push(&stub.to_le_bytes());
        }
        Some(code.bytes)
    }
}

/// Whether a byte before `mov register, number` could belong to the same instruction.
fn is_prefix(byte: u8) -> bool {
    matches!(byte, 0x40..=0x4f | 0x66)
}

/// A buffer of machine code.
struct CodeBuilder {
    address: u64,
    bytes: Vec<u8>,
}

impl CodeBuilder {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends an instruction that ends in the distance to `target`.
    fn relative(&mut self, instruction: &[u8], target: u64) -> Option<()> {
        self.push(instruction);
        let end = self.address + self.bytes.len() as u64 + 4;
        self.push(&displacement(end, target)?);
        Some(())
    }
}

fn displacement(from: u64, to: u64) -> Option<[u8; 4]> {
    let distance = to.wrapping_sub(from).cast_signed();
    i32::try_from(distance).ok().map(i32::to_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOVE: [u8; SITE_BYTES] = [0x90, 0xb8, 0x01, 0x01, 0x00, 0x00, 0x0f, 0x05];
    const LOAD: [u8; SITE_BYTES] = [0x90, 0x48, 0x8b, 0x44, 0x24, 0x10, 0x0f, 0x05];

    fn simple(bytes: [u8; SITE_BYTES], number: u32) -> Option<Site> {
        Site::simple(&bytes, 1 + PATCH_BYTES, Some(number)).map(|site| site.moved(0x1000))
    }

    #[test]
    fn a_site_that_sets_its_number_is_recognised() {
        let site = simple(MOVE, 257).unwrap();
        assert_eq!(site.number(), Some(257));
        assert_eq!((site.start(), site.back), (0x1001, 0x1008));
        assert_eq!(simple(MOVE, 2), None);
    }

    #[test]
    fn an_instruction_that_may_begin_earlier_is_left_alone() {
        for (place, byte) in [(0, 0x41), (1, 0x89), (7, 0x34)] {
            let mut bytes = MOVE;
            bytes[place] = byte;
            assert_eq!(simple(bytes, 257), None);
        }
    }

    #[test]
    fn jumps_lead_there_and_back() {
        let site = simple(MOVE, 257).unwrap();
        // From 0x1006, the end of the jump, to 0x2000.
        assert_eq!(site.jump(0x2000), Some([0xe9, 0xfa, 0x0f, 0x00, 0x00]));
        assert_eq!(site.jump(0x1_0000_0000_0000), None);
        let code = site.trampoline(0x2000, 0x1_0000, 0x1_0000).unwrap();
        assert_eq!(code[..5], MOVE[1..6]);
        assert_eq!(code[5..12], [0x48, 0x8d, 0x0d, 0xfc, 0xef, 0xff, 0xff]);
        assert_eq!(code[12..], [0xe9, 0xef, 0xdf, 0x00, 0x00]);
        let far = site.trampoline(0x2000, 0x1_0000, 0x7000_0000_0000).unwrap();
        assert_eq!(far[..12], code[..12]);
        assert_eq!(far[12..], [0xff, 0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x70, 0, 0]);
    }

    #[test]
    fn every_trampoline_fits_its_room() {
        let site = simple(LOAD, 257).unwrap();
        assert_eq!(site.number(), None);
        let code = site.trampoline(0x2000, 0x1_0000, 0x1_0000).unwrap();
        // The test's own jumps: past its end, and over the jump back.
        let test_end = 5 + 6 + 2 + 14;
        assert_eq!(code[test_end], 0xe9);
        assert_eq!(code[test_end + 5..test_end + 8], [0x48, 0x8d, 0x0d]);
        let longest = Site::new(&[0x90; DISPLACED_MAX], 0x1008).unwrap();
        let code = longest.trampoline(0x2000, 0x1_0000, 0x7000_0000_0000).unwrap();
        assert!(code.len() <= layout::TRAMPOLINE_BYTES, "{}", code.len());
    }
}
