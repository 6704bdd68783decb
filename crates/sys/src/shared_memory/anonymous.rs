//! Shared memory without a file, which children inherit by `fork`.

use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// An array of 64-bit words that this process shares with every child that it forks later.
///
/// The words are initially zero. The memory has neither name nor file, so only descendants can reach it. Each process
/// unmaps its own view when the value is dropped or the process ends.
#[derive(Debug)]
pub struct Anonymous {
    start: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the words are atomic, and the mapping stays in place until the value is dropped.
unsafe impl Send for Anonymous {}
// SAFETY: as above; all access through a shared reference is atomic.
unsafe impl Sync for Anonymous {}

impl Anonymous {
    /// Allocates `count` words.
    ///
    /// # Errors
    /// `ENOMEM`, and `EINVAL` if `count` is zero.
    pub fn new(count: usize) -> io::Result<Self> {
        let length = count.checked_mul(size_of::<AtomicU64>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = MapFlags::SHARED;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), length, protection, flags) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, count })
    }
}

impl Deref for Anonymous {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, holds `count` words (for which zero is valid), and lives until `drop`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl Drop for Anonymous {
    fn drop(&mut self) {
        let length = self.count * size_of::<AtomicU64>();
        // SAFETY: `new` created the mapping with this start and length, and nothing borrows it.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), length) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn words_start_at_zero_and_keep_what_is_stored() {
        let words = Anonymous::new(1000).unwrap();
        assert!(words.iter().all(|word| word.load(Relaxed) == 0));
        words[999].store(7, Relaxed);
        assert_eq!(words[999].load(Relaxed), 7);
        assert!(Anonymous::new(0).is_err());
    }
}
