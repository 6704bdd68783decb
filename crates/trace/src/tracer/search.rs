//! Finds call sites in code: those that were seen to make calls, and those that have not run yet.
//!
//! The start of an instruction depends on the instructions before it. So the bytes are decoded from many
//! positions some way before a site, and the site counts only if nearly all of these readings agree on the
//! instructions. A site that has not run may not be code at all, so it needs further evidence that it makes
//! recorded calls.

use std::ops::Range;

use thruway_sys::stub::layout;

use super::instruction::Instruction;
use super::site::{DISPLACED_MAX, PATCH_BYTES, SYSCALL, Site};

/// A possible site.
struct Candidate {
    site: Site,
    /// Whether the site is certain even if it has not run.
    is_sure: bool,
    /// Whether the site is the one of [`GO_BEFORE`].
    is_of_go: bool,
    /// The starts of instructions inside the bytes that the jump would replace.
    inner: Vec<usize>,
}

/// The code before the call in Go's function for system calls, which makes nearly all calls of a Go program
/// since Go 1.19. The arguments are in Go's own registers, so the call number is unknown.
const GO_BEFORE: [u8; 12] =
    [0x49, 0x89, 0xf2, 0x48, 0x89, 0xfa, 0x48, 0x89, 0xce, 0x48, 0x89, 0xdf];
const GO_AFTER: [u8; 6] = [0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff];
/// The last two of its instructions make room for the jump.
const GO_DISPLACED: usize = 6;

/// The start of the function to which the entry of a program made by Go's linker jumps.
const GO_START: [u8; 10] = [0x48, 0x8b, 0x3c, 0x24, 0x48, 0x8d, 0x74, 0x24, 0x08, 0xe9];
/// Go's linker orders packages by their imports, so Go's function for calls is within the first bytes.
const GO_FIRST_BYTES: usize = 1 << 17;
/// The runtime's other functions that make calls are this close to the entry.
const GO_ENTRY_BYTES: usize = 1 << 14;

/// The number of readings, and the distance from the site at which the last one starts.
const READINGS: usize = 32;
const READ_AHEAD: usize = 24;

/// The most code of a file that is searched: 10 ms of work. Sites beyond stop at their first call, or at each
/// call in a program with threads.
const CODE_BYTES_MAX: usize = 32 << 20;
/// The amount of code searched at once, which fits into the processor's cache.
const PIECE: usize = 1 << 18;
/// The amount of code read around a piece: the instructions before a site, and the function around it.
const AROUND: usize = 1 << 10;
/// The distance up to which jumps into a site that has run are searched for.
const NEARBY: usize = 1 << 20;

/// A reader of code in pieces: `read` fills a buffer with the bytes at an offset, as far as possible.
pub(super) struct CodeReader<R> {
    pub(super) bytes: usize,
    pub(super) read: R,
}

impl<R: FnMut(usize, &mut [u8]) -> usize> CodeReader<R> {
    /// Returns the sites that make calls of the given shapes, whether they have run or not, relative to the
    /// start of the code. `entry` is the program's entry point, if it is in this code.
    pub(super) fn search(
        &mut self,
        entry: Option<usize>,
        shapes: &[u8; layout::SHAPES_MAX],
    ) -> Vec<Site> {
        if let Some([first, around_entry]) = self.go_sites(entry) {
            let mut found = self.candidates(first, shapes);
            found.extend(self.candidates(around_entry, shapes));
            // The rest of the code, which is not read, could jump into other sites.
            found.retain(|found| found.inner.is_empty());
            if found.iter().any(|found| found.is_of_go) {
                return found.into_iter().map(|found| found.site).collect();
            }
        }
        let range = 0..self.bytes.min(CODE_BYTES_MAX);
        let found = self.candidates(range.clone(), shapes);
        let inner = found.iter().flat_map(|found| &found.inner).copied().collect();
        let targets = self.jump_targets(range, inner);
        let is_whole = |found: &Candidate| !found.inner.iter().any(|at| targets.contains(at));
        found.into_iter().filter(is_whole).map(|found| found.site).collect()
    }

    /// Returns the ranges that contain all functions that make calls, if `entry` belongs to a program made by
    /// Go's linker.
    pub(super) fn go_sites(&mut self, entry: Option<usize>) -> Option<[Range<usize>; 2]> {
        let entry = entry.filter(|entry| *entry < self.bytes)?;
        let mut jump = [0; 5];
        let mut start = GO_START.map(|_| 0);
        let [0xe9, distance @ ..] = self.filled(entry, &mut jump)? else { return None };
        let distance = i32::from_le_bytes(*distance) as isize;
        let function = (entry + jump.len()).checked_add_signed(distance)?;
        let is_go = *self.filled(function, &mut start)? == GO_START;
        let within = |at: usize| at.min(self.bytes);
        let first = within(GO_FIRST_BYTES);
        let start = entry.saturating_sub(GO_ENTRY_BYTES).max(first);
        is_go.then_some([0..first, start..within(entry + GO_ENTRY_BYTES).max(start)])
    }

    /// Reads the bytes at an offset; `None` if they are incomplete.
    fn filled<'a, const COUNT: usize>(
        &mut self,
        at: usize,
        bytes: &'a mut [u8; COUNT],
    ) -> Option<&'a [u8; COUNT]> {
        ((self.read)(at, bytes) == COUNT).then_some(bytes)
    }

    /// Returns the certain sites in `range`, provided that nothing jumps into them.
    fn candidates(
        &mut self,
        range: Range<usize>,
        shapes: &[u8; layout::SHAPES_MAX],
    ) -> Vec<Candidate> {
        let mut found = Vec::new();
        self.pieces(range, |start, code, own| {
            let ours = calls(&code[own.start..code.len().min(own.end + 1)]);
            let candidates = ours.iter().filter_map(|at| candidate(code, own.start + at, shapes));
            found.extend(
                candidates.filter(|candidate| candidate.is_sure).map(|found| found.moved(start)),
            );
        });
        found
    }

    /// Returns the site that was seen to make a call with the `syscall` at `at`.
    pub(super) fn site_at(&mut self, at: usize, shapes: &[u8; layout::SHAPES_MAX]) -> Option<Site> {
        let start = at.saturating_sub(AROUND);
        let mut code = vec![0; self.bytes.min(at + AROUND).checked_sub(start)?];
        let count = (self.read)(start, &mut code);
        let found = candidate(code.get(..count)?, at - start, shapes)?.moved(start);
        let nearby = at.saturating_sub(NEARBY)..self.bytes.min(at + NEARBY);
        self.jump_targets(nearby, found.inner).is_empty().then_some(found.site)
    }

    /// Returns those of `places` to which bytes in `range` would jump if they were decoded as a jump.
    fn jump_targets(&mut self, range: Range<usize>, mut places: Vec<usize>) -> Vec<usize> {
        let mut targets = Vec::new();
        places.sort_unstable();
        if !places.is_empty() {
            self.pieces(range, |start, code, _| {
                targets.extend(jump_targets(code, start, &places));
            });
        }
        targets
    }

    /// Visits all code in `range`. Passes the offset of the bytes, the bytes, and the range among them that
    /// belongs to the piece itself.
    fn pieces(&mut self, range: Range<usize>, mut visit: impl FnMut(usize, &[u8], Range<usize>)) {
        let mut buffer = vec![0; (PIECE + 2 * AROUND).min(range.len())];
        for first in range.clone().step_by(PIECE) {
            let start = first.saturating_sub(AROUND).max(range.start);
            let end = range.end.min(first + PIECE + AROUND);
            let count = (self.read)(start, &mut buffer[..end - start]);
            let own = first - start..count.min(first - start + PIECE);
            if !own.is_empty() {
                visit(start, &buffer[..count], own);
            }
        }
    }
}

impl Candidate {
    /// Returns the candidate for code that begins `distance` earlier.
    fn moved(self, distance: usize) -> Self {
        let site = self.site.moved(distance as u64);
        let inner = self.inner.iter().map(|at| at + distance).collect();
        Self { site, inner, ..self }
    }
}

/// Returns the offsets of `syscall` instructions.
fn calls(code: &[u8]) -> Vec<usize> {
    // Most blocks contain none, which this form checks for a whole block with vector instructions.
    const BLOCK: usize = 64;
    let [first, second] = SYSCALL;
    let mut calls = Vec::new();
    for start in (0..code.len().saturating_sub(1)).step_by(BLOCK) {
        let end = (start + BLOCK).min(code.len() - 1);
        let pairs = code[start..end].iter().zip(&code[start + 1..=end]);
        let is_call = |(one, other): (&u8, &u8)| (*one == first) & (*other == second);
        if pairs.clone().fold(false, |any, pair| any | is_call(pair)) {
            calls.extend(
                pairs.enumerate().filter(|(_, pair)| is_call(*pair)).map(|(at, _)| start + at),
            );
        }
    }
    calls
}

fn candidate(code: &[u8], at: usize, shapes: &[u8; layout::SHAPES_MAX]) -> Option<Candidate> {
    let after = code.get(at + SYSCALL.len()..)?;
    let back = (at + SYSCALL.len()) as u64;
    if let Some(site) = Site::simple(code, at, None) {
        let is_sure = site.number().is_none_or(|number| is_noted(shapes, number));
        return Some(Candidate { site, is_sure, is_of_go: false, inner: Vec::new() });
    }
    if code[..at].ends_with(&GO_BEFORE) && after.starts_with(&GO_AFTER) {
        let site = Site::new(&code[at - GO_DISPLACED..at], back)?;
        // The function has one entry, and no jump except the one after the call.
        return Some(Candidate { site, is_sure: true, is_of_go: true, inner: Vec::new() });
    }
    let PrecedingInstructions { agreed, likely } = instructions_before(code, at)?;
    let first = agreed.iter().rposition(|start| at - start >= PATCH_BYTES)?;
    let displaced = &agreed[first..];
    let is_movable = |start: &usize| {
        Instruction::read(&code[*start..at]).is_some_and(|instruction| instruction.is_movable)
    };
    if at - displaced[0] > DISPLACED_MAX || !displaced.iter().all(is_movable) {
        return None;
    }
    let inner = displaced[1..].to_vec();
    if !inner.is_empty() && has_table_jump_nearby(code, at) {
        return None;
    }
    let site = Site::new(&code[displaced[0]..at], back)?;
    let is_sure = has_number(code, &likely, at, shapes)
        || takes_any_number(code, &likely, at) && looks_at_result(after);
    Some(Candidate { site, is_sure, is_of_go: false, inner })
}

/// The starts of the instructions before a site, in order.
struct PrecedingInstructions {
    /// The last few starts, on which all readings agree.
    agreed: Vec<usize>,
    /// The starts on which most readings agree. There may be more of them, since readings that begin inside
    /// an instruction converge later.
    likely: Vec<usize>,
}

/// Returns the starts of the instructions before `at`, if they can be determined.
fn instructions_before(code: &[u8], at: usize) -> Option<PrecedingInstructions> {
    let first = at.checked_sub(READ_AHEAD + READINGS)?;
    let mut votes = [0; READ_AHEAD + READINGS];
    let mut arrived = 0;
    for start in first..at - READ_AHEAD {
        let Some(starts) = read_until(code, start, at) else { continue };
        arrived += 1;
        starts.iter().for_each(|start| votes[start - first] += 1);
    }
    let with = |least: usize| {
        let chosen = votes.iter().enumerate().filter(move |(_, votes)| **votes >= least);
        chosen.map(|(index, _)| first + index)
    };
    let likely = with(arrived / 2 + 1).collect();
    // A disagreement casts doubt on everything before it.
    let in_doubt =
        votes.iter().rposition(|votes| (1..arrived).contains(votes)).map(|at| first + at);
    let agreed: Vec<_> = with(arrived).filter(|start| Some(*start) > in_doubt).collect();
    (2 * arrived > READINGS && !agreed.is_empty())
        .then_some(PrecedingInstructions { agreed, likely })
}

/// Returns the starts of instructions from `first` on; `None` if no instruction ends at `at`.
fn read_until(code: &[u8], first: usize, at: usize) -> Option<Vec<usize>> {
    let mut starts = Vec::new();
    let mut place = first;
    while place < at {
        starts.push(place);
        place += Instruction::read(&code[place..at])?.length;
    }
    (place == at).then_some(starts)
}

/// Whether one of the instructions on the straight path to `at` sets the number of a recorded call.
fn has_number(code: &[u8], starts: &[usize], at: usize, shapes: &[u8; layout::SHAPES_MAX]) -> bool {
    let straight = starts.iter().rev().take_while(|start| falls_through(code, **start, at));
    let mut numbers = straight.filter_map(|start| match code[*start..at] {
        [0xb8, a, b, c, d, ..] => Some(u32::from_le_bytes([a, b, c, d])),
        _ => None,
    });
    numbers.next().is_some_and(|number| is_noted(shapes, number))
}

/// Whether one of the instructions on the straight path to `at` copies the number from another register.
fn takes_any_number(code: &[u8], starts: &[usize], at: usize) -> bool {
    let straight = starts.iter().rev().take_while(|start| falls_through(code, **start, at));
    // mov rax, register
    straight.into_iter().any(|start| {
        matches!(code[*start..at], [0x48 | 0x4c, 0x89, operands, ..] if operands & 0xc7 == 0xc0)
    })
}

fn falls_through(code: &[u8], start: usize, at: usize) -> bool {
    Instruction::read(&code[start..at]).is_some_and(|instruction| instruction.falls_through)
}

/// Whether the code uses rax as the result of a system call.
fn looks_at_result(after: &[u8]) -> bool {
    matches!(
        after,
        [0xc3, ..] // ret
            | [0x48, 0x3d, _, 0xf0, 0xff, 0xff, ..] // cmp rax, -4096
            | [0x48, 0x89, 0xc7, ..] // mov rdi, rax
            | [0x48, 0x85 | 0x89 | 0x98 | 0x63, ..]
            | [0x85 | 0x89, 0xc0 | 0xc7, ..]
    )
}

fn is_noted(shapes: &[u8; layout::SHAPES_MAX], number: u32) -> bool {
    shapes.get(number as usize).is_some_and(|shape| *shape != 0)
}

/// Whether a jump through a register or a table is close enough to belong to the same function, in which case
/// every instruction may be a target.
fn has_table_jump_nearby(code: &[u8], at: usize) -> bool {
    const FUNCTION: usize = 512;
    let nearby = &code[at.saturating_sub(FUNCTION)..(at + FUNCTION).min(code.len())];
    // jmp register; jmp [table + register * 8]
    nearby.windows(2).any(|bytes| matches!(bytes, [0xff, 0xe0..=0xe7 | 0x24]))
}

/// Returns those of the sorted `places` to which the bytes, which begin at offset `start`, would jump if
/// decoded as a jump.
fn jump_targets(code: &[u8], start: usize, places: &[usize]) -> Vec<usize> {
    let mut targets = Vec::new();
    for (at, bytes) in code.windows(2).enumerate() {
        let (length, is_short) = match bytes {
            [0xe8 | 0xe9, _] => (5, false),
            [0x0f, 0x80..=0x8f] => (6, false),
            [0xeb | 0x70..=0x7f | 0xe0..=0xe3, _] => (2, true),
            _ => continue,
        };
        let distance = if is_short {
            isize::from(bytes[1].cast_signed())
        } else {
            let Some(bytes) = code.get(at + length - 4..at + length) else { continue };
            let bytes = bytes.first_chunk().copied().unwrap_or_default();
            i32::from_le_bytes(bytes) as isize
        };
        if let Some(target) = (start + at + length).checked_add_signed(distance)
            && places.binary_search(&target).is_ok()
        {
            targets.push(target);
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes() -> [u8; layout::SHAPES_MAX] {
        let mut shapes = [0; layout::SHAPES_MAX];
        shapes[257] = 0x80;
        shapes
    }

    /// Returns the bytes with harmless ones around them.
    fn padded(bytes: &[u8]) -> Vec<u8> {
        [&[0x90; 100], bytes, &[0x90; 100]].concat()
    }

    fn whole(code: &[u8]) -> CodeReader<impl FnMut(usize, &mut [u8]) -> usize> {
        let read = |at: usize, piece: &mut [u8]| {
            piece.copy_from_slice(&code[at..at + piece.len()]);
            piece.len()
        };
        CodeReader { bytes: code.len(), read }
    }

    /// Returns the number of bytes displaced at each site, and whether the site is found without having run.
    fn found(bytes: &[u8]) -> Vec<(usize, bool)> {
        let code = padded(bytes);
        let at = calls(&code)[0];
        let mut code = whole(&code);
        let sure = code.search(None, &shapes());
        let site = code.site_at(at, &shapes());
        site.iter().map(|site| (site.displaced().len(), sure.contains(site))).collect()
    }

    #[test]
    fn sites_of_one_instruction_are_found() {
        assert_eq!(found(&[0xb8, 1, 1, 0, 0, 0x0f, 0x05]), [(5, true)]);
        // mov eax, 3 (close), which is not recorded.
        assert_eq!(found(&[0xb8, 3, 0, 0, 0, 0x0f, 0x05]), [(5, false)]);
        assert_eq!(found(&[0x48, 0x8b, 0x44, 0x24, 0x10, 0x0f, 0x05]), [(5, true)]);
    }

    #[test]
    fn the_function_of_go_is_found() {
        let function = [&GO_BEFORE[..], &SYSCALL, &GO_AFTER, &[0x76, 0x15]].concat();
        assert_eq!(found(&function), [(6, true)]);
        // With other bytes, it is not that function.
        let mut other = function;
        other[5] = 0xf2;
        assert_eq!(found(&other), [(6, false)]);
    }

    #[test]
    fn sites_of_several_instructions_are_found() {
        // mov eax, 257; mov rsi, r12; syscall
        let musl = [0xb8, 1, 1, 0, 0, 0x4c, 0x89, 0xe6, 0x0f, 0x05];
        assert_eq!(found(&musl), [(8, true)]);
        // mov r8d, edi; mov rax, r8; mov rsi, rdx; syscall; ret
        let any = [0x41, 0x89, 0xf8, 0x4c, 0x89, 0xc0, 0x48, 0x89, 0xd6, 0x0f, 0x05, 0xc3];
        assert_eq!(found(&any), [(6, true)]);
        // A call before it has unknown effects, but the two instructions after the call can be moved.
        let call = [0xe8, 0, 0, 0, 0, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xdf, 0x0f, 0x05];
        assert_eq!(found(&call), [(6, false)]);
    }

    #[test]
    fn a_function_is_found_that_begins_shortly_before_its_call() {
        // ret; nop [rax + rax]: the padding before a function. Then musl's cancellable system call. Its code:
        // mov rax, rdi; and so on; mov r9, [rsp + 8]; mov rdx, rcx; syscall; ret
        let before =
            [0xc3, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x66, 0x0f, 0x1f, 0x44, 0, 0];
        let moves = [0x48, 0x89, 0xf8, 0x4d, 0x89, 0xc2, 0x48, 0x89, 0xf7, 0x4d, 0x89, 0xc8, 0x48];
        let last = [0x89, 0xd6, 0x4c, 0x8b, 0x4c, 0x24, 8, 0x48, 0x89, 0xca, 0x0f, 0x05, 0xc3];
        assert_eq!(found(&[&before[..], &moves, &last].concat()), [(8, true)]);
    }

    #[test]
    fn code_that_cannot_be_moved_or_is_a_jump_target_is_not_patched() {
        // lea rdi, [rip + 9]; syscall
        assert_eq!(found(&[0x48, 0x8d, 0x3d, 9, 0, 0, 0, 0x0f, 0x05]), []);
        // je to the second move; mov rsi, rdx; mov rdi, rbx; syscall
        assert_eq!(found(&[0x74, 3, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xdf, 0x0f, 0x05]), []);
        assert_eq!(found(&[0x74, 0, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xdf, 0x0f, 0x05]), [(6, false)]);
        // jmp rax nearby
        assert_eq!(found(&[0xff, 0xe0, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xdf, 0x0f, 0x05]), []);
        // mov eax, 0x050f0000: not a system call.
        assert_eq!(found(&[0x48, 0x89, 0xd6, 0xb8, 0, 0, 0x0f, 0x05, 0x90]), []);
    }

    #[test]
    fn a_site_is_found_once_wherever_it_lies_in_a_piece() {
        // mov eax, 257; mov rsi, r12; syscall
        let musl = [0xb8, 1, 1, 0, 0, 0x4c, 0x89, 0xe6, 0x0f, 0x05];
        for place in (PIECE - 12..PIECE + 2).chain([PIECE + AROUND, 2 * PIECE - 1, 3 * PIECE]) {
            let mut code = vec![0x90; 3 * PIECE + 100];
            code[place..place + musl.len()].copy_from_slice(&musl);
            let back = (place + musl.len()) as u64;
            let found: Vec<_> =
                whole(&code).search(None, &shapes()).iter().map(|site| site.back).collect();
            assert_eq!(found, [back], "{place}");
            // jmp to its second instruction, from far away
            let from = if place < 2 * PIECE { 2 * PIECE } else { 100 };
            let distance = (place + 5) as i32 - (from + 5) as i32;
            code[from] = 0xe9;
            code[from + 1..from + 5].copy_from_slice(&distance.to_le_bytes());
            assert_eq!(whole(&code).search(None, &shapes()), [], "{place}");
        }
    }

    /// A program made by Go's linker: the function for calls, the entry, a later call, and one far behind.
    fn go_program() -> (Vec<u8>, usize) {
        let mut code = vec![0xcc; 8 * PIECE];
        let mut put = |at: usize, bytes: &[&[u8]]| {
            let bytes = bytes.concat();
            code[at..at + bytes.len()].copy_from_slice(&bytes);
        };
        let entry = 2 * PIECE;
        let open = [0xb8, 1, 1, 0, 0, 0x0f, 0x05];
        put(0x1000, &[&GO_BEFORE, &SYSCALL, &GO_AFTER]);
        put(entry - 0x1000, &[&GO_START]);
        put(entry, &[&[0xe9], &(-0x1005_i32).to_le_bytes()]);
        put(entry + 0x100, &[&open]);
        put(entry + GO_ENTRY_BYTES + 0x100, &[&open]);
        (code, entry)
    }

    #[test]
    fn of_a_go_program_little_is_read() {
        let (code, entry) = go_program();
        let read = std::cell::Cell::new(0);
        let mut counted = CodeReader {
            bytes: code.len(),
            read: |at: usize, piece: &mut [u8]| {
                piece.copy_from_slice(&code[at..at + piece.len()]);
                read.set(read.get() + piece.len());
                piece.len()
            },
        };
        assert_eq!(counted.search(Some(entry), &shapes()).len(), 2);
        assert!(read.get() < GO_FIRST_BYTES + 3 * GO_ENTRY_BYTES, "{}", read.get());
    }

    #[test]
    fn a_program_that_only_begins_like_one_of_go_is_read_as_a_whole() {
        let (mut code, entry) = go_program();
        assert_eq!(whole(&code).search(None, &shapes()).len(), 3);
        code[entry - 0x1000] = 0x90;
        assert_eq!(whole(&code).search(Some(entry), &shapes()).len(), 3);
        let (mut code, entry) = go_program();
        code[0x1000] = 0x90;
        assert_eq!(whole(&code).search(Some(entry), &shapes()).len(), 2);
        // An entry point in other code.
        assert_eq!(whole(&code).search(Some(code.len() + 1), &shapes()).len(), 2);
    }
}
