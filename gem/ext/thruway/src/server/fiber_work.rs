//! The work of a fiber: one request after another, each in slices.

use rb_sys::VALUE;
use rustix::time::{ClockId, clock_gettime};
use thruway_roles::{LONG_SLICE_US, TaskId};
use thruway_serve::monotonic_us;

use super::fibers::pool::{FiberJob, Slice};
use super::fibers::scheduler::TYPE as SCHEDULER_TYPE;
use super::lead::Turn;
use super::lead_fibers::OwnFibers;
use super::rack_engine::RackEngine;
use super::request::{Request, end_fork};
use super::work::{ReadyRequest, Work};
use crate::ruby::call::call;
use crate::ruby::{Gvl, NIL, NonLocalExit, ProtectedCall, RArray, RHash, fiber, thread};

/// How many requests a fiber runs in a row, until the thread's loop sees to everything else.
const ROW_MAX: usize = 64;

impl RackEngine {
    /// Begins a slice of `task`.
    pub(super) fn open_slice(&self, own: OwnFibers<'_>, task: TaskId) {
        let led = self.leadership.leads(own.me);
        let waits = led && self.engine.lock().has_waiting();
        let request = own.pool.context_of(task).and_then(|context| {
            let route = self.contexts[context].route.get()?;
            Some((context, route))
        });
        let is_measured = request.is_some_and(|(_, route)| own.fibers.routes.is_measured(route));
        let cpu_us = is_measured.then(thread_cpu_us);
        let entered_us = self.leadership.enter_slice(led, waits);
        if led {
            own.fibers.set_slice(entered_us);
        }
        own.pool.slice.set(Some(Slice { led, entered_us, request, cpu_us }));
    }

    /// Ends the thread's slice, if it has not ended.
    pub(super) fn close_slice(&self, gvl: Gvl, own: OwnFibers<'_>) {
        let Some(slice) = own.pool.slice.take() else { return };
        let took_us = self.leadership.leave_slice(slice.led, own.me, slice.entered_us);
        if self.leadership.leads(own.me) {
            own.fibers.set_slice(0);
        }
        own.pool.turn_us.set(slice.entered_us + took_us);
        self.learn_from(own, slice, took_us);
        self.note_collections(gvl);
        if self.gathers.take() {
            self.flush_gathered();
        }
    }

    /// Learns from a slice, which took `took_us` by the wall clock, whether the route computes for long.
    fn learn_from(&self, own: OwnFibers<'_>, slice: Slice, took_us: u64) {
        let Some((context, route)) = slice.request else { return };
        let routes = &own.fibers.routes;
        let Some(cpu_us) = slice.cpu_us else {
            if took_us >= LONG_SLICE_US {
                routes.suspect(route);
            }
            return;
        };
        let context = &self.contexts[context];
        let is_over = context.route.get() != Some(route) || context.ticket.get().is_none();
        if thread_cpu_us().saturating_sub(cpu_us) >= LONG_SLICE_US {
            // A request counts once.
            if is_over || !context.was_long.replace(true) {
                routes.note_long(route);
            }
        } else if !is_over {
            routes.note_short_slice(route);
        } else if !context.was_long.get() {
            routes.note_short(route);
        }
    }

    /// The body of a fiber of thread `me`: it runs one request after the other.
    pub(super) fn run_fiber(&self, ruby: ProtectedCall, me: usize) -> VALUE {
        let gvl = ruby.gvl();
        let Some(fibers) = &self.fibers else { return NIL };
        let pool = &fibers.pools[me];
        let object = pool.scheduler();
        let scheduler = SCHEDULER_TYPE.get(ruby, &object);
        let own = OwnFibers { me, fibers, pool, scheduler };
        let mut in_row = 0;
        while let Some(job) = pool.take_job() {
            self.run_job(ruby, own, job);
            let fiber = fiber::current(gvl);
            if !self.is_clean(ruby, fiber) {
                break;
            }
            in_row += 1;
            if in_row < ROW_MAX
                && let Some(job) =
                    self.next_job(gvl, own).unwrap_or_else(|raised| raised.resume(ruby))
            {
                self.begin_job(own, fiber, job);
                continue;
            }
            in_row = 0;
            if !pool.keep_idle(fiber) {
                break;
            }
            fiber::transfer(ruby, scheduler.root());
        }
        NIL
    }

    /// Begins a task for a job that `fiber` takes next, and the task's first slice.
    fn begin_job(&self, own: OwnFibers<'_>, fiber: VALUE, job: FiberJob) {
        self.contexts[job.context].server_thread.set(own.me);
        own.pool.set_job(job);
        let task = own.scheduler.begin(fiber);
        own.pool.note_task(job.context, task);
        self.open_slice(own, task);
    }

    /// Finds the next work for the fiber whose request has just ended. While no other fiber waits, the fiber does what
    /// the thread's loop would do next, without a transfer to the loop and back.
    fn next_job(&self, gvl: Gvl, own: OwnFibers<'_>) -> Result<Option<FiberJob>, NonLocalExit> {
        let is_alone = || own.scheduler.task_count() == 0 && own.fibers.lane.is_empty();
        if !is_alone() {
            return Ok(None);
        }
        self.close_slice(gvl, own);
        let mut events = own.pool.events.borrow_mut();
        self.after_slice(gvl, own, &mut events)?;
        while is_alone()
            && self.leadership.leads(own.me)
            && !self.is_over()
            && self.engine.lock().has_waiting()
        {
            self.ask_for_older(gvl, &mut events);
            match self.turn(gvl) {
                Turn::Work => self.engine.poll_if_due(&mut events),
                Turn::Request(request) => return Ok(self.admit(own, request)),
                Turn::Event(event) => return Ok(self.new_job(own, Work::Event(event), false)),
                Turn::Handshake | Turn::Nothing => break,
            }
        }
        Ok(None)
    }

    fn run_job(&self, ruby: ProtectedCall, own: OwnFibers<'_>, job: FiberJob) {
        let (gvl, FiberJob { work, context }) = (ruby.gvl(), job);
        let task = own.scheduler.current_task();
        let ended = match work {
            Work::Request(request) => self.run_request(gvl, own.me, context, request),
            Work::Event(event) => self.pass_event(gvl, event),
        };
        if self.home.is_left() {
            match ended {
                Ok(()) => end_fork(ruby),
                Err(raised) => raised.resume(ruby),
            }
        }
        if let Work::Event(event) = work {
            self.end_event(own.me, event.ticket);
        }
        if let Some(task) = task {
            own.pool.forget_task(task);
        }
        own.fibers.free_context(context);
        own.scheduler.end_current();
        if let Err(raised) = ended {
            raised.resume(ruby);
        }
    }

    fn run_request(
        &self,
        gvl: Gvl,
        me: usize,
        context: usize,
        request: ReadyRequest,
    ) -> Result<(), NonLocalExit> {
        let (context, figures) = (&self.contexts[context], self.leadership.roles().load.observer());
        let began_us = figures.is_measured().then(monotonic_us);
        let ReadyRequest { ticket, input, certificate, .. } = request;
        let ended = Request::new(self, context, gvl).run(input, certificate);
        if self.home.is_left() {
            return ended;
        }
        if let Some(began_us) = began_us {
            figures.note_call(monotonic_us().saturating_sub(began_us));
        }
        if !self.leadership.leads(me) && self.engine.lock().response(ticket).has_work() {
            // No event announces this work, so a leader that waits for events has to be woken.
            self.engine.wake();
        }
        context.end();
        ended
    }

    /// Whether the application has left nothing in a fiber that another request could see.
    fn is_clean(&self, ruby: ProtectedCall, fiber: VALUE) -> bool {
        let (gvl, names) = (ruby.gvl(), &self.names);
        let keys = call(ruby, thread::current(gvl), names.keys, &[]);
        if RArray::of(gvl, keys).is_none_or(|keys| keys.len(gvl) > 0)
            || fiber::has_variables(gvl, fiber)
        {
            return false;
        }
        if !fiber::HAS_STORAGE {
            return true;
        }
        let storage = call(ruby, fiber, names.storage, &[]);
        storage == NIL || RHash::of(gvl, storage).is_some_and(|storage| storage.len(gvl) == 0)
    }
}

/// The processor time of the calling thread, in microseconds.
fn thread_cpu_us() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1_000
}
