//! Reads `tests/vectors/*.tsv`, which Ruby's tests read too.

/// The columns of each row that is no comment.
pub(crate) fn rows(vectors: &str) -> Vec<Vec<Vec<u8>>> {
    let rows = vectors.lines().filter(|row| !row.starts_with('#'));
    let rows: Vec<_> = rows.map(|row| row.split('\t').map(unescape).collect()).collect();
    assert!(rows.len() > 20, "the vectors are there");
    rows
}

/// `\xHH` in a vector is that byte, so that the file itself stays text.
pub(crate) fn unescape(text: &str) -> Vec<u8> {
    let mut parts = text.split("\\x");
    let mut bytes = parts.next().unwrap_or("").as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).expect(text));
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    bytes
}

/// Bytes as a failing test shows them.
pub(crate) fn show(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
