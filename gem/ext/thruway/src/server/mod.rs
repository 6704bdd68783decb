//! The Rack server: an engine, the Ruby threads that call the application, and a standby thread.
//!
//! Reading order: `lead` (what a thread does), `leadership` (which thread leads), `standby` and `duty` (what is done
//! while none is at the engine), `env` (from a request to its environment), `response` and `body` (from what the
//! application returns to what the client gets). `ruby_class` and `worker_group` are what Ruby sees of it; `gvl`,
//! `roots` and `data_type` are how Rust and Ruby live together. What is rare is done in Ruby, by `Thruway::Server`.

mod body;
mod context;
mod data_type;
mod duty;
mod env;
mod files;
mod gvl;
mod gvl_events;
mod lead;
mod leadership;
mod load;
mod options;
mod response;
mod roots;
mod ruby_class;
mod signal;
mod standby;
mod worker_group;

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rb_sys::{ID, VALUE};
use thruway_serve::{Engine, Ticket, Waiter, Waker};

use context::Context;
use env::Environments;
use files::DeclaredFolders;
use leadership::Leadership;
use roots::{Root, Roots};

pub(crate) use ruby_class::define;

/// A server of one process: its engine, its application, and its threads' contexts. It is used with
/// the interpreter lock held; no borrow of its cells lasts over a call that may run Ruby code.
struct RackEngine {
    /// Shared with the standby. It is locked for moments only, and never while Ruby code may run.
    engine: Arc<Mutex<Engine>>,
    waiter: Waiter,
    waker: Waker,
    environments: RefCell<Environments>,
    leadership: Leadership,
    contexts: Vec<Context>,
    files: DeclaredFolders,
    is_stopping: Cell<bool>,
    requests: Cell<u64>,
    app: Root,
    /// The `Thruway::Server`, which does what is rare.
    callbacks: Root,
    /// The class `Thruway::Hijack`.
    hijack: Root,
    roots: Arc<Roots>,
    names: Names,
}

/// The methods that are called.
struct Names {
    call: ID,
    each: ID,
    close: ID,
    to_i: ID,
    to_ary: ID,
    to_path: ID,
    is_stopped: ID,
    input: ID,
    failed: ID,
    trouble: ID,
    finished: ID,
    stream: ID,
    give_away: ID,
    bad_field: ID,
    no_file: ID,
    of_server: ID,
    of_request: ID,
    of_body: ID,
}

impl Names {
    fn new() -> Self {
        use gvl::method;
        Self {
            call: method(c"call"),
            each: method(c"each"),
            close: method(c"close"),
            to_i: method(c"to_i"),
            to_ary: method(c"to_ary"),
            to_path: method(c"to_path"),
            is_stopped: method(c"stop?"),
            input: method(c"input"),
            failed: method(c"failed"),
            trouble: method(c"trouble"),
            finished: method(c"finished"),
            stream: method(c"stream"),
            give_away: method(c"give_away"),
            bad_field: method(c"bad_field"),
            no_file: method(c"no_file"),
            of_server: method(c"@server"),
            of_request: method(c"@request"),
            of_body: method(c"@body"),
        }
    }
}

impl RackEngine {
    fn engine(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells Ruby's collector of everything that is held here.
    fn mark(&self) {
        self.roots.mark();
        self.contexts.iter().for_each(Context::mark);
    }
}

impl Drop for RackEngine {
    fn drop(&mut self) {
        self.leadership.signal().duty.end();
    }
}

/// The number of a ticket's request as Ruby has it.
fn request_number(ticket: Ticket) -> VALUE {
    // SAFETY: the interpreter lock is held by whatever has a ticket.
    unsafe { rb_sys::rb_ull2inum(ticket.request()) }
}
