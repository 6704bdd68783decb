//! The fibers of one thread: the running one, the ready ones, and the waits of the others.
//!
//! A task is a request, or any other work that runs in fibers of its own. One fiber of a task runs at a time. A fiber
//! that has to wait suspends its task. The task is ready again as soon as its wait ends: by a descriptor, by its
//! deadline, by another fiber or thread, or by an interruption. Ready tasks continue in the order in which they became
//! ready.
//!
//! The table knows neither Ruby nor the system. A handle `F` stands for a fiber or an exception.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::hash::Hash;

use crate::waits::{AwaitedEvent, DeadlineId, Wake};

/// The maximum number of wakes kept for fibers that were not waiting. A dropped wake belonged to a fiber that has
/// ended.
const PERMITS_MAX: usize = 1024;

/// A task of a [`FiberTable`]. No two tasks of a table are equal, even if one has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TaskId {
    index: usize,
    generation: u64,
}

impl TaskId {
    /// The task's place in its table, which a later task may have after it.
    #[must_use]
    pub fn index(self) -> usize {
        self.index
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskState<F> {
    /// The task runs, or has not begun.
    Running,
    Waiting {
        awaited: AwaitedEvent,
        /// The number of the wait, which no other wait of the table has.
        number: u64,
    },
    Ready(Wake<F>),
}

#[derive(Debug)]
struct Task<F> {
    generation: u64,
    /// The fiber that continues the task.
    fiber: F,
    state: TaskState<F>,
    /// The number of deadlines that the task has set and that have neither passed nor been cancelled.
    deadlines: u32,
    /// Interruptions after the one with which the task continues. Each of them ends a later wait.
    pending: VecDeque<Wake<F>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Wait(u64),
    Deadline(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct TimerEntry {
    due_us: u64,
    timer: Timer,
    index: usize,
    generation: u64,
}

/// A task that can continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadyTask<F> {
    /// The task.
    pub task: TaskId,
    /// The fiber that continues the task.
    pub fiber: F,
}

/// The fibers of one thread.
#[derive(Debug)]
pub struct FiberTable<F> {
    tasks: Vec<Option<Task<F>>>,
    free: Vec<usize>,
    count: usize,
    /// The last number given to a task, a wait or a deadline.
    numbers: u64,
    current: Option<TaskId>,
    ready: VecDeque<(TaskId, u64)>,
    timers: BinaryHeap<Reverse<TimerEntry>>,
    /// The number of timers whose wait or deadline is over.
    stale_timers: usize,
    deadlines: HashMap<u64, TaskId>,
    io: HashMap<i32, Vec<(TaskId, u32)>>,
    blocked: HashMap<F, TaskId>,
    permits: HashSet<F>,
}

impl<F> Default for FiberTable<F> {
    fn default() -> Self {
        Self {
            tasks: Vec::new(),
            free: Vec::new(),
            count: 0,
            numbers: 0,
            current: None,
            ready: VecDeque::new(),
            timers: BinaryHeap::new(),
            stale_timers: 0,
            deadlines: HashMap::new(),
            io: HashMap::new(),
            blocked: HashMap::new(),
            permits: HashSet::new(),
        }
    }
}

impl<F: Copy + Eq + Hash> FiberTable<F> {
    /// Begins a task with `fiber`, and makes it the running task.
    pub fn begin(&mut self, fiber: F) -> TaskId {
        let generation = self.next_number();
        let task = Some(Task {
            generation,
            fiber,
            state: TaskState::Running,
            deadlines: 0,
            pending: VecDeque::new(),
        });
        let index = self.free.pop().unwrap_or(self.tasks.len());
        match self.tasks.get_mut(index) {
            Some(place) => *place = task,
            None => self.tasks.push(task),
        }
        self.count += 1;
        let id = TaskId { index, generation };
        self.current = Some(id);
        id
    }

    /// Ends a task, and its waits and deadlines.
    pub fn end(&mut self, id: TaskId) {
        let Some(Task { state, deadlines, .. }) = self.task(id) else { return };
        let (is_ready, has_deadlines) = (matches!(state, TaskState::Ready(_)), *deadlines > 0);
        self.end_wait(id);
        if is_ready {
            self.ready.retain(|(ready, _)| *ready != id);
        }
        if has_deadlines {
            let before = self.deadlines.len();
            self.deadlines.retain(|_, task| *task != id);
            self.stale_timers += before - self.deadlines.len();
        }
        self.tasks[id.index] = None;
        self.free.push(id.index);
        self.count -= 1;
        if self.current == Some(id) {
            self.current = None;
        }
    }

    /// The number of tasks that have not ended.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// The number of tasks that can continue.
    #[must_use]
    pub fn ready_count(&self) -> usize {
        self.ready.len()
    }

    /// The running task.
    #[must_use]
    pub fn current(&self) -> Option<TaskId> {
        self.current
    }

    /// The tasks that have not ended.
    pub fn tasks(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.tasks.iter().enumerate().filter_map(|(index, task)| {
            task.as_ref().map(|task| TaskId { index, generation: task.generation })
        })
    }

    /// The handles that the table holds.
    pub fn handles(&self) -> impl Iterator<Item = F> + '_ {
        self.tasks.iter().flatten().flat_map(|task| {
            let next = match &task.state {
                TaskState::Ready(wake) => Some(wake),
                TaskState::Running | TaskState::Waiting { .. } => None,
            };
            let errors = next.into_iter().chain(&task.pending).filter_map(|wake| match wake {
                Wake::Error(error) => Some(*error),
                _ => None,
            });
            std::iter::once(task.fiber).chain(errors)
        })
    }

    /// Suspends the running task, whose running fiber is `fiber`, until `awaited` happens or until `due_us`. Returns
    /// false if no task runs. A wake that came early ends the wait at once, and the task is ready.
    pub fn suspend(
        &mut self,
        fiber: F,
        awaited: AwaitedEvent,
        due_us: Option<u64>,
        now_us: u64,
    ) -> bool {
        let Some(id) = self.current.take() else { return false };
        let number = self.next_number();
        let mut interruption = None;
        if let Some(task) = self.task_mut(id) {
            task.fiber = fiber;
            task.state = TaskState::Waiting { awaited, number };
            interruption = task.pending.pop_front();
        }
        match awaited {
            AwaitedEvent::Nothing => {
                self.blocked.insert(fiber, id);
            }
            AwaitedEvent::Io { descriptor, events } => {
                self.io.entry(descriptor).or_default().push((id, events));
            }
            AwaitedEvent::Unblock => {
                self.blocked.insert(fiber, id);
                if self.permits.remove(&fiber) {
                    interruption.get_or_insert(Wake::Unblocked);
                }
            }
        }
        if let Some(wake) = interruption {
            return self.wake(id, wake, now_us);
        }
        if let Some(due_us) = due_us {
            self.push_timer(due_us, Timer::Wait(number), id);
        }
        true
    }

    /// Suspends the running task, whose running fiber is `fiber`, behind all tasks that are ready now.
    pub fn pass(&mut self, fiber: F, now_us: u64) -> bool {
        let Some(id) = self.current else { return false };
        let is_suspended = self.suspend(fiber, AwaitedEvent::Nothing, None, now_us);
        self.wake(id, Wake::Unblocked, now_us);
        is_suspended
    }

    /// Continues `id` out of turn, because other code has switched to its fiber: its wait has ended. The task that ran
    /// before becomes ready.
    pub fn preempt(&mut self, id: TaskId, now_us: u64) {
        if self.current == Some(id) || self.task(id).is_none() {
            return;
        }
        self.end_wait(id);
        self.ready.retain(|(ready, _)| *ready != id);
        if let Some(task) = self.task_mut(id) {
            task.state = TaskState::Running;
        }
        if let Some(before) = self.current.replace(id)
            && let Some(task) = self.task_mut(before)
        {
            task.state = TaskState::Ready(Wake::Unblocked);
            self.ready.push_back((before, now_us));
        }
    }

    /// The time at which the oldest ready task became ready.
    #[must_use]
    pub fn ready_since_us(&self) -> Option<u64> {
        self.ready.front().map(|(_, since_us)| *since_us)
    }

    /// Takes the task that became ready first, and makes it the running task.
    pub fn take_ready(&mut self) -> Option<ReadyTask<F>> {
        let (id, _) = self.ready.pop_front()?;
        self.current = Some(id);
        self.task(id).map(|task| ReadyTask { task: id, fiber: task.fiber })
    }

    /// Takes the end of the wait of `id`, which runs again.
    pub fn take_wake(&mut self, id: TaskId) -> Wake<F> {
        let Some(task) = self.task_mut(id) else { return Wake::Unblocked };
        match std::mem::replace(&mut task.state, TaskState::Running) {
            TaskState::Ready(wake) => wake,
            // Other code has continued the fiber.
            TaskState::Waiting { .. } | TaskState::Running => Wake::Unblocked,
        }
    }

    /// Ends the waits for a descriptor that has `events`. Returns the events that are still awaited.
    pub fn note_io(&mut self, descriptor: i32, events: u32, now_us: u64) -> u32 {
        let waits = self.io.get(&descriptor).map_or(&[][..], Vec::as_slice);
        let wanted = |(id, awaited): &(TaskId, u32)| (*id, awaited & events);
        let woken: Vec<_> = waits.iter().map(wanted).filter(|(_, found)| *found != 0).collect();
        for (id, found) in woken {
            self.wake(id, Wake::Io(found), now_us);
        }
        self.awaited_io(descriptor)
    }

    /// The events of a descriptor that any task waits for.
    #[must_use]
    pub fn awaited_io(&self, descriptor: i32) -> u32 {
        let waits = self.io.get(&descriptor).map_or(&[][..], Vec::as_slice);
        waits.iter().fold(0, |all, (_, events)| all | events)
    }

    /// Whether any task waits for a descriptor.
    #[must_use]
    pub fn awaits_io(&self) -> bool {
        !self.io.is_empty()
    }

    /// Ends the wait of a fiber that is blocked or asleep, as in a wait for a condition variable. If the fiber does not
    /// wait, its next blocking wait ends at once. Returns whether a task became ready.
    pub fn unblock(&mut self, fiber: F, now_us: u64) -> bool {
        if let Some(id) = self.blocked.get(&fiber).copied() {
            return self.wake(id, Wake::Unblocked, now_us);
        }
        if self.permits.len() >= PERMITS_MAX {
            self.permits.clear();
        }
        self.permits.insert(fiber);
        false
    }

    /// Makes a waiting task raise an exception. Returns whether the task waited, or was about to go on.
    pub fn interrupt(&mut self, id: TaskId, error: F, now_us: u64) -> bool {
        self.interrupt_with(id, Wake::Error(error), now_us)
    }

    /// The waiting or ready task that `fiber` continues.
    #[must_use]
    pub fn task_of(&self, fiber: F) -> Option<TaskId> {
        self.tasks().find(|id| {
            self.current != Some(*id) && self.task(*id).is_some_and(|task| task.fiber == fiber)
        })
    }

    /// Sets a deadline of the running task, at which its wait is interrupted. None if no task runs.
    pub fn set_deadline(&mut self, due_us: u64) -> Option<DeadlineId> {
        let id = self.current?;
        let number = self.next_number();
        self.deadlines.insert(number, id);
        self.task_mut(id)?.deadlines += 1;
        self.push_timer(due_us, Timer::Deadline(number), id);
        Some(DeadlineId(number))
    }

    /// Cancels a deadline.
    pub fn cancel_deadline(&mut self, deadline: DeadlineId) {
        for task in self.tasks.iter_mut().flatten().filter(|task| !task.pending.is_empty()) {
            task.pending.retain(|wake| !matches!(wake, Wake::Deadline(id) if *id == deadline));
        }
        if self.take_deadline(deadline.0) {
            self.stale_timers += 1;
            self.drop_stale_timers();
        }
    }

    /// Ends the waits whose time has come.
    pub fn expire(&mut self, now_us: u64) {
        while let Some(Reverse(entry)) = self.timers.peek().copied()
            && entry.due_us <= now_us
        {
            self.timers.pop();
            let id = TaskId { index: entry.index, generation: entry.generation };
            match entry.timer {
                Timer::Wait(number) if self.is_in_wait(id, number) => {
                    self.wake(id, Wake::Expired, now_us);
                }
                Timer::Deadline(number) if self.take_deadline(number) => {
                    self.interrupt_with(id, Wake::Deadline(DeadlineId(number)), now_us);
                }
                Timer::Wait(_) | Timer::Deadline(_) => {
                    self.stale_timers = self.stale_timers.saturating_sub(1);
                }
            }
        }
    }

    /// The time of the next deadline.
    #[must_use]
    pub fn next_due_us(&self) -> Option<u64> {
        self.timers.peek().map(|Reverse(entry)| entry.due_us)
    }

    fn task(&self, id: TaskId) -> Option<&Task<F>> {
        let task = self.tasks.get(id.index)?.as_ref();
        task.filter(|task| task.generation == id.generation)
    }

    fn task_mut(&mut self, id: TaskId) -> Option<&mut Task<F>> {
        let task = self.tasks.get_mut(id.index)?.as_mut();
        task.filter(|task| task.generation == id.generation)
    }

    fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn is_in_wait(&self, id: TaskId, wait: u64) -> bool {
        let is_wait = |task: &Task<F>| matches!(task.state, TaskState::Waiting { number, .. } if number == wait);
        self.task(id).is_some_and(is_wait)
    }

    fn push_timer(&mut self, due_us: u64, timer: Timer, id: TaskId) {
        let TaskId { index, generation } = id;
        self.timers.push(Reverse(TimerEntry { due_us, timer, index, generation }));
    }

    /// Takes out a deadline. Returns whether the deadline was still pending.
    fn take_deadline(&mut self, number: u64) -> bool {
        let Some(id) = self.deadlines.remove(&number) else { return false };
        if let Some(task) = self.task_mut(id) {
            task.deadlines -= 1;
        }
        true
    }

    /// Keeps the heap from filling up with timers of waits that ended early.
    fn drop_stale_timers(&mut self) {
        if self.stale_timers <= self.timers.len() / 2 {
            return;
        }
        let timers = std::mem::take(&mut self.timers);
        let is_live = |entry: &TimerEntry| match entry.timer {
            Timer::Wait(number) => {
                let TimerEntry { index, generation, .. } = *entry;
                self.is_in_wait(TaskId { index, generation }, number)
            }
            Timer::Deadline(number) => self.deadlines.contains_key(&number),
        };
        self.timers = timers.into_iter().filter(|Reverse(entry)| is_live(entry)).collect();
        self.stale_timers = 0;
    }

    fn wake(&mut self, id: TaskId, wake: Wake<F>, now_us: u64) -> bool {
        if !self.end_wait(id) {
            return false;
        }
        if let Some(task) = self.task_mut(id) {
            task.state = TaskState::Ready(wake);
            self.ready.push_back((id, now_us));
        }
        true
    }

    fn interrupt_with(&mut self, id: TaskId, wake: Wake<F>, now_us: u64) -> bool {
        if self.wake(id, wake, now_us) {
            return true;
        }
        let Some(task) = self.task_mut(id) else { return false };
        match &mut task.state {
            TaskState::Ready(Wake::Error(_) | Wake::Deadline(_)) => task.pending.push_back(wake),
            TaskState::Ready(old) => *old = wake,
            TaskState::Running | TaskState::Waiting { .. } => return false,
        }
        true
    }

    /// Removes a task from the waiters of its event. Returns whether the task waited.
    fn end_wait(&mut self, id: TaskId) -> bool {
        let Some(task) = self.task(id) else { return false };
        let TaskState::Waiting { awaited, .. } = task.state else { return false };
        let fiber = task.fiber;
        match awaited {
            AwaitedEvent::Nothing | AwaitedEvent::Unblock => {
                self.blocked.remove(&fiber);
            }
            AwaitedEvent::Io { descriptor, .. } => {
                if let Some(waits) = self.io.get_mut(&descriptor) {
                    waits.retain(|(waiting, _)| *waiting != id);
                    if waits.is_empty() {
                        self.io.remove(&descriptor);
                    }
                }
            }
        }
        // The timer of the wait, if there is one, is stale now unless it has just ended the wait.
        self.stale_timers += 1;
        self.drop_stale_timers();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: u32 = 1;
    const WRITE: u32 = 4;

    /// A table whose tasks wait for `awaited`; the fiber of each task is its number.
    fn waiting(waits: &[(AwaitedEvent, Option<u64>)]) -> (FiberTable<u32>, Vec<TaskId>) {
        let mut table = FiberTable::default();
        let tasks = (0..).zip(waits).map(|(fiber, (awaited, due_us))| {
            let task = table.begin(fiber);
            assert!(table.suspend(fiber, *awaited, *due_us, 0));
            task
        });
        let tasks = tasks.collect();
        (table, tasks)
    }

    fn run_next(table: &mut FiberTable<u32>) -> Option<(u32, Wake<u32>)> {
        let ReadyTask { task, fiber } = table.take_ready()?;
        Some((fiber, table.take_wake(task)))
    }

    #[test]
    fn tasks_go_on_in_the_order_in_which_their_waits_end() {
        let sleep = |due_us| (AwaitedEvent::Nothing, Some(due_us));
        let (mut table, _) =
            waiting(&[sleep(30), sleep(10), (AwaitedEvent::Unblock, Some(50)), sleep(20)]);
        assert_eq!(table.next_due_us(), Some(10));
        table.expire(15);
        table.unblock(2, 15);
        table.expire(40);
        let order = std::iter::from_fn(|| run_next(&mut table)).collect::<Vec<_>>();
        let expired = |fiber| (fiber, Wake::Expired);
        assert_eq!(order, [expired(1), (2, Wake::Unblocked), expired(3), expired(0)]);
        table.expire(60);
        assert_eq!(table.ready_count(), 0, "a wait ends once");
    }

    #[test]
    fn a_descriptor_wakes_those_that_wait_for_its_events() {
        let io = |events| (AwaitedEvent::Io { descriptor: 7, events }, None);
        let (mut table, _) = waiting(&[io(READ), io(WRITE), io(READ | WRITE)]);
        assert_eq!(table.awaited_io(7), READ | WRITE);
        assert_eq!(table.note_io(7, READ, 1), WRITE);
        assert_eq!(run_next(&mut table), Some((0, Wake::Io(READ))));
        assert_eq!(run_next(&mut table), Some((2, Wake::Io(READ))));
        assert_eq!(table.note_io(7, WRITE, 2), 0);
        assert_eq!(run_next(&mut table), Some((1, Wake::Io(WRITE))));
        assert!(!table.awaits_io());
    }

    #[test]
    fn a_wake_before_the_wait_ends_it_at_once() {
        let mut table = FiberTable::default();
        let task = table.begin(5);
        assert!(!table.unblock(5, 1));
        assert!(table.suspend(5, AwaitedEvent::Unblock, None, 2));
        assert_eq!(table.take_ready(), Some(ReadyTask { task, fiber: 5 }));
        assert_eq!(table.take_wake(task), Wake::Unblocked);
        assert!(table.suspend(5, AwaitedEvent::Unblock, None, 3));
        assert_eq!(table.take_ready(), None);
        table.unblock(5, 4);
        run_next(&mut table);
        table.unblock(5, 5);
        table.suspend(5, AwaitedEvent::Nothing, None, 6);
        assert_eq!(table.take_ready(), None, "no early wake shortens a sleep");
        assert!(table.unblock(5, 7));
    }

    #[test]
    fn a_deadline_interrupts_the_wait_or_replaces_its_result() {
        let mut table = FiberTable::default();
        let task = table.begin(1);
        let first = table.set_deadline(10).unwrap();
        let second = table.set_deadline(20).unwrap();
        table.suspend(1, AwaitedEvent::Unblock, None, 0);
        table.unblock(1, 5);
        table.expire(10);
        assert_eq!(run_next(&mut table), Some((1, Wake::Deadline(first))));
        table.suspend(1, AwaitedEvent::Unblock, None, 11);
        table.cancel_deadline(second);
        table.expire(30);
        assert_eq!(table.take_ready(), None);
        assert!(table.interrupt(task, 99, 31));
        assert_eq!(run_next(&mut table), Some((1, Wake::Error(99))));
        table.end(task);
        assert!(!table.interrupt(task, 99, 32));
        assert_eq!(table.count(), 0);
    }

    #[test]
    fn no_interruption_replaces_another() {
        let mut table = FiberTable::default();
        let task = table.begin(1);
        let deadlines = [10, 20].map(|due_us| table.set_deadline(due_us).unwrap());
        table.suspend(1, AwaitedEvent::Unblock, None, 0);
        assert!(table.interrupt(task, 98, 5));
        table.expire(30);
        assert!(table.interrupt(task, 99, 31));
        assert!(table.handles().eq([1, 98, 99]));
        assert_eq!(run_next(&mut table), Some((1, Wake::Error(98))));
        table.cancel_deadline(deadlines[1]);
        for wake in [Wake::Deadline(deadlines[0]), Wake::Error(99)] {
            table.unblock(1, 32);
            table.suspend(1, AwaitedEvent::Unblock, Some(100), 33);
            assert_eq!(run_next(&mut table), Some((1, wake)));
        }
        table.suspend(1, AwaitedEvent::Unblock, None, 34);
        assert_eq!(run_next(&mut table), None);
    }

    #[test]
    fn a_task_that_goes_on_out_of_turn_lets_the_one_before_go_on_later() {
        let io = (AwaitedEvent::Io { descriptor: 7, events: READ }, Some(10));
        let (mut table, tasks) = waiting(&[io, (AwaitedEvent::Unblock, None)]);
        let before = table.begin(2);
        table.unblock(1, 1);
        for task in tasks.into_iter().rev() {
            table.preempt(task, 2);
            assert_eq!(table.current(), Some(task));
            table.end(task);
            assert_eq!(table.take_ready(), Some(ReadyTask { task: before, fiber: 2 }));
            assert_eq!(table.take_wake(before), Wake::Unblocked);
        }
        assert!(!table.awaits_io());
        table.preempt(before, 3);
        assert_eq!((table.count(), table.ready_count()), (1, 0));
    }

    #[test]
    fn an_ended_task_is_not_mistaken_for_the_next() {
        let (mut table, tasks) =
            waiting(&[(AwaitedEvent::Nothing, Some(10)), (AwaitedEvent::Nothing, None)]);
        table.end(tasks[0]);
        let next = table.begin(8);
        assert_ne!(next, tasks[0]);
        table.suspend(8, AwaitedEvent::Nothing, Some(100), 0);
        table.expire(50);
        assert_eq!(table.take_ready(), None);
        assert!(!table.interrupt(tasks[0], 1, 50));
        assert_eq!((table.count(), table.task_of(8)), (2, Some(next)));
    }

    #[test]
    fn a_task_that_passes_goes_on_behind_those_that_are_ready() {
        let (mut table, _) = waiting(&[(AwaitedEvent::Unblock, None)]);
        table.begin(1);
        table.unblock(0, 1);
        assert!(table.pass(1, 2));
        assert_eq!(table.ready_since_us(), Some(1));
        assert_eq!(run_next(&mut table).map(|(fiber, _)| fiber), Some(0));
        assert_eq!(run_next(&mut table).map(|(fiber, _)| fiber), Some(1));
    }

    #[test]
    fn timers_of_waits_that_ended_early_do_not_pile_up() {
        let mut table = FiberTable::default();
        table.begin(1);
        for at in 0..10_000 {
            let deadline = table.set_deadline(1 << 40).unwrap();
            table.suspend(1, AwaitedEvent::Unblock, Some(1 << 40), at);
            table.unblock(1, at);
            run_next(&mut table).unwrap();
            table.cancel_deadline(deadline);
        }
        assert!(table.timers.len() < 64, "{}", table.timers.len());
    }
}
