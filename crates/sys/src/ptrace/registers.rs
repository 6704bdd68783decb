//! Registers of a stopped tracee (x86-64).

use std::io;
use std::mem::{MaybeUninit, offset_of};

use super::request;

/// The general registers of x86-64.
#[derive(Clone, Copy)]
pub struct Registers(libc::user_regs_struct);

/// Reads the registers of a stopped tracee.
///
/// # Errors
/// `ESRCH`: the tracee was killed.
pub fn registers(process: i32) -> io::Result<Registers> {
    let mut registers = MaybeUninit::<libc::user_regs_struct>::zeroed();
    request(libc::PTRACE_GETREGS, process, 0, registers.as_mut_ptr().addr())?;
    // SAFETY: the structure was zeroed, and any bits are valid for integers.
    Ok(Registers(unsafe { registers.assume_init() }))
}

/// Writes the registers of a stopped tracee.
///
/// # Errors
/// `ESRCH`: the tracee was killed; `EIO`: the kernel rejects a value.
pub fn set_registers(process: i32, registers: &Registers) -> io::Result<()> {
    request(libc::PTRACE_SETREGS, process, 0, (&raw const registers.0).addr())
}

/// Sets the gs base of a stopped tracee.
///
/// # Errors
/// `ESRCH`: the tracee was killed; `EIO`: the address is outside of user space.
pub fn set_gs_base(process: i32, base: u64) -> io::Result<()> {
    let value = usize::try_from(base).map_err(|_| io::ErrorKind::InvalidInput)?;
    // Offsets of this request start at the general registers.
    request(libc::PTRACE_POKEUSER, process, offset_of!(libc::user_regs_struct, gs_base), value)
}

/// Whether programs can read the gs base by an instruction (Linux 5.9, and a CPU with FSGSBASE).
#[must_use]
pub fn is_gs_base_readable() -> bool {
    const READ_AND_WRITE_BASES: u64 = 2;
    // SAFETY: the call returns a number that the kernel passed at the start of this program.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & READ_AND_WRITE_BASES != 0 }
}

impl Registers {
    /// Returns the gs base.
    #[must_use]
    pub fn gs_base(&self) -> u64 {
        self.0.gs_base
    }

    /// Returns the fs base.
    #[must_use]
    pub fn fs_base(&self) -> u64 {
        self.0.fs_base
    }

    /// Returns the address of the next instruction.
    #[must_use]
    pub fn instruction_pointer(&self) -> u64 {
        self.0.rip
    }

    /// Returns the stack pointer.
    #[must_use]
    pub fn stack_pointer(&self) -> u64 {
        self.0.rsp
    }

    /// Returns the register that holds the frame pointer, in code that keeps one.
    #[must_use]
    pub fn frame_pointer(&self) -> u64 {
        self.0.rbp
    }

    /// Whether the tracee runs 64-bit code.
    #[must_use]
    pub fn is_64_bit(&self) -> bool {
        self.0.cs == 0x33
    }

    /// Returns the number of the current system call, or -1 outside of a call.
    #[must_use]
    pub fn number(&self) -> i64 {
        self.0.orig_rax.cast_signed()
    }

    /// Returns the first two arguments of the system call.
    #[must_use]
    pub fn arguments(&self) -> [u64; 2] {
        if self.is_64_bit() { [self.0.rdi, self.0.rsi] } else { [self.0.rbx, self.0.rcx] }
    }

    /// Returns the result register.
    #[must_use]
    pub fn result(&self) -> i64 {
        self.0.rax.cast_signed()
    }

    /// Continues at `address`, with registers as a system call instruction leaves them: `number` in the result register
    /// and `back` as the address after the instruction. If the tracee is in a system call, the call is cancelled.
    pub fn redirect(&mut self, address: u64, number: u64, back: u64) {
        self.0.rip = address;
        self.0.rax = number;
        self.0.rcx = back;
        self.0.orig_rax = u64::MAX;
    }

    /// Repeats the system call that has just ended.
    pub fn repeat_call(&mut self) {
        const SYSCALL_BYTES: u64 = 2;
        self.0.rip -= SYSCALL_BYTES;
        self.0.rax = self.0.orig_rax;
    }

    /// Continues at `address`.
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
