//! Methods of `Thruway::Server` that the extension calls for work that is done in Ruby.

use std::sync::Arc;

use rb_sys::VALUE;

use super::roots::{Root, Roots};
use crate::ruby::call::call;
use crate::ruby::{Gvl, ProtectedCall, RString, Symbol, is_true, number};

/// A `Thruway::Server`, and the names of the methods that are called.
pub(super) struct Callbacks {
    server: Root<VALUE>,
    input: Symbol,
    certificate: Symbol,
    failed: Symbol,
    trouble: Symbol,
    finished: Symbol,
    stream: Symbol,
    give_away: Symbol,
    fields: Symbol,
    bad_field: Symbol,
    no_file: Symbol,
    upgrade: Symbol,
    socket_event: Symbol,
    fiber: Symbol,
    scheduler: Symbol,
}

/// A request that has ended.
#[derive(Clone, Copy)]
pub(super) struct FinishedRequest {
    pub(super) env: VALUE,
    /// The result of the application.
    pub(super) returned: VALUE,
    pub(super) input: VALUE,
    /// The exception that the application raised, or nil.
    pub(super) error: VALUE,
}

impl Callbacks {
    pub(super) fn new(gvl: Gvl, roots: &Arc<Roots>, server: VALUE) -> Self {
        let symbol = |name| Symbol::new(gvl, name);
        Self {
            server: roots.keep(gvl, server),
            input: symbol(c"input"),
            certificate: symbol(c"certificate"),
            failed: symbol(c"failed"),
            trouble: symbol(c"trouble"),
            finished: symbol(c"finished"),
            stream: symbol(c"stream"),
            give_away: symbol(c"give_away"),
            fields: symbol(c"fields"),
            bad_field: symbol(c"bad_field"),
            no_file: symbol(c"no_file"),
            upgrade: symbol(c"upgrade"),
            socket_event: symbol(c"socket_event"),
            fiber: symbol(c"fiber"),
            scheduler: symbol(c"scheduler"),
        }
    }

    /// The `Thruway::Server`.
    pub(super) fn server(&self) -> VALUE {
        self.server.get()
    }

    /// The `rack.input` of a request: `bytes` is a String or nil, `file` a File or nil.
    pub(super) fn input(
        &self,
        ruby: ProtectedCall,
        env: VALUE,
        bytes: VALUE,
        file: VALUE,
    ) -> VALUE {
        call(ruby, self.server(), self.input, &[env, bytes, file])
    }

    /// Adds the client's certificate to the environment of a request.
    pub(super) fn certificate(&self, ruby: ProtectedCall, env: VALUE, certificate: RString) {
        call(ruby, self.server(), self.certificate, &[env, certificate.value()]);
    }

    /// A new fiber that runs the requests of thread `me`, once it is transferred to.
    pub(super) fn fiber(&self, ruby: ProtectedCall, me: usize) -> VALUE {
        let number = number::from_u64(ruby.gvl(), me as u64);
        call(ruby, self.server(), self.fiber, &[number])
    }

    /// A new scheduler for the fibers of the calling thread.
    pub(super) fn scheduler(&self, ruby: ProtectedCall) -> VALUE {
        call(ruby, self.server(), self.scheduler, &[])
    }

    /// Logs an exception of the application. Returns the response for it.
    pub(super) fn failed(&self, ruby: ProtectedCall, error: VALUE, env: VALUE) -> VALUE {
        call(ruby, self.server(), self.failed, &[error, env])
    }

    /// Logs a failure of the engine.
    pub(super) fn log(&self, ruby: ProtectedCall, text: RString) {
        call(ruby, self.server(), self.trouble, &[text.value()]);
    }

    /// Calls the callbacks that wait for the end of a response.
    pub(super) fn finished(&self, ruby: ProtectedCall, request: FinishedRequest) {
        let FinishedRequest { env, returned, input, error } = request;
        call(ruby, self.server(), self.finished, &[env, returned, input, error]);
    }

    /// Calls a streaming body. Returns whether the body continues to write afterwards.
    pub(super) fn stream(
        &self,
        ruby: ProtectedCall,
        ticket: RString,
        [body, env, input]: [VALUE; 3],
    ) -> bool {
        is_true(call(ruby, self.server(), self.stream, &[ticket.value(), body, env, input]))
    }

    /// Passes a connection to the application.
    pub(super) fn give_away(
        &self,
        ruby: ProtectedCall,
        hijack: VALUE,
        [socket, input]: [VALUE; 2],
    ) {
        call(ruby, self.server(), self.give_away, &[hijack, socket, input]);
    }

    /// Upgrades a connection. `parts` are `env`, the response's headers, and the handler of the connection's events.
    /// Returns nil, or a response to send instead.
    pub(super) fn upgrade(&self, ruby: ProtectedCall, ticket: RString, parts: [VALUE; 3]) -> VALUE {
        let [env, headers, handler] = parts;
        call(ruby, self.server(), self.upgrade, &[ticket.value(), env, headers, handler])
    }

    /// Reports an event of an upgraded connection: the number of its request, the kind, and a message or a close
    /// code.
    pub(super) fn socket_event(&self, ruby: ProtectedCall, event: [VALUE; 3]) {
        call(ruby, self.server(), self.socket_event, &event);
    }

    /// An Array of the names and values, in turn, that headers yield which are not a Hash.
    pub(super) fn fields(&self, ruby: ProtectedCall, headers: VALUE) -> VALUE {
        call(ruby, self.server(), self.fields, &[headers])
    }

    /// Logs a header field that would break the head.
    pub(super) fn bad_field(&self, ruby: ProtectedCall, name: RString) {
        call(ruby, self.server(), self.bad_field, &[name.value()]);
    }

    /// The response for a file that the application has named but that does not exist.
    pub(super) fn no_file(&self, ruby: ProtectedCall, path: RString) -> VALUE {
        call(ruby, self.server(), self.no_file, &[path.value()])
    }
}
