//! The state of a file: its kind, size, times and number, from a single open by its NT path (`\??\C:\x`).

use std::fs::File;
use std::mem::{MaybeUninit, offset_of};
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr;

use windows_sys::Wdk::Storage::FileSystem::{
    FILE_ALL_INFORMATION, FILE_NAME_INFORMATION, FILE_OPEN_FOR_BACKUP_INTENT,
    FILE_OPEN_REPARSE_POINT, FILE_SYNCHRONOUS_IO_NONALERT, FileAllInformation, NtOpenFile,
    NtQueryInformationFile,
};
use windows_sys::Win32::Foundation::{
    HANDLE, STATUS_BUFFER_OVERFLOW, STATUS_NO_SUCH_FILE, STATUS_OBJECT_NAME_NOT_FOUND,
    STATUS_OBJECT_PATH_NOT_FOUND,
};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_READ_ATTRIBUTES, FILE_READ_DATA, FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_SHARE_WRITE,
    SYNCHRONIZE,
};

use crate::nt::{EntryKind, Folder, Status, check, object_attributes, unicode_string};

/// The state of a file at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileState {
    /// The kind of the file.
    pub kind: EntryKind,
    /// The size, in bytes.
    pub size: u64,
    /// The time of the last write, in units of 100 ns since 1601.
    pub write_time: i64,
    /// The time of the last change of content, name or attributes, in units of 100 ns since 1601; 0 on a file system
    /// that keeps none.
    pub change_time: i64,
    /// The number of the file on its volume; 0 on a file system without such numbers.
    pub id: u64,
    /// The number of hard links.
    pub links: u32,
    /// Whether the file's own path on its volume is the path by which it was opened, letter by letter. Then no link,
    /// no short name and no other spelling is on the way. `false` may also mean that the volume is mounted in a folder.
    pub is_at_its_path: bool,
}

/// The answer to a query for all information, with room for a name.
#[repr(C)]
struct Answer {
    information: FILE_ALL_INFORMATION,
    room: [u16; NAME_UNITS_MAX],
}

/// The longest name that is compared, in UTF-16 units: that of a path that all programs can open.
const NAME_UNITS_MAX: usize = 260;

/// The length of `\??\C:`, which precedes the path on the volume.
const DRIVE_UNITS: usize = 6;

/// The rights with which a file is opened to be examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// To examine the file only.
    Attributes,
    /// To read the content too, so that success proves that this process may read the file.
    Content,
}

/// Returns the state of the file at `path` (an NT path). A link at its end is examined itself.
///
/// # Errors
/// The status, for example if the path does not exist, or the file must not be opened in this way.
pub fn state_of(path: &[u16], access: Access) -> Result<FileState, Status> {
    state_of_handle(&open(path, access, FILE_OPEN_REPARSE_POINT)?, path)
}

/// Returns the state of the file to which `path` (an NT path) leads.
///
/// # Errors
/// See [`state_of`].
pub fn state_of_target(path: &[u16], access: Access) -> Result<FileState, Status> {
    state_of_handle(&open(path, access, 0)?, path)
}

/// Returns the state of an open file.
///
/// # Errors
/// The status of the query.
pub fn state_of_file(file: &File) -> Result<FileState, Status> {
    state_of_handle(file, &[])
}

impl Folder {
    /// Returns the state of the folder.
    ///
    /// # Errors
    /// The status of the query.
    pub fn state(&self) -> Result<FileState, Status> {
        state_of_handle(self, &[])
    }
}

impl Status {
    /// Whether there is nothing at the path.
    #[must_use]
    pub fn is_missing(self) -> bool {
        let missing =
            [STATUS_OBJECT_NAME_NOT_FOUND, STATUS_OBJECT_PATH_NOT_FOUND, STATUS_NO_SUCH_FILE];
        missing.contains(&self.0)
    }
}

fn open(path: &[u16], access: Access, options: u32) -> Result<OwnedHandle, Status> {
    let name = unicode_string(path)?;
    let object = object_attributes(&name);
    // Programs that read a file, as Ruby, do not share it with those that remove it. So the answer is theirs.
    let (data, sharing) = match access {
        Access::Content => (FILE_READ_DATA, FILE_SHARE_READ | FILE_SHARE_WRITE),
        Access::Attributes => (0, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE),
    };
    let mut handle: HANDLE = ptr::null_mut();
    let mut status = MaybeUninit::uninit();
    // SAFETY: the name and its string outlive the call, and there is room for both results.
    let result = unsafe {
        NtOpenFile(
            &raw mut handle,
            data | FILE_READ_ATTRIBUTES | SYNCHRONIZE,
            &raw const object,
            status.as_mut_ptr(),
            sharing,
            options | FILE_SYNCHRONOUS_IO_NONALERT | FILE_OPEN_FOR_BACKUP_INTENT,
        )
    };
    check(result)?;
    // SAFETY: the call has made this handle, and it has no other owner.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

fn state_of_handle(file: &impl AsRawHandle, path: &[u16]) -> Result<FileState, Status> {
    let mut answer = MaybeUninit::<Answer>::zeroed();
    let mut status = MaybeUninit::uninit();
    // SAFETY: the handle is open, and there is room for the stated size.
    let result = unsafe {
        NtQueryInformationFile(
            file.as_raw_handle(),
            status.as_mut_ptr(),
            answer.as_mut_ptr().cast(),
            size_of::<Answer>() as u32,
            FileAllInformation,
        )
    };
    // A name that is too long is cut off. Everything before it is complete.
    if result != STATUS_BUFFER_OVERFLOW {
        check(result)?;
    }
    // SAFETY: all fields are numbers, for which zero is valid, and the query has filled them in.
    let answer = unsafe { answer.assume_init_ref() };
    let information = &answer.information;
    let (basic, standard) = (information.BasicInformation, information.StandardInformation);
    Ok(FileState {
        kind: EntryKind::of(basic.FileAttributes),
        size: standard.EndOfFile.cast_unsigned(),
        write_time: basic.LastWriteTime,
        change_time: basic.ChangeTime,
        id: information.InternalInformation.IndexNumber.cast_unsigned(),
        links: standard.NumberOfLinks,
        is_at_its_path: path.get(DRIVE_UNITS..).is_some_and(|path| path == name(answer)),
    })
}

/// Returns the file's path on its volume; the start of it, if it is too long.
fn name(answer: &Answer) -> &[u16] {
    let name = &answer.information.NameInformation;
    let length = (name.FileNameLength as usize / size_of::<u16>()).min(NAME_UNITS_MAX);
    let start = ptr::from_ref(answer).cast::<u8>().wrapping_add(NAME_AT).cast::<u16>();
    // SAFETY: the name begins in the answer and has room for that many units, as `Answer` is laid out.
    unsafe { std::slice::from_raw_parts(start, length) }
}

/// The place of the name in an answer.
const NAME_AT: usize =
    offset_of!(FILE_ALL_INFORMATION, NameInformation) + offset_of!(FILE_NAME_INFORMATION, FileName);
const _: () = assert!(NAME_AT + NAME_UNITS_MAX * size_of::<u16>() <= size_of::<Answer>());

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::windows::ffi::OsStrExt;
    use std::path::Path;

    fn nt(path: &Path) -> Vec<u16> {
        r"\??\".encode_utf16().chain(path.as_os_str().encode_wide()).collect()
    }

    #[test]
    fn a_file_that_was_replaced_has_another_state() {
        let folder = tempfile::tempdir().unwrap();
        let (path, new) = (folder.path().join("a.rb"), folder.path().join("new"));
        std::fs::write(&path, "12345").unwrap();
        let before = state_of(&nt(&path), Access::Content).unwrap();
        assert_eq!((before.size, before.links, before.kind.is_directory), (5, 1, false));
        assert!(before.id != 0 && before.change_time > 0);
        assert_eq!(state_of_target(&nt(&path), Access::Attributes).unwrap(), before);
        assert!(before.is_at_its_path);
        let by_handle = state_of_file(&File::open(&path).unwrap()).unwrap();
        assert_eq!(FileState { is_at_its_path: true, ..by_handle }, before);
        let upper = state_of(&nt(&folder.path().join("A.RB")), Access::Content).unwrap();
        assert_eq!(FileState { is_at_its_path: true, ..upper }, before);
        std::fs::write(&new, "54321").unwrap();
        std::fs::rename(&new, &path).unwrap();
        assert_ne!(state_of(&nt(&path), Access::Content).unwrap().id, before.id);
        let folder = state_of(&nt(folder.path()), Access::Attributes).unwrap();
        assert!(folder.kind.is_directory && !folder.kind.is_link);
    }

    #[test]
    fn a_path_without_a_file_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        let error = state_of(&nt(&folder.path().join("none")), Access::Attributes).unwrap_err();
        assert!(error.is_missing());
        let below = folder.path().join("none").join("below");
        assert!(state_of(&nt(&below), Access::Attributes).unwrap_err().is_missing());
    }
}
