//! The system calls that name a file, and those that change what names are relative to.

mod numbers;

pub(crate) use numbers::X32_BIT;
pub use numbers::{Abi, Numbers};

/// A system call, the same for every architecture that has it.
#[derive(Debug, PartialEq, Eq)]
pub struct Call {
    /// The kernel's name of the call.
    pub name: &'static str,
    /// Whether the call belongs to strace's class `%file`.
    pub is_file_class: bool,
    /// The kind of call.
    pub kind: CallKind,
    /// The arguments that are file names.
    pub names: [Argument; 2],
}

/// The effect of a call on files and names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// Opens a file.
    Open,
    /// Queries a file's attributes.
    Status,
    /// Queries permissions.
    Access,
    /// Reads a symbolic link.
    ReadLink,
    /// Starts a program.
    Execute,
    /// Changes the working directory.
    ChangeDirectory,
    /// Changes the root.
    ChangeRoot,
    /// Creates a file, a folder, a link or a node.
    Make,
    /// Removes a name.
    Remove,
    /// Renames or links a file.
    Rename,
    /// Changes a file's attributes.
    Change,
    /// Reads the entries of a folder.
    List,
    /// Duplicates a descriptor.
    Duplicate,
    /// Stops sharing state with other processes.
    Unshare,
    /// Creates an io_uring, whose requests bypass system calls.
    Ring,
    /// Any other call with a name.
    Other,
}

/// An argument that is a file name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument {
    /// No name.
    None,
    /// The argument at this index, relative to the working directory.
    Plain(u8),
    /// The second index is the name's, relative to the folder of the descriptor at the first index.
    At(u8, u8),
}

use Argument::{At, None as No, Plain};
use CallKind::{
    Access, Change, ChangeDirectory, ChangeRoot, Duplicate, Execute, List, Make, Open, Other,
    ReadLink, Remove, Rename, Ring, Status, Unshare,
};

/// Builds the table of calls: for each line the class, the kind, the arguments with names, and the calls.
macro_rules! calls {
    ($($class:ident $kind:ident $names:tt: $($name:literal)+;)+) => {
        &[$($(Call { name: $name, is_file_class: $class, kind: $kind, names: $names }),+),+]
    };
}

/// All recorded calls. The order does not matter, since recordings hold names.
pub static CALLS: &[Call] = calls! {
    FILE Open [Plain(0), No]: "open" "creat";
    FILE Open [At(0, 1), No]: "openat" "openat2" "open_tree" "open_tree_attr";
    FILE Status [Plain(0), No]:
        "stat" "lstat" "stat64" "lstat64" "oldstat" "oldlstat" "statfs" "statfs64" "getxattr"
        "lgetxattr" "listxattr" "llistxattr";
    FILE Status [At(0, 1), No]:
        "newfstatat" "fstatat64" "statx" "getxattrat" "listxattrat" "file_getattr"
        "name_to_handle_at";
    FILE Access [Plain(0), No]: "access";
    FILE Access [At(0, 1), No]: "faccessat" "faccessat2";
    FILE ReadLink [Plain(0), No]: "readlink";
    FILE ReadLink [At(0, 1), No]: "readlinkat";
    FILE Execute [Plain(0), No]: "execve" "uselib";
    FILE Execute [At(0, 1), No]: "execveat";
    FILE ChangeDirectory [Plain(0), No]: "chdir";
    FILE ChangeRoot [Plain(0), No]: "chroot";
    FILE ChangeRoot [Plain(0), Plain(1)]: "pivot_root";
    FILE Make [Plain(0), No]: "mkdir" "mknod";
    FILE Make [At(0, 1), No]: "mkdirat" "mknodat";
    // The target of a symbolic link is not looked up when the link is created.
    FILE Make [Plain(1), No]: "symlink";
    FILE Make [At(1, 2), No]: "symlinkat";
    FILE Remove [Plain(0), No]: "rmdir" "unlink";
    FILE Remove [At(0, 1), No]: "unlinkat";
    FILE Rename [Plain(0), Plain(1)]: "link" "rename";
    FILE Rename [At(0, 1), At(2, 3)]: "linkat" "renameat" "renameat2";
    FILE Change [Plain(0), No]:
        "truncate" "truncate64" "chmod" "chown" "lchown" "chown32" "lchown32" "utime" "utimes"
        "setxattr" "lsetxattr" "removexattr" "lremovexattr";
    FILE Change [At(0, 1), No]:
        "fchmodat" "fchmodat2" "fchownat" "futimesat" "utimensat" "utimensat_time64" "setxattrat"
        "removexattrat" "file_setattr";
    FILE Other [No, No]: "getcwd" "fsconfig";
    FILE Other [Plain(1), No]: "inotify_add_watch" "mount" "quotactl";
    FILE Other [At(3, 4), No]: "fanotify_mark";
    FILE Other [Plain(0), No]: "umount" "umount2" "acct" "swapon" "swapoff";
    FILE Other [At(0, 1), No]: "mount_setattr" "fspick";
    FILE Other [At(0, 1), At(2, 3)]: "move_mount";
    NOT_FILE ChangeDirectory [No, No]: "fchdir";
    NOT_FILE List [No, No]: "getdents" "getdents64";
    NOT_FILE Duplicate [No, No]: "dup" "dup2" "dup3" "fcntl" "fcntl64";
    NOT_FILE Unshare [No, No]: "unshare" "setns";
    NOT_FILE Ring [No, No]: "io_uring_setup";
    // Pseudo-calls written by the recorder itself: see `record`.
    NOT_FILE Other [No, No]: "(fork)" "(exit)" "(program)" "(signal)" "(unknown)";
};

/// Whether a call belongs to strace's class `%file`.
const FILE: bool = true;
const NOT_FILE: bool = false;

impl Call {
    /// Returns the call with that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        CALLS.iter().find(|call| call.name == name)
    }

    /// Returns the index of the call in [`CALLS`].
    #[must_use]
    pub fn index(&self) -> usize {
        let distance = std::ptr::from_ref(self).addr() - CALLS.as_ptr().addr();
        distance / size_of::<Self>()
    }

    /// Returns the index of the argument that holds recorded flags.
    #[must_use]
    pub fn flags_at(&self) -> Option<u8> {
        match self.name {
            "open" => Some(1),
            "openat" | "unlinkat" | "statx" => Some(2),
            "newfstatat" | "fstatat64" | "faccessat2" => Some(3),
            _ => None,
        }
    }

    /// Whether a name is among the arguments.
    #[must_use]
    pub fn has_name(&self) -> bool {
        self.names.iter().any(|argument| *argument != Argument::None)
    }

    /// Whether every call of this number is recorded. Of `fcntl`, the filter selects calls by command (`F_DUPFD`).
    #[must_use]
    pub fn is_always_recorded(&self) -> bool {
        !matches!(self.name, "fcntl" | "fcntl64")
    }

    /// Whether a call with this second argument is recorded.
    #[must_use]
    pub fn is_recorded(&self, second_argument: u64) -> bool {
        const DUPLICATE: u32 = 0;
        const DUPLICATE_CLOEXEC: u32 = 1030;
        self.is_always_recorded()
            || [DUPLICATE, DUPLICATE_CLOEXEC].contains(&(second_argument as u32))
    }

    /// Describes to the stub how to read the call's names: the highest bit is set, and two groups of three
    /// bits hold the index of an argument with a name, counted from 1. `None` if the stub cannot record the
    /// call and the tracer must.
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
