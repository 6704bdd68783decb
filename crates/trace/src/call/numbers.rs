//! The numbers of calls, for each architecture.

use thruway_sys::seccomp::architecture;

use super::{CALLS, Call};

/// The ABI that determines the number of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Abi {
    /// The machine's own ABI.
    Native,
    /// 32-bit calls on a 64-bit machine.
    Compatible,
    /// x32: the calls of x86-64 with 32-bit pointers.
    X32,
}

/// The bit that is set in call numbers of x32.
pub(crate) const X32_BIT: u32 = 0x4000_0000;

/// The mapping from numbers to calls for one ABI.
#[derive(Debug)]
pub struct Numbers {
    calls: &'static Places,
}

/// For each number the index of its call in [`CALLS`]. Computed at compile time, because every start of a
/// command needs all tables.
type Places = [u8; NUMBERS_MAX];

/// An upper bound of all call numbers.
const NUMBERS_MAX: usize = 576;
/// The entry of a number whose call is not recorded.
const NO_CALL: u8 = u8::MAX;

impl Abi {
    /// All ABIs.
    pub(crate) const ALL: [Self; 3] = [Self::Native, Self::Compatible, Self::X32];

    /// Returns the ABI of a call, given the kernel's constant for the architecture. Removes the x32 bit from
    /// the number.
    pub(crate) fn of(architecture: u32, number: u64) -> Option<(Self, u32)> {
        let number = u32::try_from(number).ok()?;
        match architecture {
            architecture::X86_64 if number & X32_BIT != 0 => Some((Self::X32, number & !X32_BIT)),
            architecture::X86_64 | architecture::AARCH64 => Some((Self::Native, number)),
            architecture::I386 | architecture::ARM => Some((Self::Compatible, number)),
            _ => None,
        }
    }

    /// Returns the kernel's constant for the architecture of an ABI of this machine.
    pub(crate) const fn architecture(self) -> u32 {
        match (self, cfg!(target_arch = "aarch64")) {
            (Self::Native | Self::X32, false) => architecture::X86_64,
            (Self::Compatible, false) => architecture::I386,
            (Self::Native | Self::X32, true) => architecture::AARCH64,
            (Self::Compatible, true) => architecture::ARM,
        }
    }

    const fn places(self) -> &'static Places {
        match (self, cfg!(target_arch = "aarch64")) {
            (Self::Native, false) => const { &places(X86_64) },
            (Self::Compatible, false) => const { &places(I386) },
            (Self::X32, false) => const { &places(X32) },
            (Self::Native, true) => const { &places(AARCH64) },
            (Self::Compatible, true) => const { &places(ARM) },
            (Self::X32, true) => const { &places("") },
        }
    }
}

impl Numbers {
    /// Returns the numbers of one of this machine's ABIs.
    #[must_use]
    pub const fn new(abi: Abi) -> Self {
        Self { calls: abi.places() }
    }

    /// Returns the call with that number.
    #[must_use]
    pub fn call(&self, number: u32) -> Option<&'static Call> {
        let place = self.calls.get(usize::try_from(number).ok()?)?;
        CALLS.get(usize::from(*place))
    }

    /// Returns all numbers and their calls, in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &'static Call)> {
        (0..)
            .zip(self.calls)
            .filter_map(|(number, place)| CALLS.get(usize::from(*place)).map(|call| (number, call)))
    }
}

/// Parses a table of numbers and names.
const fn places(table: &str) -> Places {
    let mut places = [NO_CALL; NUMBERS_MAX];
    let mut rest = table.as_bytes().trim_ascii();
    while !rest.is_empty() {
        let (number, after) = word(rest);
        let (name, after) = word(after);
        places[decimal(number)] = place(name);
        rest = after;
    }
    places
}

/// Splits off the first word.
const fn word(text: &[u8]) -> (&[u8], &[u8]) {
    let mut length = 0;
    while length < text.len() && !text[length].is_ascii_whitespace() {
        length += 1;
    }
    let (word, rest) = text.split_at(length);
    (word, rest.trim_ascii_start())
}

const fn decimal(digits: &[u8]) -> usize {
    let (mut number, mut at) = (0, 0);
    while at < digits.len() {
        number = number * 10 + (digits[at] - b'0') as usize;
        at += 1;
    }
    number
}

/// Returns the index of a call in [`CALLS`].
const fn place(name: &[u8]) -> u8 {
    let mut place = 0;
    while place < CALLS.len() {
        if is_equal(CALLS[place].name.as_bytes(), name) {
            assert!(place < NO_CALL as usize, "there are too many calls");
            return place as u8;
        }
        place += 1;
    }
    panic!("the table names a call that is not in CALLS")
}

const fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

const X86_64: &str = "
    2 open 4 stat 6 lstat 21 access 32 dup 33 dup2 59 execve 72 fcntl 76 truncate 78 getdents
    79 getcwd 80 chdir 81 fchdir 82 rename 83 mkdir 84 rmdir 85 creat 86 link 87 unlink 88 symlink
    89 readlink 90 chmod 92 chown 94 lchown 132 utime 133 mknod 134 uselib 137 statfs
    155 pivot_root 161 chroot 163 acct 165 mount 166 umount2 167 swapon 168 swapoff 179 quotactl
    188 setxattr 189 lsetxattr 191 getxattr 192 lgetxattr 194 listxattr 195 llistxattr
    197 removexattr 198 lremovexattr 217 getdents64 235 utimes 254 inotify_add_watch 257 openat
    258 mkdirat 259 mknodat 260 fchownat 261 futimesat 262 newfstatat 263 unlinkat 264 renameat
    265 linkat 266 symlinkat 267 readlinkat 268 fchmodat 269 faccessat 272 unshare 280 utimensat
    292 dup3 301 fanotify_mark 303 name_to_handle_at 308 setns 316 renameat2 322 execveat 332 statx
    425 io_uring_setup 428 open_tree 429 move_mount 431 fsconfig 433 fspick 437 openat2 439 faccessat2
    442 mount_setattr 452 fchmodat2 463 setxattrat 464 getxattrat 465 listxattrat
    466 removexattrat 467 open_tree_attr 468 file_getattr 469 file_setattr";

/// The numbers of x86-64, except for calls that have their own number in x32.
const X32: &str = "
    2 open 4 stat 6 lstat 21 access 32 dup 33 dup2 72 fcntl 76 truncate 78 getdents 79 getcwd
    80 chdir 81 fchdir 82 rename 83 mkdir 84 rmdir 85 creat 86 link 87 unlink 88 symlink 89 readlink
    90 chmod 92 chown 94 lchown 132 utime 133 mknod 137 statfs 155 pivot_root 161 chroot 163 acct
    165 mount 166 umount2 167 swapon 168 swapoff 179 quotactl 188 setxattr 189 lsetxattr
    191 getxattr 192 lgetxattr 194 listxattr 195 llistxattr 197 removexattr 198 lremovexattr
    217 getdents64 235 utimes 254 inotify_add_watch 257 openat 258 mkdirat 259 mknodat 260 fchownat
    261 futimesat 262 newfstatat 263 unlinkat 264 renameat 265 linkat 266 symlinkat 267 readlinkat
    268 fchmodat 269 faccessat 272 unshare 280 utimensat 292 dup3 301 fanotify_mark
    303 name_to_handle_at 308 setns 316 renameat2 332 statx 425 io_uring_setup 428 open_tree 429 move_mount
    431 fsconfig 433 fspick 437 openat2 439 faccessat2 442 mount_setattr 452 fchmodat2
    463 setxattrat 464 getxattrat 465 listxattrat 466 removexattrat 467 open_tree_attr
    468 file_getattr 469 file_setattr 520 execve 545 execveat";

const I386: &str = "
    5 open 8 creat 9 link 10 unlink 11 execve 12 chdir 14 mknod 15 chmod 16 lchown 18 oldstat
    21 mount 22 umount 30 utime 33 access 38 rename 39 mkdir 40 rmdir 41 dup 51 acct 52 umount2
    55 fcntl 61 chroot 63 dup2 83 symlink 84 oldlstat 85 readlink 86 uselib 87 swapon 92 truncate
    99 statfs 106 stat 107 lstat 115 swapoff 131 quotactl 133 fchdir 141 getdents 182 chown
    183 getcwd 193 truncate64 195 stat64 196 lstat64 198 lchown32 212 chown32 217 pivot_root
    220 getdents64 221 fcntl64 226 setxattr 227 lsetxattr 229 getxattr 230 lgetxattr 232 listxattr
    233 llistxattr 235 removexattr 236 lremovexattr 268 statfs64 271 utimes 292 inotify_add_watch
    295 openat 296 mkdirat 297 mknodat 298 fchownat 299 futimesat 300 fstatat64 301 unlinkat
    302 renameat 303 linkat 304 symlinkat 305 readlinkat 306 fchmodat 307 faccessat 310 unshare
    320 utimensat 330 dup3 339 fanotify_mark 341 name_to_handle_at 346 setns 353 renameat2
    358 execveat 383 statx 412 utimensat_time64 425 io_uring_setup 428 open_tree 429 move_mount 431 fsconfig
    433 fspick 437 openat2 439 faccessat2 442 mount_setattr 452 fchmodat2 463 setxattrat
    464 getxattrat 465 listxattrat 466 removexattrat 467 open_tree_attr 468 file_getattr
    469 file_setattr";

const AARCH64: &str = "
    5 setxattr 6 lsetxattr 8 getxattr 9 lgetxattr 11 listxattr 12 llistxattr 14 removexattr
    15 lremovexattr 17 getcwd 23 dup 24 dup3 25 fcntl 27 inotify_add_watch 33 mknodat 34 mkdirat
    35 unlinkat 36 symlinkat 37 linkat 38 renameat 39 umount2 40 mount 41 pivot_root 43 statfs
    45 truncate 48 faccessat 49 chdir 50 fchdir 51 chroot 53 fchmodat 54 fchownat 56 openat
    60 quotactl 61 getdents64 78 readlinkat 79 newfstatat 88 utimensat 89 acct 97 unshare
    221 execve 224 swapon 225 swapoff 263 fanotify_mark 264 name_to_handle_at 268 setns
    276 renameat2 281 execveat 291 statx 425 io_uring_setup 428 open_tree 429 move_mount 431 fsconfig 433 fspick
    437 openat2 439 faccessat2 442 mount_setattr 452 fchmodat2 463 setxattrat 464 getxattrat
    465 listxattrat 466 removexattrat 467 open_tree_attr 468 file_getattr 469 file_setattr";

const ARM: &str = "
    5 open 8 creat 9 link 10 unlink 11 execve 12 chdir 14 mknod 15 chmod 16 lchown 21 mount
    33 access 38 rename 39 mkdir 40 rmdir 41 dup 51 acct 52 umount2 55 fcntl 61 chroot 63 dup2
    83 symlink 85 readlink 86 uselib 87 swapon 92 truncate 99 statfs 106 stat 107 lstat
    115 swapoff 131 quotactl 133 fchdir 141 getdents 182 chown 183 getcwd 193 truncate64
    195 stat64 196 lstat64 198 lchown32 212 chown32 217 getdents64 218 pivot_root 221 fcntl64
    226 setxattr 227 lsetxattr 229 getxattr 230 lgetxattr 232 listxattr 233 llistxattr
    235 removexattr 236 lremovexattr 266 statfs64 269 utimes 317 inotify_add_watch 322 openat
    323 mkdirat 324 mknodat 325 fchownat 326 futimesat 327 fstatat64 328 unlinkat 329 renameat
    330 linkat 331 symlinkat 332 readlinkat 333 fchmodat 334 faccessat 337 unshare 348 utimensat
    358 dup3 368 fanotify_mark 370 name_to_handle_at 375 setns 382 renameat2 387 execveat 397 statx
    412 utimensat_time64 425 io_uring_setup 428 open_tree 429 move_mount 431 fsconfig 433 fspick 437 openat2
    439 faccessat2 442 mount_setattr 452 fchmodat2 463 setxattrat 464 getxattrat 465 listxattrat
    466 removexattrat 467 open_tree_attr 468 file_getattr 469 file_setattr";

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(table: &str) -> impl Iterator<Item = (usize, &str)> {
        let mut words = table.split_ascii_whitespace();
        std::iter::from_fn(move || Some((words.next()?.parse().ok()?, words.next()?)))
    }

    #[test]
    fn tables_are_sorted_and_read_to_their_ends() {
        for table in [X86_64, X32, I386, AARCH64, ARM] {
            let numbers: Vec<_> = rows(table).map(|(number, _)| number).collect();
            assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
            assert_eq!(numbers.len() * 2, table.split_whitespace().count());
            let places = places(table);
            for (number, name) in rows(table) {
                assert_eq!(CALLS[usize::from(places[number])].name, name);
            }
            let known = places.iter().filter(|place| **place != NO_CALL);
            assert_eq!(known.count(), numbers.len());
        }
    }

    /// Compares with the kernel's own list, if the system has one.
    #[test]
    fn numbers_are_the_kernels() {
        let folder = "/usr/include/x86_64-linux-gnu/asm";
        for (table, header) in [(X86_64, "unistd_64.h"), (I386, "unistd_32.h")] {
            let Ok(text) = std::fs::read_to_string(format!("{folder}/{header}")) else { continue };
            let number_of = |name: &str| {
                text.lines().find_map(|line| {
                    let (named, number) = line.strip_prefix("#define __NR_")?.split_once(' ')?;
                    (named == name).then(|| number.parse().ok())?
                })
            };
            for (number, name) in rows(table) {
                if let Some(kernel) = number_of(name) {
                    assert_eq!((number, name), (kernel, name), "{header}");
                }
            }
        }
    }

    #[test]
    fn a_number_leads_to_its_call() {
        let numbers = Numbers { calls: const { &places(X86_64) } };
        assert_eq!(numbers.call(257).map(|call| call.name), Some("openat"));
        assert_eq!(numbers.call(0), None);
        assert_eq!(numbers.call(100_000), None);
        assert_eq!(Abi::of(architecture::X86_64, 0x4000_0002), Some((Abi::X32, 2)));
    }
}
