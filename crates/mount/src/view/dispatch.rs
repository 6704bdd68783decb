//! Runs the operation of a request, in a single match over all operations.

use std::sync::Arc;

use rustix::io::Errno;
use thruway_fuse::{Operation, Reply, Request};

use super::context::Context;
use super::state::View;
use super::walks::NameGuard;
use super::{
    attributes, create, data, file_flags, listing, location, locking, lookup, names, open, statfs,
    xattr,
};
use crate::actor::Actor;
use crate::inodes::InodeId;
use crate::transport::reply::{Outcome, ReplySender};
use crate::upper::UPPER;

/// Errors of a failing source: of its disk, its device, or the server behind it.
const FAILING: [Errno; 5] =
    [Errno::IO, Errno::UCLEAN, Errno::NOTCONN, Errno::CONNABORTED, Errno::SHUTDOWN];

impl View {
    /// Serves a request. If the reply is sent later, it goes to `sender`.
    pub(crate) fn serve(
        &self,
        actor: &mut Actor,
        sender: &Arc<dyn ReplySender>,
        request: &Request<'_>,
        reply: &mut Reply,
    ) -> Outcome {
        reply.clear();
        let held = self.admit(request);
        let outcome = held.and_then(|_held| {
            let mut cx = Context { view: self, actor, request, reply };
            dispatch(&mut cx, sender)
        });
        outcome.unwrap_or_else(|errno| {
            if FAILING.contains(&errno) {
                self.source_errors.note(errno);
            }
            reply.fail(errno.raw_os_error());
            Outcome::Replied
        })
    }

    /// Refuses a request that the mode or the policy does not allow. The returned guard keeps names unchanged.
    fn admit(&self, request: &Request<'_>) -> Result<Option<NameGuard<'_>>, Errno> {
        if matches!(
            request.operation,
            Operation::Forget { .. }
                | Operation::BatchForget(_)
                | Operation::Interrupt(_)
                | Operation::SetLock { .. }
        ) {
            return Ok(None);
        }
        if self.behaviour.frozen && request.operation.is_change() {
            // The kernel refuses changes by itself, unless root has remounted the view as writable.
            return Err(Errno::ROFS);
        }
        self.invalidation.catch_up();
        let held = self.access.hold_names(&request.operation);
        self.access.check_request(request)?;
        Ok(held)
    }

    /// Whether the reply may take as long as a disk or another machine takes.
    pub(crate) fn is_slow(&self, request: &Request<'_>) -> bool {
        let is_short = matches!(
            request.operation,
            Operation::Forget { .. } | Operation::BatchForget(_) | Operation::Interrupt(_)
        );
        let waits_for_disk = matches!(
            request.operation,
            Operation::FSync(_)
                | Operation::FSyncDir(_)
                | Operation::SyncFs
                | Operation::FAllocate(_)
        );
        waits_for_disk
            || self.may_move(&request.operation)
            || self.may_copy_up(request)
            || data::copies_much(self, request)
            || self.access.may_scan(&request.operation)
            || (!is_short && self.files.volumes.any_remote())
    }
}

impl View {
    /// Whether the operation may copy a file to the upper source, which takes as long as its data.
    fn may_copy_up(&self, request: &Request<'_>) -> bool {
        if self.behaviour.upper.is_none() {
            return false;
        }
        let is_lower = |id| self.files.inodes.get(InodeId(id)).is_ok_and(|it| it.branch != UPPER);
        match request.operation {
            Operation::Open(with) => open::changes(&with) && is_lower(request.inode),
            Operation::SetAttr(_)
            | Operation::SetXattr { .. }
            | Operation::RemoveXattr { .. }
            | Operation::Ioctl { .. } => is_lower(request.inode),
            Operation::Link { source, .. } => is_lower(source),
            Operation::Rename { .. } => true,
            _ => false,
        }
    }

    /// Whether the operation may move a file to another source.
    fn may_move(&self, operation: &Operation<'_>) -> bool {
        match operation {
            Operation::SetXattr { name, .. } => location::is_virtual(name.to_bytes()),
            Operation::Write { .. } | Operation::CopyFileRange { .. } => {
                self.behaviour.moves_when_full
            }
            _ => false,
        }
    }
}

fn dispatch(cx: &mut Context<'_>, sender: &Arc<dyn ReplySender>) -> Result<Outcome, Errno> {
    let view = cx.view;
    let done = match cx.request.operation {
        Operation::Forget { lookups } => return Ok(forget(view, [(cx.request.inode, lookups)])),
        Operation::BatchForget(all) => {
            return Ok(forget(view, all.map(|one| (one.inode, one.lookups))));
        }
        Operation::Interrupt(with) => {
            view.locks.interrupt(with.unique);
            return Ok(Outcome::Silent);
        }
        Operation::SetLock { with, wait } => return locking::setlk(cx, &with, wait, sender),
        Operation::Lookup { name } => lookup::lookup(cx, name),
        Operation::GetAttr(_) => attributes::getattr(cx),
        Operation::Statx(_) => attributes::statx(cx),
        Operation::SetAttr(with) => attributes::setattr(cx, &with),
        Operation::ReadLink => names::readlink(cx),
        Operation::SymLink { name, target } => create::symlink(cx, name, target),
        Operation::MkNod { with, name } => create::mknod(cx, name, &with),
        Operation::MkDir { with, name } => create::mkdir(cx, name, &with),
        Operation::Unlink { name } => names::unlink(cx, name),
        Operation::RmDir { name } => names::rmdir(cx, name),
        Operation::Rename { name, new_parent, new_name, flags } => {
            names::rename(cx, name, (InodeId(new_parent), new_name), flags)
        }
        Operation::Link { source, name } => create::link(cx, InodeId(source), name),
        Operation::Open(with) => open::open(cx, &with),
        Operation::Create { with, name } => create::create(cx, name, &with),
        Operation::TmpFile(with) => create::tmpfile(cx, &with),
        Operation::Read(with) => data::read(cx, &with),
        Operation::Write { with, data } => data::write(cx, &with, data),
        Operation::Flush(with) => locking::flush(cx, &with),
        Operation::Release(with) => open::release(cx, &with),
        Operation::FSync(with) => data::fsync(cx, with.flags & 1 != 0),
        Operation::SyncFs => statfs::syncfs(cx),
        Operation::OpenDir(_) => listing::opendir(cx),
        Operation::ReadDir(with) => listing::readdir(cx, &with),
        Operation::ReadDirPlus(with) => listing::readdirplus(cx, &with),
        Operation::Destroy | Operation::ReleaseDir(_) => Ok(()),
        Operation::FSyncDir(_) => listing::fsyncdir(cx),
        Operation::StatFs => statfs::statfs(cx),
        Operation::SetXattr { with, name, value } => xattr::setxattr(cx, name, value, &with),
        Operation::GetXattr { size, name } => xattr::getxattr(cx, name, size),
        Operation::ListXattr { size } => xattr::listxattr(cx, size),
        Operation::RemoveXattr { name } => xattr::removexattr(cx, name),
        Operation::GetLock(with) => locking::getlk(cx, &with),
        Operation::FAllocate(with) => data::fallocate(cx, &with),
        Operation::Ioctl { with, input } => file_flags::ioctl(cx, &with, input),
        Operation::LSeek(with) => data::lseek(cx, &with),
        Operation::CopyFileRange { with, long } => data::copy_file_range(cx, &with, long),
        Operation::Init(..) | Operation::Access(_) | Operation::Other(_) => Err(Errno::NOSYS),
    };
    done.map(|()| Outcome::Replied)
}

fn forget(view: &View, all: impl IntoIterator<Item = (u64, u64)>) -> Outcome {
    all.into_iter().for_each(|(inode, lookups)| lookup::forget(view, InodeId(inode), lookups));
    Outcome::Silent
}
