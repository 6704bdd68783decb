//! The server of one process.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use rb_sys::VALUE;
use thruway_serve::websocket::Deflater;
use thruway_serve::{ShutdownMode, Ticket};

use super::callbacks::Callbacks;
use super::collections::Totals;
use super::context::Context;
use super::env::Environments;
use super::fibers::pool::Fibers;
use super::files::DeclaredFolders;
use super::forks::HomeProcess;
use super::helpers::Helpers;
use super::leadership::Leadership;
use super::roles::LockRequests;
use super::roots::{Root, Roots};
use super::shared_engine::SharedEngine;
use crate::ruby::data_type::{DataType, Marker, ObjectData};
use crate::ruby::object::PlainClass;
use crate::ruby::{Gvl, NIL, ProtectedCall, RString, Symbol};

/// The type of the Ruby object that owns a server.
pub(super) static TYPE: DataType<RackEngine> = DataType::new(c"Thruway::Engine");

/// A server of one process: its engine, its application, and its threads' contexts. Used with the interpreter lock
/// held. No borrow of its cells lasts over a call that may run Ruby code.
pub(super) struct RackEngine {
    /// The object that owns this server. The object marks itself, so that it does not move.
    pub(super) this: Cell<VALUE>,
    pub(super) engine: Arc<SharedEngine>,
    /// `None` once the server is closed.
    pub(super) helpers: Cell<Option<Helpers>>,
    pub(super) environments: RefCell<Environments>,
    pub(super) leadership: Leadership,
    /// `None` where requests run in threads.
    pub(super) fibers: Option<Fibers>,
    /// `None` where requests run in threads, and where Ruby has no way to ask.
    pub(super) lock_requests: Option<LockRequests>,
    /// Whether a request in a fiber has gathered pieces since its fiber went on.
    pub(super) gathers: Cell<bool>,
    /// The time before which the log tells of no limit again.
    pub(super) next_limit_log_us: Cell<u64>,
    /// `None` without metrics, and where Ruby reports its pauses.
    pub(super) collections: Option<Totals>,
    pub(super) contexts: Vec<Context>,
    pub(super) files: DeclaredFolders,
    pub(super) is_stopping: Cell<bool>,
    pub(super) home: HomeProcess,
    pub(super) requests: Cell<u64>,
    pub(super) app: Root<VALUE>,
    pub(super) callbacks: Callbacks,
    /// The class `Thruway::Hijack`.
    pub(super) hijack: Root<PlainClass>,
    pub(super) roots: Arc<Roots>,
    /// The compressor of messages, created with the first message to compress.
    pub(super) deflater: RefCell<Option<Box<Deflater>>>,
    pub(super) names: Names,
}

/// The names of methods of applications and their results, and of variables.
pub(super) struct Names {
    pub(super) call: Symbol,
    pub(super) each: Symbol,
    pub(super) close: Symbol,
    pub(super) to_i: Symbol,
    pub(super) to_ary: Symbol,
    pub(super) to_path: Symbol,
    pub(super) to_str: Symbol,
    pub(super) is_stopped: Symbol,
    pub(super) for_fd: Symbol,
    pub(super) of_server: Symbol,
    pub(super) of_request: Symbol,
    pub(super) of_body: Symbol,
    pub(super) keys: Symbol,
    pub(super) storage: Symbol,
}

impl Names {
    pub(super) fn new(gvl: Gvl) -> Self {
        let symbol = |name| Symbol::new(gvl, name);
        Self {
            call: symbol(c"call"),
            each: symbol(c"each"),
            close: symbol(c"close"),
            to_i: symbol(c"to_i"),
            to_ary: symbol(c"to_ary"),
            to_path: symbol(c"to_path"),
            to_str: symbol(c"to_str"),
            is_stopped: symbol(c"stop?"),
            for_fd: symbol(c"for_fd"),
            of_server: symbol(c"@server"),
            of_request: symbol(c"@request"),
            of_body: symbol(c"@body"),
            keys: symbol(c"keys"),
            storage: symbol(c"storage"),
        }
    }
}

impl RackEngine {
    /// Ends the service in the given way, and wakes every thread to check for the end.
    pub(super) fn shut_down(&self, shutdown: ShutdownMode) -> VALUE {
        self.engine.lock().shut_down(shutdown);
        self.wake_all();
        NIL
    }

    /// Called after the application has returned to thread `me`, which called it at `entered_us`.
    pub(super) fn leave_application(&self, gvl: Gvl, me: usize, entered_us: u64) {
        self.leadership.leave_application(me, entered_us);
        self.note_collections(gvl);
    }

    /// Measures the collector's pauses since the last call, where Ruby does not report them.
    pub(super) fn note_collections(&self, gvl: Gvl) {
        if let Some(collections) = &self.collections {
            collections.note(gvl);
        }
    }

    /// Notes that a request has gathered pieces. If it runs in a fiber, they leave when the fiber waits.
    pub(super) fn note_gathering(&self) {
        self.gathers.set(self.fibers.is_some());
    }

    /// Ends all activity outside of Ruby's threads, none of which may be in the engine any more. After that the
    /// process can be forked, and each child can create a server of its own.
    pub(super) fn close(&self, gvl: Gvl) {
        self.leadership.roles().end();
        if let Some(helpers) = self.helpers.take() {
            helpers.end(gvl);
        }
    }

    /// Wakes every thread of the server, so that each checks for changes.
    pub(super) fn wake_all(&self) {
        self.engine.wake();
        self.leadership.roles().call_all_followers();
    }
}

impl ObjectData for RackEngine {
    fn mark(&self, marker: Marker) {
        marker.mark(self.this.get());
        self.roots.mark(marker);
        let used_end = self.fibers.as_ref().map_or(self.contexts.len(), Fibers::used_end);
        self.contexts[..used_end].iter().for_each(|context| context.mark(marker));
        if let Some(fibers) = &self.fibers {
            fibers.mark(marker);
        }
    }
}

impl Drop for RackEngine {
    fn drop(&mut self) {
        self.leadership.roles().end();
    }
}

/// The ticket in a String that [`Ticket::to_bytes`] has created. Any other String becomes a ticket that belongs to no
/// request.
pub(super) fn ticket_of(ruby: ProtectedCall, ticket: VALUE) -> Ticket {
    let ticket = RString::convert(ruby, ticket);
    ticket.read(ruby.gvl(), |bytes| Ticket::from_bytes(bytes.try_into().unwrap_or_default()))
}
