//! The extended attributes that tell where a file is, and that move it.
//!
//! They are in no list of attributes, so programs that copy attributes do not copy them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;
use rustix::process::geteuid;

use super::context::Context;
use super::left_copies::remove_left_copy;
use super::relocation::relocate;
use super::state::View;
use super::target::Target;
use crate::inodes::InodeId;

/// The prefix of our attributes, and the one that the tools of mergerfs use.
const PREFIXES: [&[u8]; 2] = [b"user.thruway.", b"user.mergerfs."];

/// The attribute with the source of a file. Setting it moves the file.
const SOURCE: &[u8] = b"user.thruway.source";

/// The attribute that removes a file's copy, which is hidden: an interrupted move to an earlier source has left it.
const LEFT_COPY: &[u8] = b"user.thruway.left_copy";

/// Whether the attribute is not one of the file.
pub(super) fn is_virtual(name: &[u8]) -> bool {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns the value of an attribute that tells where the inode is.
pub(super) fn value(view: &View, id: InodeId, name: &[u8]) -> Result<Vec<u8>, Errno> {
    match name {
        SOURCE | b"user.mergerfs.basepath" => source(view, id),
        b"user.thruway.path" | b"user.mergerfs.fullpath" => full_path(view, id),
        b"user.mergerfs.relpath" => Ok([b"/", below(view, id)?.as_slice()].concat()),
        b"user.thruway.copies" | b"user.mergerfs.allpaths" => copies(view, id),
        _ => Err(Errno::NODATA),
    }
}

/// Moves the file of the request to the source that `value` names, or removes the copy that the source has. After the
/// path of the source, all names of the file may follow, relative to the root, each after a NUL. A file with several
/// names moves only if all are given.
pub(super) fn set(cx: &Context<'_>, name: &[u8], value: &[u8]) -> Result<(), Errno> {
    let view = cx.view;
    let caller = cx.request.caller.uid;
    let is_known = matches!(name, SOURCE | LEFT_COPY);
    if !is_known || caller != 0 && caller != geteuid().as_raw() {
        return Err(Errno::PERM);
    }
    let mut parts = value.split(|&byte| byte == 0);
    let path = OsStr::from_bytes(parts.next().unwrap_or_default());
    let names: Vec<_> = parts.filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect();
    let table = view.files.roots.table();
    let is_it = |branch: &&u16| {
        table.entries.get(usize::from(**branch)).is_some_and(|entry| entry.spec.path == path)
    };
    let branch = *table.order.iter().find(is_it).ok_or(Errno::INVAL)?;
    view.folders.branches().ok_or(Errno::INVAL)?;
    match name {
        LEFT_COPY => remove_left_copy(view, cx.inode(), branch, &names),
        _ => relocate(view, cx.inode(), branch, &names, false),
    }
}

/// Returns the path below the root.
fn below(view: &View, id: InodeId) -> Result<Vec<u8>, Errno> {
    if id == InodeId::ROOT {
        return Ok(Vec::new());
    }
    view.files.path_of(Target::Inode(id))
}

/// Returns the branch that provides the inode.
fn branch(view: &View, id: InodeId) -> Result<u16, Errno> {
    let is_folder = view.files.inodes.get(id)?.identity.is_folder();
    if is_folder && view.folders.branches().is_some() {
        let dirs = view.folders.dirs(&view.folders.folder(id)?)?;
        return dirs.first().map(|dir| dir.branch).ok_or(Errno::STALE);
    }
    Ok(view.files.inodes.get(id)?.branch)
}

fn source(view: &View, id: InodeId) -> Result<Vec<u8>, Errno> {
    path_in(view, branch(view, id)?, b"")
}

fn full_path(view: &View, id: InodeId) -> Result<Vec<u8>, Errno> {
    path_in(view, branch(view, id)?, &below(view, id)?)
}

/// Returns the paths in all sources that have the name, each but the last followed by a NUL.
fn copies(view: &View, id: InodeId) -> Result<Vec<u8>, Errno> {
    let below = below(view, id)?;
    let known = view.files.names.as_ref().and_then(|names| names.get(id));
    let branches: Vec<u16> = match known.filter(|_| view.folders.branches().is_some()) {
        Some((parent, name)) => {
            let dirs = view.folders.all_with(&view.folders.folder(parent)?, &name)?;
            dirs.into_iter().map(|dir| dir.branch).collect()
        }
        None if id == InodeId::ROOT => {
            view.files.roots.present().into_iter().map(|(branch, _)| branch).collect()
        }
        None => vec![branch(view, id)?],
    };
    let paths: Result<Vec<_>, _> =
        branches.into_iter().map(|branch| path_in(view, branch, &below)).collect();
    Ok(paths?.join(&0))
}

fn path_in(view: &View, branch: u16, below: &[u8]) -> Result<Vec<u8>, Errno> {
    let spec = view.files.roots.spec(branch).ok_or(Errno::NODEV)?;
    let source = spec.path.as_os_str().as_bytes();
    if below.is_empty() {
        return Ok(source.to_vec());
    }
    Ok([source.strip_suffix(b"/").unwrap_or(source), b"/", below].concat())
}
