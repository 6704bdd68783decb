//! Turns a URL path into a name that cannot leave its base.
//!
//! The path's percent-escapes are decoded exactly once. Anything that could denote a different file than it
//! spells is refused before any file system is asked. On Windows this includes devices, streams, drives and
//! short names. On POSIX a name may contain any bytes but NUL and `/`, so all of these are ordinary files.
//! The rules of both systems are tested on every host.

use std::borrow::Cow;
use std::fmt;

use crate::Flavour;
use crate::expand::device::names_device;

/// A relative name without empty, `.` or `..` components, which therefore cannot leave the base beneath which
/// it is opened.
///
/// The empty name denotes the base itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    bytes: Vec<u8>,
    is_directory: bool,
}

impl Name {
    /// Parses a URL path by the rules of this system: `/a%20b/../c/` is `c`, and asks for a directory.
    ///
    /// `path` is the path of a request target, without scheme, host and query. It must begin with `/`.
    ///
    /// # Errors
    /// The first rule that refuses the path.
    pub fn from_url_path(path: &[u8]) -> Result<Self, Refusal> {
        Self::from_url_path_of(Flavour::HOST, path)
    }

    /// Parses a URL path by the rules of the given system.
    ///
    /// # Errors
    /// The first rule that refuses the path.
    pub fn from_url_path_of(flavour: Flavour, path: &[u8]) -> Result<Self, Refusal> {
        if path.first() != Some(&b'/') {
            return Err(Refusal::NotAbsolute);
        }
        let decoded = decode_percent(path)?;
        if decoded.contains(&0) {
            return Err(Refusal::Nul);
        }
        if flavour == Flavour::Posix {
            return Self::from_components(&decoded);
        }
        let text = std::str::from_utf8(&decoded).map_err(|_| Refusal::NotUtf8)?;
        refuse_anywhere(text)?;
        let name = Self::from_components(text.as_bytes())?;
        name.components().try_for_each(refuse_component)?;
        Ok(name)
    }

    /// Whether a component has the form of a short name, which may stand for a longer one on some file
    /// systems.
    #[cfg(target_os = "linux")]
    pub(crate) fn has_short_form(&self) -> bool {
        self.components().any(is_short_name)
    }

    /// Returns the name of `path` relative to `base`. Both must be absolute, in the host's own spelling.
    ///
    /// Intended for paths chosen by a program (`X-Sendfile`, `to_path`), so unusual names are accepted. Only
    /// paths outside `base` are refused, by whole components.
    ///
    /// # Errors
    /// [`Refusal::OutsideBase`] or [`Refusal::Nul`].
    pub fn beneath(base: &[u8], path: &[u8]) -> Result<Self, Refusal> {
        if path.contains(&0) {
            return Err(Refusal::Nul);
        }
        let base = crate::expand(Flavour::Posix, base, b"/");
        let path = crate::expand(Flavour::Posix, path, b"/");
        let rest = match base.as_slice() {
            b"/" => Some(&path[..]),
            base => path.strip_prefix(base),
        };
        match rest {
            Some(rest) if rest.is_empty() || rest[0] == b'/' => Self::from_components(rest),
            _ => Err(Refusal::OutsideBase),
        }
    }

    /// The bytes of the name, with `/` between components and none at either end.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether the path ended in `/`, so that only a directory matches.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.is_directory
    }

    /// Returns the components in order; none for the base itself.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.bytes.split(|byte| *byte == b'/').filter(|component| !component.is_empty())
    }

    /// Returns the name of `component`, such as `index.html`, beneath this one.
    ///
    /// # Errors
    /// [`Refusal::OutsideBase`] or [`Refusal::Nul`] if `component` is not a single ordinary component.
    pub fn join(&self, component: &[u8]) -> Result<Self, Refusal> {
        if component.contains(&0) {
            return Err(Refusal::Nul);
        }
        if component.contains(&b'/') || matches!(component, b"" | b"." | b"..") {
            return Err(Refusal::OutsideBase);
        }
        let mut bytes = self.bytes.clone();
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(component);
        Ok(Self { bytes, is_directory: false })
    }

    fn from_components(path: &[u8]) -> Result<Self, Refusal> {
        let mut bytes: Vec<u8> = Vec::with_capacity(path.len());
        let mut is_directory = true;
        for component in path.split(|byte| *byte == b'/') {
            is_directory = matches!(component, b"" | b"." | b"..");
            match component {
                b"" | b"." => {}
                b".." if bytes.is_empty() => return Err(Refusal::OutsideBase),
                b".." => bytes.truncate(bytes.iter().rposition(|b| *b == b'/').unwrap_or(0)),
                _ => {
                    if !bytes.is_empty() {
                        bytes.push(b'/');
                    }
                    bytes.extend_from_slice(component);
                }
            }
        }
        Ok(Self { bytes, is_directory })
    }
}

/// The rule by which a name was refused, without asking any file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// The path does not begin with `/`.
    NotAbsolute,
    /// A `%` is not followed by two hexadecimal digits.
    BadEscape,
    /// A NUL byte.
    Nul,
    /// A `\`, a separator on Windows.
    Backslash,
    /// Invalid UTF-8, including overlong forms and surrogates.
    NotUtf8,
    /// `..` would leave the base, or the path is outside the base.
    OutsideBase,
    /// A drive letter such as `c:`.
    Drive,
    /// Two separators at the start, which introduce a server on Windows (`//host`, `//?/`, `//./`).
    Unc,
    /// A `:` inside a component, which denotes a stream on NTFS (`index.html::$DATA`).
    Stream,
    /// A component that ends in a dot or a space, which Windows strips.
    TrailingDotOrSpace,
    /// The name of a device on Windows, with or without a suffix: `nul.txt`.
    Device,
    /// A component in the form of a short name, such as `secret~1.txt`.
    ShortName,
    /// A component on the deny list.
    Denied,
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NotAbsolute => "the path does not begin with a slash",
            Self::BadEscape => "a percent sign without two hexadecimal digits",
            Self::Nul => "a NUL byte",
            Self::Backslash => "a backslash",
            Self::NotUtf8 => "not valid UTF-8",
            Self::OutsideBase => "the name lies outside its base",
            Self::Drive => "a drive letter",
            Self::Unc => "two slashes at the start",
            Self::Stream => "a colon inside a name",
            Self::TrailingDotOrSpace => "a name that ends in a dot or a space",
            Self::Device => "the name of a device",
            Self::ShortName => "a name in the form of a short (8.3) name",
            Self::Denied => "the name is on the deny list",
        })
    }
}

impl std::error::Error for Refusal {}

/// Names that are never served, compared component by component after case folding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DenyList {
    names: Vec<String>,
    hidden: bool,
}

impl DenyList {
    /// Creates an empty list, which denies nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Denies components that begin with a dot, except `.well-known` (RFC 8615).
    #[must_use]
    pub fn hidden(mut self) -> Self {
        self.hidden = true;
        self
    }

    /// Denies components that equal `name` in any case.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.names.push(name.to_lowercase());
        self
    }

    /// Whether any component of `name` is on the list.
    #[must_use]
    pub fn denies(&self, name: &Name) -> bool {
        name.components().any(|component| self.denies_component(component))
    }

    /// Whether `component` is on the list.
    #[must_use]
    pub fn denies_component(&self, component: &[u8]) -> bool {
        if self.hidden && component.starts_with(b".") && component != b".well-known" {
            return true;
        }
        if self.names.is_empty() {
            return false;
        }
        let folded = String::from_utf8_lossy(component).to_lowercase();
        self.names.contains(&folded)
    }
}

/// Decodes each percent-escape once. The result is never decoded again.
fn decode_percent(path: &[u8]) -> Result<Cow<'_, [u8]>, Refusal> {
    if !path.contains(&b'%') {
        return Ok(Cow::Borrowed(path));
    }
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path.iter();
    while let Some(byte) = rest.next() {
        if *byte == b'%' {
            let high = rest.next().and_then(|digit| hexadecimal(*digit));
            let low = rest.next().and_then(|digit| hexadecimal(*digit));
            decoded.push(high.zip(low).map(|(h, l)| h << 4 | l).ok_or(Refusal::BadEscape)?);
        } else {
            decoded.push(*byte);
        }
    }
    Ok(Cow::Owned(decoded))
}

fn hexadecimal(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// Applies the rules of Windows that concern the whole path.
fn refuse_anywhere(path: &str) -> Result<(), Refusal> {
    if path.contains('\\') {
        return Err(Refusal::Backslash);
    }
    if path.starts_with("//") {
        return Err(Refusal::Unc);
    }
    Ok(())
}

/// Applies the rules of Windows to a component that is neither empty nor made of dots.
fn refuse_component(component: &[u8]) -> Result<(), Refusal> {
    if let [letter, b':', ..] = component
        && letter.is_ascii_alphabetic()
    {
        return Err(Refusal::Drive);
    }
    if component.contains(&b':') {
        return Err(Refusal::Stream);
    }
    if matches!(component.last(), Some(b'.' | b' ')) {
        return Err(Refusal::TrailingDotOrSpace);
    }
    if is_device(component) {
        return Err(Refusal::Device);
    }
    if is_short_name(component) {
        return Err(Refusal::ShortName);
    }
    Ok(())
}

/// Whether a component is the name of a Windows device, up to its first dot and without the spaces before it.
///
/// `CLOCK$` is older than Windows; `COM0` and `LPT0` are on Microsoft's list of names to avoid.
fn is_device(component: &[u8]) -> bool {
    let stem = component.split(|byte| *byte == b'.').next().unwrap_or(component);
    let stem = stem.trim_ascii_end();
    let older: [&[u8]; 3] = [b"CLOCK$", b"COM0", b"LPT0"];
    names_device(stem) || older.iter().any(|name| stem.eq_ignore_ascii_case(name))
}

/// Whether `component` could be the 8.3 name that Windows generated for a longer one: `progra~1`,
/// `secret~2.txt`.
pub(crate) fn is_short_name(component: &[u8]) -> bool {
    let (stem, suffix) = match component.iter().rposition(|byte| *byte == b'.') {
        Some(dot) => (&component[..dot], &component[dot + 1..]),
        None => (component, &b""[..]),
    };
    let digits = stem.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let before = &stem[..stem.len() - digits];
    stem.len() <= 8 && suffix.len() <= 3 && digits > 0 && before.ends_with(b"~")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thruway_testing::table::{byte_rows, show};

    /// Names that Windows refuses and that are ordinary files on POSIX.
    #[test]
    fn posix_takes_any_bytes_but_nul_and_no_way_out() {
        let name = |path: &[u8]| Name::from_url_path_of(Flavour::Posix, path);
        let ordinary: [(&[u8], &[u8]); 16] = [
            (b"/aux.js", b"aux.js"),
            (b"/nul", b"nul"),
            (b"/a~1.txt", b"a~1.txt"),
            (b"/trail.", b"trail."),
            (b"/trail%20", b"trail "),
            (b"/...", b"..."),
            (b"/ab:cd", b"ab:cd"),
            (b"/c:d", b"c:d"),
            (b"/2026-11-25T10:00.log", b"2026-11-25T10:00.log"),
            (b"/x%5Cy", b"x\\y"),
            (b"/..%5c..%5csecret", b"..\\..\\secret"),
            (b"/%ff.bin", b"\xff.bin"),
            (b"/%c0%ae%c0%ae/x", b"\xc0\xae\xc0\xae/x"),
            (b"//index.html", b"index.html"),
            (b"//d///f.txt", b"d/f.txt"),
            (b"/%2findex.html", b"index.html"),
        ];
        for (path, expected) in ordinary {
            assert_eq!(name(path).unwrap().as_bytes(), expected, "{}", show(path));
        }
        for row in byte_rows(include_str!("../tests/vectors/url_path.tsv")) {
            let (path, expected) = (&row[0], String::from_utf8_lossy(&row[1]).into_owned());
            if ["NotAbsolute", "BadEscape", "Nul", "OutsideBase"].contains(&expected.as_str()) {
                let got = name(path).map_err(|refusal| format!("{refusal:?}"));
                assert_eq!(got.unwrap_err(), expected, "{}", show(path));
            }
        }
        assert_eq!(name(b"//../x"), Err(Refusal::OutsideBase));
    }

    /// `tests/vectors/url_path.tsv`, by the rules of Windows: a path, then `ok NAME`, `ok-dir NAME` or the
    /// name of the refusal.
    #[test]
    fn every_vector_gives_its_name_or_its_refusal() {
        for row in byte_rows(include_str!("../tests/vectors/url_path.tsv")) {
            let [path, expected] = row.as_slice() else { panic!("two columns: {row:?}") };
            let got = match Name::from_url_path_of(Flavour::Windows, path) {
                Ok(name) => {
                    let kind = if name.is_directory() { "ok-dir" } else { "ok" };
                    format!("{kind} {}", String::from_utf8_lossy(name.as_bytes()))
                }
                Err(refusal) => format!("{refusal:?}"),
            };
            assert_eq!(got.trim_end().as_bytes(), expected, "{}", show(path));
        }
    }

    #[test]
    fn a_path_is_beneath_a_base_by_whole_components_only() {
        let beneath = |base: &str, path: &str| {
            Name::beneath(base.as_bytes(), path.as_bytes())
                .map(|name| String::from_utf8(name.bytes).unwrap())
        };
        assert_eq!(beneath("/srv/files", "/srv/files/a/b"), Ok("a/b".into()));
        assert_eq!(beneath("/srv/files/", "/srv/files"), Ok(String::new()));
        assert_eq!(beneath("/", "/etc/hosts"), Ok("etc/hosts".into()));
        assert_eq!(beneath("/srv/files", "/srv/files-of-others/a"), Err(Refusal::OutsideBase));
        assert_eq!(beneath("/srv/files", "/srv/files/../secret"), Err(Refusal::OutsideBase));
        assert_eq!(beneath("/srv", "/srv/a\0b"), Err(Refusal::Nul));
    }

    #[test]
    fn a_component_is_joined_and_nothing_else() {
        let join = |path: &str, component: &str| {
            let name = Name::from_url_path(path.as_bytes()).unwrap();
            name.join(component.as_bytes()).map(|name| String::from_utf8(name.bytes).unwrap())
        };
        assert_eq!(join("/", "index.html"), Ok("index.html".into()));
        assert_eq!(join("/a/", "index.html"), Ok("a/index.html".into()));
        assert_eq!(join("/a", ".."), Err(Refusal::OutsideBase));
        assert_eq!(join("/a", "b/c"), Err(Refusal::OutsideBase));
        assert_eq!(join("/a", ""), Err(Refusal::OutsideBase));
        assert_eq!(join("/a", "b\0"), Err(Refusal::Nul));
    }

    #[test]
    fn the_deny_list_folds_case_and_hides_dotfiles() {
        let denied = DenyList::new().hidden().name("Web.config");
        let denies = |path: &str| denied.denies(&Name::from_url_path(path.as_bytes()).unwrap());
        assert!(denies("/a/.git/config"));
        assert!(denies("/WEB.CONFIG"));
        assert!(denies("/web.config/x"));
        assert!(!denies("/.well-known/acme-challenge/t"));
        assert!(!denies("/web.config.txt"));
    }

    proptest! {
        #[test]
        fn no_name_leaves_its_base(path in "/[a-c./%\\\\:~1 2ef]{0,24}") {
            for flavour in [Flavour::Posix, Flavour::Windows] {
                let Ok(name) = Name::from_url_path_of(flavour, path.as_bytes()) else { continue };
                prop_assert!(!name.as_bytes().starts_with(b"/"));
                for component in name.as_bytes().split(|byte| *byte == b'/') {
                    prop_assert!(component != b".." && component != b".");
                }
            }
        }
    }
}
