//! Maps a whole file as read-only memory.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// A private, read-only mapping of a whole file.
///
/// The bytes stay readable for as long as this value lives, even if the file is renamed over or removed, since the
/// mapping refers to the inode. A writer that *shrinks* the inode would make reads fault. So map only files that are
/// replaced by rename and never edited in place, as packs are.
#[derive(Debug)]
pub struct ReadOnlyMap {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory is read-only through this type, so threads may share it.
unsafe impl Send for ReadOnlyMap {}
// SAFETY: as above; a `&ReadOnlyMap` gives no way to write.
unsafe impl Sync for ReadOnlyMap {}

/// Linux has an advice that drops the pages at once; other systems take POSIX's advice as a hint.
#[cfg(target_os = "linux")]
const DROP_PAGES: Advice = Advice::LinuxDontNeed;
#[cfg(not(target_os = "linux"))]
const DROP_PAGES: Advice = Advice::DontNeed;

impl ReadOnlyMap {
    /// Maps `file` from the first byte to the last. An empty file gives an empty slice.
    ///
    /// # Errors
    /// Any error of `fstat` and `mmap`: the file is a pipe or a folder, or memory is short.
    pub fn new(file: &File) -> io::Result<Self> {
        let length = usize::try_from(file.metadata()?.len())
            .map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        if length == 0 {
            return Ok(Self { start: NonNull::dangling(), length });
        }
        // SAFETY: a fresh private mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe {
            mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::PRIVATE, file, 0)
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, length })
    }

    /// Returns the memory of all whole pages from byte `from` on to the system. Later reads load the pages from the
    /// file again. Errors are ignored, since they only keep the memory in use.
    pub fn release(&self, from: usize) {
        if from >= self.length {
            return;
        }
        let from = from.next_multiple_of(rustix::param::page_size());
        let length = self.length.saturating_sub(from);
        let start = self.start.as_ptr().wrapping_add(from);
        // SAFETY: the range lies in this mapping, whose pages were never written and come from the file.
        let _ = unsafe { madvise(start.cast(), length, DROP_PAGES) };
    }
}

impl Deref for ReadOnlyMap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` is valid for `length` bytes until `drop`, and never written to.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl Drop for ReadOnlyMap {
    fn drop(&mut self) {
        if self.length > 0 {
            // SAFETY: `new` created the mapping with this start and length, and nothing borrows it.
            let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
            debug_assert!(unmapped.is_ok());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_map_holds_the_bytes_of_the_file() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"from a name to its bytes").unwrap();
        assert_eq!(&*ReadOnlyMap::new(&file).unwrap(), b"from a name to its bytes");
    }

    #[test]
    fn released_pages_are_read_again() {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8).collect();
        file.write_all(&bytes).unwrap();
        let map = ReadOnlyMap::new(&file).unwrap();
        assert_eq!(&*map, bytes);
        map.release(5000);
        assert_eq!(&map[..5000], &bytes[..5000]);
        assert_eq!(resident_bytes(&map), 8192, "the page with byte 5000 stays");
        map.release(200_000);
        assert_eq!(&*map, bytes);
    }

    /// Returns the number of resident pages.
    fn resident_bytes(map: &ReadOnlyMap) -> usize {
        let start = map.as_ptr() as usize;
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = maps.lines().skip_while(|line| !line.starts_with(&format!("{start:x}-")));
        let line = lines.find_map(|line| line.strip_prefix("Rss:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() * 1024
    }

    #[test]
    fn an_empty_file_is_an_empty_slice() {
        assert!(ReadOnlyMap::new(&tempfile::tempfile().unwrap()).unwrap().is_empty());
    }

    #[test]
    fn a_replaced_file_leaves_the_map_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pack");
        std::fs::write(&path, b"old").unwrap();
        let map = ReadOnlyMap::new(&File::open(&path).unwrap()).unwrap();
        std::fs::write(folder.path().join("new"), b"newer").unwrap();
        std::fs::rename(folder.path().join("new"), &path).unwrap();
        assert_eq!(&*map, b"old");
    }

    #[test]
    fn a_folder_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(ReadOnlyMap::new(&File::open(folder.path()).unwrap()).is_err());
    }
}
