//! Gives signals their default action for a while, whatever handlers the program has installed.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use crate::outcome::check;

/// Restores the previous actions of signals when it is dropped; until then, they have their default action.
pub struct DefaultActions(Vec<(i32, libc::sigaction)>);

impl DefaultActions {
    /// Sets the default action for `signals`.
    ///
    /// # Errors
    /// `EINVAL`: a number is not a signal, or the signal's action cannot be changed.
    pub fn new(signals: &[i32]) -> io::Result<Self> {
        // SAFETY: a sigaction consists of plain numbers, for which zero is valid: the default action.
        let default = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
        let mut before = Self(Vec::new());
        for signal in signals {
            let mut action = MaybeUninit::uninit();
            // SAFETY: both places are valid, and the default action runs no code of this program.
            check(unsafe { libc::sigaction(*signal, &raw const default, action.as_mut_ptr()) })?;
            // SAFETY: the call has filled the structure.
            before.0.push((*signal, unsafe { action.assume_init() }));
        }
        Ok(before)
    }
}

impl Drop for DefaultActions {
    fn drop(&mut self) {
        for (signal, action) in &self.0 {
            // SAFETY: the action comes from the kernel, and its handler still exists.
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
                // SAFETY: the default action runs no code of this program.
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
