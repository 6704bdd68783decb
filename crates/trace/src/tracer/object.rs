//! Pieces of code in programs, and the call sites that are known of each file.

use std::collections::{HashMap, HashSet};
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

impl Object {
    /// The pieces of code in which these sites lie.
    pub(super) fn all(id: i32, sites: &HashSet<u64>) -> Vec<Self> {
        let maps = std::fs::read_to_string(format!("/proc/{id}/maps")).unwrap_or_default();
        let objects = maps.lines().filter_map(Self::parse);
        objects.filter(|object| sites.iter().any(|site| object.contains(*site))).collect()
    }

    /// The one in which this site lies.
    pub(super) fn at(id: i32, site: u64) -> Option<Self> {
        Self::all(id, &HashSet::from([site])).pop()
    }

    /// From a line of `/proc/PID/maps`; `None` for what is no code.
    fn parse(line: &str) -> Option<Self> {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = (number(start)?, number(end)?);
        rest.starts_with("r-x").then(|| Self { start, end, file: rest.into() })
    }

    pub(super) fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Its bytes, as far as they can be read.
    pub(super) fn code(&self, id: i32) -> Vec<u8> {
        // Programs that carry all their code in one file have more; their sites stop the first time.
        const BYTES_MAX: u64 = 4 << 20;
        const CHUNK: usize = 1 << 16;
        let length = usize::try_from((self.end - self.start).min(BYTES_MAX)).unwrap_or(0);
        let mut code = vec![0; length];
        for (index, chunk) in code.chunks_mut(CHUNK).enumerate() {
            let at = self.start + (index * CHUNK) as u64;
            if ptrace::read_memory(id, at, chunk).is_err() {
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
        let site = Site { back: site.back - object.start, ..*site };
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
    }

    #[test]
    fn a_site_is_known_wherever_its_file_is_mapped() {
        let here = Object::parse(CODE).unwrap();
        let there = Object::parse(&CODE.replace("1000-3000", "8000-a000")).unwrap();
        let other = Object::parse(&CODE.replace("77", "78")).unwrap();
        let site = Site { back: 0x1234, displaced: [0xb8, 2, 0, 0, 0], is_fixed: true };
        let mut used = UsedSites::default();
        used.learn(&here, &site);
        used.learn(&here, &site);
        assert_eq!(used.of(&there).collect::<Vec<_>>(), [Site { back: 0x8234, ..site }]);
        assert_eq!(used.of(&other).count(), 0);
    }
}
