//! The ranges of a file or a stored response that a client requests (RFC 9110, 14).

use std::ops::Range;

use thruway_http1::field::members;

/// The maximum number of ranges in one response. A request for more gets the whole file.
const RANGES_MAX: usize = 64;

/// The unit of ranges.
const UNIT: &[u8] = b"bytes=";

/// The bytes that a `Range` field requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestedRange {
    /// The whole file: no range, a malformed one, too many, or more bytes than the file has.
    All,
    /// A list of ranges, none of them empty.
    Some(Vec<Range<u64>>),
    /// Only bytes beyond the end of the file: 416.
    Nothing,
}

/// The ranges that `field` requests of a file of `size` bytes.
pub(crate) fn wanted(field: Option<&[u8]>, size: u64) -> RequestedRange {
    // RFC 9110, 14.1: units are case-insensitive.
    let unit_and_set = field.and_then(|field| field.split_at_checked(UNIT.len()));
    let Some((_, set)) = unit_and_set.filter(|(unit, _)| unit.eq_ignore_ascii_case(UNIT)) else {
        return RequestedRange::All;
    };
    let mut ranges = Vec::new();
    let mut count = 0;
    for member in members(set) {
        count += 1;
        match range(member, size) {
            _ if count > RANGES_MAX => return RequestedRange::All,
            None => return RequestedRange::All,
            Some(range) if range.is_empty() => {}
            Some(range) => ranges.push(range),
        }
    }
    let bytes = ranges.iter().map(|range| range.end - range.start);
    match bytes.fold(0_u64, u64::saturating_add) {
        _ if count == 0 => RequestedRange::All,
        0 => RequestedRange::Nothing,
        // As in nginx, overlapping ranges with more bytes in total than the file get the file once.
        bytes if bytes > size && ranges.len() > 1 => RequestedRange::All,
        _ => RequestedRange::Some(ranges),
    }
}

/// The range of one member, empty if it lies beyond the end; none if the member is malformed.
fn range(member: &[u8], size: u64) -> Option<Range<u64>> {
    let dash = member.iter().position(|byte| *byte == b'-')?;
    let (first, last) = (&member[..dash], &member[dash + 1..]);
    if first.is_empty() {
        let length = number(last)?.min(size);
        return Some(size - length..size);
    }
    let first = number(first)?;
    if last.is_empty() {
        return Some(first.min(size)..size);
    }
    let last = number(last)?;
    if last < first {
        return None;
    }
    Some(first.min(size)..last.saturating_add(1).min(size))
}

/// A row of digits; a number that is too long to represent means "the end".
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit =
        |number: u64, byte: &u8| number.checked_mul(10)?.checked_add(u64::from(byte - b'0'));
    Some(digits.iter().try_fold(0, digit).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_ten(field: &str) -> RequestedRange {
        wanted(Some(field.as_bytes()), 10)
    }

    /// Each pair is the start and the end of a range.
    fn some(ranges: &[(u64, u64)]) -> RequestedRange {
        RequestedRange::Some(ranges.iter().map(|(start, end)| *start..*end).collect())
    }

    #[test]
    fn ranges_are_cut_to_the_file() {
        assert_eq!(of_ten("bytes=0-0"), some(&[(0, 1)]));
        assert_eq!(of_ten("bytes=2-5"), some(&[(2, 6)]));
        assert_eq!(of_ten("BYTES=0-1"), some(&[(0, 2)]));
        assert_eq!(of_ten("Bytes=-1"), some(&[(9, 10)]));
        assert_eq!(of_ten("bytes=7-"), some(&[(7, 10)]));
        assert_eq!(of_ten("bytes=-3"), some(&[(7, 10)]));
        assert_eq!(of_ten("bytes=-30"), some(&[(0, 10)]));
        assert_eq!(of_ten("bytes=5-100"), some(&[(5, 10)]));
        assert_eq!(of_ten("bytes=0-99999999999999999999999"), some(&[(0, 10)]));
        assert_eq!(of_ten("bytes=0-1, 4-5,-1"), some(&[(0, 2), (4, 6), (9, 10)]));
        assert_eq!(of_ten("bytes=0-1,20-30"), some(&[(0, 2)]));
    }

    #[test]
    fn a_range_behind_the_end_cannot_be_sent() {
        assert_eq!(of_ten("bytes=10-"), RequestedRange::Nothing);
        assert_eq!(of_ten("bytes=10-20,30-40"), RequestedRange::Nothing);
        assert_eq!(of_ten("bytes=-0"), RequestedRange::Nothing);
        assert_eq!(wanted(Some(b"bytes=0-"), 0), RequestedRange::Nothing);
    }

    #[test]
    fn a_malformed_range_requests_everything() {
        for field in [
            "bytes=",
            "bytes",
            "bytes=a-b",
            "bytes=5-2",
            "bytes=1",
            "bytes=--1",
            "bytes=1-2-3",
            "lines=0-1",
            "bytes=0-1,x",
            "bytes= ",
            "bytes=+1-2",
        ] {
            assert_eq!(of_ten(field), RequestedRange::All, "{field}");
        }
        assert_eq!(wanted(None, 10), RequestedRange::All);
    }

    #[test]
    fn a_client_cannot_ask_for_more_than_everything() {
        assert_eq!(of_ten("bytes=0-,0-,0-"), RequestedRange::All);
        let many = vec!["0-0"; RANGES_MAX + 1].join(",");
        assert_eq!(wanted(Some(format!("bytes={many}").as_bytes()), 1000), RequestedRange::All);
    }
}
