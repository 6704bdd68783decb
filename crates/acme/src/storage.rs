//! The files of an agent, which several servers on one disk may share.
//!
//! `ROOT/AUTHORITY/` holds the files of one authority: a certificate with its key for each name, the account, the state
//! of each name, the answers to challenges, and the lock. Each file is replaced as a whole: after a crash, a file has
//! its old content or its new one.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, FallocateFlags, FlockOperation, access, fallocate, flock};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use thruway_sys::printable;
use thruway_tls::AcmeFolder;

use crate::domain_name::DomainName;
use crate::error::Error;
use crate::schedule::NameState;
use crate::validity::Validity;

/// The permissions of folders and files, which only their owner may use.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const FOR_OTHERS: u32 = 0o077;

/// The maximum size of a file in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The bytes that are allocated on the disk before a certificate is ordered. A key and its chain are smaller.
const CERTIFICATE_BYTES_MAX: u64 = 64 << 10;

/// The maximum length of an authority's folder name in bytes.
const AUTHORITY_BYTES_MAX: usize = 120;

/// The folder of one authority in a storage.
#[derive(Debug)]
pub struct Storage {
    folder: AcmeFolder,
}

/// The lock of a storage, which is released when the value is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct StorageLock {
    _file: File,
}

/// The temporary file of a certificate. The disk space is allocated before the certificate is ordered, because a full
/// disk would lose a certificate that the authority counts against its limits.
#[derive(Debug)]
pub(crate) struct AllocatedFile {
    target: PathBuf,
    temporary: PathBuf,
    file: Option<File>,
}

/// A name's certificate and the attempts to obtain it.
#[derive(Debug, Clone)]
pub struct NameReport {
    /// The name.
    pub name: String,
    /// The end of the certificate's validity in seconds since 1970, if there is a certificate.
    pub not_after_s: Option<u64>,
    /// The time of the next attempt or of the renewal, in seconds since 1970.
    pub due_s: u64,
    /// The attempts.
    pub state: NameState,
}

impl Storage {
    /// Opens the part of the storage at `root` that belongs to the authority with the directory. Missing folders are
    /// created.
    ///
    /// # Errors
    /// A folder cannot be created or used, belongs to another user, or is open to others.
    pub fn open(root: &Path, directory: &str) -> Result<Self, Error> {
        let root = std::path::absolute(root).map_err(|error| Error::file("use", root, &error))?;
        make_folder(&root, true)?;
        check_is_private(&root)?;
        let folder = AcmeFolder::new(root.join(authority_of(directory)));
        make_folder(folder.path(), false)?;
        let storage = Self { folder };
        let folder = &storage.folder;
        for part in [
            folder.certificates(),
            folder.http_answers(),
            folder.tls_answers(),
            folder.reports(),
            storage.states(),
        ] {
            make_folder(&part, false)?;
        }
        access(folder.path(), Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|errno| Error::file("write to", folder.path(), &errno.into()))?;
        Ok(storage)
    }

    /// Returns the folders of all authorities in the storage at `root`, for reading only.
    ///
    /// # Errors
    /// The storage cannot be read.
    pub fn list(root: &Path) -> Result<Vec<Self>, Error> {
        let entries = fs::read_dir(root).map_err(|error| Error::file("read", root, &error))?;
        let folders = entries.flatten().map(|entry| AcmeFolder::new(entry.path()));
        let mut storages: Vec<_> = folders
            .filter(|folder| folder.certificates().is_dir())
            .map(|folder| Self { folder })
            .collect();
        storages.sort_by(|a, b| a.folder.path().cmp(b.folder.path()));
        Ok(storages)
    }

    /// The folder that the workers of a server read.
    #[must_use]
    pub fn folder(&self) -> &AcmeFolder {
        &self.folder
    }

    /// Reports all names with a certificate or a state.
    #[must_use]
    pub fn reports(&self, now_s: u64) -> Vec<NameReport> {
        let names = |folder: &Path, suffix: &str| {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            let names = entries.filter_map(|entry| {
                entry.file_name().to_str()?.strip_suffix(suffix)?.parse::<DomainName>().ok()
            });
            names.collect::<Vec<_>>()
        };
        let mut all = names(&self.folder.certificates(), ".pem");
        all.extend(names(&self.states(), ".json"));
        all.sort_unstable();
        all.dedup();
        all.iter().map(|name| self.report(name, now_s)).collect()
    }

    fn report(&self, name: &DomainName, now_s: u64) -> NameReport {
        self.report_with(name, self.state(name), now_s)
    }

    /// Returns the report of a name with its certificate and the given `state`.
    pub(crate) fn report_with(
        &self,
        name: &DomainName,
        state: NameState,
        now_s: u64,
    ) -> NameReport {
        let validity = self.validity(name).ok().flatten();
        NameReport {
            name: name.to_string(),
            not_after_s: validity.as_ref().map(|validity| validity.not_after_s),
            due_s: state.due_s(validity.as_ref(), now_s),
            state,
        }
    }

    /// Takes the lock if no other process has it.
    pub(crate) fn try_lock(&self) -> Result<Option<StorageLock>, Error> {
        let path = self.folder.path().join("lock");
        let failed = |error: io::Error| Error::file("lock", &path, &error);
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(FILE_MODE)
            .open(&path)
            .map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(StorageLock { _file: file })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(failed(errno.into())),
        }
    }

    /// Removes leftovers of a process that ended in the middle of an attempt. The caller holds the lock.
    pub(crate) fn sweep(&self) {
        let folder = &self.folder;
        for part in [folder.http_answers(), folder.tls_answers()] {
            fs::read_dir(part).into_iter().flatten().flatten().for_each(|entry| {
                // A later attempt removes any file that cannot be removed now.
                let _ = fs::remove_file(entry.path());
            });
        }
        for part in [folder.certificates(), self.states(), folder.path().to_owned()] {
            for entry in fs::read_dir(part).into_iter().flatten().flatten() {
                if entry.path().extension() == Some(OsStr::new("tmp")) {
                    let _ = fs::remove_file(entry.path());
                }
            }
        }
    }

    /// Returns the facts of a name's certificate; `None` if there is no certificate.
    ///
    /// # Errors
    /// The file cannot be used: it is damaged, for another name, or its key does not match.
    pub(crate) fn validity(&self, name: &DomainName) -> Result<Option<Validity>, Error> {
        let path = self.folder.certificate(name.as_str());
        if !path.try_exists().map_err(|error| Error::file("read", &path, &error))? {
            return Ok(None);
        }
        let damaged =
            |why: &str| Error::new(format_args!("cannot use {}: {why}", printable::path(&path)));
        let certificate =
            thruway_tls::checked_certificate(&path, name.as_str()).map_err(Error::new)?;
        let validity =
            Validity::read(&certificate).ok_or_else(|| damaged("its times are unreadable"))?;
        Ok(Some(validity))
    }

    /// Returns the state of a name. A missing or damaged state is that of a name without attempts.
    pub(crate) fn state(&self, name: &DomainName) -> NameState {
        self.read_json(&self.state_path(name)).unwrap_or_default()
    }

    pub(crate) fn write_state(&self, name: &DomainName, state: &NameState) -> Result<(), Error> {
        let text = serde_json::to_vec(state).map_err(Error::new)?;
        write(&self.state_path(name), &text)
    }

    /// Returns the account at the authority, if a usable one is stored.
    pub(crate) fn account<T: DeserializeOwned>(&self) -> Option<T> {
        self.read_json(&self.account_path())
    }

    /// Returns the reason if the stored account cannot be used.
    pub(crate) fn damaged_account<T: DeserializeOwned>(&self) -> Option<Error> {
        let path = self.account_path();
        if self.account::<T>().is_some() || path.metadata().is_err() {
            return None;
        }
        let path = printable::path(&path);
        Some(Error::new(format_args!(
            "cannot use {path}: it is not an account; a new account replaces it"
        )))
    }

    pub(crate) fn write_account(&self, account: &impl serde::Serialize) -> Result<(), Error> {
        let text = serde_json::to_vec(account).map_err(Error::new)?;
        write(&self.account_path(), &text)
    }

    /// Removes an account that the authority no longer knows.
    pub(crate) fn forget_account(&self) {
        // If the file remains, the next attempt fails in the same way, and is reported.
        let _ = fs::remove_file(self.account_path());
    }

    pub(crate) fn write_file(&self, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        write(path, bytes)
    }

    /// Creates the file of a certificate, and allocates its disk space.
    ///
    /// # Errors
    /// The disk is full, or cannot be written to.
    pub(crate) fn allocate_certificate(&self, name: &DomainName) -> Result<AllocatedFile, Error> {
        let target = self.folder.certificate(name.as_str());
        let (file, temporary) = temporary_for(&target)?;
        let file = AllocatedFile { target, temporary, file: Some(file) };
        file.allocate()
            .map_err(|errno| Error::file("write to", self.folder.path(), &errno.into()))?;
        Ok(file)
    }

    fn states(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn state_path(&self, name: &DomainName) -> PathBuf {
        self.states().join(format!("{name}.json"))
    }

    fn account_path(&self) -> PathBuf {
        self.folder.path().join("account.json")
    }

    fn read_json<T: DeserializeOwned>(&self, path: &Path) -> Option<T> {
        let file = File::open(path).ok()?;
        let mut text = Vec::new();
        file.take(FILE_BYTES_MAX).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }
}

impl AllocatedFile {
    fn allocate(&self) -> Result<(), Errno> {
        let Some(file) = &self.file else { return Ok(()) };
        match fallocate(file, FallocateFlags::empty(), 0, CERTIFICATE_BYTES_MAX) {
            Err(Errno::NOTSUP | Errno::NOSYS | Errno::INVAL) => {
                let zeros = vec![0; CERTIFICATE_BYTES_MAX as usize];
                let mut file = file;
                let written = file.write_all(&zeros).and_then(|()| file.sync_all());
                written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
            }
            other => other,
        }
    }

    /// Writes the content, and renames the file to that of the certificate.
    pub(crate) fn write(mut self, bytes: &[u8]) -> Result<(), Error> {
        let Some(file) = self.file.take() else { return Ok(()) };
        place(&file, &self.temporary, &self.target, bytes)
    }
}

impl Drop for AllocatedFile {
    fn drop(&mut self) {
        if self.file.is_some() {
            // If the removal fails, the next sweep removes the file.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Replaces a file as a whole.
fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let (file, temporary) = temporary_for(path)?;
    place(&file, &temporary, path, bytes).inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

/// Creates a file beside `path` for the current user alone.
fn temporary_for(path: &Path) -> Result<(File, PathBuf), Error> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
    // An older process with the same number may have left the file.
    let _ = fs::remove_file(&temporary);
    let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&temporary);
    let file = file.map_err(|error| Error::file("write to", path, &error))?;
    Ok((file, temporary))
}

/// Writes to a temporary file, and renames the file once its content is on the disk.
fn place(mut file: &File, temporary: &Path, path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let failed = |error: io::Error| Error::file("write to", path, &error);
    use std::io::Seek;
    file.rewind().map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    file.set_len(bytes.len() as u64).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    fs::rename(temporary, path).map_err(failed)?;
    if let Some(folder) = path.parent() {
        // A system that cannot sync folders keeps the name anyway.
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
    Ok(())
}

fn make_folder(path: &Path, with_parents: bool) -> Result<(), Error> {
    let failed = |error: io::Error| Error::file("make the folder", path, &error);
    if path.is_dir() {
        return Ok(());
    }
    if with_parents && let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    match DirBuilder::new().mode(FOLDER_MODE).create(path) {
        // Another server has created the folder in the meantime.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made.map_err(failed),
    }
}

/// Refuses a folder in which other users could read or replace keys.
fn check_is_private(path: &Path) -> Result<(), Error> {
    let metadata = path.metadata().map_err(|error| Error::file("use", path, &error))?;
    let shown = printable::path(path);
    let own = rustix::process::geteuid().as_raw();
    if metadata.uid() != own {
        let error =
            format_args!("cannot keep keys in {shown}: it belongs to user {}", metadata.uid());
        return Err(
            Error::new(error).hint(format_args!("chown it to user {own}, or name another folder"))
        );
    }
    let mode = metadata.permissions().mode() & 0o777;
    if mode & FOR_OTHERS != 0 {
        let error =
            format_args!("cannot keep keys in {shown}: others may use it (mode {mode:03o})");
        return Err(
            Error::new(error).hint(format_args!("chmod 700 {shown}, or name a folder in it"))
        );
    }
    Ok(())
}

/// Returns the name of an authority's folder: its directory's URL, without the scheme.
fn authority_of(directory: &str) -> String {
    let rest = directory.split_once("://").map_or(directory, |(_, rest)| rest);
    let is_kept = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    let name: String =
        rest.chars().map(|c| if is_kept(c) { c.to_ascii_lowercase() } else { '-' }).collect();
    name.trim_matches(['.', '-']).chars().take(AUTHORITY_BYTES_MAX).collect()
}
