//! The last error of a thread on Windows, which a function that runs within another call must leave as it was.

use windows_sys::Win32::Foundation::{GetLastError, SetLastError};

/// Returns the last error of this thread.
#[must_use]
pub fn get() -> u32 {
    // SAFETY: the call has no conditions.
    unsafe { GetLastError() }
}

/// Sets the last error of this thread.
pub fn set(error: u32) {
    // SAFETY: as above.
    unsafe { SetLastError(error) }
}

/// Calls `body`, and restores the last error afterwards.
pub fn kept<T>(body: impl FnOnce() -> T) -> T {
    let error = get();
    let result = body();
    set(error);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_error_is_kept() {
        set(7);
        kept(|| set(8));
        assert_eq!(get(), 7);
    }
}
