//! Code mappings of programs, and the known call sites of each file.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::rc::Rc;

use rustix::fs;
use thruway_sys::ptrace;

use super::search::CodeReader;
use super::site::Site;

/// A mapping of code in a program.
#[derive(Debug, Clone)]
pub(super) struct Object {
    pub(super) start: u64,
    end: u64,
    /// The file and the part of it that is mapped, as in `/proc/PID/maps`.
    pub(super) file: Rc<str>,
}

/// Sites at which some program made calls, by file and relative to the mapping. With these a program that is
/// started again stops once per file instead of once per site.
#[derive(Debug, Default)]
pub(super) struct UsedSites(HashMap<Rc<str>, Vec<Site>>);

/// The most files whose sites are remembered. Sites in other files stop individually.
const FILES_MAX: usize = 1 << 12;

impl Object {
    /// Returns all mappings of code that belong to files.
    pub(super) fn all(id: i32) -> Vec<Self> {
        let maps = std::fs::read_to_string(format!("/proc/{id}/maps")).unwrap_or_default();
        maps.lines().filter_map(Self::parse).collect()
    }

    /// Returns the mapping that contains a site.
    pub(super) fn at(id: i32, site: u64) -> Option<Self> {
        Self::all(id).into_iter().find(|object| object.contains(site))
    }

    /// Parses a line of `/proc/PID/maps`; `None` if the mapping is not code or has no file.
    fn parse(line: &str) -> Option<Self> {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = (number(start)?, number(end)?);
        let is_code_of_file = rest.starts_with("r-x") && rest.contains('/');
        is_code_of_file.then(|| Self { start, end, file: rest.into() })
    }

    /// The size in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.end - self.start
    }

    pub(super) fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Returns a reader of the code: from the file, which is faster, or from the program's memory if the file
    /// cannot be opened.
    pub(super) fn code(&self, id: i32) -> CodeReader<impl FnMut(usize, &mut [u8]) -> usize> {
        let file = self.open(id);
        let start = self.start;
        let read = move |at: usize, piece: &mut [u8]| {
            let at = at as u64;
            match &file {
                Some((file, offset)) => file.read_at(piece, offset + at).unwrap_or(0),
                None => ptrace::read_memory(id, start + at, piece).unwrap_or(0),
            }
        };
        CodeReader { bytes: usize::try_from(self.bytes()).unwrap_or(0), read }
    }

    /// Opens the file, and returns it with the offset of the mapping. `None` if the file has gone or was
    /// replaced, or if the file system reports other inode numbers to programs than to the kernel.
    fn open(&self, id: i32) -> Option<(File, u64)> {
        let mut words = self.file.splitn(5, ' ');
        let (_, offset, device, inode) =
            (words.next()?, words.next()?, words.next()?, words.next()?);
        let path = words.next()?.trim_start();
        let (major, minor) = device.split_once(':')?;
        let number = |text| u32::from_str_radix(text, 16).ok();
        let device = fs::makedev(number(major)?, number(minor)?);
        let mut options = File::options();
        // The path may by now name a pipe, on which opening must not block.
        options.read(true).custom_flags(fs::OFlags::NONBLOCK.bits().cast_signed());
        let file = options.open(format!("/proc/{id}/root{path}")).ok()?;
        let metadata = file.metadata().ok()?;
        let is_same = metadata.is_file()
            && metadata.dev() == device
            && inode.parse().is_ok_and(|inode: u64| metadata.ino() == inode);
        let offset = u64::from_str_radix(offset, 16).ok()?;
        is_same.then_some((file, offset))
    }
}

impl UsedSites {
    /// Returns the known sites of an object's file, at their addresses in this object.
    pub(super) fn of(&self, object: &Object) -> impl Iterator<Item = Site> {
        let (start, end) = (object.start, object.end);
        let sites = self.0.get(&object.file).into_iter().flatten();
        sites.map(move |site| site.moved(start)).filter(move |site| site.back < end)
    }

    /// Remembers a site in an object.
    pub(super) fn learn(&mut self, object: &Object, site: &Site) {
        let site = site.moved(0_u64.wrapping_sub(object.start));
        if let Some(known) = self.0.get_mut(&object.file) {
            if !known.contains(&site) {
                known.push(site);
            }
        } else if self.0.len() < FILES_MAX {
            self.0.insert(Rc::clone(&object.file), vec![site]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "1000-3000 r-xp 00026000 fe:00 77 /lib/libc.so.6";

    #[test]
    fn code_is_distinguished_from_data() {
        let object = Object::parse(CODE).unwrap();
        assert_eq!((object.start, object.end), (0x1000, 0x3000));
        assert_eq!(&*object.file, "r-xp 00026000 fe:00 77 /lib/libc.so.6");
        assert!(Object::parse("1000-3000 rw-p 00026000 fe:00 77 /lib/libc.so.6").is_none());
        assert!(Object::parse("1000-3000 r-xp 00000000 00:00 0").is_none());
    }

    #[test]
    fn a_site_is_known_wherever_its_file_is_mapped() {
        let here = Object::parse(CODE).unwrap();
        let there = Object::parse(&CODE.replace("1000-3000", "8000-a000")).unwrap();
        let other = Object::parse(&CODE.replace("77", "78")).unwrap();
        let site = Site::new(&[0xb8, 2, 0, 0, 0], 0x1234).unwrap();
        let mut used = UsedSites::default();
        used.learn(&here, &site);
        used.learn(&here, &site);
        assert_eq!(used.of(&there).collect::<Vec<_>>(), [site.moved(0x7000)]);
        assert_eq!(used.of(&other).count(), 0);
    }

    #[test]
    fn code_is_read_from_its_file_as_it_is_in_memory() {
        let own = i32::try_from(std::process::id()).unwrap();
        let program = std::env::current_exe().unwrap();
        let is_own = |object: &Object| object.file.ends_with(program.to_str().unwrap());
        let object = Object::all(own).into_iter().find(is_own).unwrap();
        let (file, offset) = object.open(own).unwrap();
        let (mut from_file, mut from_memory) = ([0; 4096], [0; 4096]);
        file.read_exact_at(&mut from_file, offset).unwrap();
        File::open("/proc/self/mem")
            .unwrap()
            .read_exact_at(&mut from_memory, object.start)
            .unwrap();
        assert_eq!(from_file, from_memory);
        // Another file has taken the name.
        let words = object.file.replacen(' ', " 1", 3);
        assert!(Object { file: words.into(), ..object }.open(own).is_none());
    }
}
