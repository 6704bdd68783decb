//! Symbolic links that the view shows as the regular files to which they lead.
//!
//! A link is followed within the view: the daemon walks its target one component at a time, beneath the roots of the
//! sources. A followed link is a further name of a file, and the kernel then checks only the file's own permissions.
//! So a link is followed only where its owner could have made a hard link: the owner can search all folders on the
//! way, and owns the file or can read and write it (the rule of `fs.protected_hardlinks`). Everything else stays a
//! link.

use std::collections::VecDeque;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{self, Access, AtFlags, Mode, OFlags, ResolveFlags, Statx};
use rustix::io::Errno;

use super::files::Files;
use super::folder::{BranchDir, Folder};
use super::stat::{FILE_TYPE, LINK, REGULAR, is_folder, stat_fd, stat_name};
use super::target::Target;
use crate::actor::Actor;
use crate::inodes::InodeId;

/// The maximum number of links on the way to a file, as in the kernel.
const LINKS_MAX: usize = 40;

/// The user as which links are followed that belong to root, in a folder to which others may write.
const NOBODY: u32 = 65_534;

/// Set-user-id, and the two bits that together make set-group-id effective.
const SETUID: u16 = 0o4000;
const SETGID_RUN: u16 = 0o2010;

/// Follows links to regular files.
#[derive(Debug)]
pub(super) struct LinkFollower {
    pub(super) files: Arc<Files>,
    /// The folder where the view is mounted, with which absolute targets may begin.
    pub(super) mounted_at: PathBuf,
}

/// The regular file to which a link leads.
pub(super) struct LinkedFile {
    /// The file's own folder and name.
    pub(super) dir: BranchDir,
    pub(super) name: CString,
    pub(super) stat: Statx,
    /// The path below the source.
    pub(super) path: Vec<u8>,
}

impl LinkFollower {
    /// Returns the regular file to which a link in the folder leads; `None` if the link stays a link.
    pub(super) fn follow(
        &self,
        actor: &Actor,
        folder: &Folder,
        (dir, name): (&BranchDir, &CStr),
        link: &Statx,
    ) -> Option<LinkedFile> {
        let above = match folder.id {
            InodeId::ROOT => Vec::new(),
            id => self.files.path_of(Target::Inode(id)).ok()?,
        };
        let mut walk = LinkWalk {
            follower: self,
            actor,
            users: Vec::new(),
            only_in: None,
            at: components(&above).collect(),
            rest: VecDeque::new(),
        };
        let opened = fs::openat(&dir.fd, name, O_LINK, Mode::empty()).ok()?;
        walk.enter(&stat_fd(&dir.fd).ok()?, &opened, link)?;
        walk.run()
    }

    /// Returns the source in which an absolute target is, or `None` for the view itself, and the path below it.
    fn place_of<'a>(&self, target: &'a Path) -> Option<(Option<u16>, &'a [u8])> {
        if let Ok(below) = target.strip_prefix(&self.mounted_at) {
            return Some((None, below.as_os_str().as_bytes()));
        }
        let table = self.files.roots.table();
        let below = |&branch: &u16| {
            let spec = &table.entries.get(usize::from(branch))?.spec;
            Some((branch, target.strip_prefix(&spec.path).ok()?))
        };
        let inside = table.order.iter().filter_map(below);
        let (branch, below) = inside.min_by_key(|(_, below)| below.components().count())?;
        Some((Some(branch), below.as_os_str().as_bytes()))
    }
}

const O_LINK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A walk from a link to its file.
struct LinkWalk<'a> {
    follower: &'a LinkFollower,
    actor: &'a Actor,
    /// The users who have to be permitted to go this way.
    users: Vec<u32>,
    /// The only source that is looked at, once an absolute target has named one.
    only_in: Option<u16>,
    /// The path below the root so far, without links.
    at: Vec<Vec<u8>>,
    rest: VecDeque<Vec<u8>>,
}

impl LinkWalk<'_> {
    fn run(mut self) -> Option<LinkedFile> {
        let mut links = 1;
        while let Some(component) = self.rest.pop_front() {
            if component == b".." {
                // Above the root is nothing that the view shows.
                self.at.pop()?;
                continue;
            }
            self.at.push(component);
            let (branch, opened, stat) = self.open(&self.at)?;
            if u32::from(stat.stx_mode) & FILE_TYPE == LINK {
                links += 1;
                self.at.pop();
                let above = self.open(&self.at)?.2;
                self.enter(&above, &opened, &stat).filter(|()| links <= LINKS_MAX)?;
            } else if self.rest.is_empty() {
                return self.arrive(branch);
            } else if !is_folder(&stat) {
                return None;
            }
        }
        None
    }

    /// Continues with the target of a link.
    fn enter(&mut self, folder: &Statx, opened: &OwnedFd, link: &Statx) -> Option<()> {
        let user = acting_user(folder, link);
        if self.actor.can_switch() && !self.users.contains(&user) {
            self.users.push(user);
        }
        let target = fs::readlinkat(opened, c"", Vec::new()).ok()?.into_bytes();
        let below = if target.starts_with(b"/") {
            let (source, below) = self.follower.place_of(Path::new(OsStr::from_bytes(&target)))?;
            self.only_in = source;
            self.at.clear();
            below
        } else {
            &target
        };
        // A trailing slash asks for a folder.
        if target.ends_with(b"/") {
            return None;
        }
        for component in components(below).collect::<Vec<_>>().into_iter().rev() {
            self.rest.push_front(component);
        }
        Some(())
    }

    /// Opens a path in the first source that has it, as each of the users.
    fn open(&self, path: &[Vec<u8>]) -> Option<(u16, OwnedFd, Statx)> {
        let path = if path.is_empty() { b".".to_vec() } else { path.join(&b'/') };
        let within =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        for (branch, root) in self.follower.files.roots.present() {
            if self.only_in.is_some_and(|only| only != branch) {
                continue;
            }
            let open = || fs::openat2(&root, path.as_slice(), O_LINK, Mode::empty(), within);
            let opened = match self.users.split_first() {
                None => open(),
                Some((first, others)) => others
                    .iter()
                    .try_for_each(|&user| self.actor.as_user(user, open).map(drop))
                    .and_then(|()| self.actor.as_user(*first, open)),
            };
            match opened {
                Ok(opened) => {
                    let stat = stat_fd(&opened).ok()?;
                    return Some((branch, opened, stat));
                }
                Err(Errno::NOENT) => {}
                Err(_) => return None,
            }
        }
        None
    }

    /// Returns the file at the end of the walk, if its users could have made a hard link to it.
    fn arrive(mut self, branch: u16) -> Option<LinkedFile> {
        let path = self.at.join(&b'/');
        let name = CString::new(self.at.pop()?).ok()?;
        self.only_in = Some(branch);
        let dir = BranchDir { branch, fd: Arc::new(self.open(&self.at)?.1) };
        let stat = stat_name(&dir.fd, &name).ok()?;
        let is_regular = u32::from(stat.stx_mode) & FILE_TYPE == REGULAR;
        let is_permitted = |&user: &u32| user == 0 || self.may_link(user, &dir, &name, &stat);
        (is_regular && self.users.iter().all(is_permitted)).then_some(LinkedFile {
            dir,
            name,
            stat,
            path,
        })
    }

    fn may_link(&self, user: u32, dir: &BranchDir, name: &CStr, stat: &Statx) -> bool {
        let gains_rights = stat.stx_mode & SETUID != 0 || stat.stx_mode & SETGID_RUN == SETGID_RUN;
        let (asked, flags) = (Access::READ_OK | Access::WRITE_OK, AtFlags::EACCESS);
        let may_change = || self.actor.as_user(user, || fs::accessat(&dir.fd, name, asked, flags));
        stat.stx_uid == user || !gains_rights && may_change().is_ok()
    }
}

/// Returns the user as which a link is followed: the link's owner. Root's link counts as root's only where nobody else
/// can have put it.
fn acting_user(folder: &Statx, link: &Statx) -> u32 {
    match (link.stx_uid, folder.stx_uid) {
        (0, 0) if folder.stx_mode & 0o022 != 0 => NOBODY,
        (0, folder_owner) => folder_owner,
        (owner, _) => owner,
    }
}

fn components(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let names = path.split(|&byte| byte == b'/');
    names.filter(|name| !matches!(*name, b"" | b".")).map(<[u8]>::to_vec)
}
