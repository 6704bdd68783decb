//! Conversion between names and the host's own strings.
//!
//! On POSIX both are bytes. On Windows a name is WTF-8, and the host's strings are UTF-16.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};

use crate::expand::windows::Form;

/// Returns the bytes of a host string.
#[must_use]
pub fn bytes(text: &OsStr) -> Cow<'_, [u8]> {
    #[cfg(unix)]
    return Cow::Borrowed(std::os::unix::ffi::OsStrExt::as_bytes(text));
    #[cfg(windows)]
    {
        let units: Vec<u16> = std::os::windows::ffi::OsStrExt::encode_wide(text).collect();
        Cow::Owned(crate::wtf8::from_wide(&units))
    }
}

/// Returns the host string with these bytes.
#[must_use]
pub fn os_string(bytes: Vec<u8>) -> OsString {
    #[cfg(unix)]
    return std::os::unix::ffi::OsStringExt::from_vec(bytes);
    #[cfg(windows)]
    return std::os::windows::ffi::OsStringExt::from_wide(&crate::wtf8::to_wide(&bytes));
}

/// Returns the working directories of drives, which Windows keeps in variables such as `=C:`, in the form of
/// [`Place::drive_bases`](crate::expand::windows::Place::drive_bases).
#[must_use]
pub fn drive_bases() -> Vec<Vec<u8>> {
    std::env::vars_os()
        .filter(|(key, _)| bytes(key).starts_with(b"="))
        .map(|(_, folder)| bytes(&folder).into_owned())
        .filter(|folder| matches!(Form::of(folder.as_slice()), Form::Drive { .. }))
        .collect()
}
