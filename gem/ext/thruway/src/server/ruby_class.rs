//! `Thruway::Engine`: what Ruby sees of the server.

use std::ffi::c_void;
use std::os::fd::IntoRawFd;

use rb_sys::VALUE;
use thruway_serve::{Bind, Listener, Ticket, Written};

use super::body::{too_long, too_short};
use super::context::Stage;
use super::data_type::{DataType, Method, Owner, define_class, define_method, give};
use super::gvl::{Gvl, NIL, Protected, truth};
use super::options::Options;
use super::{RackEngine, worker_group};

static TYPE: DataType = DataType::new(c"Thruway::Engine", Some(mark), free);

unsafe extern "C" fn mark(server: *mut c_void) {
    // SAFETY: the pointer is the one that `create` wrapped, and nobody has it exclusively.
    let server = unsafe { &*server.cast::<RackEngine>() };
    server.mark();
}

unsafe extern "C" fn free(server: *mut c_void) {
    // SAFETY: the pointer is the one that `create` wrapped, and its object is unreachable.
    drop(unsafe { Box::from_raw(server.cast::<RackEngine>()) });
}

/// Defines `Thruway::Engine` and `Thruway::Fleet`.
pub(crate) fn define(thruway: VALUE) {
    worker_group::define(thruway);
    let class = define_class(thruway, c"Engine");
    define_method(class, Owner::Class, c"create", Method::Two(create));
    define_method(class, Owner::Class, c"listen", Method::One(listen));
    define_method(class, Owner::Instance, c"serve", Method::One(serve));
    define_method(class, Owner::Instance, c"drain", Method::One(drain));
    define_method(class, Owner::Instance, c"give_up", Method::None(give_up));
    define_method(class, Owner::Instance, c"connections", Method::None(connections));
    define_method(class, Owner::Instance, c"requests", Method::None(requests));
    define_method(class, Owner::Instance, c"take_connection", Method::One(take_connection));
    define_method(class, Owner::Instance, c"write", Method::Two(write));
    define_method(class, Owner::Instance, c"finish", Method::One(finish));
    define_method(class, Owner::Instance, c"abort", Method::One(abort));
}

/// The server behind an object.
///
/// # Safety
/// As for [`DataType::value_of`].
unsafe fn engine_of<'a>(object: VALUE) -> &'a RackEngine {
    // SAFETY: as this function's own; servers alone are wrapped with this type.
    unsafe { TYPE.value_of(object) }
}

/// `Engine.create(callbacks, options)`: see `Thruway::Server` for the options.
unsafe extern "C" fn create(class: VALUE, callbacks: VALUE, options: VALUE) -> VALUE {
    // SAFETY: Ruby calls with the lock held.
    let gvl = unsafe { Gvl::assume() };
    give(
        gvl,
        gvl.protect(|ruby| Options::read(ruby, options)).and_then(|plan| {
            let built = plan.build(gvl, callbacks).map_err(|error| gvl.string(error.as_bytes()));
            match built {
                Ok(server) => Ok(TYPE.wrap(class, server)),
                Err(message) => gvl.protect(|ruby| ruby.runtime_error(message)),
            }
        }),
    )
}

/// `Engine.listen(uri)`: an Array of each listener's descriptor and its address; or of nil, what is wrong,
/// and whether it is `in_use`, `denied` or `other`.
unsafe extern "C" fn listen(_class: VALUE, uri: VALUE) -> VALUE {
    // SAFETY: Ruby calls with the lock held.
    let gvl = unsafe { Gvl::assume() };
    give(
        gvl,
        gvl.protect(|ruby| ruby.to_string(uri)).map(|uri| {
            // SAFETY: no Ruby code runs while the bytes are used.
            let uri = String::from_utf8_lossy(unsafe { gvl.bytes(uri) });
            let wrong = |wrong| (wrong, "other");
            let listeners = uri.parse::<Bind>().map_err(wrong).and_then(|bind| {
                Listener::all(&bind).map_err(|error| (error.to_string(), kind(&error)))
            });
            let answer = gvl.array();
            match listeners {
                Ok(listeners) => listeners.into_iter().for_each(|listener| {
                    let address = listener.address().to_string();
                    gvl.push(answer, rb_sys::LONG2NUM(listener.into_raw_fd().into()));
                    gvl.push(answer, crate::ruby::utf8_string(address.as_bytes()));
                }),
                Err((message, kind)) => {
                    gvl.push(answer, NIL);
                    gvl.push(answer, crate::ruby::utf8_string(message.as_bytes()));
                    gvl.push(answer, gvl.string(kind.as_bytes()));
                }
            }
            answer
        }),
    )
}

fn kind(error: &thruway_serve::Error) -> &'static str {
    match (error.is_in_use(), error.is_denied()) {
        (true, _) => "in_use",
        (_, true) => "denied",
        _ => "other",
    }
}

/// `engine.serve(n)`: what the thread with that number does until the server stops.
unsafe extern "C" fn serve(this: VALUE, number: VALUE) -> VALUE {
    // SAFETY: called by Ruby.
    let server = unsafe { engine_of(this) };
    // SAFETY: Ruby calls with the lock held.
    let gvl = unsafe { Gvl::assume() };
    // SAFETY: `Thruway::Server` gives small numbers.
    let me = usize::try_from(unsafe { rb_sys::FIX2LONG(number) }).unwrap_or(0);
    give(gvl, server.serve(gvl, me.min(server.contexts.len() - 1)).map(|()| NIL))
}

/// `engine.drain(closes_for_all)`: no new connections, in no process if so; the others end after their
/// answers.
unsafe extern "C" fn drain(this: VALUE, closes_for_all: VALUE) -> VALUE {
    // SAFETY: called by Ruby.
    let server = unsafe { engine_of(this) };
    server.is_stopping.set(true);
    server.engine().drain(rb_sys::TEST(closes_for_all));
    server.waker.wake();
    server.leadership.signal().call_all_followers();
    NIL
}

/// `engine.give_up`: who has no answer yet gets 503, and all connections end.
unsafe extern "C" fn give_up(this: VALUE) -> VALUE {
    // SAFETY: called by Ruby.
    let server = unsafe { engine_of(this) };
    server.engine().give_up();
    server.waker.wake();
    server.leadership.signal().call_all_followers();
    NIL
}

/// `engine.connections`: how many are open.
unsafe extern "C" fn connections(this: VALUE) -> VALUE {
    // SAFETY: called by Ruby.
    let server = unsafe { engine_of(this) };
    let count = server.engine().connection_count();
    rb_sys::ULONG2NUM(count as u64)
}

/// `engine.requests`: how many the application has been called for.
unsafe extern "C" fn requests(this: VALUE) -> VALUE {
    // SAFETY: called by Ruby.
    let server = unsafe { engine_of(this) };
    rb_sys::ULONG2NUM(server.requests.get())
}

/// `engine.take_connection(request)`: for the request of that number, if the application has it and
/// nothing was sent, an Array of the connection's descriptor, what was read ahead, and the environment;
/// nil otherwise.
unsafe extern "C" fn take_connection(this: VALUE, request: VALUE) -> VALUE {
    // SAFETY: called by Ruby.
    let server = unsafe { engine_of(this) };
    // SAFETY: Ruby calls with the lock held.
    let gvl = unsafe { Gvl::assume() };
    let is_meant = |ticket: Option<Ticket>| {
        ticket.is_some_and(|ticket| super::request_number(ticket) == request)
    };
    let context = server
        .contexts
        .iter()
        .find(|context| context.stage.get() == Stage::Unsent && is_meant(context.ticket.get()));
    let Some((context, ticket)) = context.and_then(|c| c.ticket.get().map(|t| (c, t))) else {
        return NIL;
    };
    let Some((socket, input)) = server.detach(gvl, ticket) else { return NIL };
    context.stage.set(Stage::Done);
    let taken = gvl.array();
    [socket, input, context.env.get()].into_iter().for_each(|value| gvl.push(taken, value));
    taken
}

/// `engine.write(ticket, string)`: true if the client is still there.
unsafe extern "C" fn write(this: VALUE, ticket: VALUE, string: VALUE) -> VALUE {
    // SAFETY: called by Ruby.
    let server = unsafe { engine_of(this) };
    // SAFETY: Ruby calls with the lock held.
    let gvl = unsafe { Gvl::assume() };
    give(
        gvl,
        gvl.protect(|ruby| {
            let ticket = ticket_of(ruby, ticket);
            let string = ruby.to_string(string);
            // SAFETY: no Ruby code runs while the bytes are used.
            let written = server.engine().write(ticket, unsafe { gvl.bytes(string) });
            if written == Written::Excess {
                let message = too_long(gvl);
                ruby.call(server.callbacks.value(), server.names.trouble, &[message]);
                ruby.io_error(message);
            }
            truth(server.wait_for_client(ruby, ticket, written))
        }),
    )
}

/// `engine.finish(ticket)`: the stream is complete.
unsafe extern "C" fn finish(this: VALUE, ticket: VALUE) -> VALUE {
    let finish = |server: &RackEngine, ruby: Protected, ticket| {
        let missing = server.engine().finish(ticket);
        // The leader may be waiting, with the connection's next request read already.
        server.waker.wake();
        if missing > 0 {
            let message = too_short(ruby.gvl(), missing);
            ruby.call(server.callbacks.value(), server.names.trouble, &[message]);
        }
    };
    // SAFETY: called by Ruby.
    unsafe { end_stream(this, ticket, finish) }
}

/// `engine.abort(ticket)`: the stream will never be complete.
unsafe extern "C" fn abort(this: VALUE, ticket: VALUE) -> VALUE {
    let abort = |server: &RackEngine, _: Protected, ticket| server.engine().abort(ticket);
    // SAFETY: called by Ruby.
    unsafe { end_stream(this, ticket, abort) }
}

/// # Safety
/// As for [`engine_of`].
unsafe fn end_stream(this: VALUE, ticket: VALUE, end: fn(&RackEngine, Protected, Ticket)) -> VALUE {
    // SAFETY: as this function's own.
    let server = unsafe { engine_of(this) };
    // SAFETY: Ruby calls with the lock held.
    let gvl = unsafe { Gvl::assume() };
    give(
        gvl,
        gvl.protect(|ruby| {
            end(server, ruby, ticket_of(ruby, ticket));
            NIL
        }),
    )
}

/// The ticket in a String that [`Ticket::to_bytes`] has made; another one is the ticket of no request.
fn ticket_of(ruby: Protected, ticket: VALUE) -> Ticket {
    let ticket = ruby.to_string(ticket);
    // SAFETY: no Ruby code runs while the bytes are used.
    let bytes = unsafe { ruby.gvl().bytes(ticket) };
    Ticket::from_bytes(bytes.try_into().unwrap_or_default())
}
