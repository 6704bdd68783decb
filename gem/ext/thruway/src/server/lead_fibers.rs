//! The work of a thread whose requests run in fibers.
//!
//! The thread's root fiber is the loop of the server. It leads or follows as any other thread does. In addition it goes
//! on with fibers whose wait is over. A fiber that is ready and a request that waits take turns by the time since
//! which each of them waits. While a fiber computes for long, or blocks the thread, another thread takes the lead, and
//! this one goes on with its fibers beside that leader.

use std::time::{Duration, Instant};

use rb_sys::VALUE;
use thruway_roles::{FollowerBell, ReadyTask, Role, WaitOutcome};
use thruway_serve::monotonic_us;

use super::context::{Context, Stage};
use super::fibers::pool::{FiberJob, FiberPool, Fibers};
use super::fibers::scheduler::{FiberScheduler, TYPE as SCHEDULER_TYPE};
use super::fibers::waiter::ReadyDescriptors;
use super::herald;
use super::lead::Turn;
use super::rack_engine::RackEngine;
use super::roles::LockRequests;
use super::sender::Sender;
use super::shared_engine::{ATTEND_INTERVAL_US, EventBuffer};
use super::work::{ReadyRequest, Work};
use crate::ruby::{Gvl, NIL, NonLocalExit, RString, fiber, raise, thread};

/// The time between two looks at the clients of streams that wait in fibers.
const LOOK_US: u64 = 400_000;

/// The time for which a leader's slices follow each other before others have the lock.
const TURN_MIN: Duration = Duration::from_millis(2);

/// The longest time for which a leader with work leaves the lock to others.
const TURN_MAX: Duration = Duration::from_millis(10);

/// How often a fiber of an ending thread is made to raise an exception, if it goes on to wait.
const ABANDON_ROUNDS: usize = 3;

/// The line of the log for requests that wait while no fiber is free.
const ALL_IN_USE: &str =
    "all fibers are in use while requests wait: see `fibers` in the configuration";

/// The exception in requests whose thread was killed.
const ABANDONED: &str = "the thread that served this request has ended";

/// The fibers of the calling thread.
#[derive(Clone, Copy)]
pub(super) struct OwnFibers<'a> {
    pub(super) me: usize,
    pub(super) fibers: &'a Fibers,
    pub(super) pool: &'a FiberPool,
    pub(super) scheduler: &'a FiberScheduler,
}

impl OwnFibers<'_> {
    /// The time for which the thread may wait: until a fiber is ready, or until the clients of streams are looked at.
    fn wait_limit(self) -> Option<Duration> {
        let limit = self.scheduler.begin_wait();
        let look = self.pool.has_tasks().then_some(Duration::from_micros(LOOK_US));
        [limit, look].into_iter().flatten().min()
    }

    /// The time at the beginning of a turn. After a slice, the clock has just been read.
    fn begin_turn_us(self) -> u64 {
        match self.pool.turn_us.take() {
            0 => monotonic_us(),
            turn_us => turn_us,
        }
    }
}

/// The buffers for what a wait finds.
struct Buffers {
    events: EventBuffer,
    ready: ReadyDescriptors,
}

impl RackEngine {
    /// Takes turns as [`take_turns`](Self::take_turns) does, with requests in fibers.
    pub(super) fn take_fiber_turns(
        &self,
        gvl: Gvl,
        me: usize,
        fibers: &Fibers,
    ) -> Result<WaitOutcome, NonLocalExit> {
        let pool = &fibers.pools[me];
        let object = gvl.catch(|ruby| self.callbacks.scheduler(ruby))?;
        pool.enter(object);
        let scheduler = gvl.catch(|ruby| SCHEDULER_TYPE.get(ruby, &object))?;
        let own = OwnFibers { me, fibers, pool, scheduler };
        let waiter = std::sync::Arc::clone(scheduler.waiter());
        let ring = Box::new(move || waiter.ring());
        self.leadership.roles().add_bell(FollowerBell { number: me, ring });
        let ended = self.take_turns_with(gvl, own);
        if self.home.is_left() {
            return ended;
        }
        self.leadership.roles().remove_bell(me);
        if ended.is_err() {
            self.abandon_fibers(gvl, own);
        }
        ended
    }

    fn take_turns_with(&self, gvl: Gvl, own: OwnFibers<'_>) -> Result<WaitOutcome, NonLocalExit> {
        let mut buffers = Buffers { events: EventBuffer::new(), ready: ReadyDescriptors::new() };
        loop {
            if self.is_over() {
                if own.scheduler.task_count() == 0 {
                    return Ok(WaitOutcome::Over);
                }
                self.leadership.release(own.me);
                self.leadership.roles().call_all_followers();
                self.run_or_wait(gvl, own, &mut buffers, false)?;
                continue;
            }
            match self.leadership.role(own.me, |leader| self.is_blocked(gvl, leader))? {
                None => {}
                Some(Role::Lead) => self.lead_with_fibers(gvl, own, &mut buffers)?,
                Some(Role::Follow) if own.scheduler.ready_since_us().is_some() => {
                    self.run_or_wait(gvl, own, &mut buffers, true)?;
                }
                Some(Role::Follow) => {
                    let roles = self.leadership.roles();
                    if let Some(job) = own.fibers.lane.take(roles, monotonic_us) {
                        self.start_job(gvl, own, job)?;
                    } else if own.scheduler.task_count() > 0 {
                        self.run_or_wait(gvl, own, &mut buffers, true)?;
                    } else if let Some(dismissed) = self.follow(gvl, own.me)? {
                        return Ok(dismissed);
                    }
                }
            }
        }
    }

    fn lead_with_fibers(
        &self,
        gvl: Gvl,
        own: OwnFibers<'_>,
        buffers: &mut Buffers,
    ) -> Result<(), NonLocalExit> {
        self.begin_to_lead();
        while self.leadership.leads(own.me) && !self.is_over() {
            self.log_warnings(gvl)?;
            let now_us = own.begin_turn_us();
            own.scheduler.look_if_due(now_us, &mut buffers.ready);
            self.end_deserted_streams(gvl, own, now_us);
            let is_full = own.fibers.is_full();
            if let Some(job) = own.fibers.lane.attend(self.leadership.roles(), monotonic_us) {
                self.start_job(gvl, own, job)?;
                self.after_slice(gvl, own, &mut buffers.events)?;
                continue;
            }
            if self.is_fiber_next(own, is_full) {
                self.run_next_fiber(gvl, own)?;
                self.after_slice(gvl, own, &mut buffers.events)?;
                if is_full {
                    self.attend_if_due(own, &mut buffers.events);
                }
                continue;
            }
            if is_full {
                if self.engine.lock().has_waiting() {
                    self.log_limit(gvl, ALL_IN_USE)?;
                }
                self.wait_with_fibers(gvl, own, buffers, is_full)?;
                continue;
            }
            self.ask_for_older(gvl, &mut buffers.events);
            match self.turn(gvl) {
                Turn::Nothing if own.scheduler.task_count() == 0 && own.fibers.lane.is_empty() => {
                    self.tell_fibers(own);
                    self.wait_for_request(gvl, own, &mut buffers.events)?;
                }
                Turn::Nothing => self.wait_with_fibers(gvl, own, buffers, is_full)?,
                Turn::Work => self.engine.poll_if_due(&mut buffers.events),
                Turn::Handshake => self.shake_hands(gvl, &mut buffers.events)?,
                Turn::Request(request) => {
                    if let Some(job) = self.admit(own, request) {
                        self.start_job(gvl, own, job)?;
                        self.after_slice(gvl, own, &mut buffers.events)?;
                    }
                }
                Turn::Event(event) => {
                    self.start_work(gvl, own, Work::Event(event))?;
                    self.after_slice(gvl, own, &mut buffers.events)?;
                }
            }
        }
        Ok(())
    }

    /// Whether a fiber has been ready for longer than the next request waits. Without a free context no request can
    /// begin.
    fn is_fiber_next(&self, own: OwnFibers<'_>, is_full: bool) -> bool {
        let Some(since_us) = own.scheduler.ready_since_us() else { return false };
        is_full || self.engine.lock().next_key_us().is_none_or(|key_us| since_us <= key_us)
    }

    /// Does at the engine what needs no application, while no request can begin.
    fn attend_if_due(&self, own: OwnFibers<'_>, events: &mut EventBuffer) {
        let now_us = monotonic_us();
        if now_us >= own.pool.attended_us.get() + ATTEND_INTERVAL_US {
            own.pool.attended_us.set(now_us);
            self.engine.attend(events);
        }
    }

    /// Whether another thread is to run the request, because it may compute for long and hold up this thread's fibers.
    fn is_for_lane(&self, own: OwnFibers<'_>, request: &ReadyRequest) -> bool {
        let (Fibers { routes, lane, .. }, roles) = (own.fibers, self.leadership.roles());
        // While no fiber waits, there is none to hold up.
        let has_fibers = own.scheduler.task_count() > 0;
        let tries =
            |route| has_fibers && lane.is_idle(roles) && routes.begin_trial(route, monotonic_us());
        let is_wanted = |route| routes.computes(route) || tries(route);
        lane.accepts(roles) && request.route.is_some_and(is_wanted)
    }

    /// Returns a job for the request, unless another thread is to run it.
    pub(super) fn admit(&self, own: OwnFibers<'_>, request: ReadyRequest) -> Option<FiberJob> {
        if !self.is_for_lane(own, &request) {
            return self.new_job(own, Work::Request(request), self.leadership.calls_are_short());
        }
        // Pieces of a response leave at once where the request is known to compute between them.
        let computes = request.route.is_some_and(|route| own.fibers.routes.computes(route));
        let corks = !computes && self.leadership.calls_are_short();
        if let Some(job) = self.new_job(own, Work::Request(request), corks) {
            own.fibers.lane.leave(self.leadership.roles(), job);
        }
        None
    }

    /// Prepares a context for `work`. A response that `corks` may wait for others of its connection. `None` if no
    /// context is free, while none of the callers takes work from the engine.
    pub(super) fn new_job(&self, own: OwnFibers<'_>, work: Work, corks: bool) -> Option<FiberJob> {
        let number = own.fibers.take_context()?;
        let context = &self.contexts[number];
        // No thread's before one has taken the job.
        context.server_thread.set(usize::MAX);
        context.route.set(None);
        if let Work::Request(request) = work {
            context.begin(request.env, request.ticket, request.constraints);
            context.upgrades.set(request.upgrades);
            context.corks.set(corks);
            context.route.set(request.route);
            context.was_long.set(false);
            self.requests.set(self.requests.get() + 1);
        }
        Some(FiberJob { work, context: number })
    }

    fn start_work(&self, gvl: Gvl, own: OwnFibers<'_>, work: Work) -> Result<(), NonLocalExit> {
        let job = self.new_job(own, work, self.leadership.calls_are_short());
        job.map_or(Ok(()), |job| self.start_job(gvl, own, job))
    }

    /// Starts a fiber, or gives an idle one its work.
    fn start_job(&self, gvl: Gvl, own: OwnFibers<'_>, job: FiberJob) -> Result<(), NonLocalExit> {
        self.contexts[job.context].server_thread.set(own.me);
        own.pool.set_job(job);
        let fiber = match own.pool.take_idle() {
            Some(fiber) => Ok(fiber),
            None => gvl.catch(|ruby| self.callbacks.fiber(ruby, own.me)),
        };
        let ran = fiber.and_then(|fiber| {
            let task = own.scheduler.begin(fiber);
            own.pool.note_task(job.context, task);
            self.run_slice(gvl, own, ReadyTask { task, fiber })
        });
        match own.pool.take_job() {
            None => ran,
            // No fiber could be made.
            Some(job) => self.refuse_work(gvl, own, job, ran),
        }
    }

    /// Responds to a request for which no fiber could be made.
    fn refuse_work(
        &self,
        gvl: Gvl,
        own: OwnFibers<'_>,
        job: FiberJob,
        failed: Result<(), NonLocalExit>,
    ) -> Result<(), NonLocalExit> {
        if let Some(task) = own.scheduler.current_task() {
            own.pool.forget_task(task);
            own.scheduler.end(task);
        }
        let context = &self.contexts[job.context];
        match job.work {
            Work::Request(_) => Sender::new(&self.engine, context).send_bare_error(),
            Work::Event(event) => self.end_event(own.me, event.ticket),
        }
        let env = context.env.get();
        context.end();
        own.fibers.free_context(job.context);
        let Err(raised) = failed else { return Ok(()) };
        if !raised.is_exception() {
            return Err(raised);
        }
        gvl.catch(|ruby| self.callbacks.failed(ruby, raised.error(), env)).map(drop)
    }

    fn run_next_fiber(&self, gvl: Gvl, own: OwnFibers<'_>) -> Result<(), NonLocalExit> {
        match own.scheduler.take_ready() {
            Some(ready) => self.run_slice(gvl, own, ready),
            None => Ok(()),
        }
    }

    /// Goes on with a fiber until it waits or ends.
    fn run_slice(
        &self,
        gvl: Gvl,
        own: OwnFibers<'_>,
        ReadyTask { task, fiber }: ReadyTask<VALUE>,
    ) -> Result<(), NonLocalExit> {
        self.open_slice(own, task);
        let ended = gvl.catch(|ruby| fiber::transfer(ruby, fiber));
        if self.home.is_left() {
            return ended;
        }
        self.close_slice(gvl, own);
        // A fiber that was transferred to by the application's own means may have ended without a word.
        own.scheduler.end_current();
        ended
    }

    /// Runs between two slices, if this thread still leads.
    pub(super) fn after_slice(
        &self,
        gvl: Gvl,
        own: OwnFibers<'_>,
        events: &mut EventBuffer,
    ) -> Result<(), NonLocalExit> {
        if !self.leadership.leads(own.me) {
            return Ok(());
        }
        self.engine.poll_if_due(events);
        match &self.lock_requests {
            None => self.leadership.pass_lock(gvl),
            Some(requests) => {
                self.share_lock(gvl, own, requests);
                Ok(())
            }
        }
    }

    /// Lets threads that compute have the lock for as long as this thread had it.
    fn share_lock(&self, gvl: Gvl, own: OwnFibers<'_>, requests: &LockRequests) {
        let roles = self.leadership.roles();
        if roles.load.computing() == 0 {
            return;
        }
        let held = Duration::from_micros(monotonic_us().saturating_sub(own.pool.lock_us.get()));
        if held < TURN_MIN {
            return;
        }
        roles.summon_standby();
        let mut has_asked = false;
        let wait = || {
            let rest = held.min(TURN_MAX);
            std::thread::sleep(rest);
            has_asked = true;
            herald::ask(requests, roles, rest);
        };
        gvl.release(wait, || ());
        if has_asked {
            requests.withdraw();
        }
        own.pool.lock_us.set(monotonic_us());
    }

    /// Waits for work while the thread has no fibers, as [`wait`](Self::wait) does.
    fn wait_for_request(
        &self,
        gvl: Gvl,
        own: OwnFibers<'_>,
        events: &mut EventBuffer,
    ) -> Result<(), NonLocalExit> {
        let (engine, roles) = (&*self.engine, self.leadership.roles());
        roles.dismiss_standby();
        self.release(gvl, own, || engine.wait_for_turn(events, roles), || engine.wake());
        gvl.catch(thread::check_interrupts)
    }

    /// Runs `wait` without the interpreter lock, and asks for the lock afterwards. `unblock` ends the wait.
    fn release(
        &self,
        gvl: Gvl,
        own: OwnFibers<'_>,
        mut wait: impl FnMut() + Send,
        unblock: impl Fn() + Sync,
    ) {
        let (roles, requests) = (self.leadership.roles(), self.lock_requests.as_ref());
        let mut has_asked = false;
        let began = Instant::now();
        let wait = || {
            wait();
            if let Some(requests) = requests {
                has_asked = true;
                herald::ask(requests, roles, began.elapsed());
            }
        };
        gvl.release(wait, unblock);
        if let Some(requests) = requests.filter(|_| has_asked) {
            requests.withdraw();
        }
        own.pool.lock_us.set(monotonic_us());
    }

    /// Waits for the engine and for fibers.
    fn wait_with_fibers(
        &self,
        gvl: Gvl,
        own: OwnFibers<'_>,
        buffers: &mut Buffers,
        is_full: bool,
    ) -> Result<(), NonLocalExit> {
        let (engine, roles) = (&*self.engine, self.leadership.roles());
        roles.dismiss_standby();
        // Corked responses leave before the wait.
        let (waiter, limit) = (&**own.scheduler.waiter(), own.wait_limit());
        let Buffers { events, ready } = buffers;
        let wait = || engine.wait_with_fibers(events, waiter, ready, limit, is_full, roles);
        self.release(gvl, own, wait, || waiter.ring());
        own.scheduler.end_wait(ready);
        gvl.catch(thread::check_interrupts)
    }

    /// Goes on with a fiber, or waits for one, while another thread leads. A thread that `follows` may be called.
    fn run_or_wait(
        &self,
        gvl: Gvl,
        own: OwnFibers<'_>,
        buffers: &mut Buffers,
        follows: bool,
    ) -> Result<(), NonLocalExit> {
        let now_us = own.begin_turn_us();
        own.scheduler.look_if_due(now_us, &mut buffers.ready);
        self.end_deserted_streams(gvl, own, now_us);
        if own.scheduler.ready_since_us().is_some() {
            return self.run_next_fiber(gvl, own);
        }
        let roles = self.leadership.roles();
        if follows {
            roles.add_follower();
        }
        let (waiter, limit) = (&**own.scheduler.waiter(), own.wait_limit());
        let ready = &mut buffers.ready;
        let wait = || {
            if !(follows && roles.take_call()) {
                waiter.wait(None, ready, limit);
                let _ = follows && roles.take_call();
            }
        };
        self.release(gvl, own, wait, || waiter.ring());
        if follows {
            roles.remove_follower();
        }
        own.scheduler.end_wait(ready);
        gvl.catch(thread::check_interrupts)
    }

    /// Counts the requests that wait in fibers, for the metrics.
    fn tell_fibers(&self, own: OwnFibers<'_>) {
        let threads = own.fibers.pools.len();
        let in_use = own.fibers.in_use(self.contexts.len() - threads);
        let of_fibers = if in_use == 0 { &[][..] } else { &self.contexts[threads..] };
        let is_streaming = |context: &&Context| context.stage.get() == Stage::Streaming;
        let streaming = of_fibers.iter().filter(is_streaming).count();
        self.leadership.roles().load.observer().set_fibers(in_use, streaming);
    }

    /// Raises Errno::EPIPE in the streams that wait while their clients are gone. The leader calls this on each turn;
    /// the streams are checked once per `LOOK_US`.
    fn end_deserted_streams(&self, gvl: Gvl, own: OwnFibers<'_>, now_us: u64) {
        if now_us < own.pool.looked_us.get() + LOOK_US {
            return;
        }
        own.pool.looked_us.set(now_us);
        self.tell_fibers(own);
        for (number, task) in own.pool.tasks() {
            own.fibers.note_look(number);
            let context = &self.contexts[number];
            let is_stream =
                context.stage.get() == Stage::Streaming && context.desertion.get() == NIL;
            let ticket = context.ticket.get().filter(|_| is_stream);
            if ticket.is_some_and(|ticket| self.engine.lock().response(ticket).is_gone()) {
                context.desertion.set(raise::new_broken_pipe(gvl));
                own.scheduler.interrupt(task, context.desertion.get());
            }
        }
    }

    /// Ends the requests of a thread that ends early, each by an exception in its fiber.
    fn abandon_fibers(&self, gvl: Gvl, own: OwnFibers<'_>) {
        for _ in 0..ABANDON_ROUNDS {
            for task in own.scheduler.tasks() {
                let text = RString::binary(gvl, ABANDONED.as_bytes());
                own.scheduler.interrupt(task, raise::new_runtime_error(gvl, text));
            }
            while own.scheduler.ready_since_us().is_some() {
                let ran = self.run_next_fiber(gvl, own);
                if self.home.is_left() || ran.is_err_and(|raised| !raised.is_exception()) {
                    break;
                }
            }
        }
        own.scheduler.tasks().into_iter().for_each(|task| own.scheduler.end(task));
        let threads = own.fibers.pools.len();
        for context in &self.contexts[threads..] {
            if context.server_thread.get() == own.me && context.ticket.get().is_some() {
                Sender::new(&self.engine, context).abort();
                context.end();
                own.fibers.free_context(context.number);
            }
        }
    }
}
