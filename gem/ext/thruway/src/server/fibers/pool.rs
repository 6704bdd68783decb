//! The fibers of a thread, which run requests one after another.

use std::cell::{Cell, RefCell};

use rb_sys::VALUE;
use thruway_roles::{ComputeLane, Route, Routes, TaskId};
use thruway_serve::{Board, monotonic_us};

use crate::ruby::NIL;
use crate::ruby::data_type::Marker;
use crate::server::shared_engine::EventBuffer;
use crate::server::work::Work;

/// Fibers without a request that are kept, each with its stack.
const IDLE_MAX: usize = 256;

/// The number of looks at a request after which it is no longer new.
const LOOKS_OF_NEW: u8 = 2;

/// Work for a fiber, and the context in which it runs.
#[derive(Clone, Copy)]
pub(in crate::server) struct FiberJob {
    pub(in crate::server) work: Work,
    pub(in crate::server) context: usize,
}

/// A slice of a request: what runs until the request waits or ends.
#[derive(Clone, Copy)]
pub(in crate::server) struct Slice {
    /// Whether the thread led at the beginning.
    pub(in crate::server) led: bool,
    pub(in crate::server) entered_us: u64,
    /// The context and the route; `None` for other work.
    pub(in crate::server) request: Option<(usize, Route)>,
    /// The thread's processor time at the beginning, if it is measured.
    pub(in crate::server) cpu_us: Option<u64>,
}

/// The fibers of one thread.
pub(in crate::server) struct FiberPool {
    /// The thread's `Thruway::FiberScheduler`; nil before the thread has begun.
    scheduler: Cell<VALUE>,
    idle: RefCell<Vec<VALUE>>,
    /// The requests of the thread, by the indexes of their tasks: each with the number of its context.
    tasks: RefCell<Vec<Option<(TaskId, usize)>>>,
    task_count: Cell<usize>,
    /// The work of the fiber to which the thread transfers next.
    job: Cell<Option<FiberJob>>,
    /// The slice that runs.
    pub(in crate::server) slice: Cell<Option<Slice>>,
    /// The buffer for events that a fiber takes in.
    pub(in crate::server) events: RefCell<EventBuffer>,
    /// When the engine was attended to last, while no request could begin.
    pub(in crate::server) attended_us: Cell<u64>,
    /// When the clients of streams were looked at last.
    pub(in crate::server) looked_us: Cell<u64>,
    /// When the thread last waited without the interpreter lock.
    pub(in crate::server) lock_us: Cell<u64>,
    /// When the last slice ended, for the turn that follows it; zero in other turns.
    pub(in crate::server) turn_us: Cell<u64>,
}

impl Default for FiberPool {
    fn default() -> Self {
        Self {
            scheduler: Cell::new(NIL),
            idle: RefCell::default(),
            tasks: RefCell::default(),
            task_count: Cell::new(0),
            job: Cell::new(None),
            slice: Cell::new(None),
            events: RefCell::new(EventBuffer::new()),
            attended_us: Cell::new(0),
            looked_us: Cell::new(0),
            lock_us: Cell::new(0),
            turn_us: Cell::new(0),
        }
    }
}

impl FiberPool {
    /// A new thread takes the place of the pool's.
    pub(in crate::server) fn enter(&self, scheduler: VALUE) {
        self.idle.borrow_mut().clear();
        self.tasks.borrow_mut().clear();
        self.task_count.set(0);
        self.job.set(None);
        self.slice.set(None);
        self.scheduler.set(scheduler);
        self.attended_us.set(0);
        self.looked_us.set(monotonic_us());
        self.lock_us.set(monotonic_us());
        self.turn_us.set(0);
    }

    pub(in crate::server) fn scheduler(&self) -> VALUE {
        self.scheduler.get()
    }

    /// Notes that `task` is the request in the context.
    pub(in crate::server) fn note_task(&self, context: usize, task: TaskId) {
        let mut tasks = self.tasks.borrow_mut();
        let index = task.index();
        if index >= tasks.len() {
            tasks.resize(index + 1, None);
        }
        if tasks[index].replace((task, context)).is_none() {
            self.task_count.set(self.task_count.get() + 1);
        }
    }

    /// Whether the thread has requests.
    pub(in crate::server) fn has_tasks(&self) -> bool {
        self.task_count.get() > 0
    }

    /// Forgets the request that is `task`.
    pub(in crate::server) fn forget_task(&self, task: TaskId) {
        if self.context_of(task).is_some() {
            self.tasks.borrow_mut()[task.index()] = None;
            self.task_count.set(self.task_count.get() - 1);
        }
    }

    /// The number of the context of the request that is `task`; `None` for any other task.
    pub(in crate::server) fn context_of(&self, task: TaskId) -> Option<usize> {
        let (noted, context) = (*self.tasks.borrow().get(task.index())?)?;
        (noted == task).then_some(context)
    }

    /// The requests of the thread, and the numbers of their contexts.
    pub(in crate::server) fn tasks(&self) -> Vec<(usize, TaskId)> {
        self.tasks.borrow().iter().flatten().map(|(task, context)| (*context, *task)).collect()
    }

    /// Takes an idle fiber.
    pub(in crate::server) fn take_idle(&self) -> Option<VALUE> {
        self.idle.borrow_mut().pop()
    }

    /// Keeps a fiber whose work has ended. Returns false if there are enough of them.
    pub(in crate::server) fn keep_idle(&self, fiber: VALUE) -> bool {
        let mut idle = self.idle.borrow_mut();
        let has_room = idle.len() < IDLE_MAX;
        if has_room {
            idle.push(fiber);
        }
        has_room
    }

    pub(in crate::server) fn set_job(&self, job: FiberJob) {
        self.job.set(Some(job));
    }

    pub(in crate::server) fn take_job(&self) -> Option<FiberJob> {
        self.job.take()
    }

    pub(in crate::server) fn mark(&self, marker: Marker) {
        marker.mark(self.scheduler.get());
        self.idle.borrow().iter().for_each(|fiber| marker.mark(*fiber));
        if let Some(job) = self.job.get() {
            job.work.mark(marker);
        }
    }
}

/// The requests of a server that run in fibers.
pub(in crate::server) struct Fibers {
    /// One pool for each thread.
    pub(in crate::server) pools: Vec<FiberPool>,
    /// Unused contexts, by their numbers.
    free: RefCell<Vec<usize>>,
    /// The number behind those of all contexts that were ever used. Low numbers are used first.
    used_end: Cell<usize>,
    /// By the numbers of contexts: how often the thread has looked at the request. Zero in an unused context.
    looks: Vec<Cell<u8>>,
    /// The number of requests that have been looked at fewer than [`LOOKS_OF_NEW`] times.
    new_requests: Cell<u32>,
    /// Where siblings read what runs here, if there are siblings.
    board: Option<Board>,
    pub(in crate::server) routes: Routes,
    pub(in crate::server) lane: ComputeLane<FiberJob>,
}

impl Fibers {
    /// Fibers for the threads of these numbers, with the contexts of those numbers.
    pub(in crate::server) fn new(
        threads: usize,
        contexts: std::ops::Range<usize>,
        board: Option<Board>,
    ) -> Self {
        let fibers = Self {
            pools: std::iter::repeat_with(FiberPool::default).take(threads).collect(),
            used_end: Cell::new(contexts.start),
            free: RefCell::new(contexts.clone().rev().collect()),
            routes: Routes::default(),
            lane: ComputeLane::default(),
            looks: vec![Cell::new(0); contexts.end],
            new_requests: Cell::new(0),
            board,
        };
        fibers.set_new_requests(0);
        fibers
    }

    /// Whether as many requests run in fibers as may.
    pub(in crate::server) fn is_full(&self) -> bool {
        self.free.borrow().is_empty()
    }

    /// The number of contexts in use, of `all`.
    pub(in crate::server) fn in_use(&self, all: usize) -> usize {
        all - self.free.borrow().len()
    }

    pub(in crate::server) fn take_context(&self) -> Option<usize> {
        let number = self.free.borrow_mut().pop()?;
        self.used_end.set(self.used_end.get().max(number + 1));
        self.set_new_requests(self.new_requests.get() + 1);
        Some(number)
    }

    /// The number behind those of all contexts that hold objects.
    pub(in crate::server) fn used_end(&self) -> usize {
        self.used_end.get()
    }

    pub(in crate::server) fn free_context(&self, context: usize) {
        self.free.borrow_mut().push(context);
        if self.looks[context].take() < LOOKS_OF_NEW {
            self.set_new_requests(self.new_requests.get() - 1);
        }
    }

    /// Counts a look at the request in a context. A request that is looked at for the second time has run for longer
    /// than the time between two looks. It mostly waits, as streams do, and no longer counts as work.
    pub(in crate::server) fn note_look(&self, context: usize) {
        let looks = &self.looks[context];
        if looks.get() < LOOKS_OF_NEW {
            looks.set(looks.get() + 1);
            if looks.get() == LOOKS_OF_NEW {
                self.set_new_requests(self.new_requests.get() - 1);
            }
        }
    }

    fn set_new_requests(&self, requests: u32) {
        self.new_requests.set(requests);
        if let Some(board) = &self.board {
            board.set_in_fibers(requests);
        }
    }

    /// Tells siblings since when a fiber runs in the leading thread; zero if none does.
    pub(in crate::server) fn set_slice(&self, since_us: u64) {
        if let Some(board) = &self.board {
            board.set_slice(since_us);
        }
    }

    pub(in crate::server) fn mark(&self, marker: Marker) {
        self.pools.iter().for_each(|pool| pool.mark(marker));
        self.lane.for_each(|job| job.work.mark(marker));
    }
}
