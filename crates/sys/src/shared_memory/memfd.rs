//! Shared memory in an unnamed file, which any process that holds the descriptor can map.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fstat};
use rustix::fs::{ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::outcome::check;

/// The bit that the kernel sets in the word of [`Memfd::mark_at_my_end`] when the thread has ended.
pub const OWNER_DIED: u32 = 0x4000_0000;

const WORD_BYTES: usize = size_of::<AtomicU64>();
/// The kernel releases memory in whole pages.
const PAGE_WORDS: usize = 4096 / WORD_BYTES;

/// An array of words in a memory file (`memfd_create(2)`).
///
/// The memory outlives a process that dies, as long as another process holds the descriptor. Words that were never
/// written are zero and take no memory. The length of the file is sealed.
#[derive(Debug)]
pub struct Memfd {
    start: NonNull<AtomicU64>,
    count: usize,
    file: File,
}

// SAFETY: the words are atomic, so any thread may read and write them.
unsafe impl Send for Memfd {}
// SAFETY: as above.
unsafe impl Sync for Memfd {}

impl Memfd {
    /// Creates a file of `count` words, all zero. `/proc/PID/maps` shows `name`.
    ///
    /// # Errors
    /// The system refuses the file or the mapping.
    pub fn new(name: &CStr, count: usize) -> io::Result<Self> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let bytes = count.checked_mul(WORD_BYTES).ok_or(io::ErrorKind::InvalidInput)?;
        ftruncate(&file, u64::try_from(bytes).map_err(io::Error::other)?)?;
        // Reading a page that was cut off would kill the process.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Self::from_file(file)
    }

    /// Maps a file that another process created with [`new`](Self::new).
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
        Ok(Self { start, count: bytes / WORD_BYTES, file: file.into() })
    }

    /// Releases the memory of the whole pages within `words`, which read as zero afterwards.
    ///
    /// # Errors
    /// Any error of `fallocate`.
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

    /// Returns the file that holds the words.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the four-byte word at byte offset `at`.
    ///
    /// # Panics
    /// If `at` is not aligned or out of bounds.
    #[must_use]
    pub fn word32(&self, at: usize) -> &AtomicU32 {
        let pointer = self.pointer::<AtomicU32>(at);
        // SAFETY: the word is in bounds, aligned, alive as long as `self`, and only ever accessed atomically.
        unsafe { pointer.as_ref() }
    }

    /// Returns the eight-byte word at byte offset `at`.
    ///
    /// # Panics
    /// If `at` is not aligned or out of bounds.
    #[must_use]
    pub fn word64(&self, at: usize) -> &AtomicU64 {
        let pointer = self.pointer::<AtomicU64>(at);
        // SAFETY: the word is in bounds, aligned, alive as long as `self`, and only ever accessed atomically.
        unsafe { pointer.as_ref() }
    }

    fn length(&self) -> usize {
        self.count * WORD_BYTES
    }

    fn pointer<T>(&self, at: usize) -> NonNull<T> {
        let size = size_of::<T>();
        assert!(at.is_multiple_of(size) && at <= self.length() - size, "no word at {at}");
        // SAFETY: the offset is inside the mapping, as the assertion has checked.
        unsafe { self.start.byte_add(at) }.cast()
    }

    /// Appends `length` bytes from byte offset `at` on to `bytes`. If another process writes them meanwhile, each word
    /// is whole, but two words may be from different times.
    ///
    /// # Panics
    /// If `at` or `length` is not a multiple of eight, or the range is out of bounds.
    pub fn read(&self, at: usize, length: usize, bytes: &mut Vec<u8>) {
        assert!(length.is_multiple_of(8), "{length} is no multiple of eight");
        let words = self.words64(at, length / 8);
        bytes.extend(words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()));
    }

    /// Returns `count` eight-byte words from byte offset `at` on.
    fn words64(&self, at: usize, count: usize) -> &[AtomicU64] {
        let first = self.pointer::<AtomicU64>(at);
        assert!(count <= (self.length() - at) / 8, "no {count} words at {at}");
        // SAFETY: all words are in bounds and aligned, as the assertions have checked, alive as long as `self`, and
        // only ever accessed atomically.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), count) }
    }

    /// Writes `bytes` word by word; the last word is padded with zeros.
    ///
    /// # Panics
    /// If `at` is not a multiple of eight, or the range is out of bounds.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        for (word, chunk) in (at..).step_by(8).zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..chunk.len()].copy_from_slice(chunk);
            self.word64(word).store(u64::from_ne_bytes(whole), Ordering::Relaxed);
        }
    }

    /// Makes the kernel set [`OWNER_DIED`] in the four-byte word at byte offset `at` when this thread ends, even by a
    /// signal. The word must hold this thread's id. Each thread may call this function only once, since the call
    /// replaces its list of robust locks.
    ///
    /// # Errors
    /// `ENOSYS`: the kernel was built without robust locks.
    pub fn mark_at_my_end(&self, at: usize) -> io::Result<()> {
        let word = self.pointer::<AtomicU32>(at);
        // The kernel reads the list when the thread ends, so the list is never freed.
        let head = Box::leak(Box::new(RobustList {
            next: std::ptr::null(),
            offset: 0,
            pending: word.as_ptr().cast_const().cast(),
        }));
        head.next = std::ptr::from_ref(head).cast();
        let (address, size) = (std::ptr::from_ref(head), size_of::<RobustList>());
        // SAFETY: `head` lives as long as the process, and so does the mapping that it points into.
        let answer = unsafe { libc::syscall(libc::SYS_set_robust_list, address, size) };
        check(i32::try_from(answer).unwrap_or(-1))
    }
}

/// The kernel's `struct robust_list_head`: an empty list, with a pending lock.
#[repr(C)]
struct RobustList {
    next: *const u8,
    offset: libc::c_long,
    pending: *const u8,
}

impl Deref for Memfd {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the mapping holds `count` aligned words until `drop`, zero is a valid word, the file cannot shrink,
        // and all processes use atomic operations.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl AsFd for Memfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Memfd {
    fn drop(&mut self) {
        // SAFETY: `from_file` created the mapping with this start and length, and nothing borrows it.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.length()) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Wait, fork, wait};
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn two_maps_show_the_same_words() {
        let words = Memfd::new(c"test", 5000).unwrap();
        words[4999].store(7, Relaxed);
        let other = Memfd::from_file(words.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(other.len(), 5000);
        assert_eq!(other[4999].load(Relaxed), 7);
    }

    #[test]
    fn released_pages_are_zero_and_their_neighbours_are_not() {
        let words = Memfd::new(c"test", 4 * PAGE_WORDS).unwrap();
        words.iter().for_each(|word| word.store(1, Relaxed));
        words.release(PAGE_WORDS - 1..3 * PAGE_WORDS + 1).unwrap();
        let sum: u64 = words.iter().map(|word| word.load(Relaxed)).sum();
        assert_eq!(sum, u64::try_from(2 * PAGE_WORDS).unwrap());
    }

    #[test]
    fn a_file_that_can_shrink_is_refused() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        assert!(Memfd::from_file(file.into()).is_err());
    }

    #[test]
    fn words_are_shared_with_a_child_and_its_end_is_marked() {
        let memory = Memfd::new(c"test", 1024).unwrap();
        let child = fork(|| {
            let thread = rustix::thread::gettid().as_raw_pid();
            memory.word32(4096).store(thread.unsigned_abs(), Ordering::Release);
            memory.mark_at_my_end(4096).unwrap();
            memory.word64(8).store(7, Ordering::Release);
            crate::process::die_of(libc::SIGKILL)
        });
        let child = child.unwrap();
        while wait(Wait::News(child)).unwrap().is_none() {
            std::thread::yield_now();
        }
        let mut bytes = Vec::new();
        memory.read(0, 16, &mut bytes);
        assert_eq!(bytes, [[0; 8], 7_u64.to_ne_bytes()].concat());
        assert_eq!(memory.word32(4096).load(Ordering::Acquire) & OWNER_DIED, OWNER_DIED);
    }

    #[test]
    fn written_bytes_are_read_back() {
        let memory = Memfd::new(c"test", 512).unwrap();
        memory.write(8, b"ten bytes.");
        let mut bytes = Vec::new();
        memory.read(8, 16, &mut bytes);
        assert_eq!(bytes, b"ten bytes.\0\0\0\0\0\0");
    }

    #[test]
    #[should_panic(expected = "no word at 8192")]
    fn a_word_outside_is_refused() {
        let _ = Memfd::new(c"test", 1024).unwrap().word32(8192);
    }
}
