//! Reads the tables in `tests/vectors/`.

/// The rows of a table: bytes, tab, what becomes of them. Lines that start with `#` are comments.
pub(crate) fn rows(table: &str) -> Vec<(&str, &str)> {
    let rows = table.lines().filter(|row| !row.is_empty() && !row.starts_with('#'));
    rows.map(|row| row.split_once('\t').expect(row)).collect()
}

/// `\r`, `\n`, `\t`, `\\` and `\xHH` are those bytes, and `{byte*count}` is a byte so many times,
/// so that the table stays text.
pub(crate) fn unescape(text: &str) -> Vec<u8> {
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

#[test]
fn escapes_stand_for_bytes() {
    assert_eq!(unescape(r"a\r\n\\\x00{b*3}c"), b"a\r\n\\\0bbbc");
    assert_eq!(rows("# no\na\tb\tc\n"), [("a", "b\tc")]);
}
