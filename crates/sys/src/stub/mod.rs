//! The machine code that notes a program's file calls from inside it, and the memory that it shares
//! with the recorder.
//!
//! The *area* is one file mapped into every traced program. First come the stub and the trampolines,
//! private to the program and not writable. Then comes what all share: the state, a table from thread
//! to slot, the slots and their rings. A slot belongs to one thread at a time; its ring is written
//! by that thread alone and read by the recorder alone. Positions in a ring only grow; a record
//! never crosses the ring's end: where the longest would, the next one begins at its start.
//!
//! What the pieces do stands in `x86_64.s`; other architectures have the area alone.

#[cfg(target_arch = "x86_64")]
mod code;
#[cfg(target_arch = "x86_64")]
pub use code::{Start, called, code, loads, unreadable};

/// Byte offsets and sizes within the area.
pub mod layout {
    /// The stub's code.
    pub const CODE: usize = 0;
    /// Eight bytes that a call carries as its sixth argument to pass the filter.
    pub const COOKIE: usize = 0xdf8;
    /// A byte a system call number: 0x80 if it is noted, and in three bits each which arguments are
    /// names, counted from 1.
    pub const SHAPES: usize = 0xe00;
    /// How many numbers have a shape; no call beyond goes through the stub.
    pub const SHAPES_MAX: usize = 512;
    /// Eight bytes: the address of the slot of the program's only thread; 0 where there may be others.
    pub const OWNER: usize = 0x1000;
    /// Eight bytes each: the addresses of the first slot and of the last one, between which gs points to the
    /// thread's own; 0 where gs is not used.
    pub const FIRST_SLOT: usize = OWNER + 8;
    /// See there.
    pub const LAST_SLOT: usize = OWNER + 16;
    /// Where patched call sites jump to.
    pub const TRAMPOLINES: usize = OWNER + TRAMPOLINE_BYTES;
    /// Room for one of them.
    pub const TRAMPOLINE_BYTES: usize = 64;
    /// How many there can be in one program: a C library has some 150 sites.
    pub const TRAMPOLINES_MAX: usize = (PRIVATE_BYTES - TRAMPOLINES) / TRAMPOLINE_BYTES;
    /// The part that is private to a program.
    pub const PRIVATE_BYTES: usize = 0x7000;
    /// The thread that records, as a word that the kernel marks at its end.
    pub const STATE: usize = PRIVATE_BYTES;
    /// How often the tracer was woken: eight bytes.
    pub const STOPS: usize = STATE + 0x40;
    /// The highest slot that was in use: eight bytes.
    pub const SLOTS_USED: usize = STATE + 0x48;
    /// Four bytes a thread id: its slot; 0 if it is not traced, [`SLOTS_MAX`] if it has none.
    pub const TABLE: usize = STATE + 0x1000;
    /// The kernel's largest process id, and one.
    pub const THREADS: usize = 1 << 22;
    /// The slots' heads.
    pub const SLOTS: usize = TABLE + 4 * THREADS;
    /// Bytes of a slot's head, as a power of two.
    pub const SLOT_SHIFT: usize = 8;
    /// How many threads can have a slot at a time; the tracer notes the calls of the others. Slot 0
    /// is the tracer's own.
    pub const SLOTS_MAX: usize = 512;
    /// The rings, in the order of the slots.
    pub const RINGS: usize = SLOTS + (SLOTS_MAX << SLOT_SHIFT);
    /// Bytes of one ring: some 8,000 records, which a busy thread takes 12 ms to write.
    pub const RING_BYTES: usize = 1 << 20;
    /// All of it; memory is used only for pages that were touched.
    pub const AREA_BYTES: usize = RINGS + SLOTS_MAX * RING_BYTES;

    /// Where the next record goes: a position in the slot's ring, written by its thread.
    pub const HEAD: usize = 0;
    /// Not zero while a call is under way: until then, what is saved belongs to it.
    pub const BUSY: usize = 8;
    /// Where the ring begins in the area.
    pub const RING: usize = 16;
    /// Where the area lies in the program, if the start could map it.
    pub const BASE: usize = 24;
    /// Where its private part lies once more, within reach of the program's own code; 0 if nowhere.
    pub const NEAR: usize = BASE + 8;
    /// The thread that has the slot, in four bytes.
    pub const OWN_THREAD: usize = NEAR + 8;
    /// The first record that was not read yet: a position, written by the recorder.
    pub const TAIL: usize = 64;
    /// The program's registers during a call: the first four arguments, where it goes on, and others.
    pub const SAVED_ARGUMENTS: usize = 128;
    /// Where it goes on.
    pub const SAVED_BACK: usize = SAVED_ARGUMENTS + 32;
    /// A register.
    pub const SAVED_RBX: usize = SAVED_BACK + 8;
    /// A register.
    pub const SAVED_RBP: usize = SAVED_RBX + 8;
    /// A register.
    pub const SAVED_R9: usize = SAVED_RBP + 8;
    /// A register.
    pub const SAVED_R12: usize = SAVED_R9 + 8;
    /// A register.
    pub const SAVED_R13: usize = SAVED_R12 + 8;
    /// A register.
    pub const SAVED_R14: usize = SAVED_R13 + 8;
    /// A register.
    pub const SAVED_R15: usize = SAVED_R14 + 8;

    /// Bytes of the record, a multiple of eight.
    pub const SIZE: usize = 0;
    /// The call's number.
    pub const NUMBER: usize = 4;
    /// The thread that made it.
    pub const THREAD: usize = 8;
    /// When it began, in ticks.
    pub const STARTED: usize = 16;
    /// When it had ended, in ticks.
    pub const ENDED: usize = 24;
    /// Its result.
    pub const RESULT: usize = 32;
    /// The low halves of its first four arguments.
    pub const ARGUMENTS: usize = 40;
    /// Its names, each with a NUL at its end.
    pub const NAMES: usize = 56;
    /// The kernel's longest name, with its NUL.
    pub const NAME_MAX: usize = 4096;
    /// No record is longer; names are copied in words, and the last one may be cut.
    pub const RECORD_MAX: usize = NAMES + 2 * (NAME_MAX + 8) + 8;
    /// Room for the path of the area's file.
    pub const PATH_BYTES: usize = 40;
}

const _: () = assert!(layout::COOKIE + 8 == layout::SHAPES);
const _: () = assert!(layout::SAVED_R15 + 8 <= 1 << layout::SLOT_SHIFT);
const _: () = assert!(layout::SHAPES + layout::SHAPES_MAX == layout::OWNER);
// The stub's displacements have 32 bits.
const _: () = assert!(layout::AREA_BYTES < 1 << 30);
