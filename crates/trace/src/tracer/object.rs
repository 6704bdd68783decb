//! Pieces of code in programs, and the call sites that are known of each file.

use std::collections::HashMap;
use std::rc::Rc;

use thruway_sys::ptrace;

use super::site::Site;

/// A piece of code in a program.
#[derive(Debug, Clone)]
pub(super) struct Object {
    pub(super) start: u64,
    end: u64,
    /// Which piece of which file it is, as `/proc/PID/maps` has it.
    pub(super) file: Rc<str>,
}

/// Sites that made calls in some program, by the file that they are in and relative to where it is
/// mapped. Programs that are started again and again stop once a file, and not once a site.
#[derive(Debug, Default)]
pub(super) struct UsedSites(HashMap<Rc<str>, Vec<Site>>);

/// Of further files nothing is remembered; their sites stop each by itself.
const FILES_MAX: usize = 1 << 12;

/// No more code of a file is looked at: 10 ms of work. What lies behind stops the first time, or each time
/// where there are threads.
const CODE_BYTES_MAX: u64 = 32 << 20;
/// Jumps into a site are looked for so far around it.
const NEARBY_BYTES: u64 = 1 << 20;

impl Object {
    /// The pieces of code of a program that lie in files.
    pub(super) fn all(id: i32) -> Vec<Self> {
        let maps = std::fs::read_to_string(format!("/proc/{id}/maps")).unwrap_or_default();
        maps.lines().filter_map(Self::parse).collect()
    }

    /// The one in which this site lies.
    pub(super) fn at(id: i32, site: u64) -> Option<Self> {
        Self::all(id).into_iter().find(|object| object.contains(site))
    }

    /// From a line of `/proc/PID/maps`; `None` for what is no code, or in no file.
    fn parse(line: &str) -> Option<Self> {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = (number(start)?, number(end)?);
        let is_code_of_file = rest.starts_with("r-x") && rest.contains('/');
        is_code_of_file.then(|| Self { start, end, file: rest.into() })
    }

    /// Its size.
    pub(super) fn bytes(&self) -> u64 {
        self.end - self.start
    }

    pub(super) fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Its bytes, as far as they can be read.
    pub(super) fn code(&self, id: i32) -> Vec<u8> {
        Self::read(id, self.start, self.end.min(self.start + CODE_BYTES_MAX))
    }

    /// Its bytes around an address, and where those begin.
    pub(super) fn code_around(&self, id: i32, address: u64) -> (u64, Vec<u8>) {
        let start = self.start.max(address.saturating_sub(NEARBY_BYTES));
        (start, Self::read(id, start, self.end.min(address + NEARBY_BYTES)))
    }

    fn read(id: i32, start: u64, end: u64) -> Vec<u8> {
        const CHUNK: usize = 1 << 16;
        let mut code = vec![0; usize::try_from(end - start).unwrap_or(0)];
        for (index, chunk) in code.chunks_mut(CHUNK).enumerate() {
            if ptrace::read_memory(id, start + (index * CHUNK) as u64, chunk).is_err() {
                break;
            }
        }
        code
    }
}

impl UsedSites {
    /// Those of an object's file, where they lie in that object.
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
    fn code_is_told_from_data() {
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
}
