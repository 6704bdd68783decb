//! New names: files, folders, links and nodes, made as the caller.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, Statx};
use rustix::io::Errno;
use thruway_fuse::wire::{CreateIn, EntryOut, MkDirIn, MkNodIn};
use thruway_fuse::{Answer, Caller};

use super::View;
use super::folder::{Folder, Spot};
use super::judging::Subject;
use super::lookup::{Found, Maker, stat_name, stat_place};
use super::open::access;
use crate::actor::Actor;
use crate::inodes::InodeId;
use crate::policy::Verdict;
use crate::proc_path::ProcPath;

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
        let (spot, ()) = self.make_in(&folder, |spot| {
            actor.make_as(caller, with.mode, with.umask, || {
                fs::mknodat(&spot.place, name, kind, mode, unpacked_device(with.device))
            })
        })?;
        self.answer_new(&folder, &spot, name, answer)
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
        let (spot, ()) = self.make_in(&folder, |spot| {
            let make = || fs::mkdirat(&spot.place, name, mode);
            actor.make_as(caller, with.mode, with.umask, make)
        })?;
        self.answer_new(&folder, &spot, name, answer)
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
        let (spot, ()) = self.make_in(&folder, |spot| {
            actor.make_as(caller, 0, 0, || fs::symlinkat(target, &spot.place, name))
        })?;
        self.answer_new(&folder, &spot, name, answer)
    }

    pub(super) fn link(
        &self,
        source: InodeId,
        parent: InodeId,
        name: &CStr,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        let (place, folder) = (self.place(source)?, self.folder(parent)?);
        // In the source that has the file, or not at all.
        let spot = self.spot_in(&folder, self.inodes.get(source)?.branch)?;
        link_place(&place, &spot.place, name)?;
        self.answer_new(&folder, &spot, name, answer)
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
        let access = access(OFlags::from_bits_retain(with.flags) | OFlags::TRUNC);
        let verdict = self.judge(caller, Subject::New(parent, name), access)?;
        let folder = self.folder(parent)?;
        let mode = Mode::from_raw_mode(with.mode & 0o7777);
        // Open for reading only: a file that is open for writing cannot be executed.
        let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let made = self.make_in(&folder, |spot| {
            let make = || fs::openat(&spot.place, name, flags, mode);
            actor.make_as(caller, with.mode, with.umask, make)
        });
        let (spot, file) = match made {
            // Somebody else was faster. The kernel looks again when it hears ESTALE.
            Err(Errno::EXIST) if with.flags & OFlags::EXCL.bits() == 0 => Err(Errno::STALE),
            made => made,
        }?;
        self.note_change(&folder, name);
        let found = Found::Made(&spot, file.as_fd(), name);
        let id = self.answer_created(&folder, &file, found, (with, verdict), answer)?;
        // Who has made a file soon asks for more: its attributes are set, or it is written to.
        self.places.put(id, Arc::new(file));
        Ok(())
    }

    pub(super) fn create_nameless(
        &self,
        actor: &mut Actor,
        caller: &Caller,
        parent: InodeId,
        with: &CreateIn,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        let access = access(OFlags::from_bits_retain(with.flags) | OFlags::TRUNC);
        let verdict = self.judge(caller, Subject::New(parent, c""), access)?;
        let folder = self.folder(parent)?;
        let mode = Mode::from_raw_mode(with.mode & 0o7777);
        let exclusive = OFlags::from_bits_retain(with.flags) & OFlags::EXCL;
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC | exclusive;
        let (spot, file) = self.make_in(&folder, |spot| {
            let make = || fs::openat(&spot.place, c".", flags, mode);
            actor.make_as(caller, with.mode, with.umask, make)
        })?;
        let found = Found::Nameless(&spot, file.as_fd());
        self.answer_created(&folder, &file, found, (with, verdict), answer).map(drop)
    }

    fn answer_created(
        &self,
        folder: &Folder,
        file: &OwnedFd,
        found: Found<'_>,
        (with, verdict): (&CreateIn, Verdict),
        answer: &mut Answer,
    ) -> Result<InodeId, Errno> {
        let stat = stat_place(file)?;
        let entry = self.new_entry(folder, found, &stat)?;
        let id = InodeId(entry.inode);
        let open = self.open_new(id, &stat, (with.flags, verdict), file);
        answer.put(&entry);
        answer.put(&self.opened(open));
        Ok(id)
    }

    fn answer_new(
        &self,
        folder: &Folder,
        spot: &Spot,
        name: &CStr,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        self.note_change(folder, name);
        let stat = stat_name(&spot.place, name)?;
        answer.put(&self.new_entry(folder, Found::Name(spot, name), &stat)?);
        Ok(())
    }

    /// What the kernel may know of what was just made. A name that nobody sees it does not keep.
    fn new_entry(
        &self,
        folder: &Folder,
        found: Found<'_>,
        stat: &Statx,
    ) -> Result<EntryOut, Errno> {
        let mut entry = self.entry(folder, found, stat, Maker::Us)?;
        if let Some(name) = found.name()
            && self.hiding(folder.id)?(name)
        {
            (entry.entry_timeout, entry.entry_timeout_nanoseconds) = (0, 0);
        }
        Ok(entry)
    }
}

/// Gives the file another name. Without the right to do that directly it goes by the path of the
/// descriptor.
fn link_place(place: &OwnedFd, folder: &OwnedFd, name: &CStr) -> Result<(), Errno> {
    match fs::linkat(place, c"", folder, name, AtFlags::EMPTY_PATH) {
        Err(Errno::NOENT) => {
            let path = ProcPath::new(place.as_fd());
            fs::linkat(CWD, path.as_c_str(), folder, name, AtFlags::SYMLINK_FOLLOW)
        }
        linked => linked,
    }
}

/// The device number in the kernel's 32 bits.
fn unpacked_device(packed: u32) -> fs::Dev {
    let major = (packed >> 8) & 0xfff;
    let minor = (packed & 0xff) | ((packed >> 12) & 0xf_ff00);
    fs::makedev(major, minor)
}
