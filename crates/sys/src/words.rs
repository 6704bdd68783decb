//! Memory that two processes share, word by word.

use std::ffi::CStr;
use std::io;
use std::ops::{Deref, Range};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fstat};
use rustix::fs::{ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

const WORD_BYTES: usize = size_of::<AtomicU64>();
/// Pages are given back whole.
const PAGE_WORDS: usize = 4096 / WORD_BYTES;

/// An array of words in a file without a name. It outlives a process that dies, as long as another
/// one holds its descriptor. Words that were never written are zero and take no memory.
#[derive(Debug)]
pub struct SharedWords {
    start: NonNull<AtomicU64>,
    count: usize,
    file: OwnedFd,
}

// SAFETY: the words are atomic, so any thread may read and write them.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Makes `count` words, all zero. `name` is for `/proc` only.
    ///
    /// # Errors
    /// The system refuses the file or the map.
    pub fn new(name: &CStr, count: usize) -> io::Result<Self> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let bytes = count.checked_mul(WORD_BYTES).ok_or(io::ErrorKind::InvalidInput)?;
        ftruncate(&file, u64::try_from(bytes).map_err(io::Error::other)?)?;
        // Nobody can ever shrink it, so that reads cannot fault.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Self::from_file(file)
    }

    /// The words in a file that another process made with [`new`](Self::new).
    ///
    /// # Errors
    /// The file can still shrink, is empty, or cannot be mapped.
    pub fn from_file(file: OwnedFd) -> io::Result<Self> {
        let seals = rustix::fs::fcntl_get_seals(&file)?;
        let bytes = usize::try_from(fstat(&file)?.st_size).map_err(io::Error::other)?;
        if !seals.contains(SealFlags::SHRINK) || bytes < WORD_BYTES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let start =
            unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, &file, 0) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, count: bytes / WORD_BYTES, file })
    }

    /// Gives back the memory of the whole pages within these words; they are zero afterwards.
    ///
    /// # Errors
    /// Whatever the system reports.
    pub fn release(&self, words: Range<usize>) -> io::Result<()> {
        let first = words.start.next_multiple_of(PAGE_WORDS);
        let last = words.end.min(self.count) / PAGE_WORDS * PAGE_WORDS;
        if first >= last {
            return Ok(());
        }
        let bytes = |words: usize| u64::try_from(words * WORD_BYTES).map_err(io::Error::other);
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.file, hole, bytes(first)?, bytes(last - first)?)?)
    }
}

impl Deref for SharedWords {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the mapping holds `count` aligned words until `drop`, zero is a valid word, the
        // file cannot shrink, and everyone who shares it uses atomic operations.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl AsFd for SharedWords {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: the map was made by `from_file` with this start and length; nobody borrows it.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.count * WORD_BYTES) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn two_maps_show_the_same_words() {
        let words = SharedWords::new(c"test", 5000).unwrap();
        words[4999].store(7, Relaxed);
        let other = SharedWords::from_file(words.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(other.len(), 5000);
        assert_eq!(other[4999].load(Relaxed), 7);
    }

    #[test]
    fn released_pages_are_zero_and_their_neighbours_are_not() {
        let words = SharedWords::new(c"test", 4 * PAGE_WORDS).unwrap();
        words.iter().for_each(|word| word.store(1, Relaxed));
        words.release(PAGE_WORDS - 1..3 * PAGE_WORDS + 1).unwrap();
        let sum: u64 = words.iter().map(|word| word.load(Relaxed)).sum();
        assert_eq!(sum, u64::try_from(2 * PAGE_WORDS).unwrap());
    }

    #[test]
    fn a_file_that_can_shrink_is_refused() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        assert!(SharedWords::from_file(file.into()).is_err());
    }
}
