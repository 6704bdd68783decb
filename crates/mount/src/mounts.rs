//! Reads the kernel's table of mounts from `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// The file-system type of thruway mounts.
pub(crate) const KIND: &str = "fuse.thruway";

/// A mount as needed to find and unmount it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountInfo {
    /// The device number as `major:minor`.
    pub(crate) device: String,
    pub(crate) target: PathBuf,
    pub(crate) kind: String,
}

impl MountInfo {
    pub(crate) fn is_ours(&self) -> bool {
        self.kind == KIND
    }
}

/// Returns all mounts that this process sees, in the order in which they were made.
pub(crate) fn all() -> io::Result<Vec<MountInfo>> {
    let table = fs::read("/proc/self/mountinfo")?;
    Ok(table.split(|&byte| byte == b'\n').filter_map(parse).collect())
}

/// Returns the topmost mount at this absolute path.
pub(crate) fn at(target: &Path) -> io::Result<Option<MountInfo>> {
    Ok(all()?.into_iter().rev().find(|mounted| mounted.target == target))
}

/// A snapshot of the kernel's table of mounts.
#[derive(Debug, Default)]
pub(crate) struct MountTable {
    entries: Vec<TableEntry>,
}

/// An entry of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableEntry {
    /// The mount id. The kernel reuses the ids of unmounted file systems.
    pub(crate) id: u64,
    pub(crate) parent: u64,
    /// The device number of the file system as `major:minor`.
    pub(crate) device: Vec<u8>,
    /// Whether the mount shows the root of its file system, not a folder below.
    pub(crate) is_whole: bool,
    pub(crate) target: PathBuf,
    /// The options of the mount itself, such as `ro,noatime`.
    pub(crate) options: Vec<u8>,
    /// The whole line, to notice changes of options as well.
    text: Vec<u8>,
}

impl MountTable {
    pub(crate) fn read() -> io::Result<Self> {
        let table = fs::read("/proc/self/mountinfo")?;
        Ok(Self {
            entries: table.split(|&byte| byte == b'\n').filter_map(TableEntry::parse).collect(),
        })
    }

    pub(crate) fn entries(&self) -> &[TableEntry] {
        &self.entries
    }

    /// Returns the mount with this id. Private copies of mounts are in no table, so they give `None`.
    pub(crate) fn get(&self, id: u64) -> Option<&TableEntry> {
        self.entries.iter().find(|entry| entry.id == id)
    }

    /// Whether another file system is mounted on top of this mount.
    pub(crate) fn has_children(&self, id: u64) -> bool {
        self.entries.iter().any(|entry| entry.parent == id && entry.id != id)
    }
}

impl TableEntry {
    fn parse(text: &[u8]) -> Option<Self> {
        let fields: Vec<_> = text.split(|&byte| byte == b' ').collect();
        let number = |at: usize| std::str::from_utf8(fields.get(at)?).ok()?.parse().ok();
        Some(Self {
            id: number(0)?,
            parent: number(1)?,
            device: fields.get(2)?.to_vec(),
            is_whole: *fields.get(3)? == b"/",
            target: OsString::from_vec(unescape(fields.get(4)?)).into(),
            options: fields.get(5)?.to_vec(),
            text: text.to_vec(),
        })
    }
}

/// Waits for changes of the table.
#[derive(Debug)]
pub(crate) struct TableChanges {
    table: fs::File,
}

impl TableChanges {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { table: fs::File::open("/proc/self/mountinfo")? })
    }

    /// Blocks until the table changes or the time is over, or returns at once after a change since the last call.
    pub(crate) fn wait(&self, time: Option<Duration>) -> Result<(), Errno> {
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        loop {
            let mut changed = [PollFd::new(&self.table, PollFlags::PRI | PollFlags::ERR)];
            match poll(&mut changed, time.as_ref()) {
                Err(Errno::INTR) => {}
                changed => return changed.map(drop),
            }
        }
    }
}

/// Whether a file system is mounted on top of a thruway mount.
pub(crate) fn any_on_top_of_ours() -> bool {
    // If the table cannot be read, such a mount may exist.
    fs::read("/proc/self/mountinfo").map_or(true, |table| has_mount_on_ours(&table))
}

fn has_mount_on_ours(table: &[u8]) -> bool {
    let entries = || table.split(|&byte| byte == b'\n');
    let number =
        |entry: &[u8], which| entry.split(|&byte| byte == b' ').nth(which).map(<[u8]>::to_vec);
    let is_ours = |entry: &&[u8]| parse(entry).is_some_and(|mounted| mounted.is_ours());
    let ours: Vec<_> = entries().filter(is_ours).filter_map(|entry| number(entry, 0)).collect();
    entries().filter_map(|entry| number(entry, 1)).any(|parent| ours.contains(&parent))
}

/// Parses `ID PARENT DEVICE ROOT TARGET OPTIONS [FIELD…] - TYPE SOURCE …` (proc(5)).
fn parse(entry: &[u8]) -> Option<MountInfo> {
    let mut fields = entry.split(|&byte| byte == b' ');
    let device = fields.nth(2)?;
    let target = fields.nth(1)?;
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some(MountInfo {
        device: text(device),
        target: OsString::from_vec(unescape(target)).into(),
        kind: text(kind),
    })
}

/// Decodes blanks and line ends, which are escaped as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = after.get(..3).filter(|_| byte == b'\\').and_then(octal);
        plain.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() { &after[3..] } else { after };
    }
    plain
}

fn octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_with_its_escapes() {
        let entry = br"36 35 0:40 / /a\040b\134 rw,noatime master:1 - fuse.thruway /x rw";
        let mounted = parse(entry).unwrap();
        assert_eq!(mounted.target, Path::new(r"/a b\"));
        assert_eq!((mounted.device.as_str(), mounted.is_ours()), ("0:40", true));
        assert_eq!(parse(b"36 35 0:40 / /a rw"), None);
    }

    #[test]
    fn a_mount_on_top_of_ours_is_found() {
        let ours = b"36 35 0:40 / /a rw,noatime - fuse.thruway /x rw\n".as_slice();
        assert!(!has_mount_on_ours(ours));
        assert!(!has_mount_on_ours(&[ours, b"37 35 0:41 / /b rw - tmpfs none rw\n"].concat()));
        assert!(has_mount_on_ours(&[ours, b"37 36 0:41 / /a/b rw - tmpfs none rw\n"].concat()));
    }

    #[test]
    fn a_table_says_what_is_mounted_upon_what() {
        let entry = |text: &[u8]| TableEntry::parse(text).unwrap();
        let entries = vec![
            entry(b"36 36 0:40 / / rw - ext4 /x rw"),
            entry(br"37 36 0:41 /sub /a\040b rw - tmpfs none rw"),
        ];
        let table = MountTable { entries };
        assert_eq!((table.has_children(36), table.has_children(37)), (true, false));
        let upper = table.get(37).unwrap();
        assert_eq!((upper.target.as_path(), upper.is_whole), (Path::new("/a b"), false));
        assert_eq!(table.get(38), None);
    }

    #[test]
    fn the_mount_at_a_path_is_found() {
        assert!(at(Path::new("/proc")).unwrap().is_some_and(|proc| !proc.is_ours()));
        assert_eq!(at(Path::new("/no/such/mount")).unwrap(), None);
    }
}
