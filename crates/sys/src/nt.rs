//! Folders as the NT kernel presents them: opened by their NT path (`\??\C:\x`), listed by pattern, and queried for
//! their times without an open.
//!
//! Each function makes a single system call, so the number of calls is the number of lookups.

use std::mem::MaybeUninit;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr;

use windows_sys::Wdk::Foundation::OBJECT_ATTRIBUTES;
use windows_sys::Wdk::Storage::FileSystem::{
    FILE_DIRECTORY_FILE, FILE_NETWORK_OPEN_INFORMATION, FILE_OPEN_FOR_BACKUP_INTENT,
    FILE_SYNCHRONOUS_IO_NONALERT, FileDirectoryInformation, FileFsAttributeInformation,
    FileFsDeviceInformation, NtOpenFile, NtQueryDirectoryFile, NtQueryFullAttributesFile,
    NtQueryVolumeInformationFile,
};
use windows_sys::Win32::Foundation::{
    HANDLE, OBJ_CASE_INSENSITIVE, STATUS_NO_MORE_FILES, STATUS_NO_SUCH_FILE,
    STATUS_OBJECT_NAME_INVALID, UNICODE_STRING,
};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_ATTRIBUTE_DIRECTORY, FILE_ATTRIBUTE_REPARSE_POINT, FILE_LIST_DIRECTORY,
    FILE_READ_ATTRIBUTES, FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_SHARE_WRITE, SYNCHRONIZE,
};
use windows_sys::Win32::System::IO::IO_STATUS_BLOCK;

/// The device characteristic of a volume on another machine.
const FILE_REMOTE_DEVICE: u32 = 0x10;

/// An NT error code (`NTSTATUS`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status(pub i32);

/// An open folder. The first query fixes the pattern; patterns of later queries on the same handle have no effect.
#[derive(Debug)]
pub struct Folder {
    handle: OwnedHandle,
}

/// The attributes of a file or folder that NT returns for a path alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// The times of creation, last write and last change, in units of 100 ns since 1601.
    pub times: [i64; 3],
    /// Whether the file is a folder.
    pub is_directory: bool,
    /// Whether the file redirects a lookup: a symbolic link, a junction or a mounted volume.
    pub is_link: bool,
}

/// The kind of a file, according to its attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryKind {
    /// Whether the file is a folder, or a link to one.
    pub is_directory: bool,
    /// Whether the file redirects a lookup: a symbolic link, a junction or a mounted volume.
    pub is_link: bool,
}

impl EntryKind {
    pub(crate) fn of(attributes: u32) -> Self {
        Self {
            is_directory: attributes & FILE_ATTRIBUTE_DIRECTORY != 0,
            is_link: attributes & FILE_ATTRIBUTE_REPARSE_POINT != 0,
        }
    }
}

/// The volume that contains a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// The name of the file system, such as `NTFS` or `FAT32`.
    pub file_system: String,
    /// Whether the volume is on another machine.
    pub is_remote: bool,
}

/// A buffer for the entries of a query.
#[derive(Debug)]
pub struct Entries {
    /// Records of `FILE_DIRECTORY_INFORMATION`, each aligned to 8 bytes.
    words: Vec<u64>,
    filled: usize,
}

impl Folder {
    /// Opens the folder at the NT path `path` for listing.
    ///
    /// # Errors
    /// The status, for example if the path does not exist, is not a folder, or must not be opened.
    pub fn open(path: &[u16]) -> Result<Self, Status> {
        let name = unicode_string(path)?;
        let object = object_attributes(&name);
        let mut handle: HANDLE = ptr::null_mut();
        let mut status = MaybeUninit::uninit();
        // SAFETY: the name and its string outlive the call, and there is room for both results.
        let result = unsafe {
            NtOpenFile(
                &raw mut handle,
                FILE_LIST_DIRECTORY | FILE_READ_ATTRIBUTES | SYNCHRONIZE,
                &raw const object,
                status.as_mut_ptr(),
                FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE,
                FILE_DIRECTORY_FILE | FILE_SYNCHRONOUS_IO_NONALERT | FILE_OPEN_FOR_BACKUP_INTENT,
            )
        };
        check(result)?;
        // SAFETY: the call has made this handle, and it has no other owner.
        Ok(Self { handle: unsafe { OwnedHandle::from_raw_handle(handle) } })
    }

    /// Reads the next entries that match `pattern`, or all entries without a pattern. Returns `false` if no entry is
    /// left.
    ///
    /// # Errors
    /// The status of the query.
    pub fn query(&self, pattern: Option<&[u16]>, entries: &mut Entries) -> Result<bool, Status> {
        let pattern = pattern.map(unicode_string).transpose()?;
        let mut status = MaybeUninit::<IO_STATUS_BLOCK>::uninit();
        let room = u32::try_from(entries.words.len() * size_of::<u64>()).unwrap_or(u32::MAX);
        entries.filled = 0;
        // SAFETY: the handle is open and synchronous, the buffer is aligned and has the stated size, and the pattern
        // and its string outlive the call.
        let result = unsafe {
            NtQueryDirectoryFile(
                self.handle.as_raw_handle(),
                ptr::null_mut(),
                None,
                ptr::null(),
                status.as_mut_ptr(),
                entries.words.as_mut_ptr().cast(),
                room,
                FileDirectoryInformation,
                false,
                pattern.as_ref().map_or(ptr::null(), ptr::from_ref),
                false,
            )
        };
        if matches!(result, STATUS_NO_SUCH_FILE | STATUS_NO_MORE_FILES) {
            return Ok(false);
        }
        check(result)?;
        // SAFETY: the query succeeded, so it initialised the status.
        let filled = unsafe { status.assume_init() }.Information;
        entries.filled = filled.div_ceil(size_of::<u64>()).min(entries.words.len());
        Ok(true)
    }

    /// Returns the volume that contains the folder.
    ///
    /// # Errors
    /// The status of the query.
    pub fn volume(&self) -> Result<Volume, Status> {
        // FILE_FS_ATTRIBUTE_INFORMATION: two numbers, the length of the name in bytes, then the name.
        const NAME_UNIT: usize = 6;
        let attributes = self.query_volume(FileFsAttributeInformation)?;
        let length = low(attributes[1]) as usize / size_of::<u16>();
        let name: Vec<_> = units(&attributes).skip(NAME_UNIT).take(length).collect();
        // FILE_FS_DEVICE_INFORMATION: the type of the device, then its characteristics.
        let device = self.query_volume(FileFsDeviceInformation)?;
        Ok(Volume {
            file_system: String::from_utf16_lossy(&name),
            is_remote: high(device[0]) & FILE_REMOTE_DEVICE != 0,
        })
    }

    fn query_volume(&self, class: i32) -> Result<[u64; 64], Status> {
        let mut room = [0_u64; 64];
        let mut status = MaybeUninit::uninit();
        // SAFETY: the handle is open, and the buffer is aligned and has the stated size.
        let result = unsafe {
            NtQueryVolumeInformationFile(
                self.handle.as_raw_handle(),
                status.as_mut_ptr(),
                room.as_mut_ptr().cast(),
                size_of_val(&room) as u32,
                class,
            )
        };
        check(result).map(|()| room)
    }
}

/// Returns the attributes of the file at `path` (an NT path) without opening it.
///
/// # Errors
/// The status, for example if the path does not exist or must not be read.
pub fn attributes(path: &[u16]) -> Result<Attributes, Status> {
    let name = unicode_string(path)?;
    let object = object_attributes(&name);
    let mut information = MaybeUninit::<FILE_NETWORK_OPEN_INFORMATION>::uninit();
    // SAFETY: the name and its string outlive the call, and there is room for the result.
    let result = unsafe { NtQueryFullAttributesFile(&raw const object, information.as_mut_ptr()) };
    check(result)?;
    // SAFETY: the query succeeded, so it initialised the structure.
    let information = unsafe { information.assume_init() };
    Ok(Attributes {
        times: [information.CreationTime, information.LastWriteTime, information.ChangeTime],
        is_directory: information.FileAttributes & FILE_ATTRIBUTE_DIRECTORY != 0,
        is_link: information.FileAttributes & FILE_ATTRIBUTE_REPARSE_POINT != 0,
    })
}

impl AsRawHandle for Folder {
    fn as_raw_handle(&self) -> HANDLE {
        self.handle.as_raw_handle()
    }
}

impl Default for Entries {
    fn default() -> Self {
        Self::new()
    }
}

impl Entries {
    /// The size of the buffer in bytes: NT fills at most this much at once, so a typical folder needs a single query.
    const ROOM: usize = 64 * 1024;

    /// Creates an empty buffer.
    #[must_use]
    pub fn new() -> Self {
        Self { words: vec![0; Self::ROOM / size_of::<u64>()], filled: 0 }
    }

    /// Calls `show` for each entry of the last query, with its name and whether it is a folder.
    pub fn for_each(&self, mut show: impl FnMut(&[u16], bool)) {
        self.for_each_kind(|name, kind| show(name, kind.is_directory));
    }

    /// Calls `show` for each entry of the last query, with its name and its kind.
    pub fn for_each_kind(&self, mut show: impl FnMut(&[u16], EntryKind)) {
        // Indices of words in FILE_DIRECTORY_INFORMATION: the attributes with the name's length, then the name.
        const ATTRIBUTES: usize = 7;
        const NAME: usize = 8;
        let mut rest = &self.words[..self.filled];
        let mut name = Vec::new();
        while rest.len() > NAME {
            let length = high(rest[ATTRIBUTES]) as usize / size_of::<u16>();
            name.clear();
            name.extend(units(&rest[NAME..]).take(length));
            show(&name, EntryKind::of(low(rest[ATTRIBUTES])));
            let next = low(rest[0]) as usize / size_of::<u64>();
            if next == 0 {
                return;
            }
            rest = rest.get(next..).unwrap_or_default();
        }
    }
}

fn low(word: u64) -> u32 {
    word as u32
}

fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

/// Returns the 16-bit units of `words` in memory order. All versions of Windows are little-endian.
fn units(words: &[u64]) -> impl Iterator<Item = u16> {
    words.iter().flat_map(|word| [0, 16, 32, 48].map(|shift| (word >> shift) as u16))
}

pub(crate) fn check(status: i32) -> Result<(), Status> {
    if status >= 0 { Ok(()) } else { Err(Status(status)) }
}

/// Wraps `name` without a copy. Fails if the name is too long for NT.
pub(crate) fn unicode_string(name: &[u16]) -> Result<UNICODE_STRING, Status> {
    let length =
        u16::try_from(size_of_val(name)).map_err(|_| Status(STATUS_OBJECT_NAME_INVALID))?;
    Ok(UNICODE_STRING { Length: length, MaximumLength: length, Buffer: name.as_ptr().cast_mut() })
}

pub(crate) fn object_attributes(name: &UNICODE_STRING) -> OBJECT_ATTRIBUTES {
    OBJECT_ATTRIBUTES {
        Length: size_of::<OBJECT_ATTRIBUTES>() as u32,
        RootDirectory: ptr::null_mut(),
        ObjectName: ptr::from_ref(name).cast_mut(),
        Attributes: OBJ_CASE_INSENSITIVE,
        SecurityDescriptor: ptr::null_mut(),
        SecurityQualityOfService: ptr::null_mut(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::windows::ffi::OsStrExt;
    use std::path::Path;

    fn nt(path: &Path) -> Vec<u16> {
        r"\??\".encode_utf16().chain(path.as_os_str().encode_wide()).collect()
    }

    fn names(folder: &Folder, pattern: Option<&str>) -> Vec<String> {
        let pattern: Option<Vec<u16>> = pattern.map(|text| text.encode_utf16().collect());
        let mut entries = Entries::new();
        let mut names = Vec::new();
        while folder.query(pattern.as_deref(), &mut entries).unwrap() {
            entries.for_each(|name, is_directory| {
                let mark = if is_directory { "/" } else { "" };
                names.push(String::from_utf16_lossy(name) + mark);
            });
        }
        names.sort();
        names
    }

    #[test]
    fn a_folder_is_listed_by_pattern() {
        let folder = tempfile::tempdir().unwrap();
        for file in ["make.exe", "MAKE.bat", "other.exe"] {
            std::fs::write(folder.path().join(file), "").unwrap();
        }
        std::fs::create_dir(folder.path().join("maker")).unwrap();
        let path = nt(folder.path());
        let make = names(&Folder::open(&path).unwrap(), Some("make*"));
        assert_eq!(make, ["MAKE.bat", "make.exe", "maker/"]);
        let none = names(&Folder::open(&path).unwrap(), Some("none*"));
        assert_eq!(none, Vec::<String>::new());
        assert_eq!(names(&Folder::open(&path).unwrap(), None).len(), 6);
    }

    #[test]
    fn a_folder_of_many_entries_is_listed_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..1500 {
            std::fs::write(folder.path().join(format!("a-rather-long-name-{number:05}")), "")
                .unwrap();
        }
        let all = names(&Folder::open(&nt(folder.path())).unwrap(), Some("a-rather*"));
        assert_eq!(all.len(), 1500);
    }

    #[test]
    fn a_missing_path_and_a_file_have_a_status_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let status = |path: &Path| Folder::open(&nt(path)).map(drop).unwrap_err();
        assert_eq!(status(&folder.path().join("none")), Status(0xC000_0034_u32 as i32));
        assert_eq!(status(&file), Status(0xC000_0103_u32 as i32));
        assert!(attributes(&nt(&folder.path().join("none"))).is_err());
    }

    #[test]
    fn the_times_of_a_folder_change_with_its_entries() {
        let folder = tempfile::tempdir().unwrap();
        let path = nt(folder.path());
        let before = attributes(&path).unwrap();
        assert!(before.is_directory);
        std::thread::sleep(std::time::Duration::from_millis(30));
        std::fs::write(folder.path().join("new"), "").unwrap();
        assert_ne!(attributes(&path).unwrap().times, before.times);
    }

    #[test]
    fn a_folder_knows_what_it_lies_on() {
        let folder = tempfile::tempdir().unwrap();
        let volume = Folder::open(&nt(folder.path())).unwrap().volume().unwrap();
        assert!(!volume.file_system.is_empty() && volume.file_system.is_ascii(), "{volume:?}");
        assert!(!volume.is_remote);
    }
}
