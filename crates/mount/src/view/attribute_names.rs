//! The names of extended attributes, and copies of all of them.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{self, XattrFlags};
use rustix::io::Errno;

use crate::proc_path::ProcPath;

/// The size of the buffer for names: enough for most files, and the maximum that Linux allows.
const NAMES_BYTES: usize = 256;
const NAMES_BYTES_MAX: usize = 64 * 1024;

/// Returns the names of all extended attributes, each with a final NUL.
pub(super) fn names_at(fd: &OwnedFd) -> Result<Vec<u8>, Errno> {
    let path = ProcPath::new(fd.as_fd());
    let mut names = vec![0; NAMES_BYTES];
    loop {
        match fs::listxattr(path.as_c_str(), names.as_mut_slice()) {
            Ok(length) => {
                names.truncate(length);
                return Ok(names);
            }
            Err(Errno::RANGE) if names.len() < NAMES_BYTES_MAX => names.resize(NAMES_BYTES_MAX, 0),
            Err(errno) => return Err(errno),
        }
    }
}

/// Copies all extended attributes from `source` to `target`.
pub(super) fn copy_all(source: &OwnedFd, target: &OwnedFd) -> Result<(), Errno> {
    copy_where(source, target, |_| true)
}

/// Copies the extended attributes that `is_kept` selects from `source` to `target`.
pub(super) fn copy_where(
    source: &OwnedFd,
    target: &OwnedFd,
    is_kept: impl Fn(&[u8]) -> bool,
) -> Result<(), Errno> {
    let (from, to) = (ProcPath::new(source.as_fd()), ProcPath::new(target.as_fd()));
    let names = names_at(source)?;
    for name in names.split_inclusive(|&byte| byte == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
        if !is_kept(name.to_bytes()) {
            continue;
        }
        let mut value = vec![0; fs::getxattr_query(from.as_c_str(), name)?];
        let length = fs::getxattr(from.as_c_str(), name, value.as_mut_slice())?;
        fs::setxattr(to.as_c_str(), name, &value[..length], XattrFlags::empty())?;
    }
    Ok(())
}
