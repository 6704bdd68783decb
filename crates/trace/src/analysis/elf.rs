//! Reads the library folders in a program: elf(5), 64 bits and little-endian.

/// Returns the value of `DT_RUNPATH`, or else of `DT_RPATH`.
pub(super) fn run_path(file: &[u8]) -> Option<Vec<u8>> {
    const MAGIC: &[u8] = b"\x7fELF\x02\x01";
    let segments = if file.starts_with(MAGIC) { segments(file)? } else { return None };
    let dynamic = segments.iter().find(|segment| segment.kind == Segment::DYNAMIC)?;
    let table = file.get(dynamic.at..)?;
    let table = table.get(..dynamic.length).unwrap_or(table);
    let value = |wanted: u64| {
        let entries = table.chunks_exact(16).map(|entry| (word(entry, 0), word(entry, 8)));
        entries.take_while(|(tag, _)| *tag != Some(0)).find(|(tag, _)| *tag == Some(wanted))?.1
    };
    const STRINGS: u64 = 5;
    const RPATH: u64 = 15;
    const RUNPATH: u64 = 29;
    let text = value(RUNPATH).or_else(|| value(RPATH))?;
    let address = value(STRINGS)?;
    let loaded = segments.iter().filter(|segment| segment.kind == Segment::LOADED);
    let strings = loaded
        .filter_map(|segment| Some((address.checked_sub(segment.address)?, segment)))
        .find(|(distance, segment)| *distance < segment.length as u64);
    let (distance, segment) = strings?;
    let start = usize::try_from(distance.checked_add(text)?).ok()?.checked_add(segment.at)?;
    file.get(start..)?.split(|byte| *byte == 0).next().map(<[u8]>::to_vec)
}

struct Segment {
    kind: u32,
    at: usize,
    address: u64,
    length: usize,
}

impl Segment {
    const LOADED: u32 = 1;
    const DYNAMIC: u32 = 2;
}

fn segments(file: &[u8]) -> Option<Vec<Segment>> {
    let start = usize::try_from(word(file, 32)?).ok()?;
    let short = |at: usize| Some(u16::from_le_bytes(file.get(at..at + 2)?.try_into().ok()?));
    let (size, count) = (usize::from(short(54)?), usize::from(short(56)?));
    let segment = |index: usize| {
        let header = file.get(start.checked_add(index * size)?..)?;
        Some(Segment {
            kind: u32::from_le_bytes(header.get(..4)?.try_into().ok()?),
            at: usize::try_from(word(header, 8)?).ok()?,
            address: word(header, 16)?,
            length: usize::try_from(word(header, 32)?).ok()?,
        })
    };
    (0..count).map(segment).collect()
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_and_damaged_ones_have_none() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert_eq!(run_path(b""), None);
        assert_eq!(run_path(b"#!/bin/sh\n"), None);
        for length in [6, 63, 64, 200, 1000] {
            assert_eq!(run_path(&own[..length]), None);
        }
        for at in 16..64 {
            let mut damaged = own[..4096].to_vec();
            damaged[at] = 0xff;
            // Any result will do as long as nothing panics.
            let _ = run_path(&damaged);
        }
    }
}
