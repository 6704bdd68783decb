//! One-shot files, whose content can be read only once: pipes, devices, and a process's own descriptors.
//!
//! A template that reads such a file takes the content away from the command, and later commands find
//! nothing.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, major, stat};

/// The number of symbolic links that the kernel follows in one path.
const LINKS_MAX: usize = 40;
/// The major number of `/dev/null`, `/dev/zero` and `/dev/urandom`, which give every reader the same.
const MEMORY_DEVICES: u32 = 1;

/// Whether the file at a path can be read only once.
#[must_use]
pub fn is_one_shot(path: &Path) -> bool {
    is_descriptor(path)
        || stat(path).is_ok_and(|stat| match FileType::from_raw_mode(stat.st_mode) {
            FileType::Fifo | FileType::Socket | FileType::BlockDevice => true,
            FileType::CharacterDevice => major(stat.st_rdev) != MEMORY_DEVICES,
            _ => false,
        })
}

/// Returns the first word of a command that names a one-shot file for Ruby to load: its script, or the value
/// of `-r`.
#[must_use]
pub fn one_shot_word(words: &[OsString]) -> Option<&OsStr> {
    let is_one = |word: &&OsString| {
        let bytes = word.as_bytes();
        is_one_shot(Path::new(OsStr::from_bytes(bytes.strip_prefix(b"-r").unwrap_or(bytes))))
    };
    words.iter().find(is_one).map(OsString::as_os_str)
}

/// Whether a path, or the target of its links, is a descriptor of the process. The last link leads to no path
/// (`pipe:[7]`), so names are compared on the way.
fn is_descriptor(path: &Path) -> bool {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        if is_name_of_descriptor(path.as_os_str().as_bytes()) {
            return true;
        }
        let Ok(target) = std::fs::read_link(&path) else { return false };
        path = path.parent().map_or_else(PathBuf::new, Path::to_owned).join(target);
    }
    false
}

fn is_name_of_descriptor(path: &[u8]) -> bool {
    let has_number = |rest: &[u8]| !rest.is_empty() && rest.iter().all(u8::is_ascii_digit);
    if [&b"/dev/stdin"[..], b"/dev/stdout", b"/dev/stderr"].contains(&path) {
        return true;
    }
    let of_process = || {
        let rest = path.strip_prefix(b"/proc/")?;
        let place = rest.windows(4).position(|part| part == b"/fd/")?;
        Some(&rest[place + 4..])
    };
    path.strip_prefix(b"/dev/fd/").or_else(of_process).is_some_and(has_number)
}

/// Replaces the working directory, root or open folder of a process in a path (`/proc/self/cwd/a.rb`) by the
/// folder's real path; `None` for other paths. The kernel generates only the link: the files below it are
/// ordinary ones.
#[must_use]
pub(crate) fn without_process(path: &[u8]) -> Option<Vec<u8>> {
    if !path.starts_with(b"/proc/") {
        return None;
    }
    let ends = path.iter().enumerate().skip(6).filter(|(_, byte)| **byte == b'/');
    let ends = ends.map(|(place, _)| place).chain([path.len()]);
    let link = |end: &usize| {
        let (link, rest) = (&path[..*end], &path[*end..]);
        let leads = link.ends_with(b"/cwd") || link.ends_with(b"/root");
        leads || !rest.is_empty() && is_name_of_descriptor(link)
    };
    let end = ends.into_iter().find(link)?;
    let target = std::fs::read_link(OsStr::from_bytes(&path[..end])).ok()?;
    let mut target = target.into_os_string().into_vec();
    if target == b"/" && end < path.len() {
        target.clear();
    }
    target.extend_from_slice(&path[end..]);
    Some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_shot_files_are_recognized_by_their_type_or_name() {
        let folder = tempfile::tempdir().unwrap();
        let [pipe, link, file] = ["pipe", "link", "file"].map(|name| folder.path().join(name));
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o600))
            .unwrap();
        std::os::unix::fs::symlink("/dev/stdin", &link).unwrap();
        std::fs::write(&file, "").unwrap();
        for passing in [&pipe, &link, Path::new("/dev/fd/63"), Path::new("/proc/self/fd/0")] {
            assert!(is_one_shot(passing), "{}", passing.display());
        }
        let option = [OsString::from("ruby"), OsString::from(format!("-r{}", pipe.display()))];
        assert_eq!(one_shot_word(&option), Some(option[1].as_os_str()));
        for kept in [&file, folder.path(), Path::new("/dev/null"), Path::new("/dev/urandom")] {
            assert!(!is_one_shot(kept), "{}", kept.display());
        }
    }

    #[test]
    fn a_path_through_a_process_is_the_path_of_a_file() {
        let here = std::env::current_dir().unwrap().into_os_string().into_vec();
        let below_root = [&b"/proc/self/root"[..], b"/etc/x"].concat();
        for (path, expected) in [
            (&b"/proc/self/cwd/a.rb"[..], Some([&here[..], b"/a.rb"].concat())),
            (b"/proc/self/cwd", Some(here.clone())),
            (&below_root[..], Some(b"/etc/x".to_vec())),
            (b"/proc/self/status", None),
            (b"/a/cwd/b", None),
        ] {
            assert_eq!(without_process(path), expected);
        }
    }
}
