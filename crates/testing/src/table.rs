//! Tables of cases: the files `*.tsv` in the crates' `tests/vectors/`, text that every host and language reads.

/// The columns of each row. Lines that start with `#` are comments.
///
/// # Panics
/// The table is empty: a test that reads no case proves nothing.
#[must_use]
pub fn rows(table: &str) -> Vec<Vec<&str>> {
    let rows = table.lines().filter(|row| !row.is_empty() && !row.starts_with('#'));
    let rows: Vec<Vec<_>> = rows.map(|row| row.split('\t').collect()).collect();
    assert!(!rows.is_empty(), "the table has rows");
    rows
}

/// The first column of each row, and the rest.
///
/// # Panics
/// The table is empty, or a row has one column.
#[must_use]
pub fn pairs(table: &str) -> Vec<(&str, &str)> {
    let rows = table.lines().filter(|row| !row.is_empty() && !row.starts_with('#'));
    let pairs: Vec<_> = rows.map(|row| row.split_once('\t').expect(row)).collect();
    assert!(!pairs.is_empty(), "the table has rows");
    pairs
}

/// The columns of each row as bytes, after [`unescape_hex`].
///
/// # Panics
/// As those two.
#[must_use]
pub fn byte_rows(table: &str) -> Vec<Vec<Vec<u8>>> {
    rows(table).into_iter().map(|row| row.into_iter().map(unescape_hex).collect()).collect()
}

/// `\xHH` is that byte; any other backslash is one, as in paths of Windows.
///
/// # Panics
/// The text is not written so.
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

/// Bytes as a failing test shows them.
#[must_use]
pub fn show(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// `\r`, `\n`, `\t`, `\\` and `\xHH` are those bytes, and `{byte*count}` is a byte so many times,
/// so that the table stays text.
///
/// # Panics
/// The text is not written so.
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
