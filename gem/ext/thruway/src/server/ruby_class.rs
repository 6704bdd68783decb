//! `Thruway::Engine`: the server's interface for Ruby.

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};

use rb_sys::VALUE;
use thruway_http1::Version;
use thruway_serve::{Bind, Listener, ShutdownMode, Ticket, WriteOutcome, inheritance, tls};

use super::context::{Context, Stage};
use super::options::Options;
use super::rack_engine::{RackEngine, TYPE, ticket_of};
use super::sender::{self, Sender};
use super::{fibers, process, sockets, worker_group};
use crate::ruby::collector::without_collection;
use crate::ruby::define::{self, Method};
use crate::ruby::{
    Gvl, NIL, ProtectedCall, RArray, RModule, RString, boolean, is_true, number, raise, thread,
};

/// Defines `Thruway::Engine`, `Thruway::WorkerTable` and what a supervisor asks of the system.
pub(crate) fn define(ruby: ProtectedCall, thruway: RModule) {
    worker_group::define(ruby, thruway);
    process::define(ruby, thruway);
    fibers::define(ruby, thruway);
    let Some(class) = define::class_under(ruby, thruway, c"Engine") else { return };
    let gvl = ruby.gvl();
    define::singleton_method(gvl, class.value(), c"create", Method::of_2(create));
    define::singleton_method(gvl, class.value(), c"listen", Method::of_1(listen));
    define::method(gvl, class, c"serve", Method::of_1(serve));
    define::method(gvl, class, c"wait_for_order", Method::of_0(wait_for_order));
    define::method(gvl, class, c"arrive", Method::of_1(arrive));
    define::method(gvl, class, c"mark_as_io_bound", Method::of_0(mark_as_io_bound));
    define::method(gvl, class, c"run_fiber", Method::of_1(run_fiber));
    define::method(gvl, class, c"drain", Method::of_1(drain));
    define::method(gvl, class, c"give_up", Method::of_0(give_up));
    define::method(gvl, class, c"announce_end", Method::of_0(announce_end));
    define::method(gvl, class, c"retire", Method::of_0(retire));
    define::method(gvl, class, c"close", Method::of_0(close));
    define::method(gvl, class, c"export", Method::of_0(export));
    define::method(gvl, class, c"import", Method::of_1(import));
    define::method(gvl, class, c"reload_certificates", Method::of_0(reload_certificates));
    define::method(gvl, class, c"connections", Method::of_0(connections));
    define::method(gvl, class, c"requests", Method::of_0(requests));
    define::method(gvl, class, c"stats", Method::of_0(stats));
    define::method(gvl, class, c"purge", Method::of_1(purge));
    define::method(gvl, class, c"take_connection", Method::of_1(take_connection));
    define::method(gvl, class, c"inform", Method::of_2(inform));
    define::method(gvl, class, c"write", Method::of_2(write));
    define::method(gvl, class, c"finish", Method::of_1(finish));
    define::method(gvl, class, c"abort", Method::of_1(abort));
    sockets::define(gvl, class);
}

/// `Engine.create(server, options)`: see `Thruway::Server` for the options.
fn create(ruby: ProtectedCall, class: VALUE, server: VALUE, options: VALUE) -> VALUE {
    let options = Options::read(ruby, options);
    let this = new_engine(ruby.gvl(), class, server, &options)
        .unwrap_or_else(|message| raise::runtime_error(ruby, message));
    TYPE.get(ruby, &this).this.set(this);
    this
}

fn new_engine(gvl: Gvl, class: VALUE, server: VALUE, options: &Options) -> Result<VALUE, RString> {
    let class = RModule::of(gvl, class).ok_or(RString::binary(gvl, b"it is not a class"))?;
    // The collector finds the objects that an engine keeps only once a Ruby object owns the engine.
    let engine = without_collection(gvl, || {
        options.build(gvl, server).map(|engine| TYPE.wrap(gvl, class, engine))
    });
    engine.map_err(|error| RString::binary(gvl, error.as_bytes()))
}

/// `Engine.listen(uri)`: returns an Array of each listener's descriptor and address. After a failure, returns nil, a
/// message, and the kind of error: `in_use`, `denied` or `other`.
fn listen(ruby: ProtectedCall, _class: VALUE, uri: VALUE) -> VALUE {
    let uri = RString::convert(ruby, uri);
    let gvl = ruby.gvl();
    let wrong = |wrong| (wrong, "other");
    let listeners =
        uri.to_text(gvl).parse::<Bind>().map_err(wrong).and_then(|bind| {
            Listener::all(&bind).map_err(|error| (error.to_string(), kind(&error)))
        });
    let result = RArray::with_room(gvl, 3);
    match listeners {
        Ok(listeners) => listeners.into_iter().for_each(|listener| {
            let address = listener.to_string();
            result.push(gvl, rb_sys::LONG2NUM(listener.into_raw_fd().into()));
            result.push(gvl, RString::new(gvl, address.as_bytes()).value());
        }),
        Err((message, kind)) => {
            result.push(gvl, NIL);
            result.push(gvl, RString::new(gvl, message.as_bytes()).value());
            result.push(gvl, RString::binary(gvl, kind.as_bytes()).value());
        }
    }
    result.value()
}

fn kind(error: &thruway_serve::Error) -> &'static str {
    match (error.is_in_use(), error.is_denied()) {
        (true, _) => "in_use",
        (_, true) => "denied",
        _ => "other",
    }
}

/// `engine.serve(n)`: runs the thread of that number until the server stops.
fn serve(ruby: ProtectedCall, this: VALUE, number: VALUE) -> VALUE {
    let engine = TYPE.get(ruby, &this);
    let threads = engine.leadership.roles().limits().threads() as usize;
    let me = number::small_count(number).min(threads - 1);
    match engine.serve(ruby.gvl(), me) {
        Ok(()) => NIL,
        Err(raised) => raised.resume(ruby),
    }
}

/// `engine.run_fiber(n)`: runs requests of the thread of that number, in a fiber that the server transfers to.
fn run_fiber(ruby: ProtectedCall, this: VALUE, number: VALUE) -> VALUE {
    let engine = TYPE.get(ruby, &this);
    engine.run_fiber(ruby, number::small_count(number))
}

/// `engine.wait_for_order`: waits until one more thread is to be started; false if none is any more.
fn wait_for_order(ruby: ProtectedCall, this: VALUE) -> VALUE {
    boolean(TYPE.get(ruby, &this).leadership.wait_for_order(ruby.gvl()))
}

/// `engine.arrive(is_started)`: tells whether Ruby has started the thread that the engine ordered.
fn arrive(ruby: ProtectedCall, this: VALUE, is_started: VALUE) -> VALUE {
    let leadership = &TYPE.get(ruby, &this).leadership;
    if is_true(is_started) {
        leadership.roles().arrive();
    } else {
        leadership.roles().cancel_order();
    }
    leadership.note_threads();
    NIL
}

/// `engine.mark_as_io_bound`: the calling thread's request waits for something else than this server. Whether the
/// thread has a request that was not marked before.
fn mark_as_io_bound(ruby: ProtectedCall, this: VALUE) -> VALUE {
    let engine = TYPE.get(ruby, &this);
    let thread = thread::current(ruby.gvl());
    let has_request =
        |context: &&Context| context.thread.get() == thread && context.ticket.get().is_some();
    let context = engine.contexts.iter().find(has_request);
    let is_new = context.is_some_and(|context| !context.is_marked.replace(true));
    if is_new {
        engine.leadership.roles().mark_waiting(true);
    }
    boolean(is_new)
}

/// `engine.drain(closes_for_all)`: accepts no new connections (in no process, if `closes_for_all`), and ends the
/// others after their responses.
fn drain(ruby: ProtectedCall, this: VALUE, closes_for_all: VALUE) -> VALUE {
    let engine = TYPE.get(ruby, &this);
    engine.is_stopping.set(true);
    engine.shut_down(ShutdownMode::Drain { closes_for_all: is_true(closes_for_all) })
}

/// `engine.give_up`: ends all connections; requests without a response get 503.
fn give_up(ruby: ProtectedCall, this: VALUE) -> VALUE {
    TYPE.get(ruby, &this).shut_down(ShutdownMode::Abort)
}

/// `engine.announce_end`: health checks get 503, and responses close their connections. New connections are accepted.
fn announce_end(ruby: ProtectedCall, this: VALUE) -> VALUE {
    TYPE.get(ruby, &this).shut_down(ShutdownMode::Announce)
}

/// `engine.retire`: accepts no connections, and passes its own to other processes between two requests.
fn retire(ruby: ProtectedCall, this: VALUE) -> VALUE {
    let engine = TYPE.get(ruby, &this);
    engine.is_stopping.set(true);
    engine.shut_down(ShutdownMode::HandOver)
}

/// `engine.close`: ends the standby and the subscriptions to Ruby's events. No thread is in `serve` any more.
fn close(ruby: ProtectedCall, this: VALUE) -> VALUE {
    TYPE.get(ruby, &this).close(ruby.gvl());
    NIL
}

/// `engine.export`: returns a descriptor for `import` in the program that replaces this process by `exec`.
fn export(ruby: ProtectedCall, this: VALUE) -> VALUE {
    let exported = inheritance::export(&mut TYPE.get(ruby, &this).engine.lock());
    match exported.map_err(|error| error.to_string()) {
        Ok(file) => rb_sys::LONG2NUM(file.into_raw_fd().into()),
        Err(message) => {
            let message = RString::binary(ruby.gvl(), message.as_bytes());
            raise::runtime_error(ruby, message)
        }
    }
}

/// `engine.import(descriptor)`: continues with the state that `export` has written. Returns whether the state could
/// be read.
fn import(ruby: ProtectedCall, this: VALUE, descriptor: VALUE) -> VALUE {
    let number = number::small(descriptor).and_then(|number| RawFd::try_from(number).ok());
    let Some(number) = number.filter(|number| *number >= 0) else { return boolean(false) };
    // SAFETY: the descriptor was passed to this process, which has not used it yet.
    let take = |number| unsafe { OwnedFd::from_raw_fd(number) };
    let engine = TYPE.get(ruby, &this);
    boolean(inheritance::import(&mut engine.engine.lock(), take(number), take).is_ok())
}

/// `engine.reload_certificates`: reads the certificates again. Returns an error message or nil. After an error the
/// old certificates stay in use.
fn reload_certificates(ruby: ProtectedCall, this: VALUE) -> VALUE {
    let reloaded = tls::reload_certificates(&mut TYPE.get(ruby, &this).engine.lock());
    let text = |error: thruway_serve::Error| {
        RString::new(ruby.gvl(), error.to_string().as_bytes()).value()
    };
    reloaded.map_or_else(text, |()| NIL)
}

/// `engine.connections`: returns the number of open connections.
fn connections(ruby: ProtectedCall, this: VALUE) -> VALUE {
    let count = TYPE.get(ruby, &this).engine.lock().connection_count();
    number::from_u64(ruby.gvl(), count as u64)
}

/// `engine.requests`: returns the number of requests for which the application was called.
fn requests(ruby: ProtectedCall, this: VALUE) -> VALUE {
    number::from_u64(ruby.gvl(), TYPE.get(ruby, &this).requests.get())
}

/// `engine.purge(pattern)`: removes responses from the cache. Returns how many.
fn purge(ruby: ProtectedCall, this: VALUE, pattern: VALUE) -> VALUE {
    let pattern = RString::convert(ruby, pattern).to_vec(ruby.gvl());
    let removed = thruway_serve::purge(&TYPE.get(ruby, &this).engine.lock(), &pattern);
    worker_group::purged(ruby, removed)
}

/// `engine.stats`: returns the statistics of all workers as JSON.
fn stats(ruby: ProtectedCall, this: VALUE) -> VALUE {
    let stats = thruway_serve::stats(&TYPE.get(ruby, &this).engine.lock());
    RString::new(ruby.gvl(), stats.as_bytes()).value()
}

/// `engine.take_connection(request)`: returns an Array of the connection's descriptor, the bytes that were read
/// ahead, and the environment. Returns nil unless the application has the request of that number and nothing was
/// sent.
fn take_connection(ruby: ProtectedCall, this: VALUE, request: VALUE) -> VALUE {
    let engine = TYPE.get(ruby, &this);
    let gvl = ruby.gvl();
    let Some(context) = context_of(gvl, engine, request) else { return NIL };
    let Some([socket, input]) = Sender::new(&engine.engine, context).detach(gvl) else {
        return NIL;
    };
    context.stage.set(Stage::Done);
    let taken = RArray::with_room(gvl, 3);
    [socket, input, context.env.get()].into_iter().for_each(|value| taken.push(gvl, value));
    taken.value()
}

/// `engine.inform(request, head)`: sends an interim response, if the application has the request of that number and
/// nothing was sent.
fn inform(ruby: ProtectedCall, this: VALUE, request: VALUE, head: VALUE) -> VALUE {
    let engine = TYPE.get(ruby, &this);
    engine.check_fork(ruby);
    let head = RString::convert(ruby, head);
    let Some(context) = context_of(ruby.gvl(), engine, request) else { return NIL };
    // A client of HTTP/1.0 would mistake an interim response for the final one.
    if let Some(ticket) = context.ticket.get()
        && context.constraints.get().version != Version::Http10
    {
        let engine = &*engine.engine;
        head.read(ruby.gvl(), |head| engine.lock().response(ticket).inform(head));
    }
    NIL
}

/// The context of the thread that has the request of that number, if nothing of the response was sent.
fn context_of(gvl: Gvl, engine: &RackEngine, request: VALUE) -> Option<&Context> {
    let is_meant = |ticket: Option<Ticket>| {
        ticket.is_some_and(|ticket| number::from_u64(gvl, ticket.request()) == request)
    };
    engine
        .contexts
        .iter()
        .find(|context| context.stage.get() == Stage::Unsent && is_meant(context.ticket.get()))
}

/// `engine.write(ticket, string)`: returns true if the client is still connected.
fn write(ruby: ProtectedCall, this: VALUE, ticket: VALUE, string: VALUE) -> VALUE {
    let engine = TYPE.get(ruby, &this);
    engine.check_fork(ruby);
    let ticket = ticket_of(ruby, ticket);
    let string = RString::convert(ruby, string);
    let shared = &*engine.engine;
    let written = string.read(ruby.gvl(), |bytes| shared.lock().response(ticket).write(bytes));
    if written == WriteOutcome::Excess {
        let message = sender::too_long(ruby.gvl());
        engine.callbacks.log(ruby, message);
        raise::io_error(ruby, message);
    }
    boolean(sender::wait_for_client(ruby, &engine.engine, ticket, written))
}

/// `engine.finish(ticket)`: completes the stream. A forked process leaves it to its parent.
fn finish(ruby: ProtectedCall, this: VALUE, ticket: VALUE) -> VALUE {
    let engine = TYPE.get(ruby, &this);
    if engine.home.is_left() {
        return NIL;
    }
    let ticket = ticket_of(ruby, ticket);
    let missing = engine.engine.lock().response(ticket).finish();
    // The leader may be waiting, with the connection's next request already read.
    engine.engine.wake();
    if missing > 0 {
        engine.callbacks.log(ruby, sender::too_short(ruby.gvl(), missing));
    }
    NIL
}

/// `engine.abort(ticket)`: ends the stream incomplete. A forked process leaves it to its parent.
fn abort(ruby: ProtectedCall, this: VALUE, ticket: VALUE) -> VALUE {
    let engine = TYPE.get(ruby, &this);
    if engine.home.is_left() {
        return NIL;
    }
    let ticket = ticket_of(ruby, ticket);
    engine.engine.lock().response(ticket).abort();
    NIL
}
