//! The kernel's mounts, from `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// The file-system type of thruway mounts.
pub(crate) const KIND: &str = "fuse.thruway";

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mounted {
    /// Device number, `major:minor`.
    pub(crate) device: String,
    pub(crate) target: PathBuf,
    pub(crate) kind: String,
}

impl Mounted {
    pub(crate) fn is_ours(&self) -> bool {
        self.kind == KIND
    }
}

/// All mounts that this process sees, in the order in which they were made.
pub(crate) fn all() -> io::Result<Vec<Mounted>> {
    let table = fs::read("/proc/self/mountinfo")?;
    Ok(table.split(|&byte| byte == b'\n').filter_map(parse).collect())
}

/// The topmost mount at this absolute path.
pub(crate) fn at(target: &Path) -> io::Result<Option<Mounted>> {
    Ok(all()?.into_iter().rev().find(|mounted| mounted.target == target))
}

/// The kernel's table of mounts at one time.
#[derive(Debug, Default)]
pub(crate) struct Table {
    lines: Vec<Line>,
}

/// One mount in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// The kernel uses the number again when the mount is gone.
    pub(crate) id: u64,
    pub(crate) parent: u64,
    /// `major:minor` of its file system.
    pub(crate) device: Vec<u8>,
    /// Whether it shows its whole file system, not only a folder of it.
    pub(crate) is_whole: bool,
    pub(crate) target: PathBuf,
    /// All that is said about it: options may change, too.
    text: Vec<u8>,
}

impl Table {
    pub(crate) fn read() -> io::Result<Self> {
        let table = fs::read("/proc/self/mountinfo")?;
        Ok(Self { lines: table.split(|&byte| byte == b'\n').filter_map(Line::parse).collect() })
    }

    pub(crate) fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The mount with this number; `None` also for one that is in no table, as a private copy.
    pub(crate) fn get(&self, id: u64) -> Option<&Line> {
        self.lines.iter().find(|line| line.id == id)
    }

    /// Whether something is mounted upon this mount.
    pub(crate) fn has_children(&self, id: u64) -> bool {
        self.lines.iter().any(|line| line.parent == id && line.id != id)
    }
}

impl Line {
    fn parse(text: &[u8]) -> Option<Self> {
        let fields: Vec<_> = text.split(|&byte| byte == b' ').collect();
        let number = |at: usize| std::str::from_utf8(fields.get(at)?).ok()?.parse().ok();
        Some(Self {
            id: number(0)?,
            parent: number(1)?,
            device: fields.get(2)?.to_vec(),
            is_whole: *fields.get(3)? == b"/",
            target: OsString::from_vec(unescape(fields.get(4)?)).into(),
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

    /// Returns after a change since the last call.
    pub(crate) fn wait(&self) -> Result<(), Errno> {
        loop {
            let mut changed = [PollFd::new(&self.table, PollFlags::PRI | PollFlags::ERR)];
            match poll(&mut changed, None) {
                Err(Errno::INTR) => {}
                changed => return changed.map(drop),
            }
        }
    }
}

/// Whether there is a mount on top of a thruway mount.
pub(crate) fn any_on_top_of_ours() -> bool {
    // If the table cannot be read, there may be one.
    fs::read("/proc/self/mountinfo").map_or(true, |table| has_mount_on_ours(&table))
}

fn has_mount_on_ours(table: &[u8]) -> bool {
    let lines = || table.split(|&byte| byte == b'\n');
    let number =
        |line: &[u8], which| line.split(|&byte| byte == b' ').nth(which).map(<[u8]>::to_vec);
    let is_ours = |line: &&[u8]| parse(line).is_some_and(|mounted| mounted.is_ours());
    let ours: Vec<_> = lines().filter(is_ours).filter_map(|line| number(line, 0)).collect();
    lines().filter_map(|line| number(line, 1)).any(|parent| ours.contains(&parent))
}

/// `ID PARENT DEVICE ROOT TARGET OPTIONS [FIELD…] - TYPE SOURCE …` (proc(5)).
fn parse(line: &[u8]) -> Option<Mounted> {
    let mut fields = line.split(|&byte| byte == b' ');
    let device = fields.nth(2)?;
    let target = fields.nth(1)?;
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some(Mounted {
        device: text(device),
        target: OsString::from_vec(unescape(target)).into(),
        kind: text(kind),
    })
}

/// Blanks and line ends are escaped by a backslash and three octal digits.
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
        let line = br"36 35 0:40 / /a\040b\134 rw,noatime master:1 - fuse.thruway /x rw";
        let mounted = parse(line).unwrap();
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
        let line = |text: &[u8]| Line::parse(text).unwrap();
        let lines = vec![
            line(b"36 36 0:40 / / rw - ext4 /x rw"),
            line(br"37 36 0:41 /sub /a\040b rw - tmpfs none rw"),
        ];
        let table = Table { lines };
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
