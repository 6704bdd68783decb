//! Memory that several processes share: all of it is atomic words, because any of them may write.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::outcome::check;

/// Set in a word given to [`SharedMemory::mark_at_my_end`] when that thread has ended.
pub const OWNER_DIED: u32 = 0x4000_0000;

/// A nameless file of the memory file system, mapped here and by whoever inherits or opens it.
/// Memory is used only for pages that were touched.
#[derive(Debug)]
pub struct SharedMemory {
    start: NonNull<u8>,
    length: usize,
    file: File,
}

// SAFETY: every access goes through atomic words.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// `length` bytes of zeros; `name` shows up in `/proc/PID/maps`.
    ///
    /// # Errors
    /// `ENOMEM`, `EMFILE`: the system has no room for it.
    pub fn new(name: &CStr, length: usize) -> io::Result<Self> {
        // SAFETY: the kernel reads a NUL-terminated name.
        let descriptor = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
        check(descriptor)?;
        // SAFETY: the descriptor is new and nobody else's.
        let file = unsafe { File::from_raw_fd(descriptor) };
        file.set_len(u64::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?)?;
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), length, access, kind, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, length, file })
    }

    /// The file itself.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The four-byte word at byte `at`.
    ///
    /// # Panics
    /// If it is not aligned, or not inside.
    #[must_use]
    pub fn word32(&self, at: usize) -> &AtomicU32 {
        let pointer = self.pointer::<AtomicU32>(at);
        // SAFETY: inside, aligned, alive as long as `self`, and only ever used as atomic words.
        unsafe { pointer.as_ref() }
    }

    /// The eight-byte word at byte `at`.
    ///
    /// # Panics
    /// If it is not aligned, or not inside.
    #[must_use]
    pub fn word64(&self, at: usize) -> &AtomicU64 {
        let pointer = self.pointer::<AtomicU64>(at);
        // SAFETY: inside, aligned, alive as long as `self`, and only ever used as atomic words.
        unsafe { pointer.as_ref() }
    }

    fn pointer<T>(&self, at: usize) -> NonNull<T> {
        let size = size_of::<T>();
        assert!(at.is_multiple_of(size) && at <= self.length - size, "no word at {at}");
        // SAFETY: inside the mapping, as was just checked.
        unsafe { self.start.byte_add(at) }.cast()
    }

    /// Appends `length` bytes from `at` on, which another process may be writing: each word is whole,
    /// together they need not be.
    ///
    /// # Panics
    /// If `at` or `length` is not a multiple of eight, or the bytes are not inside.
    pub fn read(&self, at: usize, length: usize, bytes: &mut Vec<u8>) {
        assert!(length.is_multiple_of(8), "{length} is no multiple of eight");
        let words = self.words64(at, length / 8);
        bytes.extend(words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()));
    }

    /// As many eight-byte words from byte `at` on.
    fn words64(&self, at: usize, count: usize) -> &[AtomicU64] {
        let first = self.pointer::<AtomicU64>(at);
        assert!(count <= (self.length - at) / 8, "no {count} words at {at}");
        // SAFETY: all are inside and aligned, as was just checked, alive as long as `self`, and only
        // ever used as atomic words.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), count) }
    }

    /// Writes bytes, a word at a time; the last word is filled up with zeros.
    ///
    /// # Panics
    /// If `at` is not a multiple of eight, or the bytes are not inside.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        for (word, chunk) in (at..).step_by(8).zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..chunk.len()].copy_from_slice(chunk);
            self.word64(word).store(u64::from_ne_bytes(whole), Ordering::Relaxed);
        }
    }

    /// Lets the kernel set [`OWNER_DIED`] in the four-byte word at `at` when this thread ends, in
    /// whatever way it ends. The word must hold this thread's id. Once a process: it takes the place
    /// of the list of robust locks, of which there are none.
    ///
    /// # Errors
    /// `ENOSYS`: the kernel was built without it.
    pub fn mark_at_my_end(&self, at: usize) -> io::Result<()> {
        let word = self.pointer::<AtomicU32>(at);
        // The kernel reads the list when the thread ends, so it is never freed.
        let head = Box::leak(Box::new(RobustList {
            next: ptr::null(),
            offset: 0,
            pending: word.as_ptr().cast_const().cast(),
        }));
        head.next = ptr::from_ref(head).cast();
        let (address, size) = (ptr::from_ref(head), size_of::<RobustList>());
        // SAFETY: `head` lives as long as the process, and so does the mapping it points into.
        let answer = unsafe { libc::syscall(libc::SYS_set_robust_list, address, size) };
        check(i32::try_from(answer).unwrap_or(-1))
    }
}

/// The kernel's `struct robust_list_head`: an empty list, and one lock "being taken".
#[repr(C)]
struct RobustList {
    next: *const u8,
    offset: libc::c_long,
    pending: *const u8,
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the map was made by `new` with this start and length, and nobody borrows it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// The id of the calling thread.
#[must_use]
pub fn thread() -> i32 {
    // SAFETY: `gettid` has no preconditions and cannot fail.
    unsafe { libc::gettid() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Wait, fork, wait};

    #[test]
    fn words_are_shared_with_a_child_and_its_end_is_marked() {
        let memory = SharedMemory::new(c"test", 8192).unwrap();
        let child = fork(|| {
            memory.word32(4096).store(thread().unsigned_abs(), Ordering::Release);
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
    fn what_was_written_is_read() {
        let memory = SharedMemory::new(c"test", 4096).unwrap();
        memory.write(8, b"ten bytes.");
        let mut bytes = Vec::new();
        memory.read(8, 16, &mut bytes);
        assert_eq!(bytes, b"ten bytes.\0\0\0\0\0\0");
    }

    #[test]
    #[should_panic(expected = "no word at 8192")]
    fn a_word_outside_is_refused() {
        let _ = SharedMemory::new(c"test", 8192).unwrap().word32(8192);
    }
}
