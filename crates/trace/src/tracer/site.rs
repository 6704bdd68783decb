//! Call sites: where a program makes system calls, and how one is led to the stub.
//!
//! A site is patched only if the instruction before `syscall` is five bytes long and means the same
//! anywhere: a jump takes its place, and a trampoline makes up for it. The instruction `syscall`
//! stays, so a jump to it, or a thread that is in it, finds what it expects; calls that are not
//! recorded go back to it.

use thruway_sys::stub::layout;

/// Bytes of the instruction that is replaced, and of the jump in its place.
pub(super) const PATCH_BYTES: usize = 5;
/// Bytes of `syscall`.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// What is read to recognise a site: the byte before, the instruction, and `syscall`.
pub(super) const SITE_BYTES: usize = 1 + PATCH_BYTES + SYSCALL.len();

/// A site that can be patched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Site {
    /// The address after `syscall`.
    pub(super) back: u64,
    /// The instruction before it.
    pub(super) displaced: [u8; PATCH_BYTES],
    /// Whether every call from here has the same number.
    pub(super) is_fixed: bool,
}

impl Site {
    /// Recognises a site by the bytes that end at `back`, for a call of this number.
    pub(super) fn recognise(bytes: [u8; SITE_BYTES], back: u64, number: u32) -> Option<Self> {
        let [before, displaced @ .., first, second] = bytes;
        let [first_byte, immediate @ ..] = displaced;
        if [first, second] != SYSCALL {
            return None;
        }
        let is_move = matches!(displaced, [0xb8..=0xbf, ..]) && !is_prefix(before);
        let is_load = matches!(
            displaced,
            // mov rax, [rsp + n] and mov r9, [rsp + n]; mov [rsp + 8], r11 as glibc's cancellation has it.
            [0x48, 0x8b, 0x44, 0x24, _]
                | [0x4c, 0x8b, 0x4c, 0x24, _]
                | [0x4c, 0x89, 0x5c, 0x24, 0x08]
        );
        let is_fixed = first_byte == 0xb8;
        let is_other_number = is_fixed && u32::from_le_bytes(immediate) != number;
        ((is_move && !is_other_number) || is_load).then_some(Self { back, displaced, is_fixed })
    }

    /// The sites in a piece of code at `address` that make calls of these shapes, found without
    /// having seen them run: only where the bytes leave no doubt.
    pub(super) fn search<'a>(
        code: &'a [u8],
        address: u64,
        shapes: &'a [u8; layout::SHAPES_MAX],
    ) -> impl Iterator<Item = Self> + 'a {
        code.windows(SITE_BYTES).enumerate().filter_map(move |(at, window)| {
            let bytes: [u8; SITE_BYTES] = window.try_into().ok()?;
            let [_, _, immediate @ .., first, second] = bytes;
            if [first, second] != SYSCALL {
                return None;
            }
            let number = u32::from_le_bytes(immediate);
            let site = Self::recognise(bytes, address + (at + SITE_BYTES) as u64, number)?;
            let is_noted = shapes.get(number as usize).is_some_and(|shape| *shape != 0);
            let is_load = matches!(site.displaced, [0x48 | 0x4c, ..]);
            (is_load || site.is_fixed && is_noted).then_some(site)
        })
    }

    /// The same in a file that is mapped `distance` further on.
    pub(super) fn moved(&self, distance: u64) -> Self {
        Self { back: self.back + distance, ..*self }
    }

    /// Whether these bytes, which end at `back`, are the site as it was found.
    pub(super) fn is(&self, bytes: [u8; SITE_BYTES]) -> bool {
        let [_, displaced @ .., first, second] = bytes;
        displaced == self.displaced && [first, second] == SYSCALL
    }

    /// Where the jump goes.
    pub(super) fn start(&self) -> u64 {
        self.back - (PATCH_BYTES + SYSCALL.len()) as u64
    }

    /// The jump to a trampoline; `None` if that is too far away.
    pub(super) fn jump(&self, trampoline: u64) -> Option<[u8; PATCH_BYTES]> {
        let [a, b, c, d] = displacement(self.start() + PATCH_BYTES as u64, trampoline)?;
        Some([0xe9, a, b, c, d])
    }

    /// The trampoline at `address` to the stub of the area at `base`.
    pub(super) fn trampoline(&self, address: u64, base: u64) -> Option<Vec<u8>> {
        let mut code = Code { address, bytes: self.displaced.to_vec() };
        let mut not_recorded = None;
        if !self.is_fixed {
            code.push(&[0x48, 0x3d, 0x00, 0x02, 0x00, 0x00]); // cmp rax, SHAPES_MAX
            code.push(&[0x73, 14]); // jae: to the end of this test
            code.relative(&[0x4c, 0x8d, 0x1d], base + layout::SHAPES as u64)?; // lea r11, [shapes]
            code.push(&[0x41, 0xf6, 0x04, 0x03, 0x80]); // test byte ptr [r11 + rax], 0x80
            code.push(&[0x75, 5]); // jnz: over the next jump
            not_recorded = Some(self.back - SYSCALL.len() as u64);
        }
        if let Some(syscall) = not_recorded {
            code.relative(&[0xe9], syscall)?;
        }
        code.relative(&[0x48, 0x8d, 0x0d], self.back)?; // lea rcx, [back]
        code.relative(&[0xe9], base + layout::CODE as u64)?;
        Some(code.bytes)
    }
}

/// Whether a byte before `mov register, number` could be part of the same instruction.
fn is_prefix(byte: u8) -> bool {
    matches!(byte, 0x40..=0x4f | 0x66)
}

/// Machine code that is being written.
struct Code {
    address: u64,
    bytes: Vec<u8>,
}

impl Code {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// An instruction that ends in the distance to `target`.
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

    #[test]
    fn a_site_that_sets_its_number_is_recognised() {
        let site = Site::recognise(MOVE, 0x1000, 257).unwrap();
        assert!(site.is_fixed);
        assert_eq!(site.start(), 0x1000 - 7);
        assert_eq!(Site::recognise(MOVE, 0x1000, 2), None);
    }

    #[test]
    fn an_instruction_that_may_begin_earlier_is_left_alone() {
        let mut bytes = MOVE;
        bytes[0] = 0x41;
        assert_eq!(Site::recognise(bytes, 0x1000, 257), None);
        bytes = MOVE;
        bytes[1] = 0x89;
        assert_eq!(Site::recognise(bytes, 0x1000, 257), None);
        bytes = MOVE;
        bytes[7] = 0x34;
        assert_eq!(Site::recognise(bytes, 0x1000, 257), None);
    }

    #[test]
    fn jumps_lead_there_and_back() {
        let site = Site::recognise(MOVE, 0x1007, 257).unwrap();
        // From 0x1005, the end of the jump, to 0x2000.
        assert_eq!(site.jump(0x2000), Some([0xe9, 0xfb, 0x0f, 0x00, 0x00]));
        assert_eq!(site.jump(0x1_0000_0000_0000), None);
        let code = site.trampoline(0x2000, 0x1_0000).unwrap();
        assert_eq!(code[..5], MOVE[1..6]);
        assert_eq!(code[5..12], [0x48, 0x8d, 0x0d, 0xfb, 0xef, 0xff, 0xff]);
        assert_eq!(code[12..], [0xe9, 0xef, 0xdf, 0x00, 0x00]);
    }

    #[test]
    fn sites_are_found_in_code() {
        let mut shapes = [0; layout::SHAPES_MAX];
        shapes[257] = 0x80;
        let mut code = vec![0x90; 100];
        code[10..18].copy_from_slice(&MOVE);
        // mov eax, 3 (close) is not noted; mov edi, 257 may be anything.
        code[30..38].copy_from_slice(&[0x90, 0xb8, 3, 0, 0, 0, 0x0f, 0x05]);
        code[50..58].copy_from_slice(&[0x90, 0xbf, 1, 1, 0, 0, 0x0f, 0x05]);
        code[70..78].copy_from_slice(&[0x90, 0x48, 0x8b, 0x44, 0x24, 0x10, 0x0f, 0x05]);
        let found: Vec<_> = Site::search(&code, 0x1000, &shapes).map(|site| site.back).collect();
        assert_eq!(found, [0x1000 + 18, 0x1000 + 78]);
    }

    #[test]
    fn every_trampoline_fits_its_room() {
        let load = [0x90, 0x48, 0x8b, 0x44, 0x24, 0x10, 0x0f, 0x05];
        let site = Site::recognise(load, 0x1007, 257).unwrap();
        assert!(!site.is_fixed);
        let code = site.trampoline(0x2000, 0x1_0000).unwrap();
        assert!(code.len() <= layout::TRAMPOLINE_BYTES, "{}", code.len());
        // The test's own jumps: past its end, and over the jump back.
        let test_end = 5 + 6 + 2 + 14;
        assert_eq!(code[test_end], 0xe9);
        assert_eq!(code[test_end + 5..test_end + 8], [0x48, 0x8d, 0x0d]);
    }
}
