//! What a thread of the server does: it leads or follows, until the server stops.

use std::cell::Cell;
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rb_sys::VALUE;
use thruway_http1::response::Terms;
use thruway_http1::{Framing, Request, ResponseHead};
use thruway_serve::{Answer, Body, Events, Exchange, Handler, Payload, Ticket};

use super::Server;
use super::baton::Role;
use super::context::{Context, Stage};
use super::lock::{Lock, NIL, Raised, Raising};

/// How long an answer of another worker is waited for: those that can answer need a tenth of that.
const ASKED_MS: u64 = 1;
const ASKED_MAX: Duration = Duration::from_millis(ASKED_MS);

/// A request that is ready for the application.
struct Call {
    env: VALUE,
    ticket: Ticket,
    terms: Terms,
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
    server: &'a Server,
    lock: Lock,
    call: Option<Call>,
}

impl Handler for Receive<'_> {
    fn handle(&mut self, request: &Request<'_>, exchange: &mut Exchange<'_>) {
        let lock = self.lock;
        let mut environments = self.server.environments.borrow_mut();
        let env = environments.make(lock, request, exchange.peer());
        let body = exchange.take_body();
        if request.framing() == Framing::Chunked {
            environments.set_length(lock, env, body.length_bytes());
        }
        let input = Input::new(lock, body);
        let (ticket, terms) = (exchange.defer(), exchange.terms());
        environments.set_hijack(lock, env, self.server.new_hijack(lock, ticket));
        self.call = Some(Call { env, ticket, terms, input });
    }
}

impl Input {
    fn new(lock: Lock, body: Body) -> Self {
        match body {
            Body::Memory(bytes) if bytes.is_empty() => Self::None,
            Body::Memory(bytes) => Self::Bytes(lock.string(&bytes)),
            Body::File { file, .. } => Self::File(rb_sys::LONG2NUM(file.into_raw_fd().into())),
        }
    }
}

/// What an application returns that took the connection is not sent, but its body is closed.
fn note_unsent(inside: Raising, context: &Context, returned: VALUE) {
    let lock = inside.lock();
    if lock.is_plain_array(returned) && lock.array_length(returned) >= 3 {
        context.returned.set(returned);
        context.body.set(lock.element(returned, 2));
    }
}

/// What the engine had to do.
enum Turn {
    Call(Call),
    Work,
    Nothing,
}

impl Server {
    /// Serves until the server stops. What ends the thread early is given back, to be resumed.
    pub(super) fn serve(&self, lock: Lock, me: usize) -> Result<(), Raised> {
        self.contexts[me].thread.set(lock.current_thread());
        let ended = self.take_turns(lock, me);
        if ended.is_ok() {
            self.baton.release(me);
            self.baton.signal().call_all_followers();
        } else {
            // Something has ended this thread alone: the others go on, and another takes its place.
            self.contexts[me].end();
            self.baton.resign(me);
        }
        self.waker.wake();
        ended
    }

    fn take_turns(&self, lock: Lock, me: usize) -> Result<(), Raised> {
        let mut events = Events::new();
        while !self.is_over() {
            match self.baton.role(me, |leader| self.is_blocked(lock, leader)) {
                Role::Lead => self.lead(lock, me, &mut events)?,
                Role::Follow => {
                    self.baton.follow(lock);
                    lock.protect(Raising::check_interrupts)?;
                }
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.is_stopping.get() && self.engine().connections() == 0
    }

    /// Whether a thread that is in the application waits there: for anything but the lock, which the
    /// caller has.
    fn is_blocked(&self, lock: Lock, thread: usize) -> bool {
        let thread = self.contexts[thread].thread.get();
        let stopped = lock.protect(|inside| inside.call(thread, self.names.is_stopped, &[]));
        stopped.is_ok_and(rb_sys::TEST)
    }

    fn lead(&self, lock: Lock, me: usize, events: &mut Events) -> Result<(), Raised> {
        self.flush_gathered();
        while self.baton.leads(me) && !self.is_over() {
            self.tell_troubles(lock)?;
            self.ask_for_older(lock, events);
            match self.turn(lock) {
                Turn::Nothing => self.wait(lock, events)?,
                Turn::Work => self.engine().glance(events),
                Turn::Call(call) => {
                    self.run(lock, me, call)?;
                    if self.baton.leads(me) {
                        self.engine().glance(events);
                        self.baton.pass_lock(lock);
                    }
                }
            }
        }
        Ok(())
    }

    /// Tells the log what the engine could not do.
    fn tell_troubles(&self, lock: Lock) -> Result<(), Raised> {
        loop {
            let trouble = self.engine().trouble();
            let Some(text) = trouble.map(|trouble| lock.string(trouble.to_string().as_bytes()))
            else {
                return Ok(());
            };
            let call = |inside: Raising| {
                inside.call(self.helper.value(), self.names.trouble, &[text]);
            };
            lock.protect(call)?;
        }
    }

    /// What takes the connection of this request and of no other one.
    fn new_hijack(&self, lock: Lock, ticket: Ticket) -> VALUE {
        let hijack = lock.new_object(self.hijack.value());
        lock.set_variable(hijack, self.names.of_server, self.helper.value());
        lock.set_variable(hijack, self.names.of_request, super::request_number(ticket));
        hijack
    }

    fn turn(&self, lock: Lock) -> Turn {
        let mut receive = Receive { server: self, lock, call: None };
        let worked = self.engine().turn(&mut receive);
        match receive.call {
            Some(call) => Turn::Call(call),
            None if worked => Turn::Work,
            None => Turn::Nothing,
        }
    }

    /// A request that has waited longer in another worker goes before the next one here: it is asked for, and waited
    /// for.
    fn ask_for_older(&self, lock: Lock, events: &mut Events) {
        if !self.engine().ask_for_older() {
            return;
        }
        let is_interrupted = AtomicBool::new(false);
        let wait = || {
            let begun = Instant::now();
            while self.engine().awaits_answer()
                && begun.elapsed() < ASKED_MAX
                && !is_interrupted.load(Ordering::Relaxed)
            {
                self.waiter.wait(events, Some(ASKED_MS));
                self.engine().take(events);
            }
        };
        lock.release(wait, || is_interrupted.store(true, Ordering::Relaxed));
    }

    /// Waits, without the interpreter lock, until there is something to do.
    fn wait(&self, lock: Lock, events: &mut Events) -> Result<(), Raised> {
        let signal = self.baton.signal();
        // From here on nothing is taken in behind this thread's back: see `Standby::stand_in`.
        signal.duty.dismiss();
        let wait = || {
            while !self.engine().wants_turn() {
                let timeout_ms = self.engine().begin_wait(None);
                self.waiter.wait(events, timeout_ms);
                self.engine().take(events);
            }
            if signal.load.computing() > 0 {
                // This thread is going to wait for the lock.
                signal.duty.call();
            }
        };
        lock.release(wait, || self.waker.wake());
        lock.protect(Raising::check_interrupts)
    }

    /// Calls the application and sends its answer.
    fn run(&self, lock: Lock, me: usize, call: Call) -> Result<(), Raised> {
        let context = &self.contexts[me];
        let Call { env, ticket, terms, input } = call;
        context.begin(env, ticket, terms);
        self.requests.set(self.requests.get() + 1);
        let waits = self.engine().has_waiting();
        let entered_us = self.baton.enter_application(waits);
        let answered = lock.protect(|inside| {
            self.set_input(inside, context, input);
            let returned = inside.call(self.app.value(), self.names.call, &[env]);
            if context.stage.get() == Stage::Unsent {
                self.reply(inside, context, returned);
            } else {
                note_unsent(inside, context, returned);
            }
        });
        let error = Cell::new(NIL);
        // What is no exception ends this thread: nothing of Ruby's is called any more.
        let ended = answered
            .or_else(|raised| self.rescue(lock, context, raised, &error))
            .and_then(|()| self.finish(lock, context, error.get()));
        self.baton.leave_application(me, entered_us);
        if !self.baton.leads(me) && self.engine().has_work(ticket) {
            // The leader may be waiting for events, and this request came without one.
            self.waker.wake();
        }
        context.end();
        ended
    }

    /// Gives the application its `rack.input`. Whatever interrupts this, a file has an object that closes it.
    fn set_input(&self, inside: Raising, context: &Context, input: Input) {
        let (bytes, file) = match input {
            Input::None => return,
            Input::Bytes(string) => (string, NIL),
            Input::File(number) => (NIL, inside.file(number)),
        };
        context.input.set(file);
        let arguments = [context.env.get(), bytes, file];
        context.input.set(inside.call(self.helper.value(), self.names.input, &arguments));
    }

    /// Answers with an error, if nothing was sent yet; otherwise the connection ends here.
    fn rescue(
        &self,
        lock: Lock,
        context: &Context,
        raised: Raised,
        error: &Cell<VALUE>,
    ) -> Result<(), Raised> {
        let stage = context.stage.get();
        if !raised.is_exception(lock) {
            self.abort(context);
            return Err(raised);
        }
        error.set(raised.error);
        let failed = lock.protect(|inside| {
            let arguments = [raised.error, context.env.get()];
            let returned = inside.call(self.helper.value(), self.names.failed, &arguments);
            if matches!(stage, Stage::Unsent | Stage::Gathering) {
                self.close_body(inside, context);
                context.stage.set(Stage::Unsent);
                self.reply(inside, context, returned);
            }
        });
        match context.stage.get() {
            Stage::Unsent | Stage::Gathering => self.answer_bare_error(context),
            Stage::Streaming => self.abort(context),
            Stage::Done => {}
        }
        failed.or_else(|again| if again.is_exception(lock) { Ok(()) } else { Err(again) })
    }

    /// An answer that needs nothing of Ruby's.
    fn answer_bare_error(&self, context: &Context) {
        let Some(ticket) = context.ticket.get() else { return };
        let mut engine = self.engine();
        let date = engine.date();
        let mut head = Vec::new();
        let promise = ResponseHead::new(&mut head, 500).finish(context.terms.get(), Some(0), &date);
        engine.answer(ticket, Answer { head: &head, promise, payload: Payload::Empty });
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
    fn finish(&self, lock: Lock, context: &Context, error: VALUE) -> Result<(), Raised> {
        let env = context.env.get();
        let [after_reply, finished] = self.environments.borrow().callbacks(lock, env);
        let is_quiet =
            |callbacks| lock.is_plain_array(callbacks) && lock.array_length(callbacks) == 0;
        let is_plain = context.body.get() == NIL || lock.is_plain_array(context.body.get());
        if is_plain && context.input.get() == NIL && is_quiet(after_reply) && is_quiet(finished) {
            return Ok(());
        }
        let closed = lock.protect(|inside| self.close_body(inside, context));
        let told = lock.protect(|inside| {
            let arguments = [env, context.returned.get(), context.input.get(), error];
            inside.call(self.helper.value(), self.names.finished, &arguments);
        });
        for raised in [closed, told].into_iter().filter_map(Result::err) {
            if !raised.is_exception(lock) {
                return Err(raised);
            }
            let arguments = [raised.error, env];
            lock.protect(|inside| {
                inside.call(self.helper.value(), self.names.failed, &arguments);
            })?;
        }
        Ok(())
    }

    /// Closes the application's body, if it can be closed: once.
    fn close_body(&self, inside: Raising, context: &Context) {
        let body = context.body.replace(NIL);
        if body != NIL && inside.lock().responds_to(body, self.names.close) {
            inside.call(body, self.names.close, &[]);
        }
    }
}
