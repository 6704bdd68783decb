//! The registers of a stopped tracee.

use std::io;
use std::mem::{MaybeUninit, offset_of};

use super::request;

/// The general registers of x86-64.
#[derive(Clone, Copy)]
pub struct Registers(libc::user_regs_struct);

/// Reads the registers of a stopped tracee.
///
/// # Errors
/// `ESRCH`: it was killed.
pub fn registers(process: i32) -> io::Result<Registers> {
    let mut registers = MaybeUninit::<libc::user_regs_struct>::zeroed();
    request(libc::PTRACE_GETREGS, process, 0, registers.as_mut_ptr().addr())?;
    // SAFETY: zeroed, and any bits are valid for integers.
    Ok(Registers(unsafe { registers.assume_init() }))
}

/// Writes the registers of a stopped tracee.
///
/// # Errors
/// `ESRCH`: it was killed; `EIO`: a value that the kernel does not let in.
pub fn set_registers(process: i32, registers: &Registers) -> io::Result<()> {
    request(libc::PTRACE_SETREGS, process, 0, (&raw const registers.0).addr())
}

/// Writes where a stopped tracee's gs points to.
///
/// # Errors
/// `ESRCH`: it was killed; `EIO`: no address of a program.
pub fn set_gs_base(process: i32, base: u64) -> io::Result<()> {
    let value = usize::try_from(base).map_err(|_| io::ErrorKind::InvalidInput)?;
    // The general registers come first in what this request counts offsets in.
    request(libc::PTRACE_POKEUSER, process, offset_of!(libc::user_regs_struct, gs_base), value)
}

/// Whether programs can read where gs points to by an instruction (Linux 5.9, and a processor that has it).
#[must_use]
pub fn is_gs_base_readable() -> bool {
    const READ_AND_WRITE_BASES: u64 = 2;
    // SAFETY: answers with a number, from what the kernel told at this program's start.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & READ_AND_WRITE_BASES != 0 }
}

impl Registers {
    /// Where gs points to.
    #[must_use]
    pub fn gs_base(&self) -> u64 {
        self.0.gs_base
    }

    /// Where it goes on.
    #[must_use]
    pub fn instruction_pointer(&self) -> u64 {
        self.0.rip
    }

    /// The top of its stack.
    #[must_use]
    pub fn stack_pointer(&self) -> u64 {
        self.0.rsp
    }

    /// Whether it runs 64-bit code.
    #[must_use]
    pub fn is_64_bit(&self) -> bool {
        self.0.cs == 0x33
    }

    /// The system call that it is in, or -1.
    #[must_use]
    pub fn number(&self) -> i64 {
        self.0.orig_rax.cast_signed()
    }

    /// The first two arguments of the system call.
    #[must_use]
    pub fn arguments(&self) -> [u64; 2] {
        if self.is_64_bit() { [self.0.rdi, self.0.rsi] } else { [self.0.rbx, self.0.rcx] }
    }

    /// The result register.
    #[must_use]
    pub fn result(&self) -> i64 {
        self.0.rax.cast_signed()
    }

    /// Goes on at `address`, with what a system call instruction would have left: `number` in the
    /// result register and `back` where the address after the instruction belongs. The system call
    /// that it is in, if any, does not take place.
    pub fn redirect(&mut self, address: u64, number: u64, back: u64) {
        self.0.rip = address;
        self.0.rax = number;
        self.0.rcx = back;
        self.0.orig_rax = u64::MAX;
    }

    /// Makes the system call that has just ended once more.
    pub fn repeat_call(&mut self) {
        const SYSCALL_BYTES: u64 = 2;
        self.0.rip -= SYSCALL_BYTES;
        self.0.rax = self.0.orig_rax;
    }

    /// Goes on at `address`.
    pub fn jump(&mut self, address: u64) {
        self.0.rip = address;
    }

    /// Sets the sixth argument of a system call.
    pub fn set_sixth_argument(&mut self, value: u64) {
        self.0.r9 = value;
    }
}

impl std::fmt::Debug for Registers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Registers({:#x})", self.0.rip)
    }
}
