//! The system calls that ask for a file by its name, and those that tell what names are relative to.

mod numbers;

pub(crate) use numbers::X32_BIT;
pub use numbers::{Abi, Numbers};

/// A system call, the same for every architecture that has it.
#[derive(Debug, PartialEq, Eq)]
pub struct Call {
    /// The kernel's name for it.
    pub name: &'static str,
    /// Whether strace counts it in its class `%file`.
    pub is_file_class: bool,
    /// What it does.
    pub kind: Kind,
    /// Its arguments that are file names.
    pub names: [Argument; 2],
}

/// What a call does, as far as look-ups are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Opens a file.
    Open,
    /// Asks for a file's attributes.
    Status,
    /// Asks whether a file may be used.
    Access,
    /// Reads a symbolic link.
    ReadLink,
    /// Starts a program.
    Execute,
    /// Moves to another folder.
    ChangeDirectory,
    /// Changes what `/` means.
    ChangeRoot,
    /// Makes a file, a folder, a link or a node.
    Make,
    /// Removes a name.
    Remove,
    /// Gives a file another name.
    Rename,
    /// Changes a file's attributes.
    Change,
    /// Reads a folder's entries.
    List,
    /// Gives an open file another descriptor.
    Duplicate,
    /// Stops sharing something with other processes.
    Unshare,
    /// Everything else that takes a name.
    Other,
}

/// An argument that is a file name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument {
    /// There is none.
    None,
    /// The argument of this place, relative to the current folder.
    Plain(u8),
    /// Relative to the folder that the descriptor in the first place stands for; the name is in the
    /// second.
    At(u8, u8),
}

use Argument::{At, None as No, Plain};
use Kind::{
    Access, Change, ChangeDirectory, ChangeRoot, Duplicate, Execute, List, Make, Open, Other,
    ReadLink, Remove, Rename, Status, Unshare,
};

const fn file(name: &'static str, kind: Kind, first: Argument) -> Call {
    Call { name, is_file_class: true, kind, names: [first, No] }
}

const fn two(name: &'static str, kind: Kind, first: Argument, second: Argument) -> Call {
    Call { name, is_file_class: true, kind, names: [first, second] }
}

const fn aside(name: &'static str, kind: Kind) -> Call {
    Call { name, is_file_class: false, kind, names: [No, No] }
}

/// Every call that is recorded. The order is not significant; recordings hold names.
pub static CALLS: &[Call] = &[
    file("open", Open, Plain(0)),
    file("openat", Open, At(0, 1)),
    file("openat2", Open, At(0, 1)),
    file("creat", Open, Plain(0)),
    file("open_tree", Open, At(0, 1)),
    file("open_tree_attr", Open, At(0, 1)),
    file("stat", Status, Plain(0)),
    file("lstat", Status, Plain(0)),
    file("stat64", Status, Plain(0)),
    file("lstat64", Status, Plain(0)),
    file("oldstat", Status, Plain(0)),
    file("oldlstat", Status, Plain(0)),
    file("newfstatat", Status, At(0, 1)),
    file("fstatat64", Status, At(0, 1)),
    file("statx", Status, At(0, 1)),
    file("statfs", Status, Plain(0)),
    file("statfs64", Status, Plain(0)),
    file("getxattr", Status, Plain(0)),
    file("lgetxattr", Status, Plain(0)),
    file("listxattr", Status, Plain(0)),
    file("llistxattr", Status, Plain(0)),
    file("getxattrat", Status, At(0, 1)),
    file("listxattrat", Status, At(0, 1)),
    file("file_getattr", Status, At(0, 1)),
    file("name_to_handle_at", Status, At(0, 1)),
    file("access", Access, Plain(0)),
    file("faccessat", Access, At(0, 1)),
    file("faccessat2", Access, At(0, 1)),
    file("readlink", ReadLink, Plain(0)),
    file("readlinkat", ReadLink, At(0, 1)),
    file("execve", Execute, Plain(0)),
    file("execveat", Execute, At(0, 1)),
    file("uselib", Execute, Plain(0)),
    file("chdir", ChangeDirectory, Plain(0)),
    file("chroot", ChangeRoot, Plain(0)),
    two("pivot_root", ChangeRoot, Plain(0), Plain(1)),
    file("mkdir", Make, Plain(0)),
    file("mkdirat", Make, At(0, 1)),
    file("mknod", Make, Plain(0)),
    file("mknodat", Make, At(0, 1)),
    // What a symbolic link says is not looked up when it is made.
    file("symlink", Make, Plain(1)),
    file("symlinkat", Make, At(1, 2)),
    file("rmdir", Remove, Plain(0)),
    file("unlink", Remove, Plain(0)),
    file("unlinkat", Remove, At(0, 1)),
    two("link", Rename, Plain(0), Plain(1)),
    two("linkat", Rename, At(0, 1), At(2, 3)),
    two("rename", Rename, Plain(0), Plain(1)),
    two("renameat", Rename, At(0, 1), At(2, 3)),
    two("renameat2", Rename, At(0, 1), At(2, 3)),
    file("truncate", Change, Plain(0)),
    file("truncate64", Change, Plain(0)),
    file("chmod", Change, Plain(0)),
    file("fchmodat", Change, At(0, 1)),
    file("fchmodat2", Change, At(0, 1)),
    file("chown", Change, Plain(0)),
    file("lchown", Change, Plain(0)),
    file("chown32", Change, Plain(0)),
    file("lchown32", Change, Plain(0)),
    file("fchownat", Change, At(0, 1)),
    file("utime", Change, Plain(0)),
    file("utimes", Change, Plain(0)),
    file("futimesat", Change, At(0, 1)),
    file("utimensat", Change, At(0, 1)),
    file("utimensat_time64", Change, At(0, 1)),
    file("setxattr", Change, Plain(0)),
    file("lsetxattr", Change, Plain(0)),
    file("setxattrat", Change, At(0, 1)),
    file("removexattr", Change, Plain(0)),
    file("lremovexattr", Change, Plain(0)),
    file("removexattrat", Change, At(0, 1)),
    file("file_setattr", Change, At(0, 1)),
    file("getcwd", Other, No),
    file("inotify_add_watch", Other, Plain(1)),
    file("fanotify_mark", Other, At(3, 4)),
    file("mount", Other, Plain(1)),
    file("umount", Other, Plain(0)),
    file("umount2", Other, Plain(0)),
    file("mount_setattr", Other, At(0, 1)),
    two("move_mount", Other, At(0, 1), At(2, 3)),
    file("fsconfig", Other, No),
    file("fspick", Other, At(0, 1)),
    file("acct", Other, Plain(0)),
    file("swapon", Other, Plain(0)),
    file("swapoff", Other, Plain(0)),
    file("quotactl", Other, Plain(1)),
    aside("fchdir", ChangeDirectory),
    aside("getdents", List),
    aside("getdents64", List),
    aside("dup", Duplicate),
    aside("dup2", Duplicate),
    aside("dup3", Duplicate),
    aside("fcntl", Duplicate),
    aside("fcntl64", Duplicate),
    aside("unshare", Unshare),
    aside("setns", Unshare),
    // What the recorder itself notes: see `record`.
    aside("(fork)", Other),
    aside("(exit)", Other),
    aside("(program)", Other),
    aside("(signal)", Other),
    aside("(unknown)", Other),
];

impl Call {
    /// The call of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        CALLS.iter().find(|call| call.name == name)
    }

    /// Its place in [`CALLS`].
    #[must_use]
    pub fn index(&self) -> usize {
        let distance = std::ptr::from_ref(self).addr() - CALLS.as_ptr().addr();
        distance / size_of::<Self>()
    }

    /// Which argument holds the flags that are recorded, if any.
    #[must_use]
    pub fn flags_at(&self) -> Option<u8> {
        match self.name {
            "open" => Some(1),
            "openat" | "unlinkat" | "statx" => Some(2),
            "newfstatat" | "fstatat64" | "faccessat2" => Some(3),
            _ => None,
        }
    }

    /// Whether every call of this number is recorded; of the others the filter finds the commands
    /// that are.
    #[must_use]
    pub fn is_always_recorded(&self) -> bool {
        !matches!(self.name, "fcntl" | "fcntl64")
    }

    /// How the stub reads the call's names: the highest bit, and in three bits each which argument
    /// is a name, counted from 1. `None`: the stub cannot note it, and the tracer does.
    #[must_use]
    pub fn shape(&self) -> Option<u8> {
        let needs_six = self.name.ends_with("xattrat");
        let has_effect_on_tracing = self.kind == Unshare;
        if needs_six || has_effect_on_tracing {
            return None;
        }
        let mut shape = 0x80;
        for (index, argument) in self.names.iter().enumerate() {
            let place = match argument {
                No => continue,
                Plain(place) | At(_, place) => *place,
            };
            if place > 3 {
                return None;
            }
            shape |= (place + 1) << (3 * index);
        }
        Some(shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_there_once() {
        for (index, call) in CALLS.iter().enumerate() {
            assert_eq!(CALLS.iter().position(|other| other.name == call.name), Some(index));
            assert_eq!(call.index(), index);
        }
    }

    #[test]
    fn a_shape_says_where_the_names_are() {
        let shape = |name| Call::named(name).and_then(Call::shape);
        assert_eq!(shape("stat"), Some(0x80 | 1));
        assert_eq!(shape("openat"), Some(0x80 | 2));
        assert_eq!(shape("renameat2"), Some(0x80 | 2 | 4 << 3));
        assert_eq!(shape("getcwd"), Some(0x80));
        assert_eq!(shape("fanotify_mark"), None);
        assert_eq!(shape("setxattrat"), None);
        assert_eq!(shape("unshare"), None);
    }
}
