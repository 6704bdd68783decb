//! Tables of cases: the `*.tsv` files in the crates' `tests/vectors/`, in a format that every host and language can
//! read.

/// Returns the columns of each row. Lines that start with `#` are comments.
///
/// # Panics
/// If the table is empty, since a test without cases proves nothing.
#[must_use]
pub fn rows(table: &str) -> Vec<Vec<&str>> {
    let rows = table.lines().filter(|row| !row.is_empty() && !row.starts_with('#'));
    let rows: Vec<Vec<_>> = rows.map(|row| row.split('\t').collect()).collect();
    assert!(!rows.is_empty(), "the table has rows");
    rows
}

/// Returns the first column of each row, and the rest of the row.
///
/// # Panics
/// If the table is empty, or a row has a single column.
#[must_use]
pub fn pairs(table: &str) -> Vec<(&str, &str)> {
    let rows = table.lines().filter(|row| !row.is_empty() && !row.starts_with('#'));
    let pairs: Vec<_> = rows.map(|row| row.split_once('\t').expect(row)).collect();
    assert!(!pairs.is_empty(), "the table has rows");
    pairs
}

/// Returns the columns of each row as bytes, after [`unescape_hex`].
///
/// # Panics
/// As for [`rows`] and [`unescape_hex`].
#[must_use]
pub fn byte_rows(table: &str) -> Vec<Vec<Vec<u8>>> {
    rows(table).into_iter().map(|row| row.into_iter().map(unescape_hex).collect()).collect()
}

/// Replaces `\xHH` by the byte with that code. Other backslashes stay, as in Windows paths.
///
/// # Panics
/// If an escape is malformed.
#[must_use]
pub fn unescape_hex(text: &str) -> Vec<u8> {
    let mut parts = text.split("\\x");
    let mut bytes = parts.next().unwrap_or("").as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).expect(text));
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    bytes
}

/// Formats bytes for the message of a failing test.
#[must_use]
pub fn show(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// Replaces `\r`, `\n`, `\t`, `\\` and `\xHH` by the bytes, and `{byte*count}` by `count` copies of a byte, so that
/// tables stay text.
///
/// # Panics
/// If an escape is malformed.
#[must_use]
pub fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let (used, run) = match (first, after) {
            (b'\\', [b'r', ..]) => (2, vec![b'\r']),
            (b'\\', [b'n', ..]) => (2, vec![b'\n']),
            (b'\\', [b't', ..]) => (2, vec![b'\t']),
            (b'\\', [b'\\', ..]) => (2, vec![b'\\']),
            (b'\\', [b'x', high, low, ..]) => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).expect(text);
                (4, vec![u8::from_str_radix(digits, 16).expect(text)])
            }
            (b'{', [byte, b'*', after @ ..]) => {
                let length = after.iter().position(|b| *b == b'}').expect(text);
                let count = std::str::from_utf8(&after[..length]).expect(text);
                (length + 4, vec![*byte; count.parse().expect(text)])
            }
            (byte, _) => (1, vec![*byte]),
        };
        bytes.extend(run);
        rest = &rest[used..];
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_stand_for_bytes() {
        assert_eq!(unescape(r"a\r\n\\\x00{b*3}c"), b"a\r\n\\\0bbbc");
        assert_eq!(unescape_hex(r"C:\r\xffb"), b"C:\\r\xffb");
    }

    #[test]
    fn comments_are_no_rows() {
        assert_eq!(rows("# no\na\tb\tc\n"), [["a", "b", "c"]]);
        assert_eq!(pairs("# no\na\tb\tc\n"), [("a", "b\tc")]);
    }
}
