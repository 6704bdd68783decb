//! Finds call sites in code: those that are seen to make calls, and those that have not run yet.
//!
//! Where instructions begin is told only by the ones before. So the bytes are read from many places some way
//! before a site, and a site counts only where nearly all of these readings come to the same instructions. Of
//! a site that has not run it is not known either whether it is code at all; it counts only with a sign that
//! it makes calls of interest.

use thruway_sys::stub::layout;

use super::instruction::Instruction;
use super::site::{DISPLACED_MAX, PATCH_BYTES, SYSCALL, Site};

/// A place that may be a site.
struct Candidate {
    site: Site,
    /// Whether there is no doubt about it although it has not run.
    is_sure: bool,
    /// Where instructions begin within what the jump would replace.
    inner: Vec<usize>,
}

/// The function that makes nearly all of a Go program's calls, since Go 1.19: the arguments' registers are
/// those of Go, so the number is known to nobody.
const GO_BEFORE: [u8; 12] =
    [0x49, 0x89, 0xf2, 0x48, 0x89, 0xfa, 0x48, 0x89, 0xce, 0x48, 0x89, 0xdf];
const GO_AFTER: [u8; 6] = [0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff];
/// The last two of its instructions make room for the jump.
const GO_DISPLACED: usize = 6;

/// Readings begin at so many places, the last of them so far before the site.
const READINGS: usize = 32;
const READ_AHEAD: usize = 24;

/// The sites in `code` that make calls of these shapes and need not have run, relative to its start.
pub(super) fn search(code: &[u8], shapes: &[u8; layout::SHAPES_MAX]) -> Vec<Site> {
    let calls = calls(code);
    let candidates = calls.iter().filter_map(|at| candidate(code, *at, shapes));
    let (sites, inner): (Vec<_>, Vec<_>) = candidates
        .filter(|candidate| candidate.is_sure)
        .map(|candidate| (candidate.site, candidate.inner))
        .unzip();
    let targets = jump_targets(code, inner.concat());
    let is_whole = |inner: &Vec<usize>| !inner.iter().any(|at| targets.binary_search(at).is_ok());
    let whole = sites.into_iter().zip(inner).filter(|(_, inner)| is_whole(inner));
    whole.map(|(site, _)| site).collect()
}

/// The site that was seen to make a call, whose `syscall` is at `at`.
pub(super) fn site_at(code: &[u8], at: usize, shapes: &[u8; layout::SHAPES_MAX]) -> Option<Site> {
    let candidate = candidate(code, at, shapes)?;
    jump_targets(code, candidate.inner).is_empty().then_some(candidate.site)
}

/// Where the bytes of `syscall` are.
fn calls(code: &[u8]) -> Vec<usize> {
    // Most blocks have none, which is told for all of their bytes at once.
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
        return Some(Candidate { site, is_sure, inner: Vec::new() });
    }
    if code[..at].ends_with(&GO_BEFORE) && after.starts_with(&GO_AFTER) {
        let site = Site::new(&code[at - GO_DISPLACED..at], back)?;
        // The function has one entry, and no jump but the one after the call.
        return Some(Candidate { site, is_sure: true, inner: Vec::new() });
    }
    let starts = instructions_before(code, at)?;
    let first = starts.iter().rposition(|start| at - start >= PATCH_BYTES)?;
    let displaced = &starts[first..];
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
    let is_sure = has_number(code, &starts, at, shapes)
        || takes_any_number(code, &starts, at) && looks_at_result(after);
    Some(Candidate { site, is_sure, inner })
}

/// Where the instructions before `at` begin, if that can be told: the last few of them, in order.
fn instructions_before(code: &[u8], at: usize) -> Option<Vec<usize>> {
    let mut agreed: Option<Vec<usize>> = None;
    let mut arrived = 0;
    for first in at.checked_sub(READ_AHEAD + READINGS)?..at - READ_AHEAD {
        let Some(starts) = read_until(code, first, at) else { continue };
        arrived += 1;
        let known = agreed.get_or_insert_with(|| starts.clone());
        // What two readings have in common is the later part.
        let common =
            known.iter().rev().zip(starts.iter().rev()).take_while(|(one, other)| one == other);
        let common = common.count();
        known.drain(..known.len() - common);
    }
    let starts = agreed?;
    (2 * arrived > READINGS && !starts.is_empty()).then_some(starts)
}

/// Where instructions begin if one begins at `first`; `None` if none ends at `at`.
fn read_until(code: &[u8], first: usize, at: usize) -> Option<Vec<usize>> {
    let mut starts = Vec::new();
    let mut place = first;
    while place < at {
        starts.push(place);
        place += Instruction::read(&code[place..at])?.length;
    }
    (place == at).then_some(starts)
}

/// Whether one of the instructions before `at`, from which it goes straight there, sets a number that is
/// noted.
fn has_number(code: &[u8], starts: &[usize], at: usize, shapes: &[u8; layout::SHAPES_MAX]) -> bool {
    let straight = starts.iter().rev().take_while(|start| falls_through(code, **start, at));
    let mut numbers = straight.filter_map(|start| match code[*start..at] {
        [0xb8, a, b, c, d, ..] => Some(u32::from_le_bytes([a, b, c, d])),
        _ => None,
    });
    numbers.next().is_some_and(|number| is_noted(shapes, number))
}

/// Whether one of the instructions before `at` takes the number from another register.
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

/// Whether these bytes do with rax what is done with the result of a system call.
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

/// Whether a jump that takes its target from a register or a table is so near that it may belong to the same
/// function: then every place may be a target.
fn has_table_jump_nearby(code: &[u8], at: usize) -> bool {
    const FUNCTION: usize = 512;
    let nearby = &code[at.saturating_sub(FUNCTION)..(at + FUNCTION).min(code.len())];
    // jmp register; jmp [table + register * 8]
    nearby.windows(2).any(|bytes| matches!(bytes, [0xff, 0xe0..=0xe7 | 0x24]))
}

/// Those of `places` to which some bytes jump, if they are read as a jump, in order.
fn jump_targets(code: &[u8], mut places: Vec<usize>) -> Vec<usize> {
    places.sort_unstable();
    let mut targets = Vec::new();
    if places.is_empty() {
        return targets;
    }
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
        if let Some(target) = (at + length).checked_add_signed(distance)
            && places.binary_search(&target).is_ok()
        {
            targets.push(target);
        }
    }
    targets.sort_unstable();
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

    /// These bytes with harmless ones around them.
    fn padded(bytes: &[u8]) -> Vec<u8> {
        [&[0x90; 100], bytes, &[0x90; 100]].concat()
    }

    /// How many bytes would be displaced at the first site, and whether it is found without having run.
    fn found(bytes: &[u8]) -> Vec<(usize, bool)> {
        let code = padded(bytes);
        let sure = search(&code, &shapes());
        let at = calls(&code)[0];
        let site = site_at(&code, at, &shapes());
        site.iter().map(|site| (site.displaced().len(), sure.contains(site))).collect()
    }

    #[test]
    fn sites_of_one_instruction_are_found() {
        assert_eq!(found(&[0xb8, 1, 1, 0, 0, 0x0f, 0x05]), [(5, true)]);
        // mov eax, 3 (close) is not noted.
        assert_eq!(found(&[0xb8, 3, 0, 0, 0, 0x0f, 0x05]), [(5, false)]);
        assert_eq!(found(&[0x48, 0x8b, 0x44, 0x24, 0x10, 0x0f, 0x05]), [(5, true)]);
    }

    #[test]
    fn the_function_of_go_is_found() {
        let function = [&GO_BEFORE[..], &SYSCALL, &GO_AFTER, &[0x76, 0x15]].concat();
        assert_eq!(found(&function), [(6, true)]);
        // Where its bytes are others, it is not that function.
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
        // A call before it: nobody knows what it does, but the two after it can be moved.
        let call = [0xe8, 0, 0, 0, 0, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xdf, 0x0f, 0x05];
        assert_eq!(found(&call), [(6, false)]);
    }

    #[test]
    fn what_cannot_be_moved_or_is_jumped_into_is_left_alone() {
        // lea rdi, [rip + 9]; syscall
        assert_eq!(found(&[0x48, 0x8d, 0x3d, 9, 0, 0, 0, 0x0f, 0x05]), []);
        // je to the second move; mov rsi, rdx; mov rdi, rbx; syscall
        assert_eq!(found(&[0x74, 3, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xdf, 0x0f, 0x05]), []);
        assert_eq!(found(&[0x74, 0, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xdf, 0x0f, 0x05]), [(6, false)]);
        // jmp rax near it
        assert_eq!(found(&[0xff, 0xe0, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xdf, 0x0f, 0x05]), []);
        // mov eax, 0x050f0000: no system call at all.
        assert_eq!(found(&[0x48, 0x89, 0xd6, 0xb8, 0, 0, 0x0f, 0x05, 0x90]), []);
    }
}
