//! A source as the user gives it: a path or a pattern, and what the mount may do in the source.
//!
//! The form is that of mergerfs: `PATH[=OPTION[,OPTION…]]`, where an option is `RW`, `RO`, `NC`, or the minimal free
//! space, such as `50G`.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thruway_sys::printable;

use crate::Error;

/// The changes that the mount may make in a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceAccess {
    /// Everything.
    #[default]
    ReadWrite,
    /// Read files. All changes fail with `EROFS`.
    ReadOnly,
    /// Change and remove files, but create none.
    NoCreate,
}

/// A source of a mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceSpec {
    /// The folder, or a pattern of folders, as an absolute path.
    #[serde(with = "crate::plan::path")]
    pub path: PathBuf,
    /// The text that the user gave.
    #[serde(with = "crate::plan::path")]
    pub given: PathBuf,
    /// The changes that the mount may make in the source.
    pub access: SourceAccess,
    /// New files are only created here while this number of bytes is free; `None` follows the mount's own limit.
    pub free_min_bytes: Option<u64>,
}

impl SourceSpec {
    /// Parses a source. A text that is the path of an existing folder has no options.
    ///
    /// # Errors
    /// The path is relative.
    pub fn parse(text: &OsStr) -> Result<Self, Error> {
        let whole = || Self {
            path: text.into(),
            given: text.into(),
            access: SourceAccess::ReadWrite,
            free_min_bytes: None,
        };
        let parsed = match split_options(text) {
            Some((path, options)) if fs::symlink_metadata(text).is_err() => options_of(options)
                .map(|(access, free_min_bytes)| Self {
                    path: OsStr::from_bytes(path).into(),
                    given: text.into(),
                    access,
                    free_min_bytes,
                }),
            _ => None,
        };
        let spec = parsed.unwrap_or_else(whole);
        if spec.path.is_absolute() {
            return Ok(spec);
        }
        Err(Error::plain(format_args!(
            "the source {} is not an absolute path",
            printable::path(&spec.path)
        )))
    }

    /// Returns the source of a path alone.
    pub(crate) fn plain(path: &Path) -> Self {
        Self {
            path: path.into(),
            given: path.into(),
            access: SourceAccess::ReadWrite,
            free_min_bytes: None,
        }
    }

    /// Whether the source was given as a path alone, without options and without a pattern.
    pub(crate) fn is_plain(&self) -> bool {
        !self.is_pattern() && self.path == self.given
    }

    /// Whether the path is a pattern, and not itself an existing folder.
    pub(crate) fn is_pattern(&self) -> bool {
        let bytes = self.path.as_os_str().as_bytes();
        bytes.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['))
            && fs::symlink_metadata(&self.path).is_err()
    }

    /// Returns the folders that match the pattern, in the order of their names, or the source itself if its path is not
    /// a pattern.
    ///
    /// # Errors
    /// The pattern is malformed, or it is not UTF-8.
    pub(crate) fn expand(&self) -> Result<Vec<Self>, Error> {
        if !self.is_pattern() {
            return Ok(vec![self.clone()]);
        }
        let wrong = |cause: &dyn fmt::Display| {
            Error::plain(format_args!(
                "the pattern {} is malformed: {cause}",
                printable::path(&self.path)
            ))
        };
        let pattern = self.path.to_str().ok_or_else(|| wrong(&"it is not UTF-8"))?;
        // As in a shell, a name that begins with a dot has to be asked for.
        let options = glob::MatchOptions {
            require_literal_leading_dot: true,
            require_literal_separator: true,
            ..glob::MatchOptions::new()
        };
        let found = glob::glob_with(pattern, options).map_err(|error| wrong(&error))?;
        let folders = found.flatten().filter(|path| path.is_dir());
        Ok(folders.map(|path| Self { path, ..self.clone() }).collect())
    }
}

impl fmt::Display for SourceSpec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.path.display())?;
        let access = match self.access {
            SourceAccess::ReadWrite => None,
            SourceAccess::ReadOnly => Some("RO".to_owned()),
            SourceAccess::NoCreate => Some("NC".to_owned()),
        };
        let options: Vec<_> =
            access.into_iter().chain(self.free_min_bytes.map(|bytes| bytes.to_string())).collect();
        if options.is_empty() { Ok(()) } else { write!(formatter, "={}", options.join(",")) }
    }
}

/// Splits at the last `=` of the last component.
fn split_options(text: &OsStr) -> Option<(&[u8], &str)> {
    let bytes = text.as_bytes();
    let at = bytes.iter().rposition(|&byte| byte == b'=')?;
    let options = std::str::from_utf8(&bytes[at + 1..]).ok()?;
    (at > 0 && !options.contains('/')).then_some((&bytes[..at], options))
}

/// Returns the options, or `None` if the text after `=` belongs to the name of the folder.
fn options_of(text: &str) -> Option<(SourceAccess, Option<u64>)> {
    let (mut access, mut free_min_bytes) = (SourceAccess::ReadWrite, None);
    for option in text.split(',') {
        match option {
            "RW" => access = SourceAccess::ReadWrite,
            "RO" => access = SourceAccess::ReadOnly,
            "NC" => access = SourceAccess::NoCreate,
            size => free_min_bytes = Some(parse_bytes(size).ok()?),
        }
    }
    Some((access, free_min_bytes))
}

/// Parses a number of bytes such as `50G` or `1.5T`; units are powers of 1024.
///
/// # Errors
/// The text is not a number with an optional unit.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a number of bytes, such as 50G");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        "P" | "PB" | "PIB" => 50,
        _ => return Err(wrong()),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(fraction) || fraction.len() > 9 {
        return Err(wrong());
    }
    let unit = 1u128 << shift;
    let scale = 10u128.pow(u32::try_from(fraction.len()).unwrap_or(0));
    let parts: u128 = fraction.parse().unwrap_or(0);
    let bytes = whole.parse::<u128>().ok().and_then(|whole| whole.checked_mul(unit));
    let bytes = bytes.and_then(|bytes| bytes.checked_add(parts * unit / scale));
    bytes.and_then(|bytes| u64::try_from(bytes).ok()).ok_or_else(wrong)
}

/// Reads a file of sources: one a line. Empty lines and lines that begin with `#` are ignored.
///
/// # Errors
/// The file cannot be read, or a line is not an absolute path.
pub(crate) fn read_sources(path: &Path) -> Result<Vec<SourceSpec>, Error> {
    let text = fs::read(path).map_err(|cause| Error::new("cannot read", path, cause))?;
    let lines = text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    lines
        .enumerate()
        .filter(|(_, line)| !line.is_empty() && !line.starts_with(b"#"))
        .map(|(number, line)| {
            SourceSpec::parse(OsStr::from_bytes(line)).map_err(|error| {
                Error::plain(format_args!("{}:{}: {error}", printable::path(&path), number + 1))
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> SourceSpec {
        SourceSpec::parse(OsStr::new(text)).unwrap()
    }

    #[test]
    fn options_follow_the_path() {
        let plain = spec("/a");
        assert!(plain.is_plain());
        let parsed = spec("/a=NC,50G");
        assert_eq!(
            (parsed.path.as_path(), parsed.access),
            (Path::new("/a"), SourceAccess::NoCreate)
        );
        assert_eq!(parsed.free_min_bytes, Some(50 << 30));
        assert_eq!(spec("/a=RO").access, SourceAccess::ReadOnly);
        assert_eq!(spec("/a=RW").path, plain.path);
        assert!(spec("/a=RW").access == SourceAccess::ReadWrite && !spec("/a=RW").is_plain());
        // Text that sets no option belongs to the name.
        assert_eq!(spec("/a=b").path, Path::new("/a=b"));
        assert_eq!(spec("/a=RO/b").path, Path::new("/a=RO/b"));
        assert!(SourceSpec::parse(OsStr::new("a=RO")).is_err());
    }

    #[test]
    fn an_existing_folder_is_taken_by_its_whole_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk=RO");
        fs::create_dir(&path).unwrap();
        let parsed = SourceSpec::parse(path.as_os_str()).unwrap();
        assert_eq!((parsed.path, parsed.access), (path, SourceAccess::ReadWrite));
    }

    #[test]
    fn bytes_have_units_and_fractions() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("4k", 4096),
            ("1.5G", 3 << 29),
            ("2T", 2 << 40),
            ("1MiB", 1 << 20),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for wrong in ["", "G", "-1", "1X", "1.5.5", "99999999999P", "1 G"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_pattern_names_folders_in_order() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["disk2", "disk1", ".disk0", "other"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("disk3"), "a file").unwrap();
        let pattern = folder.path().join("disk*=NC");
        let found = SourceSpec::parse(pattern.as_os_str()).unwrap().expand().unwrap();
        let names: Vec<_> = found.iter().map(|spec| spec.path.file_name().unwrap()).collect();
        assert_eq!(names, ["disk1", "disk2"]);
        assert!(found.iter().all(|spec| spec.access == SourceAccess::NoCreate));
    }

    #[test]
    fn a_file_of_sources_has_comments_and_its_errors_have_lines() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "# disks\n/a=RO\n\n  /b\n").unwrap();
        assert_eq!(read_sources(file.path()).unwrap(), [spec("/a=RO"), spec("/b")]);
        fs::write(file.path(), "/a\nb\n").unwrap();
        assert!(read_sources(file.path()).unwrap_err().to_string().contains(":2: "));
    }
}
