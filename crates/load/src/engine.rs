//! Runs all clients in one thread, with epoll and timers.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::broadcast::{Broadcasts, Marker};
use crate::client::Client;
use crate::plan::{Plan, Protocol, nanoseconds};
use crate::report::Outcome;
use crate::run_context::{PreparedRequest, RunContext};
use crate::timers::Timers;
use crate::{Error, Report, report};

/// The most bytes read from a socket at once. Larger reads gain nothing and fall out of the cache.
const BUFFER_BYTES: usize = 128 * 1024;
/// The most sockets served before the clock is read again.
const EVENTS_MAX: usize = 256;
/// The interval at which timeouts are checked and progress is reported.
const TICK_NS: u64 = 100_000_000;
/// Descriptors that a process needs besides its connections.
const OTHER_DESCRIPTORS: u64 = 16;
/// The token of the descriptor that stops the run. Clients have their index.
const STOP: u64 = u64::MAX;

/// The progress of a run.
#[derive(Debug)]
pub struct Progress<'a> {
    /// The time since the start.
    pub elapsed: Duration,
    clients: &'a [Client],
}

impl Progress<'_> {
    /// Returns the number of answered requests for each connection whose fairness is judged.
    pub fn shares(&self) -> impl Iterator<Item = u64> {
        let judged = self.clients.iter().filter(|client| client.account().kind.is_judged());
        judged.map(|client| client.account().tallies.completed())
    }
}

/// Runs the plan in this thread and returns the report. The run ends as planned, when `stop` becomes
/// readable, or when no connection can be made at all. `watch` is called ten times a second.
///
/// Raises the process's soft limit of descriptors if necessary, and lowers this thread's timer slack so that
/// requests of an open loop leave on time.
///
/// # Errors
/// More connections than the process may have descriptors, or a kernel without epoll.
pub fn run(
    plan: &Plan,
    stop: Option<BorrowedFd<'_>>,
    watch: &mut dyn FnMut(&Progress<'_>),
) -> Result<Report, Error> {
    let mut engine = Engine::new(plan, stop)?;
    let elapsed = engine.run(watch)?;
    let outcome = Outcome {
        elapsed,
        refusal: engine.context.refusal,
        tls_failure: engine.context.tls_failure,
        broadcasts: engine.context.broadcasts,
    };
    Ok(report::report(plan, &engine.clients, &outcome))
}

struct Engine<'a> {
    context: RunContext<'a>,
    clients: Vec<Client>,
    events: Vec<Event>,
    is_stopped: bool,
}

impl<'a> Engine<'a> {
    fn new(plan: &'a Plan, stop: Option<BorrowedFd<'_>>) -> Result<Self, Error> {
        let clients = clients(plan);
        allow_descriptors(clients.len() as u64)?;
        let failed = |errno| Error::system("watch sockets", errno);
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        if let Some(stop) = stop {
            epoll::add(&epoll, stop, EventData::new_u64(STOP), EventFlags::IN).map_err(failed)?;
        }
        let context = RunContext {
            plan,
            epoll,
            requests: PreparedRequest::of(plan),
            buffer: vec![0; BUFFER_BYTES],
            timers: Timers::default(),
            broadcasts: broadcasts(plan, clients.len()),
            left: plan.requests.unwrap_or(u64::MAX),
            refusal: None,
            tls_failure: None,
            start: Instant::now(),
        };
        Ok(Self { context, clients, events: Vec::with_capacity(EVENTS_MAX), is_stopped: false })
    }

    /// Runs to the end. Returns the duration.
    fn run(&mut self, watch: &mut dyn FnMut(&Progress<'_>)) -> Result<Duration, Error> {
        // With the default slack every timer is up to 50 µs late, which is the worst effect of an error here.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let end_ns = self.context.plan.duration.map_or(u64::MAX, nanoseconds);
        let mut tick_ns = TICK_NS;
        self.context.start = Instant::now();
        self.clients.iter_mut().for_each(|client| client.advance(0, &mut self.context));
        loop {
            let now_ns = self.context.now_ns();
            if now_ns >= end_ns || self.is_stopped || self.is_done() {
                return Ok(Duration::from_nanos(now_ns));
            }
            if now_ns >= tick_ns {
                tick_ns = now_ns + TICK_NS;
                self.tick(now_ns, watch);
            }
            while let Some(client) = self.context.timers.take_due(now_ns) {
                self.clients[client].wake(now_ns, &mut self.context);
            }
            let broadcast_ns = self.broadcast(now_ns);
            let wake_ns = self.context.timers.next_ns().unwrap_or(u64::MAX).min(broadcast_ns);
            self.wait(wake_ns.min(end_ns).min(tick_ns))?;
        }
    }

    /// Sends the broadcasts that are due. Returns when the next one is due.
    fn broadcast(&mut self, now_ns: u64) -> u64 {
        loop {
            let Some(broadcasts) = &mut self.context.broadcasts else { return u64::MAX };
            let due_ns = broadcasts.due_ns(now_ns).filter(|_| self.context.left > 0);
            match due_ns {
                Some(due_ns) if due_ns <= now_ns => {
                    let number = broadcasts.begin(due_ns);
                    self.context.left -= 1;
                    self.clients.iter_mut().for_each(|one| one.expect(number, due_ns, now_ns));
                    self.clients[0].say(number, now_ns, &mut self.context);
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

    fn tick(&mut self, now_ns: u64, watch: &mut dyn FnMut(&Progress<'_>)) {
        let timeout_ns = nanoseconds(self.context.plan.timeout);
        for client in &mut self.clients {
            client.expire(now_ns, timeout_ns, &mut self.context);
        }
        self.is_stopped |= self.clients.iter().all(|client| client.account().tallies.is_refused());
        watch(&Progress { elapsed: Duration::from_nanos(now_ns), clients: &self.clients });
    }

    /// Whether all requests of the plan were asked and none is pending.
    fn is_done(&self) -> bool {
        self.context.left == 0 && self.clients.iter().all(Client::is_quiet)
    }
}

fn clients(plan: &Plan) -> Vec<Client> {
    let classes = plan.classes.iter().enumerate();
    let of_all = classes
        .flat_map(|(place, class)| (0..class.connections).map(move |number| (place, number)));
    let numbered = of_all.enumerate();
    let marker = Marker::new(std::process::id());
    let client = |(token, (class, number))| Client::new(plan, class, number, token, &marker);
    numbered.map(client).collect()
}

/// Creates the broadcasts, if the plan has them.
fn broadcasts(plan: &Plan, clients: usize) -> Option<Broadcasts> {
    let is_wanted = matches!(&plan.protocol, Protocol::WebSocket(said) if said.is_broadcast);
    is_wanted.then(|| Broadcasts::new(&plan.classes[0], clients))
}

/// Raises the soft limit of descriptors if it is too low for `connections`.
fn allow_descriptors(connections: u64) -> Result<(), Error> {
    let needed = connections + OTHER_DESCRIPTORS;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if let Some(allowed) = limit.maximum.filter(|maximum| *maximum < needed) {
        return Err(Error::descriptors(needed, allowed));
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limit.maximum })
        .map_err(|errno| Error::system("raise the limit of descriptors", errno))
}
