//! Access to `errno`. An observer must not change the value that Ruby reads after its own call.

use std::ffi::c_int;

pub(crate) fn errno() -> c_int {
    // SAFETY: the place is this thread's own, and valid while it runs.
    unsafe { errno_place().read() }
}

pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the place is this thread's own, and valid while it runs.
    unsafe { errno_place().write(errno) };
}

fn errno_place() -> *mut c_int {
    #[cfg(target_os = "linux")]
    use libc::__errno_location as place;
    #[cfg(not(target_os = "linux"))]
    use libc::__error as place;
    // SAFETY: the function may be called at any time.
    unsafe { place() }
}
