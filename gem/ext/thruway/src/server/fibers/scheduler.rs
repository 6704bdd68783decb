//! The `Fiber::Scheduler` of one thread: a fiber that has to wait gives the thread back to its root fiber, which is the
//! server's loop, and goes on when its wait has ended.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rb_sys::VALUE;
use thruway_roles::{AwaitedEvent, DeadlineId, FiberTable, ReadyTask, TaskId, Wake};
use thruway_serve::monotonic_us;

use super::waiter::{FiberWaiter, ReadyDescriptors};
use crate::ruby::data_type::{DataType, Marker, ObjectData};
use crate::ruby::{
    Gvl, NIL, NonLocalExit, ProtectedCall, RArray, RString, call, fiber, raise, thread,
};

/// The type of the Ruby object that owns a scheduler.
pub(in crate::server) static TYPE: DataType<FiberScheduler> =
    DataType::new(c"Thruway::FiberScheduler");

/// The time between two looks at the descriptors while the thread has other work.
const LOOK_INTERVAL_US: u64 = 500;

/// The scheduler of one thread's fibers. It is used with the interpreter lock held, by other threads too. No borrow
/// of its cells lasts over a call that may run Ruby code.
pub(in crate::server) struct FiberScheduler {
    waiter: Arc<FiberWaiter>,
    thread: VALUE,
    /// The fiber of the server's loop.
    root: VALUE,
    table: RefCell<FiberTable<VALUE>>,
    /// The exceptions that deadlines raise: each an Array of the arguments of `raise`.
    expirations: RefCell<HashMap<DeadlineId, VALUE>>,
    /// Whether the thread waits for the descriptors without the interpreter lock.
    is_waiting: Cell<bool>,
    looked_us: Cell<u64>,
}

impl ObjectData for FiberScheduler {
    fn mark(&self, marker: Marker) {
        marker.mark(self.thread);
        marker.mark(self.root);
        self.table.borrow().handles().for_each(|handle| marker.mark(handle));
        self.expirations.borrow().values().for_each(|value| marker.mark(*value));
    }
}

impl FiberScheduler {
    /// The scheduler of the calling thread, whose running fiber is its root.
    ///
    /// # Errors
    /// The process has no free descriptors.
    pub(in crate::server) fn new(gvl: Gvl) -> std::io::Result<Self> {
        Ok(Self {
            waiter: Arc::new(FiberWaiter::new()?),
            thread: thread::current(gvl),
            root: fiber::current(gvl),
            table: RefCell::default(),
            expirations: RefCell::default(),
            is_waiting: Cell::new(false),
            looked_us: Cell::new(0),
        })
    }

    /// The fiber of the server's loop.
    pub(in crate::server) fn root(&self) -> VALUE {
        self.root
    }

    pub(in crate::server) fn waiter(&self) -> &Arc<FiberWaiter> {
        &self.waiter
    }

    /// The number of tasks that have not ended.
    pub(in crate::server) fn task_count(&self) -> usize {
        self.table.borrow().count()
    }

    /// The time since which the oldest ready task is ready.
    pub(in crate::server) fn ready_since_us(&self) -> Option<u64> {
        self.table.borrow().ready_since_us()
    }

    pub(in crate::server) fn tasks(&self) -> Vec<TaskId> {
        self.table.borrow().tasks().collect()
    }

    pub(in crate::server) fn current_task(&self) -> Option<TaskId> {
        self.table.borrow().current()
    }

    /// Takes the next task to continue, together with its fiber.
    pub(in crate::server) fn take_ready(&self) -> Option<ReadyTask<VALUE>> {
        self.table.borrow_mut().take_ready()
    }

    /// Begins a task, in a fiber to which the caller transfers next.
    pub(in crate::server) fn begin(&self, fiber: VALUE) -> TaskId {
        self.table.borrow_mut().begin(fiber)
    }

    /// Ends the running task.
    pub(in crate::server) fn end_current(&self) {
        let current = self.table.borrow().current();
        if let Some(task) = current {
            self.end(task);
        }
    }

    /// Ends a task, if it has not ended.
    pub(in crate::server) fn end(&self, task: TaskId) {
        self.table.borrow_mut().end(task);
    }

    /// Makes a waiting task raise an exception.
    pub(in crate::server) fn interrupt(&self, task: TaskId, error: VALUE) -> bool {
        let is_woken = self.table.borrow_mut().interrupt(task, error, monotonic_us());
        self.ring_if_waiting(is_woken);
        is_woken
    }

    /// Interrupts the wait of `fiber`. A blocking fiber does not wait in the scheduler: it blocks the thread, which is
    /// interrupted as one without a scheduler.
    pub(super) fn interrupt_fiber(&self, gvl: Gvl, fiber: VALUE, error: VALUE) -> bool {
        if call::ask(gvl, fiber, c"blocking?", &[]) {
            return call::send(gvl, self.thread, c"raise", &[error]).is_some();
        }
        let task = self.table.borrow().task_of(fiber);
        task.is_some_and(|task| self.interrupt(task, error))
    }

    /// Suspends the calling fiber until `awaited` happens, for `timeout_us` at most. Raises what interrupts the wait.
    pub(in crate::server) fn suspend(
        &self,
        ruby: ProtectedCall,
        awaited: AwaitedEvent,
        timeout_us: Option<u64>,
    ) -> Wake<VALUE> {
        let (fiber, now_us) = (fiber::current(ruby.gvl()), monotonic_us());
        let due_us = timeout_us.map(|timeout_us| now_us.saturating_add(timeout_us));
        let task = self.table.borrow().current();
        let is_suspended = self.table.borrow_mut().suspend(fiber, awaited, due_us, now_us);
        let Some(task) = task.filter(|_| is_suspended) else { raise_no_task(ruby) };
        if let AwaitedEvent::Io { descriptor, .. } = awaited {
            self.watch(descriptor);
        }
        self.transfer_to_root(ruby, task)
    }

    /// Lets the other ready tasks run first.
    pub(super) fn pass(&self, ruby: ProtectedCall) {
        let task = self.table.borrow().current();
        let fiber = fiber::current(ruby.gvl());
        if let Some(task) = task
            && self.table.borrow_mut().pass(fiber, monotonic_us())
        {
            self.transfer_to_root(ruby, task);
        }
    }

    /// Starts a new task in `fiber` at once. The calling task continues when the new task waits or ends.
    pub(super) fn start(&self, ruby: ProtectedCall, fiber: VALUE) {
        let (caller, task) = (fiber::current(ruby.gvl()), self.table.borrow().current());
        if task.is_none() {
            if caller != self.root {
                raise_no_task(ruby);
            }
            self.table.borrow_mut().begin(fiber);
            return fiber::transfer(ruby, fiber);
        }
        self.table.borrow_mut().pass(caller, monotonic_us());
        self.table.borrow_mut().begin(fiber);
        fiber::transfer(ruby, fiber);
        if let Some(task) = task {
            self.take_wake(ruby, task);
        }
    }

    /// Goes on with fibers until all have ended. It does nothing in a fiber other than the root.
    pub(super) fn run_to_end(&self, gvl: Gvl) -> Result<(), NonLocalExit> {
        if fiber::current(gvl) != self.root {
            return Ok(());
        }
        let (waiter, mut ready) = (&*self.waiter, ReadyDescriptors::new());
        while self.task_count() > 0 {
            self.look_if_due(monotonic_us(), &mut ready);
            if let Some(ReadyTask { fiber, .. }) = self.take_ready() {
                let ended = gvl.catch(|ruby| fiber::transfer(ruby, fiber));
                self.end_current();
                ended?;
                continue;
            }
            let limit = self.begin_wait();
            let wait = || {
                waiter.wait(None, &mut ready, limit);
            };
            gvl.release(wait, || waiter.ring());
            self.end_wait(&mut ready);
            gvl.catch(thread::check_interrupts)?;
        }
        Ok(())
    }

    /// Forgets all tasks: they go on in the process that this one was forked from.
    pub(super) fn abandon(&self) {
        *self.table.borrow_mut() = FiberTable::default();
        self.expirations.borrow_mut().clear();
    }

    /// Wakes a blocked fiber. Any thread may call this method.
    pub(super) fn unblock(&self, fiber: VALUE) {
        let is_ready = self.table.borrow_mut().unblock(fiber, monotonic_us());
        self.ring_if_waiting(is_ready);
    }

    /// Ends the waits for a descriptor that is about to be closed.
    pub(super) fn end_waits_for(&self, descriptor: i32) {
        let awaited = self.table.borrow().awaited_io(descriptor);
        if awaited != 0 {
            self.table.borrow_mut().note_io(descriptor, awaited, monotonic_us());
            self.ring_if_waiting(true);
        }
    }

    /// Sets a deadline for the calling task, which raises `raise(*error)` then. Raises FiberError outside of a task.
    pub(super) fn set_deadline(
        &self,
        ruby: ProtectedCall,
        timeout_us: u64,
        error: RArray,
    ) -> DeadlineId {
        let due_us = monotonic_us().saturating_add(timeout_us);
        let deadline = self.table.borrow_mut().set_deadline(due_us);
        let Some(deadline) = deadline else { raise_no_task(ruby) };
        self.expirations.borrow_mut().insert(deadline, error.value());
        deadline
    }

    pub(super) fn cancel_deadline(&self, deadline: DeadlineId) {
        self.table.borrow_mut().cancel_deadline(deadline);
        self.expirations.borrow_mut().remove(&deadline);
    }

    /// Takes in what has happened, if it is time to look. The thread has other work.
    pub(in crate::server) fn look_if_due(&self, now_us: u64, ready: &mut ReadyDescriptors) {
        let mut table = self.table.borrow_mut();
        table.expire(now_us);
        if table.awaits_io() && now_us >= self.looked_us.get() + LOOK_INTERVAL_US {
            drop(table);
            self.waiter.look(ready);
            self.take(ready, now_us);
        }
    }

    /// Called before the thread waits without the interpreter lock: the time for which it may wait, or none without a
    /// limit.
    pub(in crate::server) fn begin_wait(&self) -> Option<Duration> {
        self.is_waiting.set(true);
        let table = self.table.borrow();
        if table.ready_count() > 0 {
            return Some(Duration::ZERO);
        }
        let left_us = |due_us: u64| due_us.saturating_sub(monotonic_us());
        table.next_due_us().map(|due_us| Duration::from_micros(left_us(due_us)))
    }

    /// Ends a wait: makes the tasks ready whose descriptors are `ready` or whose deadlines have passed.
    pub(in crate::server) fn end_wait(&self, ready: &mut ReadyDescriptors) {
        self.is_waiting.set(false);
        let now_us = monotonic_us();
        self.take(ready, now_us);
        self.table.borrow_mut().expire(now_us);
    }

    fn take(&self, ready: &mut ReadyDescriptors, now_us: u64) {
        self.looked_us.set(now_us);
        for (descriptor, events) in ready.drain() {
            let rest = self.table.borrow_mut().note_io(descriptor, events, now_us);
            if rest != 0 {
                self.watch(descriptor);
            }
        }
    }

    /// Asks the kernel for the awaited events of a descriptor. A descriptor that the kernel cannot watch is treated as
    /// ready, so that the next call on the descriptor reports the error.
    fn watch(&self, descriptor: i32) {
        let events = self.table.borrow().awaited_io(descriptor);
        if self.waiter.watch(descriptor, events).is_err() {
            self.table.borrow_mut().note_io(descriptor, events, monotonic_us());
        }
    }

    /// Suspends the running fiber, whose task is `task`, and transfers to the thread's root fiber. Returns when the
    /// task is resumed, with the event that has woken it.
    fn transfer_to_root(&self, ruby: ProtectedCall, task: TaskId) -> Wake<VALUE> {
        let ended = ruby.gvl().catch(|ruby| fiber::transfer(ruby, self.root));
        // `Fiber#raise` transfers to its fiber directly, so the table may name another task as the running one.
        self.table.borrow_mut().preempt(task, monotonic_us());
        if let Err(raised) = ended {
            raised.resume(ruby);
        }
        self.take_wake(ruby, task)
    }

    fn take_wake(&self, ruby: ProtectedCall, task: TaskId) -> Wake<VALUE> {
        let wake = self.table.borrow_mut().take_wake(task);
        match wake {
            Wake::Error(error) => raise::exception(ruby, error),
            Wake::Deadline(deadline) => {
                let error = self.expirations.borrow().get(&deadline).copied();
                let error = error.and_then(|error| RArray::of(ruby.gvl(), error));
                error.map_or(Wake::Expired, |error| raise::arguments(ruby, error))
            }
            wake => wake,
        }
    }

    fn ring_if_waiting(&self, is_ready: bool) {
        if is_ready && self.is_waiting.get() {
            self.waiter.ring();
        }
    }
}

/// The scheduler of the calling fiber, if it is one of ours; `object` keeps it alive.
pub(in crate::server) fn current(
    ruby: ProtectedCall,
    object: &mut VALUE,
) -> Option<&FiberScheduler> {
    *object = fiber::current_scheduler(ruby.gvl());
    if *object == NIL || !TYPE.is_of(ruby.gvl(), *object) {
        return None;
    }
    Some(TYPE.get(ruby, object))
}

fn raise_no_task(ruby: ProtectedCall) -> ! {
    let text = b"only a request's fiber, or one that Fiber.schedule started in a request, can wait";
    raise::fiber_error(ruby, RString::binary(ruby.gvl(), text))
}
