//! The state of the request of one Ruby thread.

use std::cell::{Cell, UnsafeCell};

use rb_sys::VALUE;
use thruway_http1::response::{PartialHead, ResponseConstraints};
use thruway_roles::Route;
use thruway_serve::Ticket;

use crate::ruby::NIL;
use crate::ruby::data_type::Marker;

/// The request of a thread, or of a fiber. Used with the interpreter lock held.
pub(super) struct Context {
    /// The number of the thread, or of the fiber behind all threads.
    pub(super) number: usize,
    pub(super) thread: Cell<VALUE>,
    /// The number of the thread that serves the request, which may be in a fiber.
    pub(super) server_thread: Cell<usize>,
    pub(super) env: Cell<VALUE>,
    /// `rack.input`, if the request has a body.
    pub(super) input: Cell<VALUE>,
    /// The result of the application: status, headers and body.
    pub(super) returned: Cell<VALUE>,
    /// The application's body, until it is closed.
    pub(super) body: Cell<VALUE>,
    /// The exception that tells a waiting fiber that its client has gone; nil before that.
    pub(super) desertion: Cell<VALUE>,
    pub(super) ticket: Cell<Option<Ticket>>,
    pub(super) constraints: Cell<ResponseConstraints>,
    /// Whether the thread leads, and polls soon after the response, which may then wait for others of its connection.
    pub(super) corks: Cell<bool>,
    /// Whether the application may upgrade the connection.
    pub(super) upgrades: Cell<bool>,
    /// Whether the application has marked the request as waiting for another service.
    pub(super) is_marked: Cell<bool>,
    /// The request's route, if it runs in a fiber.
    pub(super) route: Cell<Option<Route>>,
    /// Whether the request has computed for long without a wait.
    pub(super) was_long: Cell<bool>,
    /// The response's status.
    pub(super) status: Cell<u16>,
    pub(super) stage: Cell<Stage>,
    /// The head of the response.
    pub(super) head: Buffer,
    /// The head while it is incomplete.
    pub(super) partial: Cell<Option<PartialHead>>,
    /// Gathered pieces of the body.
    pub(super) gathered: Buffer,
    /// Whether pieces may be gathered at all.
    pub(super) gathers: Cell<bool>,
    /// The time at which the first piece was gathered.
    pub(super) gathered_us: Cell<u64>,
}

/// The progress of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing was sent.
    Unsent,
    /// The head and pieces of the body are gathered, and can still be discarded.
    Gathering,
    /// The head was sent; the body follows in pieces.
    Streaming,
    /// The response was sent, or the connection belongs to the application.
    Done,
}

/// Bytes that are used in steps, between which any Ruby code may run.
#[derive(Default)]
pub(super) struct Buffer(UnsafeCell<Vec<u8>>);

impl Buffer {
    /// The bytes, to read or to change.
    ///
    /// # Safety
    /// The reference is dropped before the next call of this method. It is used between two calls into Ruby, by the
    /// thread that holds the interpreter lock.
    #[expect(clippy::mut_from_ref, reason = "the interpreter lock takes the place of the borrow")]
    pub(super) unsafe fn get(&self) -> &mut Vec<u8> {
        // SAFETY: this function's own contract.
        unsafe { &mut *self.0.get() }
    }
}

impl Context {
    pub(super) fn new(number: usize) -> Self {
        Self {
            number,
            thread: Cell::new(NIL),
            server_thread: Cell::new(number),
            env: Cell::new(NIL),
            input: Cell::new(NIL),
            returned: Cell::new(NIL),
            body: Cell::new(NIL),
            desertion: Cell::new(NIL),
            ticket: Cell::new(None),
            constraints: Cell::new(ResponseConstraints::broken()),
            corks: Cell::new(false),
            upgrades: Cell::new(false),
            is_marked: Cell::new(false),
            route: Cell::new(None),
            was_long: Cell::new(false),
            status: Cell::new(0),
            stage: Cell::new(Stage::Done),
            head: Buffer::default(),
            partial: Cell::new(None),
            gathered: Buffer::default(),
            gathers: Cell::new(false),
            gathered_us: Cell::new(0),
        }
    }

    /// Begins a request: nothing is sent yet.
    pub(super) fn begin(&self, env: VALUE, ticket: Ticket, constraints: ResponseConstraints) {
        self.forget();
        self.env.set(env);
        self.ticket.set(Some(ticket));
        self.constraints.set(constraints);
        self.stage.set(Stage::Unsent);
        self.partial.set(None);
    }

    pub(super) fn end(&self) {
        self.forget();
        self.ticket.set(None);
        self.stage.set(Stage::Done);
    }

    fn forget(&self) {
        let values = [&self.env, &self.input, &self.returned, &self.body, &self.desertion];
        for value in values {
            value.set(NIL);
        }
    }

    pub(super) fn mark(&self, marker: Marker) {
        let values = [&self.thread, &self.env, &self.input, &self.returned, &self.body];
        let values = values.into_iter().chain([&self.desertion]);
        values.for_each(|value| marker.mark(value.get()));
    }
}
