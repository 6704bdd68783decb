//! Opens the files of inodes.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{self, CWD, Mode, OFlags, ResolveFlags, Statx};
use rustix::io::Errno;

use super::folder_places::FolderPlaces;
use super::found_inode::FoundInode;
use super::stat::{
    REGULAR, handle_of, identity, is_folder, open_handle, open_name, stat_fd, stat_name,
};
use super::target::Target;
use crate::branches::{Opener, Part};
use crate::descriptors::{Descriptors, Owner};
use crate::inodes::{Inode, InodeId, Inodes};
use crate::names::{Name, Names};
use crate::pins::Pins;
use crate::proc_path::ProcPath;
use crate::roots::Roots;
use crate::volumes::{VolumeInfo, Volumes};

/// The inodes that the kernel knows, and their open descriptors.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) inodes: Arc<Inodes>,
    pub(super) volumes: Arc<Volumes>,
    /// The roots of the sources.
    pub(super) roots: Arc<Roots>,
    /// Descriptors of inodes, open with `O_PATH`.
    pub(super) path_fds: Descriptors,
    pub(super) pins: Pins,
    /// The names of inodes, if they are needed.
    pub(super) names: Option<Names>,
    /// The places of merged folders.
    places: FolderPlaces,
    /// Whether there is an upper source.
    has_upper: bool,
    /// Descriptors for reading, for daemon I/O. The second branch of an inode holds a descriptor that keeps the access
    /// time.
    readers: Descriptors,
    /// Descriptors for writing, for daemon I/O.
    writers: Descriptors,
}

impl Files {
    /// Creates the table for the files below `roots`, on these `volumes`. With `needs_names`, names are kept even if
    /// the first source has handles.
    pub(super) fn new(
        inodes: Inodes,
        (roots, volumes): (Arc<Roots>, Arc<Volumes>),
        (needs_names, has_upper): (bool, bool),
        descriptors_max: usize,
    ) -> Result<Self, Errno> {
        let mut files = Self {
            inodes: Arc::new(inodes),
            volumes,
            roots,
            path_fds: Descriptors::new(descriptors_max / 4),
            pins: Pins::default(),
            names: None,
            places: FolderPlaces::default(),
            has_upper,
            readers: Descriptors::new(descriptors_max / 8),
            writers: Descriptors::new(descriptors_max / 8),
        };
        let volume = files.intern_root()?;
        files.names = (needs_names || !volume.has_handles).then(Names::default);
        Ok(files)
    }

    /// Adds the root to the table, unless the previous worker has added it.
    fn intern_root(&self) -> Result<VolumeInfo, Errno> {
        let root = self.roots.first()?;
        let stat = stat_fd(&root)?;
        let again = || fs::openat(&root, c".", OFlags::PATH, Mode::empty());
        let volume = self.volumes.of(&stat, again)?;
        if self.inodes.get(InodeId::ROOT).is_err() {
            self.inodes.set_root(identity(volume.index, &stat));
        }
        Ok(volume)
    }

    /// Closes all descriptors that can be opened again, since they may keep a file system from being unmounted.
    pub(super) fn close_all(&self) {
        [&self.path_fds, &self.readers, &self.writers].iter().for_each(|all| all.clear());
    }

    /// Closes descriptors that were not used for a while.
    pub(super) fn age(&self) {
        self.path_fds.age();
        self.readers.age();
        self.writers.age();
    }

    /// Closes the descriptors that were needed only while a program had the file open.
    pub(super) fn close(&self, id: InodeId) {
        self.pins.release(id);
        [0, 1].iter().for_each(|&keeps_atime| self.readers.remove((id, keeps_atime)));
        self.writers.remove(id);
    }

    /// Closes the descriptor for writing that is kept for later requests.
    pub(super) fn forget_writer(&self, id: InodeId) {
        self.writers.remove(id);
    }

    /// Closes all descriptors of the inode that are kept for later requests.
    pub(super) fn forget_descriptors(&self, id: InodeId) {
        self.path_fds.remove(id);
        [0, 1].iter().for_each(|&keeps_atime| self.readers.remove((id, keeps_atime)));
        self.writers.remove(id);
    }

    /// Drops the state of an inode that the kernel has forgotten.
    pub(super) fn forget(&self, id: InodeId) {
        self.path_fds.remove(id);
        if let Some(names) = &self.names {
            names.forget(id);
        }
        self.close(id);
    }

    /// Notes the place of a merged folder, before its name is remembered. Returns the other inode that had this place.
    pub(super) fn note_place(&self, id: InodeId, parent: InodeId, name: &[u8]) -> Option<InodeId> {
        self.forget_place(id);
        self.places.insert(parent, name, id)
    }

    /// Forgets the place of a folder, as long as its name is remembered.
    pub(super) fn forget_place(&self, id: InodeId) {
        if let Some((parent, name)) = self.names.as_ref().and_then(|names| names.get(id)) {
            self.places.remove(parent, name.to_bytes(), id);
        }
    }

    /// Returns the folder that the kernel knows at this place. Another folder may be there by now.
    pub(super) fn folder_at(&self, parent: InodeId, name: &CStr) -> Option<InodeId> {
        let id = self.places.find(parent, name.to_bytes())?;
        let (above, last_name) = self.names.as_ref()?.get(id)?;
        let is_there = above == parent && *last_name == *name;
        (is_there && self.inodes.get(id).is_ok()).then_some(id)
    }

    /// Makes this part, which is open, the folder of an inode that had another one.
    pub(super) fn follow_folder(&self, id: InodeId, part: &Part, fd: &Arc<OwnedFd>) {
        let Ok(inode) = self.inodes.get(id) else { return };
        // A folder that was removed through the mount stays that folder.
        if inode.identity.is_same_file(&part.identity) || self.pins.get(id).is_some() {
            return;
        }
        let handle = match &part.opener {
            Opener::Handle(handle) => Some(handle),
            Opener::Held(_) => None,
        };
        self.inodes.follow_folder(id, &part.identity, part.branch, handle, || {
            self.forget_descriptors(id);
            self.path_fds.put(id, Arc::clone(fd));
        });
    }

    /// Returns the inode, open with `O_PATH`.
    pub(super) fn path_fd(&self, id: InodeId) -> Result<Arc<OwnedFd>, Errno> {
        if id == InodeId::ROOT {
            return self.roots.first();
        }
        if let Some(fd) = self.path_fds.get(id) {
            return Ok(fd);
        }
        if let Some(fd) = self.pins.get(id) {
            return Ok(fd);
        }
        self.open_kept(id, (&self.path_fds, id.into()), || {
            self.open_inode(&self.inodes.get(id)?, OFlags::PATH | OFlags::NOFOLLOW)
        })
    }

    /// Opens the inode, and keeps the descriptor for later requests. If the inode gets another file meanwhile, it is
    /// opened again: the descriptors of the former file are closed before this one is kept.
    fn open_kept(
        &self,
        id: InodeId,
        (cache, owner): (&Descriptors, Owner),
        open: impl Fn() -> Result<OwnedFd, Errno>,
    ) -> Result<Arc<OwnedFd>, Errno> {
        loop {
            let before = self.inodes.get(id)?;
            let fd = Arc::new(open()?);
            cache.put(owner, Arc::clone(&fd));
            if self.inodes.get(id)?.identity == before.identity {
                return Ok(fd);
            }
            cache.remove(owner);
        }
    }

    /// Opens the inode by its handle.
    pub(super) fn open_inode(&self, inode: &Inode, flags: OFlags) -> Result<OwnedFd, Errno> {
        let Some(handle) = inode.handle else {
            return self.open_without_handle(inode, flags);
        };
        let volume = self.volumes.get(inode.identity.volume)?;
        let opened = open_handle(&volume, &handle, flags)?;
        if !inode.checked {
            self.check(inode, &opened)?;
        }
        Ok(opened)
    }

    /// Opens the inode through an existing descriptor, or by its name.
    fn open_without_handle(&self, inode: &Inode, flags: OFlags) -> Result<OwnedFd, Errno> {
        if !flags.contains(OFlags::PATH) {
            let fd = self.path_fd(inode.id)?;
            let flags = (flags - OFlags::NOFOLLOW) | OFlags::CLOEXEC;
            return fs::openat(CWD, ProcPath::new(fd.as_fd()).as_c_str(), flags, Mode::empty());
        }
        let path =
            self.names.as_ref().and_then(|names| names.path(inode.id)).ok_or(Errno::STALE)?;
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let flags = flags | OFlags::CLOEXEC;
        let root = self.roots.get(inode.branch)?;
        let fd = fs::openat2(root, path, flags, Mode::empty(), within).map_err(|_| Errno::STALE)?;
        // The name may refer to another file by now.
        let identity = identity(inode.identity.volume, &stat_fd(&fd)?);
        let is_link = self.has_upper && identity.is_same_number(&inode.identity);
        if is_link || identity.is_same_file(&inode.identity) { Ok(fd) } else { Err(Errno::STALE) }
    }

    /// Checks that the handle opens the inode. Between the `statx` of a name and the creation of its handle, another
    /// file may have been moved to the name, and then the handle belongs to that file.
    fn check(&self, inode: &Inode, opened: &OwnedFd) -> Result<(), Errno> {
        let stat = stat_fd(opened)?;
        if stat.stx_ino != inode.identity.number {
            return Err(Errno::STALE);
        }
        self.inodes.flags(inode.id).set_checked();
        Ok(())
    }

    /// Opens a folder again through the mount that leads to its file system's other files. The root of a source is held
    /// through a mount of its own, and the kernel renames and links within one mount only.
    pub(super) fn on_common_mount(&self, folder: &OwnedFd) -> Result<OwnedFd, Errno> {
        let volume = self.volumes.known(&stat_fd(folder)?).ok_or(Errno::XDEV)?;
        let volume = self.volumes.get(volume.index)?;
        let is_read_only = |fd: &OwnedFd| {
            fs::fstatvfs(fd).map(|it| it.f_flag.contains(fs::StatVfsMountFlags::RDONLY))
        };
        // Of two mounts of a file system, one may be read-only.
        if is_read_only(folder)? != is_read_only(&*volume.anchor()?)? {
            return Err(Errno::XDEV);
        }
        let handle = handle_of(folder.as_fd()).map_err(|_| Errno::XDEV)?;
        open_handle(&volume, &handle, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW)
    }

    /// Returns the inode of `stat`, if the kernel knows it.
    pub(super) fn known(&self, stat: &Statx) -> Option<InodeId> {
        let volume = self.volumes.known(stat)?;
        self.inodes.find_known(&identity(volume.index, stat))
    }

    /// Keeps a file alive whose opens the kernel does not report, or that has no name.
    pub(super) fn pin_found(&self, id: InodeId, found: FoundInode<'_>) {
        // If the pin fails, the file merely becomes unusable after it is removed.
        if let Ok(fd) = found.path_fd() {
            self.pins.hold(id, Arc::new(fd));
        }
    }

    /// Runs `change`, which may remove this name. If the name belongs to a folder that the kernel knows, the folder
    /// stays usable. (Files are kept by their opens.)
    pub(super) fn keeping_folder<T>(
        &self,
        folder: BorrowedFd<'_>,
        name: &CStr,
        change: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let stat = stat_name(folder, name).ok();
        let Some(stat) = stat.filter(is_folder) else { return change() };
        let fd = open_name(folder, name)?;
        let changed = change()?;
        if let Some(id) = self.known(&stat) {
            self.pins.hold(id, Arc::new(fd));
        }
        Ok(changed)
    }

    /// Keeps a file with daemon I/O alive, since the kernel has no backing file for it.
    pub(super) fn pin_open(&self, id: InodeId, fd: impl FnOnce() -> Result<OwnedFd, Errno>) {
        if self.pins.get(id).is_none()
            && let Ok(fd) = fd()
        {
            self.pins.hold(id, Arc::new(fd));
        }
    }

    /// Opens the inode for access to its data. If the file has a lease, as during a move, the open waits until the
    /// holder has given up the lease.
    pub(super) fn reopen(&self, id: InodeId, access: OFlags) -> Result<OwnedFd, Errno> {
        let inode = self.inodes.get(id)?;
        let access = access | OFlags::NOCTTY | OFlags::LARGEFILE;
        match self.open_inode(&inode, access | OFlags::NONBLOCK) {
            Err(Errno::AGAIN) if u32::from(inode.identity.kind) << 12 == REGULAR => {
                self.open_inode(&inode, access)
            }
            opened => opened,
        }
    }

    pub(super) fn open_for_reading(&self, id: InodeId) -> Result<OwnedFd, Errno> {
        self.reopen(id, OFlags::RDONLY)
    }

    /// Opens the inode for writing. A file that can only be appended to (`chattr +a`) is opened for appending, and then
    /// each write appends.
    pub(super) fn open_for_writing(&self, id: InodeId) -> Result<OwnedFd, Errno> {
        if self.has_upper {
            self.roots.check_writable(self.inodes.get(id)?.branch)?;
        }
        match self.reopen(id, OFlags::WRONLY) {
            Err(Errno::PERM) => self.reopen(id, OFlags::WRONLY | OFlags::APPEND),
            opened => opened,
        }
    }

    /// Opens the inode so that reads do not update the access time, if this process owns the file or is privileged;
    /// otherwise opens it normally.
    pub(super) fn open_without_atime(&self, id: InodeId) -> Result<OwnedFd, Errno> {
        match self.reopen(id, OFlags::RDONLY | OFlags::NOATIME) {
            Err(Errno::PERM) => self.open_for_reading(id),
            opened => opened,
        }
    }

    /// Returns the inode, open for reading, from the cache of readers. With `keeps_atime`, reads do not update the
    /// access time.
    pub(super) fn reader(&self, id: InodeId, keeps_atime: bool) -> Result<Arc<OwnedFd>, Errno> {
        let owner = (id, u16::from(keeps_atime));
        if let Some(file) = self.readers.get(owner) {
            return Ok(file);
        }
        let open = if keeps_atime { Self::open_without_atime } else { Self::open_for_reading };
        self.open_kept(id, (&self.readers, owner.into()), || open(self, id))
    }

    /// Returns the inode, open for writing, from the cache of writers.
    pub(super) fn writer(&self, id: InodeId) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(file) = self.writers.get(id) {
            return Ok(file);
        }
        self.open_kept(id, (&self.writers, id.into()), || self.open_for_writing(id))
    }

    /// Returns the path below the mount, without a leading slash. For an inode with several names, the path contains
    /// the last used name.
    pub(super) fn path_of(&self, subject: Target<'_>) -> Result<Vec<u8>, Errno> {
        match subject {
            Target::Inode(id) => {
                let known = self.names.as_ref().and_then(|names| names.path(id));
                // After the death of a worker no names are known, but the source may know the path.
                known.or_else(|| self.path_in_source(id)).ok_or(Errno::STALE)
            }
            Target::Name(folder, name) | Target::New(folder, name) => {
                Ok(joined(&self.path_of(Target::Inode(folder))?, name.to_bytes()))
            }
        }
    }

    pub(super) fn path_by(&self, name: &Name) -> Result<Vec<u8>, Errno> {
        Ok(joined(&self.path_of(Target::Inode(name.parent))?, &name.name))
    }

    /// Returns the path below the source, as the kernel knows it, of a file with one name.
    pub(super) fn path_in_source(&self, id: InodeId) -> Option<Vec<u8>> {
        let path = |fd: &OwnedFd| {
            let path = fs::readlinkat(CWD, ProcPath::new(fd.as_fd()).as_c_str(), Vec::new());
            path.ok().map(std::ffi::CString::into_bytes)
        };
        let fd = self.path_fd(id).ok()?;
        let stat = stat_fd(&*fd).ok()?;
        if stat.stx_nlink == 0 || stat.stx_nlink > 1 && !is_folder(&stat) {
            // The source's path could be a removed name, or any of several names.
            return None;
        }
        let root = path(&*self.roots.get(self.inodes.get(id).ok()?.branch).ok()?)?;
        let below = path(&fd)?;
        // A private copy of a mount starts at the source.
        let root = root.strip_suffix(b"/").unwrap_or(&root);
        below.strip_prefix(root)?.strip_prefix(b"/").map(<[u8]>::to_vec)
    }
}

pub(super) fn joined(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() {
        return name.to_vec();
    }
    [folder, name].join(&b'/')
}
