//! The `/proc` path of a descriptor, for system calls that take only paths.

use std::ffi::CStr;
use std::io::Write;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The path `/proc/self/fd/NUMBER`, which refers to the open file even after a rename.
#[derive(Debug)]
pub(crate) struct ProcPath<'a> {
    bytes: [u8; 32],
    _descriptor: BorrowedFd<'a>,
}

impl<'a> ProcPath<'a> {
    pub(crate) fn new(descriptor: BorrowedFd<'a>) -> Self {
        let mut bytes = [0; 32];
        // The path always fits: 14 bytes and at most 10 digits.
        let _ = write!(bytes.as_mut_slice(), "/proc/self/fd/{}", descriptor.as_raw_fd());
        Self { bytes, _descriptor: descriptor }
    }

    pub(crate) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn the_path_ends_with_the_number() {
        let file = tempfile::tempfile().unwrap();
        let path = ProcPath::new(file.as_fd());
        let text = path.as_c_str().to_str().unwrap();
        assert_eq!(text, format!("/proc/self/fd/{}", file.as_raw_fd()));
    }
}
