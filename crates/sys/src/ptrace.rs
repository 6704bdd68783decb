//! Tracing other processes: attach, let run, look at registers and memory.
//!
//! A call about a tracee that was killed meanwhile answers `ESRCH`; that is news, not a fault.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

#[cfg_attr(target_arch = "aarch64", path = "ptrace/registers_aarch64.rs")]
mod registers;
pub use registers::*;

/// Why a tracee stopped: `event` in [`crate::process::Change::Stopped`].
pub mod event {
    /// It made a process; [`super::message`] is the child's id.
    pub const FORK: i32 = libc::PTRACE_EVENT_FORK;
    /// It made a process and waits until that one ends or becomes a program.
    pub const VFORK: i32 = libc::PTRACE_EVENT_VFORK;
    /// It made a thread, or a process by `clone`.
    pub const CLONE: i32 = libc::PTRACE_EVENT_CLONE;
    /// It became a program; [`super::message`] is the id that the thread had before.
    pub const EXECUTE: i32 = libc::PTRACE_EVENT_EXEC;
    /// The seccomp filter wants this call to be looked at.
    pub const SECCOMP: i32 = libc::PTRACE_EVENT_SECCOMP;
    /// A group stop, or the first stop of a new tracee.
    pub const STOP: i32 = libc::PTRACE_EVENT_STOP;
}

/// The signal of stops that come from tracing itself.
pub const TRAP: i32 = libc::SIGTRAP;

/// The signal of a stop at a system call.
pub const SYSCALL_STOP: i32 = TRAP | 0x80;

/// How a stopped tracee goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resume {
    /// It runs until something happens.
    Run,
    /// It runs until its next system call begins or ends.
    UntilSyscall,
    /// It stays in its group stop, and news of its end is heard.
    Listen,
}

/// Attaches to a process and to all that come from it, without stopping it. Ends with this process:
/// the tracees then go on untraced.
///
/// # Errors
/// `EPERM`: it is traced already, belongs to another user, or the system forbids tracing.
pub fn seize(process: i32) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, process, 0, (OPTIONS | libc::PTRACE_O_TRACESECCOMP) as usize)
}

/// The same without a stop for a seccomp filter: another filter's stop must not find a tracer.
///
/// # Errors
/// As for [`seize`].
pub fn seize_running(thread: i32) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, thread, 0, OPTIONS as usize)
}

/// Stops a tracee that runs: [`event::STOP`].
///
/// # Errors
/// `ESRCH`: it has ended.
pub fn interrupt(thread: i32) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, thread, 0, 0)
}

const OPTIONS: i32 = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC;

/// Lets a stopped tracee go on, and delivers `signal` to it (0: none).
///
/// # Errors
/// `ESRCH`: it was killed.
pub fn resume(process: i32, how: Resume, signal: i32) -> io::Result<()> {
    let request_number = match how {
        Resume::Run => libc::PTRACE_CONT,
        Resume::UntilSyscall => libc::PTRACE_SYSCALL,
        Resume::Listen => libc::PTRACE_LISTEN,
    };
    request(request_number, process, 0, usize::try_from(signal).unwrap_or(0))
}

/// What the event of the last stop is about: see [`event`].
///
/// # Errors
/// `ESRCH`: it was killed.
pub fn message(process: i32) -> io::Result<i32> {
    let mut message: libc::c_ulong = 0;
    request(libc::PTRACE_GETEVENTMSG, process, 0, (&raw mut message).addr())?;
    // Process ids fit: the kernel's largest is 2^22.
    Ok(i32::try_from(message).unwrap_or(0))
}

/// All requests whose `data` is a number, or the address of a value that the caller keeps alive.
fn request(number: libc::c_uint, process: i32, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: `data` is no pointer, or points to a live value of the size that the request writes.
    let answer = unsafe { libc::ptrace(number, process, address, data) };
    if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A system call at which a tracee stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Syscall {
    /// Whose numbers count: an `AUDIT_ARCH_…` value.
    pub architecture: u32,
    /// The address after the instruction.
    pub instruction_pointer: u64,
    /// Where it is.
    pub phase: Phase,
}

/// Where a system call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It begins.
    Entry {
        /// Its number.
        number: u64,
        /// Its arguments.
        arguments: [u64; 6],
    },
    /// It has ended with this result; -4095 to -1 are errors.
    Exit {
        /// The result.
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
    /// Entry: number and six arguments. Exit: the result.
    words: [u64; 8],
}

/// The system call at which a tracee stopped (Linux 5.3).
///
/// # Errors
/// `ESRCH`: it was killed.
pub fn syscall(process: i32) -> io::Result<Syscall> {
    const GET_SYSCALL_INFO: libc::c_uint = 0x420e;
    let mut info = MaybeUninit::<SyscallInfo>::zeroed();
    let (size, address) = (size_of::<SyscallInfo>(), info.as_mut_ptr().addr());
    request(GET_SYSCALL_INFO, process, size, address)?;
    // SAFETY: zeroed, and any bits that the kernel wrote over it are valid for integers.
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

/// Reads a tracee's memory from `address` on, as far as it can be read; answers with the count of
/// bytes.
///
/// # Errors
/// `EFAULT`: not even the first byte is readable; `ESRCH`: it was killed.
pub fn read_memory(process: i32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    const PAGE: usize = 4096;
    // Enough for the longest name; longer reads are made of several.
    const PIECES_MAX: usize = 17;
    let start = usize::try_from(address).map_err(|_| io::ErrorKind::InvalidInput)?;
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // The kernel reads whole pieces only: cut at a page's end, what can be read is read.
    let mut pieces = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; PIECES_MAX];
    let (mut at, mut left, mut count) = (start, buffer.len(), 0);
    while left > 0 && count < pieces.len() {
        let length = left.min(PAGE - at % PAGE);
        pieces[count] = libc::iovec { iov_base: ptr::without_provenance_mut(at), iov_len: length };
        (at, left, count) = (at.wrapping_add(length), left - length, count + 1);
    }
    // SAFETY: the local piece is `buffer`; the remote ones are addresses of another process, which
    // the kernel checks.
    let read = unsafe {
        libc::process_vm_readv(process, &raw const local, 1, pieces.as_ptr(), count as u64, 0)
    };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}
