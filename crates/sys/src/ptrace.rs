//! Tracing other processes: attaching, resuming, and reading registers and memory.
//!
//! Every call returns `ESRCH` if the tracee was killed meanwhile. Callers have to expect that at any time.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

#[cfg_attr(target_arch = "aarch64", path = "ptrace/registers_aarch64.rs")]
mod registers;
pub use registers::*;

/// Reasons of a tracee's stop: values of `event` in [`crate::process::Change::Stopped`].
pub mod event {
    /// The tracee forked; [`super::message`] returns the child's id.
    pub const FORK: i32 = libc::PTRACE_EVENT_FORK;
    /// The tracee forked with `vfork`, and waits until the child exits or runs a program.
    pub const VFORK: i32 = libc::PTRACE_EVENT_VFORK;
    /// The tracee created a thread, or a process by `clone`.
    pub const CLONE: i32 = libc::PTRACE_EVENT_CLONE;
    /// The tracee ran a program; [`super::message`] returns the former id of the thread.
    pub const EXECUTE: i32 = libc::PTRACE_EVENT_EXEC;
    /// The seccomp filter returned [`TRACE`](crate::seccomp::TRACE) for a system call.
    pub const SECCOMP: i32 = libc::PTRACE_EVENT_SECCOMP;
    /// A group stop, or the first stop of a new tracee.
    pub const STOP: i32 = libc::PTRACE_EVENT_STOP;
}

/// The signal of stops that are caused by tracing.
pub const TRAP: i32 = libc::SIGTRAP;

/// The signal of stops at a system call.
pub const SYSCALL_STOP: i32 = TRAP | 0x80;

/// The way in which a stopped tracee is resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resume {
    /// Runs until the next event.
    Run,
    /// Runs until the next system call begins or ends.
    UntilSyscall,
    /// Stays in the group stop, but reports the end of the tracee.
    Listen,
}

/// Attaches to a process and to all of its future descendants, without stopping it. If the tracer exits, the tracees
/// continue untraced.
///
/// # Errors
/// `EPERM`: the process is already traced, belongs to another user, or the system forbids tracing.
pub fn seize(process: i32) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, process, 0, (OPTIONS | libc::PTRACE_O_TRACESECCOMP) as usize)
}

/// Attaches as [`seize`] does, but without stops for seccomp filters. A filter of another tracer would otherwise stop
/// its processes for this tracer.
///
/// # Errors
/// As for [`seize`].
pub fn seize_running(thread: i32) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, thread, 0, OPTIONS as usize)
}

/// Stops a running tracee, which reports [`event::STOP`].
///
/// # Errors
/// `ESRCH`: the tracee has ended.
pub fn interrupt(thread: i32) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, thread, 0, 0)
}

const OPTIONS: i32 = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC;

/// Resumes a stopped tracee, and delivers `signal` to it unless `signal` is 0.
///
/// # Errors
/// `ESRCH`: the tracee was killed.
pub fn resume(process: i32, how: Resume, signal: i32) -> io::Result<()> {
    let request_number = match how {
        Resume::Run => libc::PTRACE_CONT,
        Resume::UntilSyscall => libc::PTRACE_SYSCALL,
        Resume::Listen => libc::PTRACE_LISTEN,
    };
    request(request_number, process, 0, usize::try_from(signal).unwrap_or(0))
}

/// Returns the value that belongs to the event of the last stop: see [`event`].
///
/// # Errors
/// `ESRCH`: the tracee was killed.
pub fn message(process: i32) -> io::Result<i32> {
    let mut message: libc::c_ulong = 0;
    request(libc::PTRACE_GETEVENTMSG, process, 0, (&raw mut message).addr())?;
    // Process ids fit: the largest is 2^22.
    Ok(i32::try_from(message).unwrap_or(0))
}

/// Makes a request whose `data` is a number, or the address of a value that the caller keeps alive.
fn request(number: libc::c_uint, process: i32, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: `data` is no pointer, or points to a live value of the size that the request writes.
    let answer = unsafe { libc::ptrace(number, process, address, data) };
    if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A system call at which a tracee stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Syscall {
    /// The architecture of the call number: an `AUDIT_ARCH_…` value.
    pub architecture: u32,
    /// The address after the system call instruction.
    pub instruction_pointer: u64,
    /// The phase of the call.
    pub phase: Phase,
}

/// The phase of a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The call begins.
    Entry {
        /// The number of the call.
        number: u64,
        /// The arguments of the call.
        arguments: [u64; 6],
    },
    /// The call has ended.
    Exit {
        /// The result; values from -4095 to -1 are errors.
        result: i64,
    },
    /// The tracee is not in a system call.
    None,
}

/// The kernel's `struct ptrace_syscall_info`.
#[repr(C)]
struct SyscallInfo {
    phase: u8,
    padding: [u8; 3],
    architecture: u32,
    instruction_pointer: u64,
    stack_pointer: u64,
    /// On entry, the number and six arguments; on exit, the result.
    words: [u64; 8],
}

/// Returns the system call at which a tracee stopped (Linux 5.3).
///
/// # Errors
/// `ESRCH`: the tracee was killed.
pub fn syscall(process: i32) -> io::Result<Syscall> {
    const GET_SYSCALL_INFO: libc::c_uint = 0x420e;
    let mut info = MaybeUninit::<SyscallInfo>::zeroed();
    let (size, address) = (size_of::<SyscallInfo>(), info.as_mut_ptr().addr());
    request(GET_SYSCALL_INFO, process, size, address)?;
    // SAFETY: the structure was zeroed, and any bits that the kernel wrote are valid for integers.
    let info = unsafe { info.assume_init() };
    let phase = match info.phase {
        1 | 3 => {
            let [number, arguments @ .., _] = info.words;
            Phase::Entry { number, arguments }
        }
        2 => Phase::Exit { result: info.words[0].cast_signed() },
        _ => Phase::None,
    };
    Ok(Syscall {
        architecture: info.architecture,
        instruction_pointer: info.instruction_pointer,
        phase,
    })
}

/// Reads a tracee's memory from `address` up to the first unreadable page. Returns the number of bytes read.
///
/// # Errors
/// `EFAULT`: the first byte is not readable; `ESRCH`: the tracee was killed.
pub fn read_memory(process: i32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    const PAGE: usize = 4096;
    // Enough for the longest path. The caller splits longer reads.
    const PIECES_MAX: usize = 17;
    let start = usize::try_from(address).map_err(|_| io::ErrorKind::InvalidInput)?;
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // The kernel reads whole pieces only. Pieces that end at page boundaries let it return every readable page.
    let mut pieces = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; PIECES_MAX];
    let (mut at, mut left, mut count) = (start, buffer.len(), 0);
    while left > 0 && count < pieces.len() {
        let length = left.min(PAGE - at % PAGE);
        pieces[count] = libc::iovec { iov_base: ptr::without_provenance_mut(at), iov_len: length };
        (at, left, count) = (at.wrapping_add(length), left - length, count + 1);
    }
    // SAFETY: the local piece is `buffer`; the remote pieces are addresses in another process, which the kernel checks.
    let read = unsafe {
        libc::process_vm_readv(process, &raw const local, 1, pieces.as_ptr(), count as u64, 0)
    };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}
