//! The machine code that records a program's file calls from inside the program, and the memory that it shares with the
//! recorder.
//!
//! The *area* is a file that is mapped into every traced program. The first part holds the stub and the trampolines; it
//! is private to the program and not writable. All programs share the second part: the state, a table from threads to
//! slots, the slots and their rings. A slot belongs to a single thread at a time; only that thread writes to the slot's
//! ring, and only the recorder reads from it. Positions in a ring only grow. A record never wraps around: where the
//! longest record would cross the ring's end, the next record starts at the ring's start.
//!
//! `x86_64.s` describes the steps of the code. Other architectures have only the area. Read [`layout`] first.

#[cfg(target_arch = "x86_64")]
mod code;
#[cfg(target_arch = "x86_64")]
pub use code::{Start, after_syscall, code, loads, unreadable};

/// Byte offsets and sizes within the area.
pub mod layout {
    /// The offset of the stub's code.
    pub const CODE: usize = 0;
    /// Eight bytes that a call passes as its sixth argument so that the filter lets it through.
    pub const COOKIE: usize = 0xdf8;
    /// A table with a byte per system call number: bit 7 says that the call is recorded, and two fields of three bits
    /// say which arguments are names, counted from 1.
    pub const SHAPES: usize = 0xe00;
    /// The number of entries in the table. Calls with higher numbers never go through the stub.
    pub const SHAPES_MAX: usize = 512;
    /// Eight bytes: the address of the slot of the program's only thread, or 0 if there may be several threads.
    pub const OWNER: usize = 0x1000;
    /// Eight bytes each: the addresses of the first and of the last slot. The gs register of a thread points to a slot
    /// between them; both are 0 if gs is not used.
    pub const FIRST_SLOT: usize = OWNER + 8;
    /// The address of the last slot: see [`FIRST_SLOT`].
    pub const LAST_SLOT: usize = OWNER + 16;
    /// The offset of the trampolines, which patched call sites jump to.
    pub const TRAMPOLINES: usize = OWNER + TRAMPOLINE_BYTES;
    /// Bytes of a trampoline.
    pub const TRAMPOLINE_BYTES: usize = 64;
    /// The maximum number of trampolines in a program. A C library has some 150 call sites.
    pub const TRAMPOLINES_MAX: usize = (PRIVATE_BYTES - TRAMPOLINES) / TRAMPOLINE_BYTES;
    /// Bytes of the part that is private to a program.
    pub const PRIVATE_BYTES: usize = 0x7000;
    /// The id of the recording thread, in a word that the kernel marks when the thread ends.
    pub const STATE: usize = PRIVATE_BYTES;
    /// The number of times that the tracer was woken, in eight bytes.
    pub const STOPS: usize = STATE + 0x40;
    /// The highest slot that was ever in use, in eight bytes.
    pub const SLOTS_USED: usize = STATE + 0x48;
    /// A table with four bytes per thread id: the thread's slot, 0 if the thread is not traced, or [`SLOTS_MAX`] if all
    /// slots were taken.
    pub const TABLE: usize = STATE + 0x1000;
    /// The number of entries in the table: the kernel's largest process id plus one.
    pub const THREADS: usize = 1 << 22;
    /// The offset of the slots' heads.
    pub const SLOTS: usize = TABLE + 4 * THREADS;
    /// The size of a slot's head, as a power of two.
    pub const SLOT_SHIFT: usize = 8;
    /// The maximum number of threads that have a slot at a time; the tracer records the calls of other threads. Slot 0
    /// belongs to the tracer.
    pub const SLOTS_MAX: usize = 512;
    /// The offset of the rings, in the order of the slots.
    pub const RINGS: usize = SLOTS + (SLOTS_MAX << SLOT_SHIFT);
    /// Bytes of a ring: some 8,000 records, which a busy thread takes 12 ms to write.
    pub const RING_BYTES: usize = 1 << 20;
    /// Bytes of the area. Only pages that were touched take memory.
    pub const AREA_BYTES: usize = RINGS + SLOTS_MAX * RING_BYTES;

    /// The position of the next record in the slot's ring, written by the slot's thread.
    pub const HEAD: usize = 0;
    /// Nonzero while a call is in progress; the saved registers belong to that call.
    pub const BUSY: usize = 8;
    /// The offset of the ring in the area.
    pub const RING: usize = 16;
    /// The address of the area in the program, or 0 if the start code could not map it.
    pub const BASE: usize = 24;
    /// The address of the second mapping of the private part, within reach of the program's code, or 0.
    pub const NEAR: usize = BASE + 8;
    /// The id of the thread that owns the slot, in four bytes.
    pub const OWN_THREAD: usize = NEAR + 8;
    /// The position of the first unread record, written by the recorder.
    pub const TAIL: usize = 64;
    /// The program's registers during a call, starting with the first four arguments.
    pub const SAVED_ARGUMENTS: usize = 128;
    /// The address at which the program continues.
    pub const SAVED_BACK: usize = SAVED_ARGUMENTS + 32;
    /// The saved rbx.
    pub const SAVED_RBX: usize = SAVED_BACK + 8;
    /// The saved rbp.
    pub const SAVED_RBP: usize = SAVED_RBX + 8;
    /// The saved r9.
    pub const SAVED_R9: usize = SAVED_RBP + 8;
    /// The saved r12.
    pub const SAVED_R12: usize = SAVED_R9 + 8;
    /// The saved r13.
    pub const SAVED_R13: usize = SAVED_R12 + 8;
    /// The saved r14.
    pub const SAVED_R14: usize = SAVED_R13 + 8;
    /// The saved r15.
    pub const SAVED_R15: usize = SAVED_R14 + 8;

    /// Offset in a record: bytes of the record, a multiple of eight.
    pub const SIZE: usize = 0;
    /// The number of the system call.
    pub const NUMBER: usize = 4;
    /// The id of the calling thread.
    pub const THREAD: usize = 8;
    /// The start of the call, in ticks.
    pub const STARTED: usize = 16;
    /// The end of the call, in ticks.
    pub const ENDED: usize = 24;
    /// The result of the call.
    pub const RESULT: usize = 32;
    /// The low halves of the first four arguments.
    pub const ARGUMENTS: usize = 40;
    /// The names, each with a NUL.
    pub const NAMES: usize = 56;
    /// The kernel's longest path, with its NUL.
    pub const NAME_MAX: usize = 4096;
    /// The maximum size of a record. Names are copied in words, so the last word may be cut.
    pub const RECORD_MAX: usize = NAMES + 2 * (NAME_MAX + 8) + 8;
    /// Room for the path of the area's file.
    pub const PATH_BYTES: usize = 40;
}

const _: () = assert!(layout::COOKIE + 8 == layout::SHAPES);
const _: () = assert!(layout::SAVED_R15 + 8 <= 1 << layout::SLOT_SHIFT);
const _: () = assert!(layout::SHAPES + layout::SHAPES_MAX == layout::OWNER);
// The stub uses displacements of 32 bits.
const _: () = assert!(layout::AREA_BYTES < 1 << 30);
