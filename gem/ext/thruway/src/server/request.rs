//! One request in the application: the call, its response, and the work after the response.

use std::cell::Cell;

use rb_sys::VALUE;

use super::callbacks::FinishedRequest;
use super::context::{Context, Stage};
use super::rack_engine::RackEngine;
use super::response::Responder;
use super::sender::Sender;
use super::work::Input;
use crate::ruby::call::call;
use crate::ruby::raise;
use crate::ruby::{Gvl, NIL, NonLocalExit, ProtectedCall, RArray, RModule, RString};

/// The last message of a process that an application forked during a request.
const RETURNED: &str =
    "a forked process has returned from a request, which is its parent's to respond to";

/// Ends the thread of a forked process, and so the process.
pub(super) fn end_fork(ruby: ProtectedCall) -> ! {
    raise::runtime_error(ruby, RString::binary(ruby.gvl(), RETURNED.as_bytes()))
}

impl RackEngine {
    /// Ends a process that the application forked during a request, before the process writes to its parent's client.
    pub(super) fn check_fork(&self, ruby: ProtectedCall) {
        if self.home.is_left() {
            end_fork(ruby);
        }
    }
}

/// One call of the application, in one thread.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    engine: &'a RackEngine,
    context: &'a Context,
    gvl: Gvl,
}

impl<'a> Request<'a> {
    pub(super) fn new(engine: &'a RackEngine, context: &'a Context, gvl: Gvl) -> Self {
        Self { engine, context, gvl }
    }

    /// Calls the application and sends its response. Returns an exception or interrupt that ends the thread; no Ruby
    /// code runs after that. In a process that the application has forked, every exception ends the thread.
    pub(super) fn run(
        self,
        input: Input,
        certificate: Option<RString>,
    ) -> Result<(), NonLocalExit> {
        let responded = self.gvl.catch(|ruby| {
            self.set_input(ruby, input);
            if let Some(certificate) = certificate {
                let env = self.context.env.get();
                self.engine.callbacks.certificate(ruby, env, certificate);
            }
            let (app, names) = (self.engine.app.get(), &self.engine.names);
            let returned = call(ruby, app, names.call, &[self.context.env.get()]);
            self.engine.check_fork(ruby);
            if self.context.stage.get() == Stage::Unsent {
                Responder::new(self.engine, self.context, ruby).respond(returned);
            } else {
                self.note_unsent(returned);
            }
        });
        if self.engine.home.is_left() {
            return responded.and_then(|()| self.gvl.catch(|ruby| end_fork(ruby)));
        }
        let error = Cell::new(NIL);
        responded
            .or_else(|raised| self.rescue(raised, &error))
            .and_then(|()| self.finish(error.get()))
    }

    /// Records the response of an application that has taken the connection: the response is not sent, but its body
    /// is closed.
    fn note_unsent(self, returned: VALUE) {
        let triple = RArray::plain(self.gvl, returned);
        if let Some(triple) = triple.filter(|triple| triple.len(self.gvl) >= 3) {
            self.context.returned.set(returned);
            self.context.body.set(triple.get(self.gvl, 2).unwrap_or(NIL));
        }
    }

    /// Sets the `rack.input`. Even if this is interrupted, an object owns the file and closes it.
    fn set_input(self, ruby: ProtectedCall, input: Input) {
        let (bytes, file) = match input {
            Input::None => return,
            Input::Bytes(string) => (string.value(), NIL),
            Input::File(number) => (NIL, self.open_file(ruby, number)),
        };
        self.context.input.set(file);
        let env = self.context.env.get();
        self.context.input.set(self.engine.callbacks.input(ruby, env, bytes, file));
    }

    /// Returns a File for reading and writing that owns the descriptor.
    fn open_file(self, ruby: ProtectedCall, descriptor: VALUE) -> VALUE {
        let mode = RString::binary(self.gvl, b"r+b").value();
        call(ruby, RModule::file().value(), self.engine.names.for_fd, &[descriptor, mode])
    }

    /// Responds with an error if nothing was sent yet; otherwise ends the connection.
    fn rescue(self, raised: NonLocalExit, error: &Cell<VALUE>) -> Result<(), NonLocalExit> {
        let (context, sender) = (self.context, Sender::new(&self.engine.engine, self.context));
        let stage = context.stage.get();
        if stage == Stage::Gathering {
            // While `failed` runs, a successor may take the lead. It must not send gathered pieces.
            context.stage.set(Stage::Unsent);
        }
        if !raised.is_exception() {
            sender.abort();
            return Err(raised);
        }
        error.set(raised.error());
        if raised.error() == context.desertion.get() {
            // The application has not failed.
            sender.abort();
            return Ok(());
        }
        let failed = self.gvl.catch(|ruby| {
            let env = context.env.get();
            let returned = self.engine.callbacks.failed(ruby, raised.error(), env);
            if matches!(stage, Stage::Unsent | Stage::Gathering) {
                context.stage.set(Stage::Unsent);
                Responder::new(self.engine, context, ruby).respond_instead(returned);
            }
        });
        match context.stage.get() {
            Stage::Unsent | Stage::Gathering => sender.send_bare_error(),
            Stage::Streaming => sender.abort(),
            Stage::Done => {}
        }
        failed.or_else(|again| if again.is_exception() { Ok(()) } else { Err(again) })
    }

    /// Closes the body, and calls the callbacks that wait for the end of the response.
    fn finish(self, error: VALUE) -> Result<(), NonLocalExit> {
        let env = self.context.env.get();
        let body = self.context.body.get();
        let is_plain = body == NIL || RArray::plain(self.gvl, body).is_some();
        if is_plain && self.context.input.get() == NIL && !self.has_callbacks(env) {
            return Ok(());
        }
        let closed = self.gvl.catch(|ruby| {
            Responder::new(self.engine, self.context, ruby).close_body();
        });
        let told = self.gvl.catch(|ruby| {
            let (returned, input) = (self.context.returned.get(), self.context.input.get());
            self.engine.callbacks.finished(ruby, FinishedRequest { env, returned, input, error });
        });
        for raised in [closed, told].into_iter().filter_map(Result::err) {
            if !raised.is_exception() {
                return Err(raised);
            }
            self.gvl.catch(|ruby| {
                self.engine.callbacks.failed(ruby, raised.error(), env);
            })?;
        }
        Ok(())
    }

    /// Whether the application has registered callbacks for the end of the response.
    fn has_callbacks(self, env: VALUE) -> bool {
        let is_quiet = |callbacks| {
            RArray::plain(self.gvl, callbacks).is_some_and(|callbacks| callbacks.len(self.gvl) == 0)
        };
        !self.engine.environments.borrow().callbacks(self.gvl, env).into_iter().all(is_quiet)
    }
}
