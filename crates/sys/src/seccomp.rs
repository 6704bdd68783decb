//! The seccomp filter: a small program that the kernel runs at each system call.

use std::io;

use crate::outcome::check;

/// One instruction of the kernel's classic BPF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    /// What it does.
    pub code: u16,
    /// How many instructions are left out where the condition holds.
    pub jump_true: u8,
    /// The same where it does not.
    pub jump_false: u8,
    /// Its constant.
    pub value: u32,
}

/// Byte offsets of what a filter can look at.
pub mod field {
    /// The number of the system call.
    pub const NUMBER: u32 = 0;
    /// Whose numbers count: an `AUDIT_ARCH_…` value.
    pub const ARCHITECTURE: u32 = 4;
    /// The low half of an argument, counted from 0; the high half follows four bytes later.
    #[must_use]
    pub const fn argument(index: u32) -> u32 {
        16 + 8 * index
    }
}

/// The call takes place.
pub const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
/// The tracer is told; without one the call fails with `ENOSYS`.
pub const TRACE: u32 = libc::SECCOMP_RET_TRACE;

/// `AUDIT_ARCH_…` values: whose system call numbers count.
pub mod architecture {
    /// x86-64, and x32 by a bit in the number.
    pub const X86_64: u32 = 0xC000_003E;
    /// 32-bit x86: `int 0x80` in any program.
    pub const I386: u32 = 0x4000_0003;
    /// 64-bit Arm.
    pub const AARCH64: u32 = 0xC000_00B7;
    /// 32-bit Arm.
    pub const ARM: u32 = 0x4000_0028;
}

/// Puts this process, and all that come from it, under the filter. There is no way back.
///
/// Without the right to administer the system, programs started from here on gain no rights from
/// set-user-ID bits: the kernel demands that.
///
/// # Errors
/// `EINVAL`: the program is not valid; `EPERM` or `ENOSYS`: the system forbids filters.
pub fn install(program: &[Instruction]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let filter = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut().cast() };
    if set_filter(&filter).is_ok() {
        return Ok(());
    }
    // SAFETY: this option changes nothing but this process's own rights.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    set_filter(&filter)
}

fn set_filter(filter: &libc::sock_fprog) -> io::Result<()> {
    // Not asked for: the slower handling of speculation that filters brought before Linux 5.16.
    let flags = libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: `filter` points to as many instructions as it says, and the kernel copies them.
    let answer = unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const *filter) };
    check(i32::try_from(answer).unwrap_or(-1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Change, Wait, fork, wait};

    const RETURN: u16 = 0x06;

    #[test]
    fn a_filter_decides_about_the_calls_of_a_child() {
        const ERRNO_7: u32 = libc::SECCOMP_RET_ERRNO | 7;
        let getppid = u32::try_from(libc::SYS_getppid).unwrap();
        let one =
            |code, jump_true, jump_false, value| Instruction { code, jump_true, jump_false, value };
        let program = [
            one(0x20, 0, 0, field::NUMBER),
            one(0x15, 0, 1, getppid),
            one(RETURN, 0, 0, ERRNO_7),
            one(RETURN, 0, 0, ALLOW),
        ];
        let child = fork(|| {
            install(&program).unwrap();
            u8::from(crate::process::parent() == -7)
        });
        let child = child.unwrap();
        let end = loop {
            if let Some((_, change)) = wait(Wait::News(child)).unwrap() {
                break change;
            }
        };
        assert_eq!(end, Change::Exited(1));
    }

    #[test]
    fn an_empty_program_is_refused() {
        let child = fork(|| u8::from(install(&[]).is_err())).unwrap();
        let end = loop {
            if let Some((_, change)) = wait(Wait::News(child)).unwrap() {
                break change;
            }
        };
        assert_eq!(end, Change::Exited(1));
    }
}
