//! Absolute paths on Windows: `C:/a/b`, in UTF-8, as Ruby has them.
//!
//! Windows knows many spellings of one file. Those that are not clean here are left to Ruby: shares and devices
//! (`//server/share`, `//?/C:/a`), `\`, short names (`PROGRA~1`), names with a dot or a blank at their end, which
//! Windows drops, names of devices (`aux.rb`), and paths that are too long for most programs.

/// The bytes of the longest path that programs can open unless they ask for more (`MAX_PATH` without the NUL).
const PATH_BYTES_MAX: usize = 259;

/// The length of a root such as `C:/`.
const ROOT_BYTES: usize = 3;

/// Names that lead to devices in every folder, with any suffix.
const DEVICES: [&[u8]; 7] = [b"aux", b"con", b"nul", b"prn", b"conin$", b"conout$", b"clock$"];

/// Whether the path is absolute and has only plain components. Only for such a path do lexical operations and
/// the system agree on the file, whatever links are on the way.
#[must_use]
pub fn is_clean(path: &[u8]) -> bool {
    let [drive, b':', b'/', rest @ ..] = path else { return false };
    let are_plain = || rest.split(|byte| *byte == b'/').all(is_plain_component);
    drive.is_ascii_alphabetic()
        && path.len() <= PATH_BYTES_MAX
        && std::str::from_utf8(rest).is_ok()
        && (rest.is_empty() || are_plain())
}

/// Whether a component of a path can only be the name of an entry in its folder.
#[must_use]
pub fn is_plain_component(component: &[u8]) -> bool {
    let is_special = |byte: &u8| {
        matches!(byte, 0..=31 | b'"' | b'*' | b':' | b'<' | b'>' | b'?' | b'\\' | b'|' | b'~')
    };
    !matches!(component.last(), None | Some(b'.' | b' '))
        && !component.iter().any(is_special)
        && !is_device(component)
}

fn is_device(component: &[u8]) -> bool {
    let stem = component.split(|byte| *byte == b'.').next().unwrap_or(component);
    let stem = stem.trim_ascii_end();
    // `COM1` to `COM9`, also with a superscript digit.
    let is_port = |port: &[u8]| {
        stem.get(..3).is_some_and(|start| start.eq_ignore_ascii_case(port))
            && matches!(&stem[3..], [b'0'..=b'9'] | [0xC2, 0xB2 | 0xB3 | 0xB9])
    };
    DEVICES.iter().any(|device| stem.eq_ignore_ascii_case(device))
        || is_port(b"com")
        || is_port(b"lpt")
}

/// Splits a clean path into its folder and its last component; `None` for the root.
#[must_use]
pub fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let slash = path.iter().rposition(|byte| *byte == b'/')?;
    let name = &path[slash + 1..];
    if name.is_empty() {
        return None;
    }
    let end = if slash < ROOT_BYTES { ROOT_BYTES } else { slash };
    // A path that does not begin with a drive has no folder here; each step upwards makes a path shorter.
    let folder = path.get(..end).filter(|folder| folder.get(1) == Some(&b':'))?;
    Some((folder, name))
}

/// Returns `folder` + `/` + `name`.
#[must_use]
pub fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(folder.len() + 1 + name.len());
    path.extend_from_slice(folder);
    if !folder.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_with_one_meaning_are_clean() {
        for clean in ["C:/", "c:/a", "Z:/a/b.rb", "C:/a/.b/c", "C:/a b/\u{e9}", "C:/console/com10"]
        {
            assert!(is_clean(clean.as_bytes()), "{clean}");
        }
        let others = [
            "",
            "a",
            "/a",
            "C:",
            "C:a",
            "C:\\a",
            "C:/a\\b",
            "C:/a/",
            "C://a",
            "C:/a/./b",
            "C:/..",
            "C:/a\0",
            "//server/share/a",
            "//?/C:/a",
            "C:/PROGRA~1/a",
            "C:/a./b",
            "C:/a /b",
            "C:/a.rb:stream",
            "C:/a*",
            "C:/aux.rb",
            "C:/NUL",
            "C:/x/Com1.txt",
            "C:/lpt9",
            "1:/a",
        ];
        others.iter().for_each(|other| assert!(!is_clean(other.as_bytes()), "{other:?}"));
        assert!(!is_clean(format!("C:/{}", "a".repeat(257)).as_bytes()));
        assert!(!is_clean(b"C:/\xFF"));
    }

    #[test]
    fn a_path_is_split_and_joined_again() {
        assert_eq!(split(b"C:/a/b.rb"), Some((&b"C:/a"[..], &b"b.rb"[..])));
        assert_eq!(split(b"C:/a"), Some((&b"C:/"[..], &b"a"[..])));
        for other in [&b"C:/"[..], b"/", b"/a", b"/a/b", b"a/b", b"C:"] {
            assert_eq!(split(other), None);
        }
        assert_eq!(join(b"C:/", b"a"), b"C:/a");
        assert_eq!(join(b"C:/a", b"b.rb"), b"C:/a/b.rb");
    }
}
