//! New names: files, folders, links and nodes, made as the caller.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use thruway_fuse::wire::{CreateIn, MkDirIn, MkNodIn};
use thruway_fuse::{Answer, Caller};

use super::View;
use super::lookup::{Folder, Found, Maker, stat_name, stat_place};
use crate::actor::Actor;
use crate::inodes::InodeId;

impl View {
    pub(super) fn make_node(
        &self,
        actor: &mut Actor,
        caller: &Caller,
        parent: InodeId,
        name: &CStr,
        with: &MkNodIn,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        let folder = self.folder(parent)?;
        let kind = FileType::from_raw_mode(with.mode);
        let mode = Mode::from_raw_mode(with.mode & 0o7777);
        actor.make_as(caller, with.mode, with.umask, || {
            fs::mknodat(&folder.place, name, kind, mode, unpacked_device(with.device))
        })?;
        self.answer_new(&folder, name, answer)
    }

    pub(super) fn make_folder(
        &self,
        actor: &mut Actor,
        caller: &Caller,
        parent: InodeId,
        name: &CStr,
        with: &MkDirIn,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        let folder = self.folder(parent)?;
        let mode = Mode::from_raw_mode(with.mode & 0o7777);
        actor.make_as(caller, with.mode, with.umask, || fs::mkdirat(&folder.place, name, mode))?;
        self.answer_new(&folder, name, answer)
    }

    pub(super) fn make_symlink(
        &self,
        actor: &mut Actor,
        caller: &Caller,
        parent: InodeId,
        name: &CStr,
        target: &CStr,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        let folder = self.folder(parent)?;
        actor.make_as(caller, 0, 0, || fs::symlinkat(target, &folder.place, name))?;
        self.answer_new(&folder, name, answer)
    }

    pub(super) fn link(
        &self,
        source: InodeId,
        parent: InodeId,
        name: &CStr,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        let (place, folder) = (self.place(source)?, self.folder(parent)?);
        fs::linkat(&place, c"", &folder.place, name, AtFlags::EMPTY_PATH)?;
        self.answer_new(&folder, name, answer)
    }

    pub(super) fn create(
        &self,
        actor: &mut Actor,
        caller: &Caller,
        parent: InodeId,
        name: &CStr,
        with: &CreateIn,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        let folder = self.folder(parent)?;
        let mode = Mode::from_raw_mode(with.mode & 0o7777);
        // Open for reading only: a file that is open for writing cannot be executed.
        let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let made = actor.make_as(caller, with.mode, with.umask, || {
            fs::openat(&folder.place, name, flags, mode)
        });
        let file = match made {
            // Somebody else was faster. The kernel looks again when it hears ESTALE.
            Err(Errno::EXIST) if with.flags & OFlags::EXCL.bits() == 0 => Err(Errno::STALE),
            made => made,
        }?;
        self.answer_created(&folder, &file, Found::Made(file.as_fd(), name), with, answer)
    }

    pub(super) fn create_nameless(
        &self,
        actor: &mut Actor,
        caller: &Caller,
        parent: InodeId,
        with: &CreateIn,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        let folder = self.folder(parent)?;
        let mode = Mode::from_raw_mode(with.mode & 0o7777);
        let exclusive = OFlags::from_bits_retain(with.flags) & OFlags::EXCL;
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC | exclusive;
        let file = actor.make_as(caller, with.mode, with.umask, || {
            fs::openat(&folder.place, c".", flags, mode)
        })?;
        self.answer_created(&folder, &file, Found::Nameless(file.as_fd()), with, answer)
    }

    fn answer_created(
        &self,
        folder: &Folder,
        file: &OwnedFd,
        found: Found<'_>,
        with: &CreateIn,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        let stat = stat_place(file)?;
        let entry = self.entry(folder, found, &stat, Maker::Us)?;
        let open = self.open_new(InodeId(entry.inode), &stat, with.flags, file);
        answer.put(&entry);
        answer.put(&self.opened(open));
        Ok(())
    }

    fn answer_new(&self, folder: &Folder, name: &CStr, answer: &mut Answer) -> Result<(), Errno> {
        let stat = stat_name(&folder.place, name)?;
        let found = Found::Name(folder.place.as_fd(), name);
        answer.put(&self.entry(folder, found, &stat, Maker::Us)?);
        Ok(())
    }
}

/// The device number in the kernel's 32 bits.
fn unpacked_device(packed: u32) -> fs::Dev {
    let major = (packed >> 8) & 0xfff;
    let minor = (packed & 0xff) | ((packed >> 12) & 0xf_ff00);
    fs::makedev(major, minor)
}
