//! Safe wrappers for kernel calls that rustix lacks, and [`printable`], which prints names so that people can read
//! them.
//!
//! Each module wraps a single kernel facility, and the modules are independent: start with the facility that you need.
//! Only this crate and the gem's extension may contain `unsafe`. Every unsafe block holds a single operation and names
//! the invariant that makes the operation sound.
#![expect(unsafe_code, reason = "the kernel's own interfaces: see ARCHITECTURE.md")]

#[cfg(target_os = "linux")]
pub mod access;
#[cfg(windows)]
pub mod changes;
#[cfg(windows)]
pub mod console;
#[cfg(windows)]
pub mod create_process;
#[cfg(target_os = "linux")]
pub mod descriptor;
#[cfg(target_os = "linux")]
pub mod epoll;
#[cfg(windows)]
pub mod event;
#[cfg(target_os = "linux")]
pub mod fanotify;
#[cfg(target_os = "linux")]
pub mod file_flags;
#[cfg(windows)]
pub mod file_type;
#[cfg(target_os = "linux")]
pub mod fuse;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub mod fuse_ring;
#[cfg(target_os = "linux")]
pub mod handle;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub mod imports;
#[cfg(all(unix, not(all(target_os = "linux", target_pointer_width = "64"))))]
#[path = "imports/none.rs"]
pub mod imports;
#[cfg(windows)]
#[path = "imports/windows.rs"]
pub mod imports;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod io_ring;
#[cfg(windows)]
pub mod last_error;
#[cfg(target_os = "linux")]
pub mod lease;
#[cfg(windows)]
pub mod loaded_module;
#[cfg(any(target_os = "macos", test))]
mod mach_o;
#[cfg(unix)]
pub mod map;
#[cfg(windows)]
#[path = "map/windows.rs"]
pub mod map;
#[cfg(target_os = "linux")]
pub mod mount_copy;
#[cfg(windows)]
pub mod nt;
#[cfg(windows)]
pub mod nt_file;
#[cfg(target_os = "linux")]
mod outcome;
#[cfg(windows)]
pub mod owner;
#[cfg(target_os = "linux")]
pub mod peer;
pub mod printable;
#[cfg(target_os = "linux")]
pub mod process;
#[cfg(target_os = "linux")]
pub mod ptrace;
#[cfg(target_os = "linux")]
pub mod record_lock;
#[cfg(target_os = "linux")]
pub mod seccomp;
#[cfg(unix)]
pub mod shared_memory;
#[cfg(target_os = "linux")]
pub mod signal;
#[cfg(target_os = "linux")]
pub mod socket;
#[cfg(target_os = "linux")]
pub mod start;
#[cfg(target_os = "linux")]
pub mod stub;
#[cfg(target_os = "linux")]
pub mod threads;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub mod ticks;
#[cfg(windows)]
pub mod windows_folders;
