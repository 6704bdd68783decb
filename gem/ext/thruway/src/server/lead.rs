//! What a thread of the server does: it leads or follows, until the server stops.

use std::cell::Cell;
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rb_sys::VALUE;
use thruway_http1::response::ResponseConstraints;
use thruway_http1::{Request, RequestFraming, ResponseHead};
use thruway_serve::{Body, Events, Exchange, Handler, Payload, Response, Ticket};

use super::RackEngine;
use super::context::{Context, Stage};
use super::gvl::{Gvl, NIL, Protected, Raised};
use super::leadership::Role;

/// How long an answer of another worker is waited for: those that can answer need a tenth of that.
const ASKED_MS: u64 = 1;
const ASKED_MAX: Duration = Duration::from_millis(ASKED_MS);

/// A request that is ready for the application.
struct Call {
    env: VALUE,
    ticket: Ticket,
    constraints: ResponseConstraints,
    input: Input,
}

/// A request's body as Ruby takes it.
#[derive(Clone, Copy)]
enum Input {
    None,
    /// A String.
    Bytes(VALUE),
    /// A descriptor, as a number.
    File(VALUE),
}

/// Makes the environments of requests; the application is called when the engine is free again.
struct Receive<'a> {
    server: &'a RackEngine,
    gvl: Gvl,
    call: Option<Call>,
}

impl Handler for Receive<'_> {
    fn handle(&mut self, request: &Request<'_>, exchange: &mut Exchange<'_>) {
        let gvl = self.gvl;
        let mut environments = self.server.environments.borrow_mut();
        let env = environments.make(gvl, request, exchange.peer());
        let body = exchange.take_body();
        if request.framing() == RequestFraming::Chunked {
            environments.set_length(gvl, env, body.length_bytes());
        }
        let input = Input::new(gvl, body);
        let (ticket, constraints) = (exchange.defer(), exchange.constraints());
        environments.set_hijack(gvl, env, self.server.new_hijack(gvl, ticket));
        self.call = Some(Call { env, ticket, constraints, input });
    }
}

impl Input {
    fn new(gvl: Gvl, body: Body) -> Self {
        match body {
            Body::Memory(bytes) if bytes.is_empty() => Self::None,
            Body::Memory(bytes) => Self::Bytes(gvl.string(&bytes)),
            Body::File { file, .. } => Self::File(rb_sys::LONG2NUM(file.into_raw_fd().into())),
        }
    }
}

/// What an application returns that took the connection is not sent, but its body is closed.
fn note_unsent(ruby: Protected, context: &Context, returned: VALUE) {
    let gvl = ruby.gvl();
    if gvl.is_plain_array(returned) && gvl.array_length(returned) >= 3 {
        context.returned.set(returned);
        context.body.set(gvl.element(returned, 2));
    }
}

/// What the engine had to do.
enum Turn {
    Call(Call),
    Work,
    Nothing,
}

impl RackEngine {
    /// Serves until the server stops. What ends the thread early is given back, to be resumed.
    pub(super) fn serve(&self, gvl: Gvl, me: usize) -> Result<(), Raised> {
        self.contexts[me].thread.set(gvl.current_thread());
        let ended = self.take_turns(gvl, me);
        if ended.is_ok() {
            self.leadership.release(me);
            self.leadership.signal().call_all_followers();
        } else {
            // Something has ended this thread alone: the others go on, and another takes its place.
            self.contexts[me].end();
            self.leadership.resign(me);
        }
        self.waker.wake();
        ended
    }

    fn take_turns(&self, gvl: Gvl, me: usize) -> Result<(), Raised> {
        let mut events = Events::new();
        while !self.is_over() {
            match self.leadership.role(me, |leader| self.is_blocked(gvl, leader)) {
                Role::Lead => self.lead(gvl, me, &mut events)?,
                Role::Follow => {
                    self.leadership.follow(gvl);
                    gvl.protect(Protected::check_interrupts)?;
                }
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.is_stopping.get() && self.engine().connection_count() == 0
    }

    /// Whether a thread that is in the application waits there: for anything but the gvl, which the
    /// caller has.
    fn is_blocked(&self, gvl: Gvl, thread: usize) -> bool {
        let thread = self.contexts[thread].thread.get();
        let stopped = gvl.protect(|ruby| ruby.call(thread, self.names.is_stopped, &[]));
        stopped.is_ok_and(rb_sys::TEST)
    }

    fn lead(&self, gvl: Gvl, me: usize, events: &mut Events) -> Result<(), Raised> {
        self.flush_gathered();
        while self.leadership.leads(me) && !self.is_over() {
            self.log_warnings(gvl)?;
            self.ask_for_older(gvl, events);
            match self.turn(gvl) {
                Turn::Nothing => self.wait(gvl, events)?,
                Turn::Work => self.engine().poll_if_due(events),
                Turn::Call(call) => {
                    self.call_application(gvl, me, call)?;
                    if self.leadership.leads(me) {
                        self.engine().poll_if_due(events);
                        self.leadership.pass_lock(gvl);
                    }
                }
            }
        }
        Ok(())
    }

    /// Tells the log what the engine could not do.
    fn log_warnings(&self, gvl: Gvl) -> Result<(), Raised> {
        loop {
            let trouble = self.engine().warning();
            let Some(text) = trouble.map(|trouble| gvl.string(trouble.to_string().as_bytes()))
            else {
                return Ok(());
            };
            let call = |ruby: Protected| {
                ruby.call(self.callbacks.value(), self.names.trouble, &[text]);
            };
            gvl.protect(call)?;
        }
    }

    /// What takes the connection of this request and of no other one.
    fn new_hijack(&self, gvl: Gvl, ticket: Ticket) -> VALUE {
        let hijack = gvl.new_object(self.hijack.value());
        gvl.set_variable(hijack, self.names.of_server, self.callbacks.value());
        gvl.set_variable(hijack, self.names.of_request, super::request_number(ticket));
        hijack
    }

    fn turn(&self, gvl: Gvl) -> Turn {
        let mut receive = Receive { server: self, gvl, call: None };
        let worked = self.engine().turn(&mut receive);
        match receive.call {
            Some(call) => Turn::Call(call),
            None if worked => Turn::Work,
            None => Turn::Nothing,
        }
    }

    /// A request that has waited longer in another worker goes before the next one here: it is asked for, and waited
    /// for.
    fn ask_for_older(&self, gvl: Gvl, events: &mut Events) {
        if !self.engine().ask_for_older() {
            return;
        }
        let is_interrupted = AtomicBool::new(false);
        let wait = || {
            let begun = Instant::now();
            while self.engine().awaits_offer()
                && begun.elapsed() < ASKED_MAX
                && !is_interrupted.load(Ordering::Relaxed)
            {
                self.waiter.wait(events, Some(ASKED_MS));
                self.engine().take(events);
            }
        };
        gvl.release(wait, || is_interrupted.store(true, Ordering::Relaxed));
    }

    /// Waits, without the interpreter gvl, until there is something to do.
    fn wait(&self, gvl: Gvl, events: &mut Events) -> Result<(), Raised> {
        let signal = self.leadership.signal();
        // From here on nothing is taken in behind this thread's back: see `Standby::stand_in`.
        signal.duty.dismiss();
        let wait = || {
            while !self.engine().wants_turn() {
                let timeout_ms = self.engine().begin_wait(None);
                self.waiter.wait(events, timeout_ms);
                self.engine().take(events);
            }
            if signal.load.computing() > 0 {
                // This thread is going to wait for the gvl.
                signal.duty.call();
            }
        };
        gvl.release(wait, || self.waker.wake());
        gvl.protect(Protected::check_interrupts)
    }

    /// Calls the application and sends its answer.
    fn call_application(&self, gvl: Gvl, me: usize, call: Call) -> Result<(), Raised> {
        let context = &self.contexts[me];
        let Call { env, ticket, constraints, input } = call;
        context.begin(env, ticket, constraints);
        self.requests.set(self.requests.get() + 1);
        let waits = self.engine().has_waiting();
        let entered_us = self.leadership.enter_application(waits);
        let answered = gvl.protect(|ruby| {
            self.set_input(ruby, context, input);
            let returned = ruby.call(self.app.value(), self.names.call, &[env]);
            if context.stage.get() == Stage::Unsent {
                self.respond(ruby, context, returned);
            } else {
                note_unsent(ruby, context, returned);
            }
        });
        let error = Cell::new(NIL);
        // What is no exception ends this thread: nothing of Ruby's is called any more.
        let ended = answered
            .or_else(|raised| self.rescue(gvl, context, raised, &error))
            .and_then(|()| self.finish(gvl, context, error.get()));
        self.leadership.leave_application(me, entered_us);
        if !self.leadership.leads(me) && self.engine().has_work(ticket) {
            // The leader may be waiting for events, and this request came without one.
            self.waker.wake();
        }
        context.end();
        ended
    }

    /// Gives the application its `rack.input`. Whatever interrupts this, a file has an object that closes it.
    fn set_input(&self, ruby: Protected, context: &Context, input: Input) {
        let (bytes, file) = match input {
            Input::None => return,
            Input::Bytes(string) => (string, NIL),
            Input::File(number) => (NIL, ruby.file(number)),
        };
        context.input.set(file);
        let arguments = [context.env.get(), bytes, file];
        context.input.set(ruby.call(self.callbacks.value(), self.names.input, &arguments));
    }

    /// Answers with an error, if nothing was sent yet; otherwise the connection ends here.
    fn rescue(
        &self,
        gvl: Gvl,
        context: &Context,
        raised: Raised,
        error: &Cell<VALUE>,
    ) -> Result<(), Raised> {
        let stage = context.stage.get();
        if !raised.is_exception(gvl) {
            self.abort(context);
            return Err(raised);
        }
        error.set(raised.error);
        let failed = gvl.protect(|ruby| {
            let arguments = [raised.error, context.env.get()];
            let returned = ruby.call(self.callbacks.value(), self.names.failed, &arguments);
            if matches!(stage, Stage::Unsent | Stage::Gathering) {
                self.close_body(ruby, context);
                context.stage.set(Stage::Unsent);
                self.respond(ruby, context, returned);
            }
        });
        match context.stage.get() {
            Stage::Unsent | Stage::Gathering => self.respond_bare_error(context),
            Stage::Streaming => self.abort(context),
            Stage::Done => {}
        }
        failed.or_else(|again| if again.is_exception(gvl) { Ok(()) } else { Err(again) })
    }

    /// An answer that needs nothing of Ruby's.
    fn respond_bare_error(&self, context: &Context) {
        let Some(ticket) = context.ticket.get() else { return };
        let mut engine = self.engine();
        let date = engine.date();
        let mut head = Vec::new();
        let plan =
            ResponseHead::new(&mut head, 500).finish(context.constraints.get(), Some(0), &date);
        engine.respond(ticket, Response { head: &head, plan, payload: Payload::Empty });
        context.stage.set(Stage::Done);
    }

    fn abort(&self, context: &Context) {
        if let Some(ticket) = context.ticket.get()
            && context.stage.get() != Stage::Done
        {
            self.engine().abort(ticket);
        }
        context.stage.set(Stage::Done);
    }

    /// Closes the body, and calls whoever wanted to know that the answer is sent.
    fn finish(&self, gvl: Gvl, context: &Context, error: VALUE) -> Result<(), Raised> {
        let env = context.env.get();
        let [after_reply, finished] = self.environments.borrow().callbacks(gvl, env);
        let is_quiet =
            |callbacks| gvl.is_plain_array(callbacks) && gvl.array_length(callbacks) == 0;
        let is_plain = context.body.get() == NIL || gvl.is_plain_array(context.body.get());
        if is_plain && context.input.get() == NIL && is_quiet(after_reply) && is_quiet(finished) {
            return Ok(());
        }
        let closed = gvl.protect(|ruby| self.close_body(ruby, context));
        let told = gvl.protect(|ruby| {
            let arguments = [env, context.returned.get(), context.input.get(), error];
            ruby.call(self.callbacks.value(), self.names.finished, &arguments);
        });
        for raised in [closed, told].into_iter().filter_map(Result::err) {
            if !raised.is_exception(gvl) {
                return Err(raised);
            }
            let arguments = [raised.error, env];
            gvl.protect(|ruby| {
                ruby.call(self.callbacks.value(), self.names.failed, &arguments);
            })?;
        }
        Ok(())
    }

    /// Closes the application's body, if it can be closed: once.
    fn close_body(&self, ruby: Protected, context: &Context) {
        let body = context.body.replace(NIL);
        if body != NIL && ruby.gvl().responds_to(body, self.names.close) {
            ruby.call(body, self.names.close, &[]);
        }
    }
}
