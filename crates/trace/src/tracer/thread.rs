//! What the tracer knows of a thread, and of the memory that it runs in.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

use thruway_sys::ptrace::{self, event};

#[cfg(target_arch = "x86_64")]
use super::object::Object;
use crate::call::Call;
use crate::record::{ARGUMENT_END, Record};
use crate::shared_rings::Slot;

/// `clone`'s flags, as the kernel numbers them.
pub(crate) mod flag {
    pub(crate) const SHARES_MEMORY: u32 = 0x100;
    pub(crate) const SHARES_FOLDER: u32 = 0x200;
    pub(crate) const SHARES_DESCRIPTORS: u32 = 0x400;
    pub(crate) const IS_VFORK: u32 = 0x4000;
    pub(crate) const IS_THREAD: u32 = 0x1_0000;
    pub(crate) const NEW_PROCESS_IDS: u32 = 0x2000_0000;
}

/// A traced thread.
#[derive(Debug, Default)]
pub(super) struct Thread {
    pub(super) program: Rc<RefCell<Program>>,
    pub(super) slot: Option<Slot>,
    /// The call that it is in, if the tracer notes it.
    pub(super) call: Option<Pending>,
    /// The parent that waits until this thread ends or executes a program.
    pub(super) vfork_parent: Option<i32>,
    /// Waits for a child of `vfork`.
    pub(super) is_suspended: bool,
    /// It is new, and its gs is its parent's: see [`Identity::Gs`].
    pub(super) awaits_gs: bool,
    /// The call that was sent through the stub last: where it ended, and the slot's next position.
    pub(super) attempt: Option<(u64, u64)>,
    /// It is in another namespace of process ids, so the stub cannot tell which thread it runs in.
    pub(super) is_foreign: bool,
    /// Its children will be in another namespace of process ids.
    pub(super) makes_foreigners: bool,
}

/// Memory that a program runs in: shared by its threads, copied by `fork`.
#[derive(Debug, Default, Clone)]
pub(super) struct Program {
    base: Option<u64>,
    /// Where its own code begins, which is behind its loader's.
    pub(super) entry: Option<u64>,
    /// Where its private part lies once more, within reach of the program's own code.
    near: Option<u64>,
    /// Call sites that were looked at, by the address after the instruction.
    pub(super) sites: HashSet<u64>,
    /// The pieces of code that they lie in, as far as those were looked at.
    #[cfg(target_arch = "x86_64")]
    pub(super) objects: Vec<Object>,
    /// How many pieces of code it had when they were looked at for sites that have not run.
    pub(super) objects_ahead: usize,
    /// How many trampolines are in use, and how many near the program's own code.
    pub(super) trampolines: [usize; 2],
    /// How the stub knows which thread it runs in.
    pub(super) identity: Identity,
    /// Signals that were delivered to it, a bit each.
    pub(super) signals: u64,
}

/// How the stub knows which thread it runs in.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Identity {
    /// It does not.
    #[default]
    Unknown,
    /// There is only one.
    Owner,
    /// Each thread's gs points to its slot.
    Gs,
}

/// A call that has begun.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) number: u32,
    pub(super) call: &'static Call,
    pub(super) started: u64,
    pub(super) arguments: [u32; 4],
    pub(super) names: [Vec<u8>; 2],
}

impl Thread {
    /// The state of a child that was made with these flags of `clone`.
    pub(super) fn child(&self, flags: u32) -> Self {
        let program = if flags & flag::SHARES_MEMORY != 0 {
            Rc::clone(&self.program)
        } else {
            Rc::new(RefCell::new(self.program.borrow().clone()))
        };
        let is_new = flags & flag::NEW_PROCESS_IDS != 0;
        let is_foreign = self.is_foreign || self.makes_foreigners || is_new;
        Self { program, is_foreign, ..Self::default() }
    }

    /// It has executed a program, so its memory is new.
    pub(super) fn becomes_program(&mut self) {
        self.program = Rc::default();
        self.is_suspended = false;
    }

    /// Notes what a call that has ended changes for its children.
    pub(super) fn settle(&mut self, pending: &Pending, result: i64) {
        let [first, second, ..] = pending.arguments;
        let changes_ids = match pending.call.name {
            "unshare" => first & flag::NEW_PROCESS_IDS != 0,
            // 0 stands for any kind of namespace.
            "setns" => second == 0 || second & flag::NEW_PROCESS_IDS != 0,
            _ => false,
        };
        self.makes_foreigners |= changes_ids && result == 0;
    }
}

impl Program {
    /// Where the rings lie in it. Until that is known, `ask` is called for it, and for [`near`](Self::near).
    pub(super) fn base(&mut self, ask: impl FnOnce() -> (Option<u64>, Option<u64>)) -> Option<u64> {
        if self.base.is_none() {
            (self.base, self.near) = ask();
        }
        self.base
    }

    /// Where its private part lies near the program's own code, if it does.
    pub(super) fn near(&self) -> Option<u64> {
        self.near
    }

    /// Where the rings lie in it, if that is known.
    pub(super) fn known_base(&self) -> Option<u64> {
        self.base
    }
}

impl Pending {
    /// The call, now that it has ended.
    pub(super) fn record(self, thread: i32, ended: u64, result: i64) -> Record {
        Record {
            number: self.number,
            thread,
            started: self.started,
            ended,
            result,
            arguments: self.arguments,
            names: self.names,
        }
    }
}

/// The `clone` flags of a thread that stopped because it made another one.
pub(super) fn clone_flags(thread: i32, event: i32) -> u32 {
    let Ok(registers) = ptrace::registers(thread) else { return 0 };
    let [first, _] = registers.arguments();
    match registers.number() {
        CLONE | CLONE_32 => first as u32,
        CLONE_3 => {
            let mut flags = [0; 8];
            let read = ptrace::read_memory(thread, first, &mut flags);
            if read.is_ok() { u64::from_ne_bytes(flags) as u32 } else { 0 }
        }
        _ if event == event::VFORK => flag::SHARES_MEMORY | flag::IS_VFORK,
        _ => 0,
    }
}

/// The arguments of a program, joined by [`ARGUMENT_END`].
pub(super) fn arguments(process: i32) -> Vec<u8> {
    let mut words = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    // Each ends in a NUL.
    words.pop();
    words.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = ARGUMENT_END);
    words
}

const CLONE: i64 = if cfg!(target_arch = "aarch64") { 220 } else { 56 };
/// The number of 32-bit programs.
const CLONE_32: i64 = 120;
const CLONE_3: i64 = 435;
