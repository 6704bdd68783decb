//! What belongs to one thread alone.

use std::io;

/// Gives the calling thread a umask and a current folder of its own; the process's other threads
/// keep theirs.
///
/// # Errors
/// Whatever `unshare` reports.
pub fn unshare_umask() -> io::Result<()> {
    // SAFETY: only the current folder, the root and the umask are unshared; no descriptor is.
    Ok(unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FS) }?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::Mode;
    use rustix::process::umask;

    #[test]
    fn a_umask_of_its_own_does_not_reach_other_threads() {
        let before = umask(Mode::from_raw_mode(0o22));
        umask(before);
        let unshared = std::thread::spawn(|| {
            unshare_umask()?;
            umask(Mode::from_raw_mode(0o777));
            io::Result::Ok(())
        });
        unshared.join().unwrap().unwrap();
        assert_eq!(umask(before), before);
    }
}
