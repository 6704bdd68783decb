//! The folders of Windows itself.

use std::ffi::OsString;
use std::io;
use std::os::windows::ffi::OsStringExt;
use std::path::PathBuf;

use windows_sys::Win32::System::SystemInformation::{GetSystemDirectoryW, GetWindowsDirectoryW};

/// Returns the folder of the system's programs, such as `C:\Windows\System32`.
///
/// # Errors
/// Any error of the system.
pub fn system() -> io::Result<PathBuf> {
    // SAFETY: the buffer has the stated length.
    filled(|buffer, length| unsafe { GetSystemDirectoryW(buffer, length) })
}

/// Returns the folder of Windows, such as `C:\Windows`.
///
/// # Errors
/// Any error of the system.
pub fn windows() -> io::Result<PathBuf> {
    // SAFETY: the buffer has the stated length.
    filled(|buffer, length| unsafe { GetWindowsDirectoryW(buffer, length) })
}

/// Returns the path that `call` writes. `call` returns the length written, or the length needed if the buffer is too
/// short.
fn filled(call: impl Fn(*mut u16, u32) -> u32) -> io::Result<PathBuf> {
    let mut buffer = vec![0; 260];
    loop {
        let room = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        match call(buffer.as_mut_ptr(), room) {
            0 => return Err(io::Error::last_os_error()),
            length if length < room => {
                return Ok(OsString::from_wide(&buffer[..length as usize]).into());
            }
            length => buffer.resize(length as usize + 1, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cmd_lives_in_the_systems_folder() {
        assert!(system().unwrap().join("cmd.exe").is_file());
        assert!(windows().unwrap().is_dir());
    }

    #[test]
    fn a_longer_answer_gets_more_room() {
        let answer = filled(|buffer, room| {
            if room > 300 {
                // SAFETY: the buffer has the stated length.
                unsafe { std::slice::from_raw_parts_mut(buffer, 300) }.fill(u16::from(b'a'));
            }
            300
        });
        assert_eq!(answer.unwrap().as_os_str().len(), 300);
    }
}
