//! The process that attaches to the command: records calls that the stub cannot record, and injects the stub
//! into every new program.
//!
//! The tracer is small and keeps little state, so that it can outlive the recorder: a call that the filter
//! stops would fail without a tracer.

mod attached;
#[cfg(target_arch = "x86_64")]
mod instruction;
#[cfg(target_arch = "x86_64")]
mod object;
#[cfg(target_arch = "x86_64")]
mod program;
#[cfg(target_arch = "x86_64")]
mod search;
#[cfg(target_arch = "x86_64")]
mod site;
#[cfg(target_arch = "x86_64")]
mod stacks;
#[cfg(not(target_arch = "x86_64"))]
#[path = "stacks/none.rs"]
mod stacks;
mod thread;

use std::collections::{HashMap, HashSet};
use std::io;
#[cfg(target_arch = "x86_64")]
use std::rc::Rc;
use std::time::Duration;

use thruway_sys::process::{self, Change, Wait};
use thruway_sys::ptrace::{self, Phase, Resume, event};
use thruway_sys::ticks::ticks;

use crate::call::{Abi, Argument, Call};
use crate::doorbell::Doorbell;
use crate::record::{self, Calls, Notice, Record};
use crate::shared_rings::{SharedRings, Slot};
pub(crate) use attached::AttachedTracer;
#[cfg(target_arch = "x86_64")]
use program::{CallOrigin, Injector};
use stacks::Stacks;
#[cfg(target_arch = "x86_64")]
use thread::Identity;
pub(crate) use thread::flag;
use thread::{PendingCall, Thread, clone_flags};

/// The environment of the tracer.
#[derive(Debug)]
pub(crate) struct TracerContext<'a> {
    pub(crate) rings: &'a SharedRings,
    /// Wakes the recorder.
    pub(crate) doorbell: &'a Doorbell,
    /// The recorder's process.
    pub(crate) recorder: i32,
    /// Whether to inject the stub into programs.
    pub(crate) with_stub: bool,
    /// Whether to record the stacks of calls that stop.
    pub(crate) with_stacks: bool,
}

/// How often the tracer looks for room in a full ring of the stub. A recorder that gets a processor reads all rings
/// in a fraction of that time.
#[cfg(target_arch = "x86_64")]
const ROOM_LOOKS: u32 = 100;
/// The time between two looks for room in a ring.
const ROOM_PAUSE: Duration = Duration::from_micros(200);

#[cfg(target_arch = "x86_64")]
impl TracerContext<'_> {
    /// Waits a little until a ring has room. Until then each call of the thread would stop, on a busy machine for
    /// thousands of calls. Returns whether there is room.
    fn waits_for_room(&self, slot: Slot) -> bool {
        for _ in 0..ROOM_LOOKS {
            if self.rings.has_room(slot) {
                return true;
            }
            if process::parent() != self.recorder {
                return false;
            }
            self.doorbell.ring();
            std::thread::sleep(ROOM_PAUSE);
        }
        false
    }
}

/// The state of all traced threads.
pub(crate) struct Tracer<'a> {
    context: TracerContext<'a>,
    calls: Calls,
    threads: HashMap<i32, Thread>,
    /// Children that stopped before their parent's event arrived.
    early_children: HashSet<i32>,
    free: Vec<Slot>,
    /// The stacks of calls, from the command's first program on.
    stacks: Option<Stacks>,
    #[cfg(target_arch = "x86_64")]
    injector: Option<Injector>,
}

impl<'a> Tracer<'a> {
    /// Creates a tracer without threads.
    pub(crate) fn new(context: TracerContext<'a>) -> Self {
        let calls = Calls::new();
        let mut tracer = Self {
            #[cfg(target_arch = "x86_64")]
            injector: if context.with_stub {
                Injector::new(context.rings, calls.shapes())
            } else {
                None
            },
            context,
            calls,
            threads: HashMap::new(),
            early_children: HashSet::new(),
            free: Slot::all().collect(),
            stacks: None,
        };
        // Low slots are used first, because they share pages.
        tracer.free.reverse();
        tracer
    }

    /// Attaches to `root`, which has not executed anything yet.
    pub(crate) fn attach(&mut self, root: i32) -> io::Result<()> {
        ptrace::seize(root)?;
        self.adopt(root, Thread::default());
        Ok(())
    }

    /// Traces until the last thread has ended.
    pub(crate) fn run(mut self) -> io::Result<()> {
        while let Some((thread, change)) = process::wait(Wait::Any)? {
            self.context.rings.count_stop();
            match change {
                Change::Exited(_) | Change::Killed(_) => self.end(thread),
                Change::Stopped { signal, event } => {
                    if self.stopped(thread, signal, event).is_err() {
                        // Most likely the thread was killed in the meantime. Otherwise it continues without
                        // being recorded.
                        let _ = ptrace::resume(thread, Resume::Run, 0);
                    }
                }
                Change::Continued => {}
            }
        }
        Ok(())
    }

    fn stopped(&mut self, thread: i32, signal: i32, event: i32) -> io::Result<()> {
        if !self.threads.contains_key(&thread) && event != event::EXECUTE {
            self.early_children.insert(thread);
            return Ok(());
        }
        self.identify_at_first_stop(thread);
        match event {
            event::SECCOMP => self.call_begins(thread),
            event::FORK | event::VFORK | event::CLONE => self.child(thread, event),
            event::EXECUTE => self.program(thread),
            event::STOP if signal != ptrace::TRAP => ptrace::resume(thread, Resume::Listen, 0),
            event::STOP => self.go_on(thread, 0),
            _ if signal == ptrace::SYSCALL_STOP => self.call_ends(thread),
            _ => self.signal(thread, signal),
        }
    }

    /// Resumes a thread until its next event.
    fn go_on(&self, thread: i32, signal: i32) -> io::Result<()> {
        let in_call = self.threads.get(&thread).is_some_and(|thread| thread.call.is_some());
        let how = if in_call { Resume::UntilSyscall } else { Resume::Run };
        ptrace::resume(thread, how, signal)
    }

    fn adopt(&mut self, id: i32, mut thread: Thread) {
        thread.slot =
            if self.context.with_stub && !thread.is_foreign { self.free.pop() } else { None };
        self.context.rings.assign(id, thread.slot);
        self.threads.insert(id, thread);
    }

    fn end(&mut self, id: i32) {
        self.early_children.remove(&id);
        if let Some(stacks) = &mut self.stacks {
            stacks.forget(id);
        }
        if let Some(thread) = self.threads.remove(&id) {
            self.context.rings.forget(id);
            self.free.extend(thread.slot);
            self.release_parent(thread.vfork_parent);
            self.note(&Record::notice(Notice::Exit, id, ticks(), [0; 2]));
        }
    }

    /// Marks the parent of a `vfork` as running: its child has ended or executed a program.
    fn release_parent(&mut self, parent: Option<i32>) {
        if let Some(parent) = parent.and_then(|parent| self.threads.get_mut(&parent)) {
            parent.is_suspended = false;
        }
    }

    fn child(&mut self, id: i32, event: i32) -> io::Result<()> {
        let child = ptrace::message(id)?;
        let flags = clone_flags(id, event);
        let Some(parent) = self.threads.get_mut(&id) else { return Ok(()) };
        #[cfg(target_arch = "x86_64")]
        if let Some(injector) = &mut self.injector
            && let Some(slot) = parent.slot
            && flags & flag::SHARES_MEMORY != 0
        {
            let rings = self.context.rings;
            let program = &mut *parent.program.borrow_mut();
            program.base(|| (rings.base(slot), rings.near(slot)));
            if flags & flag::IS_THREAD != 0 && Rc::strong_count(&parent.program) == 1 {
                injector.patch_ahead(id, program);
            }
            injector.begin_threads(id, Some(slot), program);
        }
        let mut made = parent.child(flags);
        if event == event::VFORK {
            parent.is_suspended = true;
            made.vfork_parent = Some(id);
        }
        self.note(&Record::notice(Notice::Fork, id, ticks(), [child.unsigned_abs(), flags]));
        self.adopt(child, made);
        #[cfg(target_arch = "x86_64")]
        self.identify(child);
        if self.early_children.remove(&child) {
            self.identify_at_first_stop(child);
            ptrace::resume(child, Resume::Run, 0)?;
        }
        self.go_on(id, 0)
    }

    /// Tells the stub which slot belongs to a new thread, whose memory is its parent's or a copy of it.
    #[cfg(target_arch = "x86_64")]
    fn identify(&mut self, id: i32) {
        let Some(thread) = self.threads.get_mut(&id) else { return };
        let identity = thread.program.borrow().identity;
        match identity {
            Identity::Unknown => {}
            Identity::Owner => {
                program::set_owner(id, &mut thread.program.borrow_mut(), thread.slot)
            }
            Identity::Gs => thread.awaits_gs = true,
        }
    }

    /// Completes the identification of a new thread at its first stop.
    fn identify_at_first_stop(&mut self, id: i32) {
        #[cfg(target_arch = "x86_64")]
        if let Some(thread) = self.threads.get_mut(&id)
            && std::mem::take(&mut thread.awaits_gs)
            && let Some(base) = thread.program.borrow().known_base()
        {
            Injector::set_gs_to_slot(id, thread.slot, base);
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = id;
    }

    fn program(&mut self, id: i32) -> io::Result<()> {
        let before = ptrace::message(id)?;
        let now = ticks();
        let Some(mut thread) = self.threads.remove(&before) else { return self.go_on(id, 0) };
        if before != id {
            // The thread takes over the process's ID. The thread that had this ID has ended without a notice.
            self.end(id);
            self.context.rings.forget(before);
        }
        if let Some(pending) = thread.call.take() {
            pending.records(before, now, 0).iter().for_each(|record| self.note(record));
        } else if let Some(slot) = thread.slot.filter(|slot| self.context.rings.is_busy(*slot)) {
            self.context.rings.finish(slot, now, 0);
        }
        // One tick later, so that the notice sorts after the call.
        let mut notice = Record::notice(Notice::Program, id, now + 1, [before.unsigned_abs(), 0]);
        notice.names[0] = thread::arguments(id);
        self.note(&notice);
        self.release_parent(thread.vfork_parent.take());
        if self.context.with_stacks {
            let stacks = self.stacks.get_or_insert_default();
            stacks.forget(before);
            stacks.forget(id);
        }
        thread.becomes_program();
        self.context.rings.assign(id, thread.slot);
        #[cfg(target_arch = "x86_64")]
        if let (Some(injector), Some(slot)) = (&self.injector, thread.slot) {
            self.context.rings.forget_base(slot);
            thread.program.borrow_mut().entry = injector.start(id, slot);
        }
        self.threads.insert(id, thread);
        self.go_on(id, 0)
    }

    fn call_begins(&mut self, id: i32) -> io::Result<()> {
        let syscall = ptrace::syscall(id)?;
        let Phase::Entry { number, arguments } = syscall.phase else { return self.go_on(id, 0) };
        let known = Abi::of(syscall.architecture, number)
            .and_then(|(abi, number)| Some((abi, number, self.calls.call(abi, number)?)));
        let Some((abi, number, call)) = known else { return self.go_on(id, 0) };
        #[cfg(target_arch = "x86_64")]
        if abi == Abi::Native && self.through_stub(id, call, number, syscall.instruction_pointer)? {
            return ptrace::resume(id, Resume::Run, 0);
        }
        let mut pending = PendingCall::begin(id, abi, number, call, arguments);
        if call.has_name()
            && let Some(mut stacks) = self.stacks.take()
        {
            pending.stack = stacks.capture(id, &mut |record| self.note(record));
            self.stacks = Some(stacks);
        }
        if let Some(thread) = self.threads.get_mut(&id) {
            thread.call = Some(pending);
        }
        ptrace::resume(id, Resume::UntilSyscall, 0)
    }

    /// Redirects a call to the stub, which records it, and patches the call site. Returns `false` if the
    /// tracer has to record the call.
    #[cfg(target_arch = "x86_64")]
    fn through_stub(&mut self, id: i32, call: &Call, number: u32, back: u64) -> io::Result<bool> {
        let rings = self.context.rings;
        let (Some(injector), Some(thread)) = (&self.injector, self.threads.get_mut(&id)) else {
            return Ok(false);
        };
        let Some(slot) = thread.slot else { return Ok(false) };
        let base = thread.program.borrow_mut().base(|| (rings.base(slot), rings.near(slot)));
        let Some(base) = base else { return Ok(false) };
        match Injector::origin(base, back) {
            CallOrigin::Program if call.shape().is_some() && !rings.is_busy(slot) => {
                if !self.context.waits_for_room(slot) {
                    self.close_without_recorder();
                    return Ok(false);
                }
                let attempt = Some((back, rings.position(slot)));
                if std::mem::replace(&mut thread.attempt, attempt) == attempt {
                    // The stub received this call before and could not record it.
                    thread.attempt = None;
                    return Ok(false);
                }
                self.patch(id, number, back);
                Injector::redirect(id, base, number, back)?;
                Ok(true)
            }
            CallOrigin::Restart => {
                if let Some(record) = Record::interrupted(&rings.unfinished(slot), ticks()) {
                    self.note(&record);
                }
                injector.restart(id)?;
                Ok(true)
            }
            CallOrigin::Stub => {
                // The stub could not record this call. If that was for want of room, later calls have it again.
                self.context.waits_for_room(slot);
                Ok(false)
            }
            CallOrigin::Program => Ok(false),
        }
    }

    /// Patches a site to jump to the stub, if no other thread can run there.
    #[cfg(target_arch = "x86_64")]
    fn patch(&mut self, id: i32, number: u32, back: u64) {
        let Some(thread) = self.threads.get(&id) else { return };
        let may_patch = self.is_alone(thread);
        let program = Rc::clone(&thread.program);
        let mut program = program.borrow_mut();
        if Rc::strong_count(&thread.program) == 2 && program.identity == Identity::Unknown {
            program::set_owner(id, &mut program, thread.slot);
        }
        if may_patch && let Some(injector) = &mut self.injector {
            // A site that cannot be patched stops again the next time.
            let _ = injector.patch(id, &mut program, number, back);
        }
    }

    /// Whether no other thread can be running in this thread's memory.
    #[cfg(target_arch = "x86_64")]
    fn is_alone(&self, thread: &Thread) -> bool {
        let shares = |other: &&Thread| Rc::ptr_eq(&other.program, &thread.program);
        let runs = |other: &&Thread| !other.is_suspended;
        Rc::strong_count(&thread.program) == 1
            || self.threads.values().filter(shares).filter(runs).count() == 1
    }

    fn call_ends(&mut self, id: i32) -> io::Result<()> {
        let syscall = ptrace::syscall(id)?;
        if let Phase::Exit { result } = syscall.phase
            && let Some(thread) = self.threads.get_mut(&id)
            && let Some(pending) = thread.call.take()
        {
            thread.apply_result(&pending, result);
            pending.records(id, ticks(), result).iter().for_each(|record| self.note(record));
        }
        self.go_on(id, 0)
    }

    fn signal(&mut self, id: i32, signal: i32) -> io::Result<()> {
        #[cfg(target_arch = "x86_64")]
        if let Some(thread) = self.threads.get(&id)
            && Injector::handle_signal(id, thread, signal)?
        {
            return self.go_on(id, 0);
        }
        if let Some(thread) = self.threads.get(&id) {
            thread.program.borrow_mut().signals |= 1 << ((signal - 1) & 63);
        }
        self.go_on(id, signal)
    }

    /// Appends a record, waiting for room if necessary.
    fn note(&self, record: &Record) {
        while !self.context.rings.append(record) {
            self.close_without_recorder();
            if self.context.rings.is_closed() {
                return;
            }
            self.context.doorbell.ring();
            std::thread::sleep(ROOM_PAUSE);
        }
    }

    /// Closes the rings if the recorder has died. Nothing is recorded from then on, and the programs are kept
    /// running.
    fn close_without_recorder(&self) {
        if process::parent() != self.context.recorder {
            self.context.rings.close();
        }
    }
}

impl PendingCall {
    /// Captures a call that a stopped thread is about to make.
    fn begin(id: i32, abi: Abi, number: u32, call: &'static Call, arguments: [u64; 6]) -> Self {
        Self {
            number: record::number(abi, number),
            started: ticks(),
            call,
            arguments: [0, 1, 2, 3].map(|index| arguments[index] as u32),
            names: read_names(id, call, arguments),
            stack: None,
        }
    }
}

/// Reads the names that a call of a stopped thread refers to.
fn read_names(thread: i32, call: &Call, arguments: [u64; 6]) -> [Vec<u8>; 2] {
    call.names.map(|argument| match argument {
        Argument::None => Vec::new(),
        Argument::Plain(at) | Argument::At(_, at) => read_name(thread, arguments[usize::from(at)]),
    })
}

/// Reads the bytes up to a NUL at `address`; empty if they are not readable.
fn read_name(thread: i32, address: u64) -> Vec<u8> {
    const USUAL: usize = 256;
    const LONGEST: usize = 4096;
    for length in [USUAL, LONGEST] {
        let mut name = vec![0; length];
        let count = ptrace::read_memory(thread, address, &mut name).unwrap_or(0);
        name.truncate(count);
        if let Some(end) = name.iter().position(|byte| *byte == 0) {
            name.truncate(end);
            return name;
        }
        if count < length {
            break;
        }
    }
    Vec::new()
}
