//! Chooses the precompressed variants of a file that a client accepts, best first.

use std::borrow::Cow;

use thruway_http1::field::members;

/// A variant of a file: the suffix of its name, and its content coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContentCoding {
    pub(super) suffix: &'static str,
    pub(super) name: &'static str,
}

/// The uncompressed file.
pub(super) const IDENTITY: ContentCoding = ContentCoding { suffix: "", name: "" };

/// The maximum number of variants of a file, including the uncompressed file.
pub(super) const CODINGS_MAX: usize = CODINGS.len() + 1;

/// The supported codings, those with the usually smallest result first.
const CODINGS: [ContentCoding; 3] = [
    ContentCoding { suffix: ".br", name: "br" },
    ContentCoding { suffix: ".zst", name: "zstd" },
    ContentCoding { suffix: ".gz", name: "gzip" },
];

/// The codings that `accept` (an `Accept-Encoding` field) allows, best first. The uncompressed file
/// comes last, unless the client prefers it.
pub(super) fn accepted(accept: Option<&[u8]>) -> Cow<'static, [ContentCoding]> {
    let Some(accept) = accept else { return Cow::Borrowed(&[IDENTITY]) };
    let identity = weight(accept, "identity");
    let mut rated: Vec<_> = CODINGS
        .iter()
        .filter_map(|coding| weight(accept, coding.name).map(|weight| (weight, *coding)))
        .filter(|(weight, _)| *weight > 0)
        .collect();
    // A coding that the field does not name is acceptable, but any named coding is better. Even if
    // the client refuses the uncompressed file, it is better than no response.
    rated.push((identity.unwrap_or(0), IDENTITY));
    rated.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    rated.into_iter().map(|(_, coding)| coding).collect::<Vec<_>>().into()
}

/// The weight of a coding in thousandths; none if neither its name nor `*` covers the coding. `*`
/// does not cover `identity`.
fn weight(accept: &[u8], coding: &str) -> Option<u16> {
    let mut any = None;
    for member in members(accept) {
        let mut parts = member.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let name = parts.next().unwrap_or_default();
        let name = name.strip_prefix(b"x-").unwrap_or(name);
        if name.eq_ignore_ascii_case(coding.as_bytes()) {
            return Some(quality(parts));
        }
        if name == b"*" {
            any = Some(quality(parts));
        }
    }
    any.filter(|_| coding != "identity")
}

/// The `q` among a member's parameters; a malformed value counts as zero.
fn quality<'a>(mut parameters: impl Iterator<Item = &'a [u8]>) -> u16 {
    let value = parameters.find_map(|parameter| {
        parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="))
    });
    let Some(value) = value else { return 1000 };
    let text = std::str::from_utf8(value).unwrap_or_default();
    let (whole, digits) = text.split_once('.').unwrap_or((text, ""));
    let is_number = digits.len() <= 3 && digits.bytes().all(|digit| digit.is_ascii_digit());
    match whole {
        "1" => 1000,
        "0" if is_number => format!("{digits:0<3}").parse().unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(accept: &str) -> String {
        let names = accepted(Some(accept.as_bytes()));
        let names =
            names.iter().map(|coding| if coding.name.is_empty() { "-" } else { coding.name });
        names.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn equal_weights_go_by_size() {
        assert_eq!(*accepted(None), [IDENTITY]);
        assert_eq!(names(""), "-");
        assert_eq!(names("gzip, deflate, br, zstd"), "br zstd gzip -");
        assert_eq!(names("GZIP"), "gzip -");
        assert_eq!(names("x-gzip"), "gzip -");
        assert_eq!(names("*"), "br zstd gzip -");
    }

    #[test]
    fn the_client_s_weights_go_first() {
        assert_eq!(names("gzip;q=1.0, br;q=0.5"), "gzip br -");
        assert_eq!(names("br;q=0, gzip"), "gzip -");
        assert_eq!(names("*;q=0"), "-");
        assert_eq!(names("*;q=0.5, br;q=0.1"), "zstd gzip br -");
        assert_eq!(names("identity, gzip;q=0.5"), "- gzip");
        assert_eq!(names("gzip ; q=0.001"), "gzip -");
        assert_eq!(names("gzip;q=x, br;q=0.0000, zstd;q=2"), "-");
    }
}
