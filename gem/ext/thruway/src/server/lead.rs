//! The work of a server's thread: it leads or follows until the server stops.

use std::sync::atomic::{AtomicBool, Ordering};

use rb_sys::VALUE;
use thruway_http1::{Request as Head, RequestFraming};
use thruway_roles::{Role, Route, WaitOutcome};
use thruway_serve::{Exchange, Handler, SocketEvent, Ticket, monotonic_us, tls};

use super::context::Stage;
use super::rack_engine::RackEngine;
use super::request::Request;
use super::sender::Sender;
use super::shared_engine::EventBuffer;
use super::work::{Input, ReadyEvent, ReadyRequest};
use crate::ruby::call::call;
use crate::ruby::{Gvl, NIL, NonLocalExit, RString, is_true, number, thread};

/// The line of the log for requests that wait while no thread is free.
const NO_MORE_THREADS: &str =
    "no more threads may start while requests wait: see `threads` in the configuration";

/// The shortest time between two lines of the log about a limit.
const LIMIT_LOG_INTERVAL_US: u64 = 10_000_000;

/// Creates the environments of requests. The application is called after the engine is unlocked.
struct Receive<'a> {
    engine: &'a RackEngine,
    gvl: Gvl,
    request: Option<ReadyRequest>,
    event: Option<ReadyEvent>,
}

impl Handler for Receive<'_> {
    fn handle(&mut self, request: &Head<'_>, exchange: &mut Exchange<'_>) {
        let gvl = self.gvl;
        let mut environments = self.engine.environments.borrow_mut();
        let tls = [exchange.is_tls(), exchange.is_https()];
        let (mut env, upgrades) = environments.make(gvl, request, exchange.peer(), tls);
        let certificate = exchange.peer_certificate().map(|der| RString::binary(gvl, der));
        let body = exchange.take_body();
        if request.framing() == RequestFraming::Chunked {
            environments.set_length(gvl, &mut env, body.length_bytes());
        }
        let input = Input::new(gvl, body);
        let (ticket, constraints) = (exchange.defer(), exchange.constraints());
        environments.set_hijack(gvl, &mut env, self.engine.new_hijack(gvl, ticket));
        let env = env.into_hash().value();
        let in_fibers = self.engine.fibers.is_some();
        let route = in_fibers.then(|| Route::of(request.method(), request.path()));
        self.request =
            Some(ReadyRequest { env, ticket, constraints, input, certificate, upgrades, route });
    }

    fn socket_event(&mut self, ticket: Ticket, event: SocketEvent) {
        self.event = Some(ReadyEvent::new(self.gvl, ticket, event));
    }
}

/// The work that the engine has found.
pub(super) enum Turn {
    Request(ReadyRequest),
    Event(ReadyEvent),
    Work,
    Handshake,
    Nothing,
}

impl RackEngine {
    /// Serves until the server stops. Returns an exception or interrupt that ends the thread early, which the caller
    /// resumes.
    pub(super) fn serve(&self, gvl: Gvl, me: usize) -> Result<(), NonLocalExit> {
        self.contexts[me].thread.set(thread::current(gvl));
        let ended = match &self.fibers {
            None => self.take_turns(gvl, me),
            Some(fibers) => self.take_fiber_turns(gvl, me, fibers),
        };
        if self.home.is_left() {
            // In a forked child, this thread is the only one, and everything else belongs to the parent.
            return ended.map(drop);
        }
        match ended {
            // A superfluous thread followed: the others need not notice its end.
            Ok(WaitOutcome::Dismissed) => return Ok(()),
            Ok(WaitOutcome::Over) => {
                self.leadership.release(me);
                self.leadership.roles().call_all_followers();
            }
            Err(_) => {
                // Only this thread ends: the others continue, and a new thread takes its place.
                self.contexts[me].end();
                self.leadership.resign(me);
            }
        }
        self.engine.wake();
        ended.map(drop)
    }

    /// Takes turns until the server stops, or until this thread is dismissed.
    fn take_turns(&self, gvl: Gvl, me: usize) -> Result<WaitOutcome, NonLocalExit> {
        let mut events = EventBuffer::new();
        while !self.is_over() {
            match self.leadership.role(me, |leader| self.is_blocked(gvl, leader))? {
                None => {}
                Some(Role::Lead) => self.lead(gvl, me, &mut events)?,
                Some(Role::Follow) => {
                    if let Some(dismissed) = self.follow(gvl, me)? {
                        return Ok(dismissed);
                    }
                }
            }
        }
        Ok(WaitOutcome::Over)
    }

    /// Waits as a follower. Returns the outcome if the thread was dismissed.
    pub(super) fn follow(&self, gvl: Gvl, me: usize) -> Result<Option<WaitOutcome>, NonLocalExit> {
        let waited = self.leadership.follow(gvl);
        let interrupted = gvl.catch(thread::check_interrupts);
        if waited == WaitOutcome::Dismissed {
            self.note_dismissal(me, interrupted.is_err());
            return interrupted.map(|()| Some(waited));
        }
        interrupted.map(|()| None)
    }

    /// Records that thread `me` was dismissed. If the thread `is_interrupted` as well, Ruby starts another in its
    /// place, so the number of threads stays.
    fn note_dismissal(&self, me: usize, is_interrupted: bool) {
        if is_interrupted {
            self.leadership.roles().readmit();
        }
        self.contexts[me].thread.set(NIL);
        self.leadership.note_threads();
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_stopping.get() && self.engine.lock().is_done()
    }

    /// Whether the leader waits in the application for anything but the lock, which the calling thread holds. Where
    /// Ruby does not report waits, this asks for the state of the leader's thread. The check lets other threads run
    /// if their time has come, and raises pending interrupts of this thread.
    pub(super) fn is_blocked(&self, gvl: Gvl, thread: usize) -> Result<bool, NonLocalExit> {
        let roles = self.leadership.roles();
        if roles.load.is_reported() {
            return Ok(roles.is_leader_blocked());
        }
        let thread = self.contexts[thread].thread.get();
        gvl.catch(|ruby| call(ruby, thread, self.names.is_stopped, &[])).map(is_true)
    }

    fn lead(&self, gvl: Gvl, me: usize, events: &mut EventBuffer) -> Result<(), NonLocalExit> {
        self.begin_to_lead();
        while self.leadership.leads(me) && !self.is_over() {
            self.log_warnings(gvl)?;
            self.ask_for_older(gvl, events);
            match self.turn(gvl) {
                Turn::Nothing => self.wait(gvl, events)?,
                Turn::Work => self.engine.poll_if_due(events),
                Turn::Handshake => self.shake_hands(gvl, events)?,
                Turn::Request(request) => {
                    self.call_application(gvl, me, request)?;
                    self.after_call(gvl, me, events)?;
                }
                Turn::Event(event) => {
                    self.call_socket(gvl, me, event)?;
                    self.after_call(gvl, me, events)?;
                }
            }
        }
        Ok(())
    }

    /// Runs when a thread begins to lead.
    pub(super) fn begin_to_lead(&self) {
        self.flush_gathered();
        if let Some(fibers) = &self.fibers {
            fibers.set_slice(0);
        }
        // A thread that has lost the lead does not poll after its response.
        self.contexts.iter().for_each(|context| context.corks.set(false));
    }

    /// Logs that a limit is reached, once in an interval.
    pub(super) fn log_limit(&self, gvl: Gvl, text: &'static str) -> Result<(), NonLocalExit> {
        let now_us = monotonic_us();
        if now_us < self.next_limit_log_us.get() {
            return Ok(());
        }
        self.next_limit_log_us.set(now_us + LIMIT_LOG_INTERVAL_US);
        gvl.catch(|ruby| self.callbacks.log(ruby, RString::binary(gvl, text.as_bytes())))
    }

    /// Runs between two calls of the application, if this thread still leads.
    fn after_call(
        &self,
        gvl: Gvl,
        me: usize,
        events: &mut EventBuffer,
    ) -> Result<(), NonLocalExit> {
        if !self.leadership.leads(me) {
            return Ok(());
        }
        self.engine.poll_if_due(events);
        self.leadership.pass_lock(gvl)
    }

    /// Sends the gathered pieces of all other threads. Those threads are blocked, and their next piece may be far
    /// away.
    pub(super) fn flush_gathered(&self) {
        for context in &self.contexts {
            if context.stage.get() == Stage::Gathering {
                Sender::new(&self.engine, context).start_stream();
            }
        }
    }

    /// Logs failures of the engine, and limits that were reached.
    pub(super) fn log_warnings(&self, gvl: Gvl) -> Result<(), NonLocalExit> {
        if self.leadership.roles().take_at_limit() {
            self.log_limit(gvl, NO_MORE_THREADS)?;
        }
        loop {
            let warning = self.engine.lock().warning();
            let text = warning.map(|warning| RString::binary(gvl, warning.to_string().as_bytes()));
            let Some(text) = text else { return Ok(()) };
            gvl.catch(|ruby| self.callbacks.log(ruby, text))?;
        }
    }

    /// A new object by which the application can take over the connection of this request, and of no other.
    fn new_hijack(&self, gvl: Gvl, ticket: Ticket) -> VALUE {
        let variables = [
            (self.names.of_server, self.callbacks.server()),
            (self.names.of_request, number::from_u64(gvl, ticket.request())),
        ];
        self.hijack.get().allocate(gvl, &variables)
    }

    pub(super) fn turn(&self, gvl: Gvl) -> Turn {
        let mut receive = Receive { engine: self, gvl, request: None, event: None };
        let mut engine = self.engine.lock();
        if tls::is_handshake_next(&engine) {
            return Turn::Handshake;
        }
        let worked = engine.turn(&mut receive);
        drop(engine);
        match (receive.request, receive.event) {
            (Some(request), _) => Turn::Request(request),
            (None, Some(event)) => Turn::Event(event),
            (None, None) if worked => Turn::Work,
            (None, None) => Turn::Nothing,
        }
    }

    /// Runs a TLS handshake, which computes for long, without the interpreter lock.
    pub(super) fn shake_hands(
        &self,
        gvl: Gvl,
        events: &mut EventBuffer,
    ) -> Result<(), NonLocalExit> {
        let engine = &*self.engine;
        gvl.release(|| tls::handshake_turn(&mut engine.lock()), || ());
        // The handshake did not run if an interrupt is pending for this thread.
        gvl.catch(thread::check_interrupts)?;
        self.engine.poll_if_due(events);
        Ok(())
    }

    /// Asks siblings for a request that has waited longer than those here, to serve it first. A request that is
    /// already on its way is served first as well. If one has arrived, the lock is not released.
    pub(super) fn ask_for_older(&self, gvl: Gvl, events: &mut EventBuffer) {
        if !self.engine.lock().ask_for_older() || self.engine.take_offer(events) {
            return;
        }
        let (engine, is_interrupted) = (&*self.engine, AtomicBool::new(false));
        let wait = || engine.wait_for_offer(events, &is_interrupted);
        gvl.release(wait, || is_interrupted.store(true, Ordering::Relaxed));
    }

    /// Waits for work without the interpreter lock.
    pub(super) fn wait(&self, gvl: Gvl, events: &mut EventBuffer) -> Result<(), NonLocalExit> {
        let (engine, roles) = (&*self.engine, self.leadership.roles());
        // From here on, the standby takes in nothing without this thread's knowledge: see `Standby::stand_in`.
        roles.dismiss_standby();
        gvl.release(|| engine.wait_for_turn(events, roles), || engine.wake());
        gvl.catch(thread::check_interrupts)
    }

    /// Calls the application and sends its response.
    fn call_application(
        &self,
        gvl: Gvl,
        me: usize,
        request: ReadyRequest,
    ) -> Result<(), NonLocalExit> {
        let context = &self.contexts[me];
        let ReadyRequest { env, ticket, constraints, input, certificate, upgrades, .. } = request;
        context.begin(env, ticket, constraints);
        context.upgrades.set(upgrades);
        context.corks.set(self.leadership.calls_are_short());
        self.requests.set(self.requests.get() + 1);
        let waits = self.engine.lock().has_waiting();
        let entered_us = self.leadership.enter_application(waits);
        let ended = Request::new(self, context, gvl).run(input, certificate);
        if self.home.is_left() {
            return ended;
        }
        if context.is_marked.replace(false) {
            self.leadership.roles().mark_waiting(false);
        }
        self.leave_application(gvl, me, entered_us);
        if !self.leadership.leads(me) && self.engine.lock().response(ticket).has_work() {
            // No event announces this work, so a leader that waits for events has to be woken.
            self.engine.wake();
        }
        context.end();
        ended
    }
}
