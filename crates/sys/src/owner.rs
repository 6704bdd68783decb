//! The users who may change a file on Windows: its owner, and those whom its access list lets write.

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::path::Path;
use std::ptr;

use windows_sys::Win32::Foundation::{GENERIC_ALL, GENERIC_WRITE, LocalFree};
use windows_sys::Win32::Security::Authorization::{GetSecurityInfo, SE_FILE_OBJECT};
use windows_sys::Win32::Security::{
    ACCESS_ALLOWED_ACE, ACE_HEADER, ACL, DACL_SECURITY_INFORMATION, EqualSid, GetAce,
    GetTokenInformation, IsWellKnownSid, OWNER_SECURITY_INFORMATION, PSID, TOKEN_QUERY, TOKEN_USER,
    TokenUser, WinBuiltinAdministratorsSid, WinCreatorOwnerRightsSid, WinCreatorOwnerSid,
    WinLocalSystemSid,
};
use windows_sys::Win32::Storage::FileSystem::{
    DELETE, FILE_APPEND_DATA, FILE_FLAG_BACKUP_SEMANTICS, FILE_READ_ATTRIBUTES, FILE_WRITE_DATA,
    READ_CONTROL, WRITE_DAC, WRITE_OWNER,
};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcessToken};

/// The rights by which a file's content can be exchanged.
const WRITING: u32 = GENERIC_ALL
    | GENERIC_WRITE
    | FILE_WRITE_DATA
    | FILE_APPEND_DATA
    | DELETE
    | WRITE_DAC
    | WRITE_OWNER;

/// Types of entries in an access list (`winnt.h`), and the flag of an entry that only new files below inherit.
const ALLOWED: u8 = 0;
const DENIED: u8 = 1;
const INHERIT_ONLY: u8 = 8;

/// The reason why a file must not be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distrust {
    /// The file belongs to another user, who is neither an administrator nor the system.
    OwnedByAnother,
    /// Another user may write the file.
    WritableByOthers,
}

/// Checks that the file belongs to this user, the administrators or the system, and that no other user may write it.
///
/// # Errors
/// Any error of the system.
pub fn check(file: &File) -> io::Result<Result<(), Distrust>> {
    check_by(file, false)
}

/// Whether the file belongs to the very user of this process.
///
/// # Errors
/// Any error of the system.
pub fn is_this_user(file: &File) -> io::Result<bool> {
    let (user, security) = (CurrentUser::new()?, Security::of(file)?);
    Ok(user.is(security.owner))
}

/// Whether a path is a folder that belongs to this user, the administrators or the system, in which no other user may
/// create files, or write those that others create.
#[must_use]
pub fn is_private_folder(folder: &Path) -> bool {
    let opened = OpenOptions::new()
        .access_mode(FILE_READ_ATTRIBUTES | READ_CONTROL)
        .custom_flags(FILE_FLAG_BACKUP_SEMANTICS)
        .open(folder);
    opened.is_ok_and(|opened| {
        let is_folder = opened.metadata().is_ok_and(|metadata| metadata.is_dir());
        is_folder && matches!(check_by(&opened, true), Ok(Ok(())))
    })
}

/// Checks the owner and the access list of an open file. With `with_inherited`, the check includes entries that apply
/// only to new files below a folder.
fn check_by(file: &File, with_inherited: bool) -> io::Result<Result<(), Distrust>> {
    let user = CurrentUser::new()?;
    let security = Security::of(file)?;
    if !user.is_trusted(security.owner) {
        return Ok(Err(Distrust::OwnedByAnother));
    }
    let may_others_write = security.entries(with_inherited)?.is_none_or(|entries| {
        entries.iter().any(|entry| entry.lets_write && !user.is_trusted(entry.sid))
    });
    Ok(if may_others_write { Err(Distrust::WritableByOthers) } else { Ok(()) })
}

/// The user of this process.
struct CurrentUser {
    /// A `TOKEN_USER`, followed by the SID to which it points. The address must not change.
    words: Box<[u64; 32]>,
}

impl CurrentUser {
    fn new() -> io::Result<Self> {
        let mut token = ptr::null_mut();
        // SAFETY: the handle of this process is always valid.
        let process = unsafe { GetCurrentProcess() };
        // SAFETY: there is room for the result.
        succeeded(unsafe { OpenProcessToken(process, TOKEN_QUERY, &raw mut token) })?;
        // SAFETY: the call made this handle, and it has no other owner.
        let token = unsafe { OwnedHandle::from_raw_handle(token) };
        let mut user = Self { words: Box::new([0; 32]) };
        let (room, mut length) = (size_of_val(&*user.words) as u32, 0);
        // SAFETY: the buffer is aligned and has the stated size; a SID takes at most 68 bytes.
        let result = unsafe {
            GetTokenInformation(
                token.as_raw_handle(),
                TokenUser,
                user.words.as_mut_ptr().cast(),
                room,
                &raw mut length,
            )
        };
        succeeded(result).map(|()| user)
    }

    fn sid(&self) -> PSID {
        // SAFETY: `new` has filled in the structure, and the buffer is aligned for it.
        unsafe { self.words.as_ptr().cast::<TOKEN_USER>().read() }.User.Sid
    }

    /// Whether a SID is that of this user, the administrators, the system or the owner.
    fn is_trusted(&self, sid: PSID) -> bool {
        let known = [
            WinBuiltinAdministratorsSid,
            WinLocalSystemSid,
            WinCreatorOwnerSid,
            WinCreatorOwnerRightsSid,
        ];
        // SAFETY: the SID is valid, as it comes from the system.
        let is_known = known.iter().any(|known| unsafe { IsWellKnownSid(sid, *known) } != 0);
        is_known || self.is(sid)
    }

    /// Whether a SID is that of this user.
    fn is(&self, sid: PSID) -> bool {
        // SAFETY: the SID is valid, as it comes from the system; this user's lies in the buffer.
        unsafe { EqualSid(sid, self.sid()) != 0 }
    }
}

/// The owner and the access list of a file.
struct Security {
    owner: PSID,
    list: *mut ACL,
    /// The security descriptor, which is the memory of the owner and the list.
    descriptor: *mut c_void,
}

/// An entry of an access list.
struct ListEntry {
    sid: PSID,
    lets_write: bool,
}

impl Security {
    fn of(file: &File) -> io::Result<Self> {
        let mut security =
            Self { owner: ptr::null_mut(), list: ptr::null_mut(), descriptor: ptr::null_mut() };
        // SAFETY: the file is open, and there is room for each result.
        let error = unsafe {
            GetSecurityInfo(
                file.as_raw_handle(),
                SE_FILE_OBJECT,
                OWNER_SECURITY_INFORMATION | DACL_SECURITY_INFORMATION,
                &raw mut security.owner,
                ptr::null_mut(),
                &raw mut security.list,
                ptr::null_mut(),
                &raw mut security.descriptor,
            )
        };
        if error == 0 {
            Ok(security)
        } else {
            Err(io::Error::from_raw_os_error(error.cast_signed()))
        }
    }

    /// Returns the entries of the access list; `None` for a file without a list, which everyone may write, and for a
    /// list with entries of an unknown form.
    fn entries(&self, with_inherited: bool) -> io::Result<Option<Vec<ListEntry>>> {
        if self.list.is_null() {
            return Ok(None);
        }
        // SAFETY: the list comes from the system, and is valid while the security descriptor is.
        let count = unsafe { (*self.list).AceCount };
        let mut entries = Vec::new();
        for place in 0..u32::from(count) {
            let mut entry = MaybeUninit::<*mut c_void>::uninit();
            // SAFETY: the list is valid, and there is room for the result.
            succeeded(unsafe { GetAce(self.list, place, entry.as_mut_ptr()) })?;
            // SAFETY: the call succeeded.
            let entry = unsafe { entry.assume_init() };
            // SAFETY: every entry begins with a header.
            let header = unsafe { entry.cast::<ACE_HEADER>().read() };
            match header.AceType {
                _ if header.AceFlags & INHERIT_ONLY != 0 && !with_inherited => {}
                DENIED => {}
                ALLOWED => {
                    let entry = entry.cast::<ACCESS_ALLOWED_ACE>();
                    // SAFETY: an entry of this type has this form.
                    let mask = unsafe { (*entry).Mask };
                    // SAFETY: as above; the SID begins at this field.
                    let sid = unsafe { &raw mut (*entry).SidStart }.cast();
                    entries.push(ListEntry { sid, lets_write: mask & WRITING != 0 });
                }
                _ => return Ok(None),
            }
        }
        Ok(Some(entries))
    }
}

impl Drop for Security {
    fn drop(&mut self) {
        // SAFETY: the system allocated this security descriptor, and nothing uses it any more.
        unsafe { LocalFree(self.descriptor) };
    }
}

fn succeeded(result: i32) -> io::Result<()> {
    if result == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_this_user_is_trusted() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(check(file.as_file()).unwrap(), Ok(()));
        assert!(is_this_user(file.as_file()).unwrap());
        assert!(!is_private_folder(file.path()));
        assert!(is_private_folder(file.path().parent().unwrap()));
    }
}
