//! Seccomp filters: small programs that the kernel runs at each system call.

use std::io;

use crate::outcome::check;

/// An instruction of the kernel's classic BPF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    /// The opcode.
    pub code: u16,
    /// The number of instructions to skip if the condition holds.
    pub jump_true: u8,
    /// The number of instructions to skip if the condition does not hold.
    pub jump_false: u8,
    /// The constant operand.
    pub value: u32,
}

/// Byte offsets of the fields that a filter can read.
pub mod field {
    /// The number of the system call.
    pub const NUMBER: u32 = 0;
    /// The architecture of the call number: an `AUDIT_ARCH_…` value.
    pub const ARCHITECTURE: u32 = 4;
    /// Returns the offset of the low half of an argument, counted from 0. The high half follows four bytes later.
    #[must_use]
    pub const fn argument(index: u32) -> u32 {
        16 + 8 * index
    }
}

/// The result of a filter that lets the call take place.
pub const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
/// The result of a filter that notifies the tracer. Without a tracer the call fails with `ENOSYS`.
pub const TRACE: u32 = libc::SECCOMP_RET_TRACE;

/// Architectures of system call numbers: `AUDIT_ARCH_…` values.
pub mod architecture {
    /// x86-64, and x32, which sets a bit in the number.
    pub const X86_64: u32 = 0xC000_003E;
    /// 32-bit x86, also of `int 0x80` in a 64-bit program.
    pub const I386: u32 = 0x4000_0003;
    /// 64-bit Arm.
    pub const AARCH64: u32 = 0xC000_00B7;
    /// 32-bit Arm.
    pub const ARM: u32 = 0x4000_0028;
}

/// Installs the filter for this process and all of its descendants. A filter cannot be removed.
///
/// Without `CAP_SYS_ADMIN`, this also sets `no_new_privs`, as the kernel demands: programs that are started afterwards
/// gain no privileges from set-user-ID bits.
///
/// # Errors
/// `EINVAL`: the program is not valid; `EPERM` or `ENOSYS`: the system forbids filters.
pub fn install(program: &[Instruction]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let filter = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut().cast() };
    if set_filter(&filter).is_ok() {
        return Ok(());
    }
    // SAFETY: the option changes only this process's own rights.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    set_filter(&filter)
}

fn set_filter(filter: &libc::sock_fprog) -> io::Result<()> {
    // Avoids the slow mitigation of speculation that filters implied before Linux 5.16.
    let flags = libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: `filter` points to the stated number of instructions, which the kernel copies.
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
