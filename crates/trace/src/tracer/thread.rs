//! The tracer's state of a thread, and of the memory in which the thread runs.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

use thruway_sys::ptrace::{self, event};

#[cfg(target_arch = "x86_64")]
use super::object::Object;
use crate::call::Call;
use crate::record::{FIELD_END, Notice, Record};
use crate::shared_rings::Slot;

/// The flags of `clone`, with the kernel's values.
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
    /// The call that the thread is in, if the tracer records it.
    pub(super) call: Option<PendingCall>,
    /// The parent that waits until this thread ends or executes a program.
    pub(super) vfork_parent: Option<i32>,
    /// Whether the thread waits for a child of `vfork`.
    pub(super) is_suspended: bool,
    /// Whether the thread is new and still has its parent's gs: see [`Identity::Gs`].
    pub(super) awaits_gs: bool,
    /// The last call redirected to the stub: where it ended, and the slot's next position.
    pub(super) attempt: Option<(u64, u64)>,
    /// Whether the thread is in another PID namespace, so that the stub cannot identify it.
    pub(super) is_foreign: bool,
    /// Whether its children will be in another PID namespace.
    pub(super) children_are_foreign: bool,
}

/// The memory of a program: shared by its threads, copied by `fork`.
#[derive(Debug, Default, Clone)]
pub(super) struct Program {
    base: Option<u64>,
    /// The entry point of the program's own code, after its loader's.
    pub(super) entry: Option<u64>,
    /// The address of the second copy of the private part, within reach of the program's own code.
    near: Option<u64>,
    /// Call sites that were examined, by the address after the instruction.
    pub(super) sites: HashSet<u64>,
    /// The mappings of code in which these sites lie.
    #[cfg(target_arch = "x86_64")]
    pub(super) objects: Vec<Object>,
    /// The number of mappings when they were last searched for sites that have not run.
    pub(super) objects_ahead: usize,
    /// The number of trampolines in use: beside the rings, and near the program's own code.
    pub(super) trampolines: [usize; 2],
    /// How the stub identifies the thread that runs it.
    pub(super) identity: Identity,
    /// Signals delivered to the program, one bit each.
    pub(super) signals: u64,
}

/// How the stub identifies the thread that runs it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Identity {
    /// The stub cannot identify the thread.
    #[default]
    Unknown,
    /// There is only one thread.
    Owner,
    /// Each thread's gs points to its slot.
    Gs,
}

/// A call that has begun.
#[derive(Debug)]
pub(super) struct PendingCall {
    pub(super) number: u32,
    pub(super) call: &'static Call,
    pub(super) started: u64,
    pub(super) arguments: [u32; 4],
    pub(super) names: [Vec<u8>; 2],
    /// The number of the stack from which the call is made, if it is recorded.
    pub(super) stack: Option<u32>,
}

impl Thread {
    /// Returns the state of a child that was created with these flags of `clone`.
    pub(super) fn child(&self, flags: u32) -> Self {
        let program = if flags & flag::SHARES_MEMORY != 0 {
            Rc::clone(&self.program)
        } else {
            Rc::new(RefCell::new(self.program.borrow().clone()))
        };
        let is_new = flags & flag::NEW_PROCESS_IDS != 0;
        let is_foreign = self.is_foreign || self.children_are_foreign || is_new;
        Self { program, is_foreign, ..Self::default() }
    }

    /// Resets the memory after the thread has executed a program.
    pub(super) fn becomes_program(&mut self) {
        self.program = Rc::default();
        self.is_suspended = false;
    }

    /// Applies the effects of a finished call on the thread's children.
    pub(super) fn apply_result(&mut self, pending: &PendingCall, result: i64) {
        let [first, second, ..] = pending.arguments;
        let changes_ids = match pending.call.name {
            "unshare" => first & flag::NEW_PROCESS_IDS != 0,
            // 0 stands for any kind of namespace.
            "setns" => second == 0 || second & flag::NEW_PROCESS_IDS != 0,
            _ => false,
        };
        self.children_are_foreign |= changes_ids && result == 0;
    }
}

impl Program {
    /// Returns the address of the rings in the program, if known. While the address is unknown, each call reads the
    /// address, and that of [`near`](Self::near), from `ask`.
    pub(super) fn base(&mut self, ask: impl FnOnce() -> (Option<u64>, Option<u64>)) -> Option<u64> {
        if self.base.is_none() {
            (self.base, self.near) = ask();
        }
        self.base
    }

    /// The address of the second copy of the private part, if there is one.
    pub(super) fn near(&self) -> Option<u64> {
        self.near
    }

    /// The address of the rings in the program, if known.
    pub(super) fn known_base(&self) -> Option<u64> {
        self.base
    }
}

impl PendingCall {
    /// Creates the records of the call, which has ended: of its stack, if there is one, and of the call itself.
    pub(super) fn records(self, thread: i32, ended: u64, result: i64) -> Vec<Record> {
        let stack =
            self.stack.map(|stack| Record::notice(Notice::Asked, thread, ended, [stack, 0]));
        let call = Record {
            number: self.number,
            thread,
            started: self.started,
            ended,
            result,
            arguments: self.arguments,
            names: self.names,
        };
        stack.into_iter().chain([call]).collect()
    }
}

/// Returns the `clone` flags of a thread that stopped because it created another one.
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

/// Returns the arguments of a program, joined by [`FIELD_END`].
pub(super) fn arguments(process: i32) -> Vec<u8> {
    let mut words = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    // Each argument ends in a NUL; the last one is dropped.
    words.pop();
    words.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = FIELD_END);
    words
}

const CLONE: i64 = if cfg!(target_arch = "aarch64") { 220 } else { 56 };
/// The number of `clone` in 32-bit programs.
const CLONE_32: i64 = 120;
const CLONE_3: i64 = 435;
