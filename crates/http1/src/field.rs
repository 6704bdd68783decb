//! Fields with special rules, which are located once while the head is parsed.

/// A field that can be looked up by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KnownField {
    /// `Host`
    Host,
    /// `Content-Length`
    ContentLength,
    /// `Transfer-Encoding`
    TransferEncoding,
    /// `Connection`
    Connection,
    /// `Expect`
    Expect,
    /// `Content-Type`
    ContentType,
    /// `Accept-Encoding`
    AcceptEncoding,
    /// `Range`
    Range,
    /// `If-Range`
    IfRange,
    /// `If-Match`
    IfMatch,
    /// `If-None-Match`
    IfNoneMatch,
    /// `If-Modified-Since`
    IfModifiedSince,
    /// `If-Unmodified-Since`
    IfUnmodifiedSince,
    /// `Authorization`
    Authorization,
    /// `X-Forwarded-Proto`
    ForwardedProto,
}

/// All known fields, in the order of their numbers.
const ALL: [(KnownField, &[u8]); 15] = [
    (KnownField::Host, b"host"),
    (KnownField::ContentLength, b"content-length"),
    (KnownField::TransferEncoding, b"transfer-encoding"),
    (KnownField::Connection, b"connection"),
    (KnownField::Expect, b"expect"),
    (KnownField::ContentType, b"content-type"),
    (KnownField::AcceptEncoding, b"accept-encoding"),
    (KnownField::Range, b"range"),
    (KnownField::IfRange, b"if-range"),
    (KnownField::IfMatch, b"if-match"),
    (KnownField::IfNoneMatch, b"if-none-match"),
    (KnownField::IfModifiedSince, b"if-modified-since"),
    (KnownField::IfUnmodifiedSince, b"if-unmodified-since"),
    (KnownField::Authorization, b"authorization"),
    (KnownField::ForwardedProto, b"x-forwarded-proto"),
];

impl KnownField {
    /// Returns the known field with this name, in any case.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        let candidate = match (name.len(), name.first()?.to_ascii_lowercase()) {
            (4, b'h') => Self::Host,
            (5, b'r') => Self::Range,
            (6, b'e') => Self::Expect,
            (8, b'i') if name[3].eq_ignore_ascii_case(&b'm') => Self::IfMatch,
            (8, b'i') => Self::IfRange,
            (10, b'c') => Self::Connection,
            (12, b'c') => Self::ContentType,
            (13, b'a') => Self::Authorization,
            (13, b'i') => Self::IfNoneMatch,
            (14, b'c') => Self::ContentLength,
            (15, b'a') => Self::AcceptEncoding,
            (17, b't') => Self::TransferEncoding,
            (17, b'x') => Self::ForwardedProto,
            (17, b'i') => Self::IfModifiedSince,
            (19, b'i') => Self::IfUnmodifiedSince,
            _ => return None,
        };
        name.eq_ignore_ascii_case(candidate.name()).then_some(candidate)
    }

    /// Returns the field's name in lower case.
    #[must_use]
    pub fn name(self) -> &'static [u8] {
        ALL[self.index()].1
    }

    /// Whether a second line of the field is an error, as nginx decides for fields with a single value.
    pub(crate) fn stands_once(self) -> bool {
        !matches!(self, Self::Connection | Self::AcceptEncoding | Self::ForwardedProto)
    }

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// The positions of the known fields among a head's fields.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places([u8; ALL.len()]);

impl Places {
    /// Notes that `known` is at `place`. Returns `false` if the field already has a place.
    pub(crate) fn note(&mut self, known: KnownField, place: usize) -> bool {
        let slot = &mut self.0[known.index()];
        let first = *slot == 0;
        if first {
            // Places are below `Limits::FIELDS_MAX`; zero means that the field is absent.
            *slot = u8::try_from(place + 1).unwrap_or(0);
        }
        first
    }

    /// Returns the place of the first field with this name.
    pub(crate) fn of(&self, known: KnownField) -> Option<usize> {
        usize::from(self.0[known.index()]).checked_sub(1)
    }
}

/// Returns the members of a comma-separated list, trimmed, without the empty ones.
pub fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}

/// Returns the entity tags of a list, each with its quotes. A comma may stand inside a tag.
pub fn entity_tags(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut left = value;
    std::iter::from_fn(move || {
        let start = left.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b','))?;
        let rest = &left[start..];
        let open = if rest.starts_with(b"W/\"") { 3 } else { 1 };
        let length = rest.get(open..)?.iter().position(|byte| *byte == b'"')? + open + 1;
        left = &rest[length..];
        Some(&rest[..length])
    })
}

/// Whether two names are equal, ignoring case and the difference between `_` and `-`.
pub(crate) fn collide(one: &[u8], other: &[u8]) -> bool {
    let fold = |byte: &u8| if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    one.len() == other.len() && one.iter().map(fold).eq(other.iter().map(fold))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_field_is_found_by_its_name_in_any_case() {
        for (known, name) in ALL {
            assert_eq!(KnownField::from_name(name), Some(known));
            assert_eq!(KnownField::from_name(&name.to_ascii_uppercase()), Some(known));
            assert_eq!(known.name(), name);
            let mut other = name.to_vec();
            other[1] = b'~';
            assert_eq!(KnownField::from_name(&other), None);
        }
    }

    #[test]
    fn only_the_first_place_is_kept() {
        let mut places = Places::default();
        assert_eq!(places.of(KnownField::Range), None);
        assert!(places.note(KnownField::Range, 0));
        assert!(!places.note(KnownField::Range, 7));
        assert_eq!(places.of(KnownField::Range), Some(0));
    }

    #[test]
    fn names_collide_over_underscores_and_case_alone() {
        assert!(collide(b"X_Real-Ip", b"x-real_IP"));
        assert!(!collide(b"X-Real-Ip", b"X-Real-Ipp"));
    }

    #[test]
    fn a_comma_may_stand_inside_a_tag() {
        let tags = |value: &'static str| entity_tags(value.as_bytes()).collect::<Vec<_>>();
        assert_eq!(tags(r#" "a,b", W/"c" ,,"d""#), [&br#""a,b""#[..], br#"W/"c""#, br#""d""#]);
        assert!(tags("a").is_empty() && tags("").is_empty() && tags(r#"W/"c"#).is_empty());
    }

    #[test]
    fn a_list_has_no_empty_members() {
        let all: Vec<_> = members(b" a, ,b ,,\tc").collect();
        assert_eq!(all, [&b"a"[..], b"b", b"c"]);
    }
}
