//! Traces processes that are already running. Such a process gets neither filter nor stub, so each system call of
//! its threads and their descendants stops twice.
//!
//! Nothing may be left behind in the process. When the tracer ends, for whatever reason, the kernel detaches
//! and all threads continue.

use std::collections::{HashMap, HashSet};
use std::io;
use std::time::Duration;

use thruway_sys::process::{self, Change, Wait};
use thruway_sys::ptrace::{self, Phase, Resume, event};
use thruway_sys::ticks::ticks;

use super::stacks::Stacks;
use super::thread::{self, PendingCall, clone_flags, flag};
use crate::call::Abi;
use crate::doorbell::Doorbell;
use crate::record::{Calls, Notice, Record};
use crate::shared_rings::SharedRings;

/// Records the calls of the processes that were attached to.
pub(crate) struct AttachedTracer<'a> {
    rings: &'a SharedRings,
    doorbell: &'a Doorbell,
    calls: Calls,
    /// The recorded call that each thread is in, if any.
    threads: HashMap<i32, Option<PendingCall>>,
    /// Children that stopped before their parent's event arrived.
    early_children: HashSet<i32>,
    /// The stacks of calls, if they are recorded.
    stacks: Option<Stacks>,
}

impl<'a> AttachedTracer<'a> {
    pub(crate) fn new(rings: &'a SharedRings, doorbell: &'a Doorbell, with_stacks: bool) -> Self {
        let (threads, early_children) = (HashMap::new(), HashSet::new());
        let stacks = with_stacks.then(Stacks::default);
        Self { rings, doorbell, calls: Calls::new(), threads, early_children, stacks }
    }

    /// Attaches to all threads of these processes. An error comes with the process that it is about.
    ///
    /// No thread is interrupted before all processes are attached to: the calls of a process stay as they are if
    /// another one cannot be attached to.
    pub(crate) fn attach(&mut self, processes: &[i32]) -> Result<(), (i32, io::Error)> {
        for process in processes {
            if !self.threads.contains_key(process) {
                ptrace::seize_running(*process).map_err(|error| (*process, error))?;
                self.adopt(*process, *process);
            }
        }
        for process in processes {
            // The interrupt fails if the process has ended in the meantime; its end is then reported.
            let _ = ptrace::interrupt(*process);
            self.attach_threads(*process);
        }
        Ok(())
    }

    /// Attaches to the threads of a process besides its first one.
    fn attach_threads(&mut self, process: i32) {
        let mut is_done = false;
        // Threads that are not attached to yet may create others in the meantime.
        while !is_done {
            is_done = true;
            for id in tasks(process) {
                // An error means that the thread has ended, or was attached to automatically by way of its parent.
                if !self.threads.contains_key(&id) && ptrace::seize_running(id).is_ok() {
                    self.adopt(process, id);
                    let _ = ptrace::interrupt(id);
                    is_done = false;
                }
            }
        }
    }

    fn adopt(&mut self, process: i32, id: i32) {
        if id != process {
            let shared = flag::SHARES_MEMORY | flag::SHARES_FOLDER | flag::SHARES_DESCRIPTORS;
            let arguments = [id.unsigned_abs(), shared | flag::IS_THREAD];
            self.append(&Record::notice(Notice::Fork, process, ticks(), arguments));
        }
        self.threads.insert(id, None);
    }

    /// Traces until the last thread has ended.
    pub(crate) fn run(mut self) -> io::Result<()> {
        while let Some((id, change)) = process::wait(Wait::Any)? {
            self.rings.count_stop();
            match change {
                Change::Exited(_) | Change::Killed(_) => self.end(id),
                Change::Stopped { signal, event } => {
                    if self.stopped(id, signal, event).is_err() {
                        // Most likely the thread was killed in the meantime. Otherwise it continues without
                        // being recorded.
                        let _ = ptrace::resume(id, Resume::Run, 0);
                    }
                }
                Change::Continued => {}
            }
        }
        Ok(())
    }

    fn end(&mut self, id: i32) {
        self.early_children.remove(&id);
        self.forget_stacks(id);
        if self.threads.remove(&id).is_some() {
            self.append(&Record::notice(Notice::Exit, id, ticks(), [0; 2]));
        }
    }

    fn forget_stacks(&mut self, id: i32) {
        if let Some(stacks) = &mut self.stacks {
            stacks.forget(id);
        }
    }

    fn stopped(&mut self, id: i32, signal: i32, event: i32) -> io::Result<()> {
        if !self.threads.contains_key(&id) && event != event::EXECUTE {
            self.early_children.insert(id);
            return Ok(());
        }
        match event {
            event::FORK | event::VFORK | event::CLONE => self.child(id, event)?,
            event::EXECUTE => self.program(id)?,
            event::STOP if signal != ptrace::TRAP => {
                return ptrace::resume(id, Resume::Listen, 0);
            }
            event::STOP => repeat_interrupted(id)?,
            0 if signal == ptrace::SYSCALL_STOP => self.call(id)?,
            0 => return ptrace::resume(id, Resume::UntilSyscall, signal),
            _ => {}
        }
        ptrace::resume(id, Resume::UntilSyscall, 0)
    }

    fn child(&mut self, id: i32, event: i32) -> io::Result<()> {
        let child = ptrace::message(id)?;
        let arguments = [child.unsigned_abs(), clone_flags(id, event)];
        self.append(&Record::notice(Notice::Fork, id, ticks(), arguments));
        self.threads.insert(child, None);
        if self.early_children.remove(&child) {
            ptrace::resume(child, Resume::UntilSyscall, 0)?;
        }
        Ok(())
    }

    fn program(&mut self, id: i32) -> io::Result<()> {
        let before = ptrace::message(id)?;
        let now = ticks();
        let Some(pending) = self.threads.remove(&before) else { return Ok(()) };
        if before != id {
            self.end(id);
        }
        if let Some(pending) = pending {
            pending.records(before, now, 0).iter().for_each(|record| self.append(record));
        }
        self.forget_stacks(before);
        self.forget_stacks(id);
        // One tick later, so that the notice sorts after the call.
        let mut notice = Record::notice(Notice::Program, id, now + 1, [before.unsigned_abs(), 0]);
        notice.names[0] = thread::arguments(id);
        self.append(&notice);
        self.threads.insert(id, None);
        Ok(())
    }

    fn call(&mut self, id: i32) -> io::Result<()> {
        let syscall = ptrace::syscall(id)?;
        let Some(pending) = self.threads.get_mut(&id) else { return Ok(()) };
        match syscall.phase {
            Phase::Entry { number, arguments } => {
                let known = Abi::of(syscall.architecture, number)
                    .and_then(|(abi, number)| Some((abi, number, self.calls.call(abi, number)?)));
                let known = known.filter(|(_, _, call)| call.is_recorded(arguments[1]));
                *pending = known.map(|(abi, number, call)| {
                    PendingCall::begin(id, abi, number, call, arguments)
                });
                self.capture_stack(id);
            }
            Phase::Exit { result } => {
                let records = pending.take().map(|pending| pending.records(id, ticks(), result));
                records.iter().flatten().for_each(|record| self.append(record));
            }
            Phase::None => {}
        }
        Ok(())
    }

    /// Adds the stack to the call that a thread has begun.
    fn capture_stack(&mut self, id: i32) {
        let is_wanted = |pending: &&PendingCall| pending.call.has_name();
        let pending = self.threads.get(&id).and_then(Option::as_ref).filter(is_wanted);
        if pending.is_none() {
            return;
        }
        let Some(mut stacks) = self.stacks.take() else { return };
        let stack = stacks.capture(id, &mut |record| self.append(record));
        self.stacks = Some(stacks);
        if let Some(Some(pending)) = self.threads.get_mut(&id) {
            pending.stack = stack;
        }
    }

    /// Appends a record, waiting for room if necessary.
    fn append(&self, record: &Record) {
        while !self.rings.append(record) {
            self.doorbell.ring();
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// The threads of a process; none if the process has ended.
fn tasks(process: i32) -> Vec<i32> {
    let entries = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
    let id = |entry: io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    entries.filter_map(id).collect()
}

/// Repeats an interrupted call. Some blocking calls fail with `EINTR` when their thread is stopped, although
/// no signal was delivered, and the program must not notice.
fn repeat_interrupted(id: i32) -> io::Result<()> {
    #[cfg(target_arch = "x86_64")]
    {
        const INTERRUPTED: i64 = -4;
        // epoll_wait, epoll_pwait, epoll_pwait2, semop, semtimedop, rt_sigtimedwait, io_getevents
        const WAITING: [i64; 7] = [232, 281, 441, 65, 220, 128, 208];
        let mut registers = ptrace::registers(id)?;
        let is_interrupted = registers.result() == INTERRUPTED
            && registers.is_64_bit()
            && WAITING.contains(&registers.number());
        if is_interrupted && !has_signal(id) {
            registers.repeat_call();
            ptrace::set_registers(id, &registers)?;
        }
    }
    let _ = id;
    Ok(())
}

/// Whether an unblocked signal is pending for the thread; true if unknown.
#[cfg(target_arch = "x86_64")]
fn has_signal(id: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    match (set("SigPnd:"), set("ShdPnd:"), set("SigBlk:")) {
        (Some(own), Some(shared), Some(blocked)) => (own | shared) & !blocked != 0,
        _ => true,
    }
}
