//! Signals that end a process, whatever a program that it was has made of them.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use crate::outcome::check;

/// While it lives, these signals have their default action; then the one before.
pub struct DefaultActions(Vec<(i32, libc::sigaction)>);

impl DefaultActions {
    /// Begins.
    ///
    /// # Errors
    /// `EINVAL`: one of them is no signal, or has no other action.
    pub fn new(signals: &[i32]) -> io::Result<Self> {
        // SAFETY: a sigaction is plain numbers, for which zero is valid: the default action.
        let default = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
        let mut before = Self(Vec::new());
        for signal in signals {
            let mut action = MaybeUninit::uninit();
            // SAFETY: both places are valid, and the default action runs no code of ours.
            check(unsafe { libc::sigaction(*signal, &raw const default, action.as_mut_ptr()) })?;
            // SAFETY: the call has filled it.
            before.0.push((*signal, unsafe { action.assume_init() }));
        }
        Ok(before)
    }
}

impl Drop for DefaultActions {
    fn drop(&mut self) {
        for (signal, action) in &self.0 {
            // SAFETY: the action is what the kernel gave, whose handler is still there.
            unsafe { libc::sigaction(*signal, &raw const *action, ptr::null_mut()) };
        }
    }
}

impl std::fmt::Debug for DefaultActions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("DefaultActions")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Change, Wait, fork, wait};

    #[test]
    fn an_ignored_signal_ends_the_process_meanwhile_and_not_afterwards() {
        let raised = |meanwhile: bool| {
            let child = fork(|| {
                // SAFETY: it runs no code of ours.
                unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
                let actions = DefaultActions::new(&[libc::SIGTERM]);
                let _kept = actions.ok().filter(|_| meanwhile);
                // SAFETY: as above.
                unsafe { libc::raise(libc::SIGTERM) };
                3
            });
            let child = child.unwrap();
            loop {
                if let Some((_, change)) = wait(Wait::News(child)).unwrap() {
                    return change;
                }
                std::thread::yield_now();
            }
        };
        assert_eq!(raised(true), Change::Killed(libc::SIGTERM));
        assert_eq!(raised(false), Change::Exited(3));
    }
}
