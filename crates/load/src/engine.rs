//! Runs the clients of one thread, with epoll and timers.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use crate::Error;
use crate::broadcast::{Broadcasts, Marker};
use crate::budget::Budget;
use crate::client::Client;
use crate::failures::Failures;
use crate::plan::{Plan, Protocol, nanoseconds};
use crate::progress::Snapshot;
use crate::run_context::{PreparedRequest, RunContext};
use crate::timeline::{Interval, TICK_NS, Timeline};
use crate::timers::Timers;

/// The most bytes read from a socket at once. Larger reads gain nothing and fall out of the cache.
const BUFFER_BYTES: usize = 128 * 1024;
/// The most sockets served before the clock is read again.
const EVENTS_MAX: usize = 256;
/// The token of the descriptor that stops the run. Clients have their index.
const STOP: u64 = u64::MAX;

/// The state that the threads of a run share.
#[derive(Debug)]
pub(crate) struct RunState {
    pub(crate) budget: Budget,
    pub(crate) timeline: Timeline,
}

/// The results of a thread.
pub(crate) struct ThreadResults {
    pub(crate) clients: Vec<Client>,
    /// The measured time, without the warm-up.
    pub(crate) elapsed: Duration,
    /// The end of the run, since the start of the warm-up.
    pub(crate) end_ns: u64,
    pub(crate) failures: Failures,
    pub(crate) broadcasts: Option<Broadcasts>,
}

pub(crate) struct Engine<'a> {
    context: RunContext<'a>,
    shared: &'a RunState,
    clients: Vec<Client>,
    events: Vec<Event>,
    is_stopped: bool,
    /// When the warm-up ends.
    warm_ns: u64,
}

impl<'a> Engine<'a> {
    /// Creates thread number `thread` of the plan.
    pub(crate) fn new(
        plan: &'a Plan,
        shared: &'a RunState,
        thread: usize,
        stop: Option<BorrowedFd<'_>>,
    ) -> Result<Self, Error> {
        let clients = clients(plan, thread);
        let failed = |errno| Error::system("watch sockets", errno);
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        if let Some(stop) = stop {
            epoll::add(&epoll, stop, EventData::new_u64(STOP), EventFlags::IN).map_err(failed)?;
        }
        let warm_ns = nanoseconds(plan.warm_up);
        let context = RunContext {
            plan,
            epoll,
            requests: PreparedRequest::of(plan),
            ranges: PreparedRequest::ranges(plan),
            buffer: vec![0; BUFFER_BYTES],
            timers: Timers::default(),
            broadcasts: broadcasts(plan, clients.len()),
            budget: &shared.budget,
            is_warm: warm_ns == 0,
            interval: Interval::default(),
            failures: Failures::default(),
            start: Instant::now(),
        };
        let events = Vec::with_capacity(EVENTS_MAX);
        Ok(Self { context, shared, clients, events, is_stopped: false, warm_ns })
    }

    /// Runs to the end. `watch` is called at each tick.
    pub(crate) fn run(
        mut self,
        start: Instant,
        watch: &mut dyn FnMut(&Snapshot),
    ) -> Result<ThreadResults, Error> {
        // With the default slack every timer is up to 50 µs late, which is the worst effect of an error here.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let duration_ns = self.context.plan.duration.map_or(u64::MAX, nanoseconds);
        let end_ns = self.warm_ns.saturating_add(duration_ns);
        let mut tick_ns = TICK_NS;
        self.context.start = start;
        self.clients.iter_mut().for_each(|client| client.advance(0, &mut self.context));
        loop {
            let now_ns = self.context.now_ns();
            if !self.context.is_warm && now_ns >= self.warm_ns {
                self.begin();
            }
            if now_ns >= end_ns || self.is_stopped || self.is_done() {
                return Ok(self.end(now_ns));
            }
            if now_ns >= tick_ns {
                self.tick(now_ns, tick_ns, watch);
                tick_ns = now_ns - now_ns % TICK_NS + TICK_NS;
            }
            while let Some(client) = self.context.timers.take_due(now_ns) {
                self.clients[client].wake(now_ns, &mut self.context);
            }
            let broadcast_ns = self.broadcast(now_ns);
            let wake_ns = self.context.timers.next_ns().unwrap_or(u64::MAX).min(broadcast_ns);
            let begin_ns = if self.context.is_warm { u64::MAX } else { self.warm_ns };
            self.wait(wake_ns.min(end_ns).min(tick_ns).min(begin_ns))?;
        }
    }

    /// Begins to count, after the warm-up.
    fn begin(&mut self) {
        self.context.is_warm = true;
        self.context.interval.clear();
        self.context.failures = Failures::default();
        for client in &mut self.clients {
            client.begin();
            // Responses to pending requests will count, so they get the same treatment as later ones.
            (0..client.pending()).for_each(|_| _ = self.context.budget.take());
        }
    }

    fn end(mut self, now_ns: u64) -> ThreadResults {
        self.record(now_ns);
        ThreadResults {
            elapsed: Duration::from_nanos(now_ns.saturating_sub(self.warm_ns)),
            end_ns: now_ns,
            clients: self.clients,
            failures: self.context.failures,
            broadcasts: self.context.broadcasts,
        }
    }

    /// Adds the counts since the last tick to the timeline.
    fn record(&mut self, end_ns: u64) {
        if self.context.is_warm {
            let end_ns = end_ns.saturating_sub(self.warm_ns);
            self.shared.timeline.add(&self.context.interval, end_ns);
        }
    }

    /// Sends the broadcasts that are due. Returns when the next one is due.
    fn broadcast(&mut self, now_ns: u64) -> u64 {
        loop {
            let is_spent = self.context.is_spent();
            let Some(broadcasts) = &mut self.context.broadcasts else { return u64::MAX };
            let due_ns = broadcasts.due_ns(now_ns).filter(|_| !is_spent);
            match due_ns {
                Some(due_ns) if due_ns <= now_ns => {
                    let number = broadcasts.begin(due_ns);
                    self.shared.budget.take();
                    self.clients.iter_mut().for_each(|one| one.expect(number, due_ns, now_ns));
                    self.clients[0].send_broadcast(number, now_ns, &mut self.context);
                }
                due_ns => return due_ns.unwrap_or(u64::MAX),
            }
        }
    }

    /// Serves the sockets that are ready, or become ready before `until_ns`.
    fn wait(&mut self, until_ns: u64) -> Result<(), Error> {
        let left_ns = until_ns.saturating_sub(self.context.now_ns());
        let timeout = Timespec::try_from(Duration::from_nanos(left_ns)).ok();
        self.events.clear();
        let events = spare_capacity(&mut self.events);
        let waited = match epoll::wait(&self.context.epoll, events, timeout.as_ref()) {
            Err(Errno::NOSYS | Errno::PERM) => self.wait_ms(left_ns),
            waited => waited,
        };
        match waited {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::system("wait for sockets", errno)),
        }
        for event in &self.events {
            let (token, flags) = (event.data.u64(), event.flags);
            match usize::try_from(token).ok().and_then(|token| self.clients.get_mut(token)) {
                Some(client) => client.ready(flags, &mut self.context),
                None => self.is_stopped = true,
            }
        }
        Ok(())
    }

    /// Waits with a resolution of milliseconds, for kernels before 5.11, sandboxes and QEMU, which refuse the
    /// finer call.
    fn wait_ms(&mut self, left_ns: u64) -> Result<usize, Errno> {
        // Rounded up, since a wait that ends early would be repeated again and again.
        let ms = u32::try_from(left_ns.div_ceil(1_000_000)).unwrap_or(u32::MAX);
        thruway_sys::epoll::wait_ms(self.context.epoll.as_fd(), &mut self.events, Some(ms))
    }

    fn tick(&mut self, now_ns: u64, tick_ns: u64, watch: &mut dyn FnMut(&Snapshot)) {
        let timeout_ns = nanoseconds(self.context.plan.timeout);
        for client in &mut self.clients {
            client.expire(now_ns, timeout_ns, &mut self.context);
        }
        self.is_stopped |= self.clients.iter().all(|client| client.account().tallies.is_refused());
        self.record(tick_ns);
        let snapshot = Snapshot {
            elapsed: Duration::from_nanos(now_ns),
            is_warm: self.context.is_warm,
            shares: shares(&self.clients),
            interval: std::mem::take(&mut self.context.interval),
        };
        watch(&snapshot);
        self.context.interval = snapshot.interval;
        self.context.interval.clear();
    }

    /// Whether all requests of the plan were asked and none is pending.
    fn is_done(&self) -> bool {
        self.context.is_spent() && self.clients.iter().all(Client::is_quiet)
    }
}

/// Returns the number of answered requests for each client whose fairness is judged.
fn shares(clients: &[Client]) -> Vec<u64> {
    let judged = clients.iter().filter(|client| client.account().kind.is_judged());
    judged.map(|client| client.account().tallies.completed()).collect()
}

/// Creates the clients of a thread. The clients of each class are dealt to the threads in turn.
fn clients(plan: &Plan, thread: usize) -> Vec<Client> {
    let classes = plan.classes.iter().enumerate();
    let of_all = classes
        .flat_map(|(place, class)| (0..class.connections).map(move |number| (place, number)));
    let of_thread = of_all.skip(thread).step_by(plan.threads.max(1) as usize).enumerate();
    let marker = Marker::new(std::process::id());
    let client = |(token, (class, number))| Client::new(plan, class, number, token, &marker);
    of_thread.map(client).collect()
}

/// Creates the broadcasts, if the plan has them.
fn broadcasts(plan: &Plan, clients: usize) -> Option<Broadcasts> {
    let is_wanted = matches!(&plan.protocol, Protocol::WebSocket(said) if said.is_broadcast);
    is_wanted.then(|| Broadcasts::new(&plan.classes[0], clients))
}
