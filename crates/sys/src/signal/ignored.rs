//! Ignores signals across the start of a program.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use crate::outcome::check;

/// Ignores `signals` in this process. A program that replaces this process starts with the signals ignored, too.
///
/// # Errors
/// `EINVAL`: a number is not a signal, or the signal cannot be ignored.
pub fn ignore(signals: &[i32]) -> io::Result<()> {
    // SAFETY: a sigaction consists of plain numbers, for which zero is valid.
    let mut action = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
    action.sa_sigaction = libc::SIG_IGN;
    for signal in signals {
        // SAFETY: the action is valid and runs no code; the old action is not requested.
        check(unsafe { libc::sigaction(*signal, &raw const action, ptr::null_mut()) })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Change, Wait, fork, wait};

    #[test]
    fn an_ignored_signal_does_not_end_the_process() {
        let child = fork(|| {
            let is_ignored = ignore(&[libc::SIGPWR]).is_ok();
            // SAFETY: the action runs no code of this program.
            unsafe { libc::raise(libc::SIGPWR) };
            u8::from(!is_ignored)
        });
        let child = child.unwrap();
        let change = loop {
            if let Some((_, change)) = wait(Wait::News(child)).unwrap() {
                break change;
            }
            std::thread::yield_now();
        };
        assert_eq!(change, Change::Exited(0));
        assert_eq!(ignore(&[libc::SIGKILL]).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}
