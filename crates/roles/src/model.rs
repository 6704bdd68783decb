//! A model of a worker: the code of the protocol, with an interpreter lock, an engine and an application of a few
//! lines, under a scheduler that explores interleavings.
//!
//! Time has no meaning in the model: a wait with a limit may end at once, and each look at the clock advances it. No
//! order of steps may leave a request unanswered while a thread is free. Requests that wait are answered only after
//! those that do not, so a server that stops at one of them deadlocks or loops, and the scheduler reports both.
//! `THRUWAY_MODEL_SCHEDULES` sets the number of schedules that each test explores.

use std::collections::VecDeque;
use std::time::Duration;

use shuttle::rand::Rng;
use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};
use shuttle::thread;

use Request::{
    Computes, ComputesOn, ComputesShort, ComputesWaits, Kills, Marked, Pauses, Short, Waits,
};

use crate::{
    Activity, AtomicFlag, Bell, ComputeLane, Decision, Leadership, Limits, LoadObserver,
    LockRequests, Lookout, Role, SharedRoles, WaitOutcome,
};

/// The number of steps after which a schedule counts as a loop.
const STEPS_MAX: usize = 200_000;

/// The maximum number of preemptions in a schedule. Schedules with few preemptions find faults that a long row of
/// random choices hardly ever finds.
const PREEMPTIONS_MAX: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Short,
    /// The request releases the interpreter lock until every short request is answered.
    Waits,
    /// The request releases the interpreter lock for a moment.
    Pauses,
    /// The request ends its thread, which another thread replaces, and the next follower.
    Kills,
    /// The request is marked as waiting, and waits.
    Marked,
    /// The request is known to compute for long: the leader leaves it in the lane. It releases the interpreter lock for
    /// a moment.
    Computes,
    /// As `Computes`, and waits as `Waits` does.
    ComputesWaits,
    /// As `Computes`, and counts as a short request.
    ComputesShort,
    /// The request is left in the lane. It holds the interpreter lock until every short request is answered, and gives
    /// the lock away only where the herald has triggered that. The leader runs it as a request that pauses.
    ComputesOn,
}

impl Request {
    fn is_short(self) -> bool {
        matches!(self, Short | ComputesShort)
    }

    fn is_for_lane(self) -> bool {
        matches!(self, Computes | ComputesWaits | ComputesShort | ComputesOn)
    }
}

/// The kernel's events for any thread that waits for them.
#[derive(Default)]
struct Kernel {
    arrived: VecDeque<Request>,
    is_woken: bool,
    is_rung: bool,
}

#[derive(Clone, Default)]
struct Poller(Arc<(Mutex<Kernel>, Condvar)>);

impl Poller {
    fn change(&self, change: impl FnOnce(&mut Kernel)) {
        change(&mut self.0.0.lock().unwrap());
        self.0.1.notify_all();
    }

    /// Waits until `ends`, or not at all with a time limit.
    fn wait(&self, has_limit: bool, ends: impl Fn(&Kernel) -> bool) -> MutexGuard<'_, Kernel> {
        let mut kernel = self.0.0.lock().unwrap();
        while !ends(&kernel) {
            if has_limit {
                drop(kernel);
                thread::yield_now();
                return self.0.0.lock().unwrap();
            }
            kernel = self.0.1.wait(kernel).unwrap();
        }
        kernel
    }
}

impl Bell for Poller {
    fn ring(&self) {
        self.change(|kernel| kernel.is_rung = true);
    }

    fn wait(&self, timeout: Option<Duration>) {
        let mut kernel = Self::wait(self, timeout.is_some(), |kernel| kernel.is_rung);
        kernel.is_rung = false;
    }

    fn silence(&self) {
        self.0.0.lock().unwrap().is_rung = false;
    }
}

impl LoadObserver for Arc<LockRequests<Poller>> {
    fn computing(&self, _threads: u32) {}

    fn in_application(&self, _threads: u32) {}

    fn begins_to_compute(&self) {
        self.note_computing();
    }
}

/// The state under the interpreter lock.
#[derive(Default)]
struct Interpreter {
    leadership: Leadership,
    lane: ComputeLane<Request>,
    is_stopping: bool,
}

struct Worker {
    shared: SharedRoles<Poller, Arc<LockRequests<Poller>>>,
    lock_requests: Arc<LockRequests<Poller>>,
    /// Whether the herald has triggered a switch that no thread has made yet.
    is_switch_due: AtomicBool,
    interpreter: Mutex<Interpreter>,
    poller: Poller,
    queue: Mutex<VecDeque<Request>>,
    clock_us: AtomicU64,
    /// Threads that wait in the application, as the system sees them.
    asleep: Mutex<Vec<u32>>,
    short_left: Mutex<u32>,
    shorts_over: Condvar,
    left: AtomicU32,
    is_led: AtomicBool,
    /// Whether the next called follower ends instead.
    kills_follower: AtomicBool,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
    /// Numbers of threads that have ended.
    free: Mutex<Vec<usize>>,
}

/// The interpreter lock, with the thread that holds it.
type Gvl<'a> = MutexGuard<'a, Interpreter>;

/// The reason for which a thread's turns end.
#[derive(PartialEq, Eq)]
enum End {
    Stopped,
    Dismissed,
    Killed,
}

impl Worker {
    fn new(limits: Limits, requests: &[Request], is_reported: bool) -> Arc<Self> {
        let poller = Poller::default();
        let lock_requests = Arc::new(LockRequests::new(Poller::default()));
        let shared = SharedRoles::new(poller.clone(), Arc::clone(&lock_requests), limits);
        if is_reported {
            shared.load.set_reported();
        }
        let shorts = requests.iter().filter(|request| request.is_short()).count();
        let first = usize::try_from(limits.threads_min).unwrap();
        Arc::new(Self {
            shared,
            lock_requests,
            is_switch_due: AtomicBool::new(false),
            interpreter: Mutex::default(),
            poller,
            queue: Mutex::default(),
            clock_us: AtomicU64::new(1),
            asleep: Mutex::default(),
            short_left: Mutex::new(u32::try_from(shorts).unwrap()),
            shorts_over: Condvar::new(),
            left: AtomicU32::new(u32::try_from(requests.len()).unwrap()),
            is_led: AtomicBool::new(false),
            kills_follower: AtomicBool::new(false),
            threads: Mutex::default(),
            free: Mutex::new((first..limits.threads() as usize).rev().collect()),
        })
    }

    fn now_us(&self) -> u64 {
        self.clock_us.fetch_add(700, Ordering::SeqCst)
    }

    fn is_over(&self, gvl: &Gvl<'_>) -> bool {
        gvl.is_stopping && self.left.load(Ordering::SeqCst) == 0
    }

    fn gvl(&self) -> Gvl<'_> {
        self.interpreter.lock().unwrap()
    }

    /// Runs a Ruby thread from its start to its end.
    fn serve(self: &Arc<Self>, me: usize) {
        loop {
            let mut gvl = Some(self.gvl());
            let end = self.take_turns(&mut gvl, me);
            let gvl = gvl.unwrap();
            match end {
                End::Stopped => {
                    gvl.leadership.release(&self.shared, me);
                    self.wake_all();
                    return;
                }
                End::Dismissed => {
                    self.free.lock().unwrap().push(me);
                    return;
                }
                End::Killed => {
                    gvl.leadership.resign(&self.shared, me);
                    self.wake();
                }
            }
        }
    }

    fn take_turns<'a>(&'a self, gvl: &mut Option<Gvl<'a>>, me: usize) -> End {
        let thread = u32::try_from(me).unwrap() + 1;
        loop {
            let held = gvl.as_ref().unwrap();
            if self.is_over(held) {
                return End::Stopped;
            }
            let role = match held.leadership.role(&self.shared, me, thread) {
                Decision::Look(look) => {
                    let is_blocked = self.is_blocked(gvl, u32::try_from(look.leader).unwrap() + 1);
                    let leadership = &gvl.as_ref().unwrap().leadership;
                    leadership.role_after_look(&self.shared, me, thread, look, is_blocked)
                }
                Decision::Role(role) => Some(role),
            };
            match role {
                None => {}
                Some(Role::Lead) => {
                    if let Some(end) = self.lead(gvl, me, thread) {
                        return end;
                    }
                }
                Some(Role::Follow) if self.take_from_lane(gvl, thread) => {}
                Some(Role::Follow) => {
                    if self.follow(gvl) == WaitOutcome::Dismissed {
                        return End::Dismissed;
                    }
                    if self.kills_follower.swap(false, Ordering::SeqCst) {
                        return End::Killed;
                    }
                }
            }
        }
    }

    /// Whether the thread waits. If Ruby does not report waits, the check lets other threads run.
    fn is_blocked<'a>(&'a self, gvl: &mut Option<Gvl<'a>>, thread: u32) -> bool {
        if self.shared.load.is_reported() {
            return self.shared.is_leader_blocked();
        }
        let is_asleep = self.asleep.lock().unwrap().contains(&thread);
        drop(gvl.take());
        *gvl = Some(self.gvl());
        is_asleep
    }

    fn follow<'a>(&'a self, gvl: &mut Option<Gvl<'a>>) -> WaitOutcome {
        self.shared.add_follower();
        drop(gvl.take());
        let waited = self.shared.wait_as_follower(&AtomicFlag::default(), || self.now_us());
        *gvl = Some(self.gvl());
        if waited == WaitOutcome::Over {
            self.shared.remove_follower();
        }
        waited
    }

    fn lead<'a>(&'a self, gvl: &mut Option<Gvl<'a>>, me: usize, thread: u32) -> Option<End> {
        let activity = Activity::new();
        loop {
            let held = gvl.as_ref().unwrap();
            if !held.leadership.leads(me) || self.is_over(held) {
                return None;
            }
            assert!(!self.is_led.swap(true, Ordering::SeqCst), "two threads lead");
            let left = held.lane.attend(&self.shared, || self.now_us());
            let next = left.or_else(|| self.queue.lock().unwrap().pop_front());
            let Some(request) = next else {
                self.wait_for_turn(gvl);
                continue;
            };
            if request.is_for_lane() && left.is_none() && held.lane.accepts(&self.shared) {
                held.lane.leave(&self.shared, request);
                self.is_led.store(false, Ordering::SeqCst);
                continue;
            }
            let waits = !self.queue.lock().unwrap().is_empty();
            self.is_led.store(false, Ordering::SeqCst);
            held.leadership.enter_application(&self.shared, &activity, waits);
            self.call(gvl, request, thread, &activity);
            let held = gvl.as_ref().unwrap();
            held.leadership.leave_application(&self.shared, &activity, me, 10);
            if request == Marked {
                self.shared.mark_waiting(false);
            }
            if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
                self.wake_all();
            }
            if request == Kills {
                return Some(End::Killed);
            }
        }
    }

    /// Runs a request that the leader has left, as a follower; false if there is none to run.
    fn take_from_lane<'a>(&'a self, gvl: &mut Option<Gvl<'a>>, thread: u32) -> bool {
        let activity = Activity::new();
        let held = gvl.as_ref().unwrap();
        let Some(request) = held.lane.take(&self.shared, || self.now_us()) else { return false };
        held.leadership.enter_beside(&self.shared, &activity);
        if request == ComputesOn {
            self.compute_on(gvl);
        } else {
            self.call(gvl, request, thread, &activity);
        }
        gvl.as_ref().unwrap().leadership.leave_beside(&self.shared, &activity);
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.wake_all();
        }
        true
    }

    /// Computes until every short request is answered.
    fn compute_on<'a>(&'a self, gvl: &mut Option<Gvl<'a>>) {
        while *self.short_left.lock().unwrap() > 0 {
            if self.is_switch_due.swap(false, Ordering::SeqCst) {
                drop(gvl.take());
                thread::yield_now();
                *gvl = Some(self.gvl());
            }
            thread::yield_now();
        }
    }

    fn wait_for_turn<'a>(&'a self, gvl: &mut Option<Gvl<'a>>) {
        self.shared.dismiss_standby();
        drop(gvl.take());
        if self.queue.lock().unwrap().is_empty() {
            let ends = |kernel: &Kernel| !kernel.arrived.is_empty() || kernel.is_woken;
            // The leader looks at the lane again and again while it waits.
            let mut kernel = self.poller.wait(self.shared.has_left(), ends);
            kernel.is_woken = false;
            let arrived = std::mem::take(&mut kernel.arrived);
            drop(kernel);
            self.queue.lock().unwrap().extend(arrived);
        }
        self.is_led.store(false, Ordering::SeqCst);
        self.lock_requests.ask();
        if self.shared.load.computing() > 0 {
            self.lock_requests.call_herald();
        }
        *gvl = Some(self.gvl());
        self.lock_requests.withdraw();
    }

    fn call<'a>(
        &'a self,
        gvl: &mut Option<Gvl<'a>>,
        request: Request,
        thread: u32,
        activity: &Activity,
    ) {
        match request {
            Kills => {}
            Short | ComputesShort => {
                *self.short_left.lock().unwrap() -= 1;
                self.shorts_over.notify_all();
            }
            Pauses | Computes | ComputesOn => {
                self.release(gvl, activity, thread);
                self.note_suspension(false, activity, thread);
                *gvl = Some(self.gvl());
            }
            Waits | Marked | ComputesWaits => {
                if request == Marked {
                    self.shared.mark_waiting(true);
                }
                self.release(gvl, activity, thread);
                let mut left = self.short_left.lock().unwrap();
                while *left > 0 {
                    left = self.shorts_over.wait(left).unwrap();
                }
                drop(left);
                self.note_suspension(false, activity, thread);
                *gvl = Some(self.gvl());
            }
        }
    }

    /// Releases the interpreter lock. Ruby reports the release before or after it, depending on its version.
    fn release<'a>(&'a self, gvl: &mut Option<Gvl<'a>>, activity: &Activity, thread: u32) {
        let is_late = shuttle::rand::thread_rng().gen_bool(0.5);
        if is_late {
            drop(gvl.take());
        }
        self.note_suspension(true, activity, thread);
        drop(gvl.take());
    }

    fn note_suspension(&self, is_suspended: bool, activity: &Activity, thread: u32) {
        if self.shared.load.is_reported() {
            self.shared.note_suspension(is_suspended, activity, || thread, || self.now_us());
        } else if is_suspended {
            self.asleep.lock().unwrap().push(thread);
        } else {
            self.asleep.lock().unwrap().retain(|asleep| *asleep != thread);
        }
    }

    fn wake(&self) {
        self.poller.change(|kernel| kernel.is_woken = true);
    }

    fn wake_all(&self) {
        self.wake();
        self.shared.call_all_followers();
    }

    /// Runs the standby from its start to its end.
    fn stand_by(&self) {
        let mut lookout = Lookout::default();
        while self.shared.wait_for_duty() {
            self.stand_in(&mut lookout);
            self.shared.set_awaited(false);
        }
    }

    fn stand_in(&self, lookout: &mut Lookout) {
        let mut timeout = Some(Duration::ZERO);
        while self.shared.is_on_duty() {
            let ends = |kernel: &Kernel| !kernel.arrived.is_empty() || kernel.is_rung;
            drop(self.poller.wait(timeout.is_some(), ends));
            self.shared.begin_look();
            let arrived = std::mem::take(&mut self.poller.0.0.lock().unwrap().arrived);
            let mut queue = self.queue.lock().unwrap();
            queue.extend(arrived);
            let waiting = !queue.is_empty();
            drop(queue);
            self.shared.set_awaited(waiting);
            if !self.shared.is_on_duty() {
                if waiting {
                    self.wake();
                }
                return;
            }
            let sleeps = |thread| self.asleep.lock().unwrap().contains(&thread);
            timeout = lookout.look(&self.shared, || self.now_us(), sleeps);
        }
    }

    fn start_thread(self: &Arc<Self>, me: usize) {
        let worker = Arc::clone(self);
        self.threads.lock().unwrap().push(thread::spawn(move || worker.serve(me)));
    }

    /// Starts the ordered threads.
    fn take_orders(self: &Arc<Self>) {
        while self.shared.wait_for_order(&AtomicFlag::default()) {
            let free = self.free.lock().unwrap().pop();
            // A thread that has left the roster may not have ended yet.
            let Some(me) = free else {
                self.shared.cancel_order();
                continue;
            };
            self.shared.arrive();
            self.start_thread(me);
        }
    }
}

/// Runs a worker from its start to its stop.
fn serve(limits: Limits, requests: &[Request], is_reported: bool) {
    let worker = Worker::new(limits, requests, is_reported);
    let [standby, starter, herald] = {
        let [standby, starter, herald] = [(); 3].map(|()| Arc::clone(&worker));
        let trigger = move || herald.is_switch_due.store(true, Ordering::SeqCst);
        let requests = Arc::clone(&worker.lock_requests);
        [
            thread::spawn(move || standby.stand_by()),
            thread::spawn(move || starter.take_orders()),
            thread::spawn(move || requests.run_herald(trigger)),
        ]
    };
    (0..limits.threads_min as usize).for_each(|me| worker.start_thread(me));
    worker.kills_follower.store(requests.contains(&Kills), Ordering::SeqCst);
    for request in requests {
        worker.poller.change(|kernel| kernel.arrived.push_back(*request));
    }
    worker.gvl().is_stopping = true;
    worker.wake_all();
    while let Some(thread) = next(&worker) {
        thread.join().unwrap();
    }
    worker.shared.end();
    worker.lock_requests.end();
    [standby, starter, herald].into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(worker.left.load(Ordering::SeqCst), 0);
}

fn next(worker: &Worker) -> Option<thread::JoinHandle<()>> {
    worker.threads.lock().unwrap().pop()
}

/// Runs `serve` under random schedules, and under schedules with few preemptions.
fn explore(limits: Limits, requests: &'static [Request], is_reported: bool) {
    let mut config = shuttle::Config::new();
    config.max_steps = shuttle::MaxSteps::FailAfter(STEPS_MAX);
    let schedules = std::env::var("THRUWAY_MODEL_SCHEDULES");
    let schedules = schedules.ok().and_then(|text| text.parse().ok()).unwrap_or(200);
    let random = shuttle::scheduler::RandomScheduler::new(schedules);
    shuttle::Runner::new(random, config.clone()).run(move || serve(limits, requests, is_reported));
    let rare = shuttle::scheduler::PctScheduler::new(PREEMPTIONS_MAX, schedules);
    shuttle::Runner::new(rare, config).run(move || serve(limits, requests, is_reported));
}

#[test]
fn short_requests_are_answered_by_one_thread() {
    for is_reported in [true, false] {
        explore(Limits::fixed(1), &[Short, Short, Short], is_reported);
    }
}

#[test]
fn requests_that_wait_do_not_occupy_all_threads() {
    for is_reported in [true, false] {
        explore(Limits::fixed(3), &[Waits, Waits, Short, Short], is_reported);
    }
}

#[test]
fn a_thread_that_comes_back_leads_for_one_that_waits() {
    for is_reported in [true, false] {
        explore(Limits::fixed(2), &[Pauses, Waits, Short, Pauses], is_reported);
    }
}

#[test]
fn a_thread_that_ends_early_is_replaced() {
    for is_reported in [true, false] {
        explore(Limits::fixed(2), &[Kills, Short, Waits, Kills, Short], is_reported);
        explore(Limits::fixed(3), &[Waits, Kills, Waits, Short], is_reported);
    }
}

#[test]
fn threads_are_started_for_requests_that_wait() {
    let limits = Limits { threads_min: 1, threads_max: 1, io_max: 0, waiting_max: 2 };
    for is_reported in [true, false] {
        explore(limits, &[Waits, Waits, Short, Short], is_reported);
    }
}

#[test]
fn threads_are_started_for_marked_requests() {
    let limits = Limits { threads_min: 1, threads_max: 1, io_max: 2, waiting_max: 0 };
    for is_reported in [true, false] {
        explore(limits, &[Marked, Marked, Short], is_reported);
    }
}

#[test]
fn threads_between_minimum_and_maximum_are_started() {
    let limits = Limits { threads_min: 1, threads_max: 3, io_max: 0, waiting_max: 0 };
    for is_reported in [true, false] {
        explore(limits, &[Waits, Waits, Short], is_reported);
    }
}

#[test]
fn requests_that_compute_are_left_to_other_threads() {
    for is_reported in [true, false] {
        explore(Limits::fixed(2), &[Computes, Short, Computes, Pauses], is_reported);
        explore(Limits::fixed(3), &[Computes, Waits, Computes, Short], is_reported);
        explore(Limits::fixed(3), &[ComputesWaits, Computes, ComputesShort], is_reported);
    }
}

#[test]
fn the_leader_runs_requests_that_compute_while_all_other_threads_wait() {
    for is_reported in [true, false] {
        explore(Limits::fixed(2), &[ComputesWaits, ComputesShort, Pauses], is_reported);
    }
}

#[test]
fn requests_that_compute_are_run_although_threads_end() {
    for is_reported in [true, false] {
        explore(Limits::fixed(2), &[Computes, Kills, Computes, Short], is_reported);
        explore(Limits::fixed(2), &[Waits, Computes, Short, Computes], is_reported);
    }
}

#[test]
fn requests_that_compute_are_run_if_threads_start_on_demand() {
    let limits = Limits { threads_min: 1, threads_max: 2, io_max: 0, waiting_max: 1 };
    for is_reported in [true, false] {
        explore(limits, &[Computes, Waits, Computes, Short], is_reported);
    }
}

#[test]
fn a_leader_gets_the_lock_from_a_request_that_computes_on() {
    explore(Limits::fixed(2), &[ComputesOn, Short, Short], true);
    explore(Limits::fixed(2), &[Short, ComputesOn, Short, Short], true);
    explore(Limits::fixed(3), &[ComputesOn, ComputesOn, Short], true);
}
