//! Registers of a stopped tracee (64-bit Arm).

use std::io;
use std::mem::MaybeUninit;

use super::request;

/// The general registers of 64-bit Arm.
#[derive(Clone, Copy)]
pub struct Registers(libc::user_regs_struct);

/// Reads the registers of a stopped tracee.
///
/// # Errors
/// `ESRCH`: the tracee was killed.
pub fn registers(process: i32) -> io::Result<Registers> {
    const GENERAL: usize = 1;
    let mut registers = MaybeUninit::<libc::user_regs_struct>::zeroed();
    let length = size_of::<libc::user_regs_struct>();
    let mut piece = libc::iovec { iov_base: registers.as_mut_ptr().cast(), iov_len: length };
    request(libc::PTRACE_GETREGSET, process, GENERAL, (&raw mut piece).addr())?;
    // SAFETY: the structure was zeroed, and any bits are valid for integers.
    Ok(Registers(unsafe { registers.assume_init() }))
}

impl Registers {
    /// Returns the number of the current system call, or -1 outside of a call.
    #[must_use]
    pub fn number(&self) -> i64 {
        self.0.regs[8].cast_signed()
    }

    /// Returns the first two arguments of the system call.
    #[must_use]
    pub fn arguments(&self) -> [u64; 2] {
        [self.0.regs[0], self.0.regs[1]]
    }
}

impl std::fmt::Debug for Registers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Registers({:#x})", self.0.pc)
    }
}
