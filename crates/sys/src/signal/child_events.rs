//! Reports changes of children through a descriptor, whatever handler the program has for `SIGCHLD`.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::event::{EventfdFlags, eventfd};

use crate::outcome::check;

/// The descriptor that the handler writes to; -1 for none.
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);

/// A descriptor that is readable when a child has stopped, continued or ended. While the value lives, the process uses
/// its handler for `SIGCHLD`; dropping the value restores the previous handler. Only a single value may exist at a
/// time.
#[derive(Debug)]
pub struct ChildEvents {
    descriptor: OwnedFd,
    before: Before,
}

struct Before(libc::sigaction);

impl std::fmt::Debug for Before {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Before")
    }
}

impl ChildEvents {
    /// Installs the handler.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        DESCRIPTOR.store(descriptor.as_raw_fd(), Ordering::SeqCst);
        // SAFETY: a sigaction consists of plain numbers, for which zero is valid.
        let mut action = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
        action.sa_sigaction = note as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        let mut before = MaybeUninit::uninit();
        // SAFETY: both places are valid, and the handler is async-signal-safe: it only writes to a descriptor.
        check(unsafe { libc::sigaction(libc::SIGCHLD, &raw const action, before.as_mut_ptr()) })?;
        // SAFETY: the call has filled the structure.
        let before = Before(unsafe { before.assume_init() });
        Ok(Self { descriptor, before })
    }

    /// Discards the events so far.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.descriptor, &mut [0; 8]);
    }
}

extern "C" fn note(_: libc::c_int) {
    let descriptor = DESCRIPTOR.load(Ordering::SeqCst);
    if descriptor >= 0 {
        // SAFETY: the descriptor is open as long as its number is stored there.
        let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
        // rustix makes the bare system call, which leaves errno alone.
        let _ = rustix::io::write(descriptor, &1_u64.to_ne_bytes());
    }
}

impl AsFd for ChildEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for ChildEvents {
    fn drop(&mut self) {
        DESCRIPTOR.store(-1, Ordering::SeqCst);
        // SAFETY: the action comes from the kernel, and its handler still exists.
        unsafe { libc::sigaction(libc::SIGCHLD, &raw const self.before.0, ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Change, Wait, fork, wait};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    #[test]
    fn the_end_of_a_child_makes_it_readable() {
        let events = ChildEvents::new().unwrap();
        let child = fork(|| 3).unwrap();
        let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
        let mut change = None;
        while change.is_none() {
            let mut polled = [PollFd::new(&events, PollFlags::IN)];
            assert_eq!(poll(&mut polled, Some(&patience)).unwrap_or(1), 1);
            events.clear();
            change = wait(Wait::News(child)).unwrap();
        }
        assert_eq!(change, Some((child, Change::Exited(3))));
    }
}
