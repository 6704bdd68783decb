//! Signals as something to read, instead of handlers.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// A descriptor from which the signals that arrive are read.
#[derive(Debug)]
pub struct Signals {
    descriptor: OwnedFd,
}

impl Signals {
    /// Takes these signals: they no longer interrupt this thread, nor threads that it starts from
    /// now on. Call it before any other thread exists.
    ///
    /// # Errors
    /// Whatever the system reports.
    pub fn take(numbers: &[i32]) -> io::Result<Self> {
        let set = set_of(numbers);
        // SAFETY: the set is initialised, and the old one is not asked for.
        let error =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        // SAFETY: the set is initialised.
        let descriptor =
            unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just opened this descriptor for us, and nobody else has it.
        Ok(Self { descriptor: unsafe { OwnedFd::from_raw_fd(descriptor) } })
    }

    /// The next signal that has arrived, if one has.
    ///
    /// # Errors
    /// Whatever the system reports.
    pub fn next(&self) -> io::Result<Option<i32>> {
        let mut record = [0; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.descriptor, &mut record) {
            Ok(_) => {
                // The signal's number is the record's first field.
                let number = u32::from_ne_bytes([record[0], record[1], record[2], record[3]]);
                Ok(Some(i32::try_from(number).map_err(io::Error::other)?))
            }
            Err(rustix::io::Errno::AGAIN) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn set_of(numbers: &[i32]) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is valid for writes.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for &number in numbers {
        // SAFETY: `sigemptyset` has initialised the set; a bad number is refused, not undefined.
        unsafe { libc::sigaddset(set.as_mut_ptr(), number) };
    }
    // SAFETY: `sigemptyset` has initialised it.
    unsafe { set.assume_init() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_signal_is_read_and_kills_nobody() {
        // In a thread of its own: the mask is the thread's.
        let thread = std::thread::spawn(|| {
            let signals = Signals::take(&[libc::SIGTERM]).unwrap();
            assert_eq!(signals.next().unwrap(), None);
            // SAFETY: the signal goes to this thread, which has blocked it.
            assert_eq!(unsafe { libc::raise(libc::SIGTERM) }, 0);
            assert_eq!(signals.next().unwrap(), Some(libc::SIGTERM));
            assert_eq!(signals.next().unwrap(), None);
        });
        thread.join().unwrap();
    }
}
