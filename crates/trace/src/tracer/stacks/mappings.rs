//! The code of a process: which file lies at which addresses.

use std::rc::Rc;

/// A mapping of a file's code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) end: u64,
    /// The position in the file at which the mapping begins.
    pub(super) offset: u64,
    /// The device, the inode and the path, as in `/proc/PID/maps`.
    pub(super) file: Rc<str>,
}

/// Returns the mappings of code that belong to files, in the order of their addresses.
pub(super) fn of(id: i32) -> Vec<Mapping> {
    let maps = std::fs::read_to_string(format!("/proc/{id}/maps")).unwrap_or_default();
    maps.lines().filter_map(Mapping::parse).collect()
}

impl Mapping {
    /// Parses a line of `/proc/PID/maps`; `None` if the mapping is not code or has no file.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(4, ' ');
        let (range, rights, offset, file) =
            (words.next()?, words.next()?, words.next()?, words.next()?);
        let (start, end) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let is_code = rights.as_bytes().get(2) == Some(&b'x') && file.contains('/');
        let (start, end, offset) = (number(start)?, number(end)?, number(offset)?);
        is_code.then(|| Self { start, end, offset, file: file.into() })
    }

    /// The device, as `major:minor` in hexadecimal, the inode, and the path.
    pub(super) fn identity(&self) -> Option<(&str, u64, &str)> {
        let mut words = self.file.splitn(3, ' ');
        let (device, inode, path) = (words.next()?, words.next()?, words.next()?);
        Some((device, inode.parse().ok()?, path.trim_start()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_files_is_kept() {
        let line = "7f00-8f00 r-xp 00026000 fe:01 1234                       /usr/lib/a b.so";
        let mapping = Mapping::parse(line).expect("a mapping of code");
        assert_eq!((mapping.start, mapping.end, mapping.offset), (0x7f00, 0x8f00, 0x26000));
        assert_eq!(mapping.identity(), Some(("fe:01", 1234, "/usr/lib/a b.so")));
        for other in [
            "7f00-8f00 r--p 00026000 fe:01 1234                       /usr/lib/a.so",
            "7f00-8f00 r-xp 00000000 00:00 0                          [vdso]",
            "7f00-8f00 rwxp 00000000 00:00 0 ",
            "",
        ] {
            assert_eq!(Mapping::parse(other), None, "{other}");
        }
    }
}
