//! The table of mounts and its changes. inotify does not report that a mount hides a folder.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, BorrowedFd};

/// The mounts that this process sees. The descriptor signals changes to `poll`.
#[derive(Debug)]
pub(super) struct Mounts {
    table: File,
    known: HashSet<Mount>,
}

/// A mount's number and its folder.
type Mount = (Vec<u8>, Vec<u8>);

impl Mounts {
    pub(super) fn new() -> io::Result<Self> {
        let mut table = File::open("/proc/self/mountinfo")?;
        let known = read(&mut table)?;
        Ok(Self { table, known })
    }

    /// Returns the folders on which something was mounted or unmounted since the last call.
    pub(super) fn changed(&mut self) -> io::Result<HashSet<Vec<u8>>> {
        let now = read(&mut self.table)?;
        let before = std::mem::replace(&mut self.known, now);
        Ok(before.symmetric_difference(&self.known).map(|(_, folder)| folder.clone()).collect())
    }
}

impl AsFd for Mounts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.table.as_fd()
    }
}

fn read(table: &mut File) -> io::Result<HashSet<Mount>> {
    let mut text = Vec::new();
    table.rewind()?;
    table.read_to_end(&mut text)?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(mount).collect())
}

/// Parses a line: its first and fifth words (proc(5), `/proc/pid/mountinfo`).
fn mount(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|byte| *byte == b' ');
    let number = words.next()?;
    Some((number.to_vec(), unescaped(words.nth(3)?)))
}

/// Decodes spaces and other special characters, which the table encodes as `\` and three octal digits.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(word.len());
    let mut rest = word;
    while let [first, after @ ..] = rest {
        match after {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] if *first == b'\\' => {
                text.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                text.push(*first);
                rest = after;
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_the_mount_and_its_folder() {
        let line = br"36 35 98:0 /mnt1 /a\040b/c\134d rw,noatime master:1 - ext3 /dev/root rw";
        assert_eq!(mount(line), Some((b"36".to_vec(), br"/a b/c\d".to_vec())));
        assert_eq!(mount(b""), None);
    }

    #[test]
    fn a_table_that_stays_has_no_changes() {
        let mut mounts = Mounts::new().unwrap();
        mounts.known.insert((b"none".to_vec(), b"/gone".to_vec()));
        assert!(mounts.changed().unwrap().contains(b"/gone".as_slice()));
        assert!(!mounts.changed().unwrap().contains(b"/gone".as_slice()));
    }
}
