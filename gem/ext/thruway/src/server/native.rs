//! `Thruway::Engine`: what Ruby sees of the server.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_void};
use std::os::fd::{BorrowedFd, IntoRawFd, RawFd};
use std::rc::Rc;

use rb_sys::{VALUE, rb_data_type_t};
use thruway_serve::fleet::Member;
use thruway_serve::{Address, Engine, Fleet, Listener, Settings, Ticket, Written};

use super::baton::Baton;
use super::context::{Context, Stage};
use super::env::Environments;
use super::files::DeclaredFolders;
use super::lock::{Lock, NIL, Raised, Raising, truth};
use super::roots::Roots;
use super::{Names, Server, watch};

/// Threads of one server at most.
const THREADS_MAX: usize = 1024;

/// Workers of one fleet at most.
const WORKERS_MAX: usize = 1024;

/// How Ruby's collector deals with a server.
struct DataType(rb_data_type_t);

// SAFETY: it is never changed, and the functions in it may be called by any thread that collects.
unsafe impl Sync for DataType {}

static TYPE: DataType = DataType(rb_data_type_t {
    wrap_struct_name: c"Thruway::Engine".as_ptr(),
    function: rb_sys::rb_data_type_struct__bindgen_ty_1 {
        dmark: Some(mark),
        dfree: Some(free),
        dsize: None,
        dcompact: None,
        reserved: [std::ptr::null_mut(); 1],
    },
    parent: std::ptr::null(),
    data: std::ptr::null_mut(),
    flags: 0,
});

static FLEET_TYPE: DataType = DataType(rb_data_type_t {
    wrap_struct_name: c"Thruway::Fleet".as_ptr(),
    function: rb_sys::rb_data_type_struct__bindgen_ty_1 {
        dmark: None,
        dfree: Some(free_fleet),
        dsize: None,
        dcompact: None,
        reserved: [std::ptr::null_mut(); 1],
    },
    parent: std::ptr::null(),
    data: std::ptr::null_mut(),
    flags: 0,
});

unsafe extern "C" fn free_fleet(fleet: *mut c_void) {
    // SAFETY: the pointer is the one that `create_fleet` wrapped, and its object is unreachable.
    drop(unsafe { Box::from_raw(fleet.cast::<Fleet>()) });
}

unsafe extern "C" fn mark(server: *mut c_void) {
    // SAFETY: the pointer is the one that `create` wrapped, and nobody has it exclusively.
    let server = unsafe { &*server.cast::<Server>() };
    server.mark();
}

unsafe extern "C" fn free(server: *mut c_void) {
    // SAFETY: the pointer is the one that `create` wrapped, and its object is unreachable.
    drop(unsafe { Box::from_raw(server.cast::<Server>()) });
}

/// Defines `Thruway::Engine`.
pub(crate) fn define(thruway: VALUE) {
    // SAFETY: Ruby sets the global once, before any extension is loaded.
    let object = unsafe { rb_sys::rb_cObject };
    // SAFETY: called while the extension is loaded; the name ends in NUL.
    let class = unsafe { rb_sys::rb_define_class_under(thruway, c"Engine".as_ptr(), object) };
    // SAFETY: as above: engines are made by `create` alone.
    unsafe { rb_sys::rb_undef_alloc_func(class) };
    define_fleet(thruway, object);
    define_method(class, Owner::Class, c"create", Method::Two(create));
    define_method(class, Owner::Class, c"listen", Method::One(listen));
    define_method(class, Owner::Instance, c"serve", Method::One(serve));
    define_method(class, Owner::Instance, c"send_away", Method::None(send_away));
    define_method(class, Owner::Instance, c"drain", Method::None(drain));
    define_method(class, Owner::Instance, c"connections", Method::None(connections));
    define_method(class, Owner::Instance, c"requests", Method::None(requests));
    define_method(class, Owner::Instance, c"take_connection", Method::None(take_connection));
    define_method(class, Owner::Instance, c"write", Method::Two(write));
    define_method(class, Owner::Instance, c"finish", Method::One(finish));
    define_method(class, Owner::Instance, c"abort", Method::One(abort));
}

/// Defines `Thruway::Fleet`: what the workers of a cluster share, made before they are forked.
fn define_fleet(thruway: VALUE, object: VALUE) {
    // SAFETY: called while the extension is loaded; the name ends in NUL.
    let class = unsafe { rb_sys::rb_define_class_under(thruway, c"Fleet".as_ptr(), object) };
    // SAFETY: as above: fleets are made by `create` alone.
    unsafe { rb_sys::rb_undef_alloc_func(class) };
    define_method(class, Owner::Class, c"create", Method::One(create_fleet));
    define_method(class, Owner::Instance, c"bury", Method::One(bury));
}

/// A method by the number of its arguments; the first value is self.
enum Method {
    None(unsafe extern "C" fn(VALUE) -> VALUE),
    One(unsafe extern "C" fn(VALUE, VALUE) -> VALUE),
    Two(unsafe extern "C" fn(VALUE, VALUE, VALUE) -> VALUE),
}

/// Whose method it is.
#[derive(PartialEq, Eq)]
enum Owner {
    Class,
    Instance,
}

fn define_method(class: VALUE, owner: Owner, name: &CStr, method: Method) {
    let (function, arity) = match method {
        Method::None(function) => (function as *const c_void, 0),
        Method::One(function) => (function as *const c_void, 1),
        Method::Two(function) => (function as *const c_void, 2),
    };
    // SAFETY: Ruby calls the function with as many values as the arity says.
    let function =
        unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn() -> VALUE>(function) };
    if owner == Owner::Class {
        // SAFETY: called while the extension is loaded, with the interpreter lock held.
        unsafe { rb_sys::rb_define_singleton_method(class, name.as_ptr(), Some(function), arity) };
    } else {
        // SAFETY: as above.
        unsafe { rb_sys::rb_define_method(class, name.as_ptr(), Some(function), arity) };
    }
}

/// The server behind an object.
///
/// # Safety
/// Called by Ruby, with the object on a stack, and nothing with a destructor alive: it raises a
/// TypeError for another object.
unsafe fn server_of<'a>(object: VALUE) -> &'a Server {
    // SAFETY: as this function's own.
    let server = unsafe { rb_sys::rb_check_typeddata(object, &raw const TYPE.0) };
    // SAFETY: the type was checked, and the object keeps the server alive.
    unsafe { &*server.cast::<Server>() }
}

/// The fleet behind an object.
///
/// # Safety
/// As for [`server_of`].
unsafe fn fleet_of<'a>(object: VALUE) -> &'a Fleet {
    // SAFETY: as this function's own.
    let fleet = unsafe { rb_sys::rb_check_typeddata(object, &raw const FLEET_TYPE.0) };
    // SAFETY: the type was checked, and the object keeps the fleet alive.
    unsafe { &*fleet.cast::<Fleet>() }
}

/// Gives Ruby what a function has made, or raises what stopped it.
fn give(lock: Lock, answer: Result<VALUE, Raised>) -> VALUE {
    match answer {
        Ok(value) => value,
        // SAFETY: the functions that Ruby calls keep nothing with a destructor until their end.
        Err(raised) => unsafe { raised.resume(lock) },
    }
}

/// `Fleet.create(workers)`.
unsafe extern "C" fn create_fleet(class: VALUE, workers: VALUE) -> VALUE {
    // SAFETY: Ruby calls with the lock held.
    let lock = unsafe { Lock::assume() };
    give(
        lock,
        lock.protect(|inside| inside.to_unsigned(workers)).and_then(|workers| {
            let workers = usize::try_from(workers).unwrap_or(0).clamp(1, WORKERS_MAX);
            match Fleet::new(workers).map_err(|error| lock.string(error.to_string().as_bytes())) {
                Ok(fleet) => {
                    let fleet = Box::into_raw(Box::new(fleet)).cast();
                    let kind = &raw const FLEET_TYPE.0;
                    // SAFETY: the object owns the fleet from here on.
                    Ok(unsafe { rb_sys::rb_data_typed_object_wrap(class, fleet, kind) })
                }
                Err(message) => lock.protect(|inside| inside.runtime_error(message)),
            }
        }),
    )
}

/// `fleet.bury(worker)`: it is dead, and gets no connections until another takes its place.
unsafe extern "C" fn bury(this: VALUE, worker: VALUE) -> VALUE {
    // SAFETY: called by Ruby.
    let fleet = unsafe { fleet_of(this) };
    // SAFETY: `Thruway::Cluster` gives small numbers.
    let worker = unsafe { rb_sys::FIX2LONG(worker) };
    fleet.bury(usize::try_from(worker).unwrap_or(0));
    NIL
}

/// `Engine.create(helper, options)`: see `Thruway::Server` for the options.
unsafe extern "C" fn create(class: VALUE, helper: VALUE, options: VALUE) -> VALUE {
    // SAFETY: Ruby calls with the lock held.
    let lock = unsafe { Lock::assume() };
    give(
        lock,
        lock.protect(|inside| Plan::read(inside, options)).and_then(|plan| {
            let built = plan.build(lock, helper).map_err(|error| lock.string(error.as_bytes()));
            match built {
                Ok(server) => Ok(wrap(class, server)),
                Err(message) => lock.protect(|inside| inside.runtime_error(message)),
            }
        }),
    )
}

fn wrap(class: VALUE, server: Box<Server>) -> VALUE {
    let server = Box::into_raw(server).cast();
    // SAFETY: the object owns the server from here on.
    unsafe { rb_sys::rb_data_typed_object_wrap(class, server, &raw const TYPE.0) }
}

/// `Engine.listen(uri)`: an Array of the listener's descriptor and its address; or of nil, what is wrong,
/// and whether it is `in_use`, `denied` or `other`.
unsafe extern "C" fn listen(_class: VALUE, uri: VALUE) -> VALUE {
    // SAFETY: Ruby calls with the lock held.
    let lock = unsafe { Lock::assume() };
    give(
        lock,
        lock.protect(|inside| inside.to_string(uri)).map(|uri| {
            // SAFETY: no Ruby code runs while the bytes are used.
            let uri = String::from_utf8_lossy(unsafe { lock.bytes(uri) });
            let wrong = |wrong| (wrong, "other");
            let listener = uri.parse::<Address>().map_err(wrong).and_then(|address| {
                Listener::new(&address).map_err(|error| (error.to_string(), kind(&error)))
            });
            let answer = lock.array();
            match listener {
                Ok(listener) => {
                    let address = listener.address().to_string();
                    lock.push(answer, rb_sys::LONG2NUM(listener.into_raw_fd().into()));
                    lock.push(answer, crate::ruby::utf8_string(address.as_bytes()));
                }
                Err((message, kind)) => {
                    lock.push(answer, NIL);
                    lock.push(answer, crate::ruby::utf8_string(message.as_bytes()));
                    lock.push(answer, lock.string(kind.as_bytes()));
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

/// The options of a server, read and not yet acted on.
#[derive(Clone, Copy)]
struct Plan {
    app: VALUE,
    env: VALUE,
    /// Descriptors.
    listeners: VALUE,
    /// Pairs of what a path begins with and the folder that is meant.
    sendfile: VALUE,
    /// A fleet or nil, and which of its workers this is.
    fleet: VALUE,
    worker: usize,
    threads: usize,
    numbers: Numbers,
}

/// Times in milliseconds and sizes in bytes.
#[derive(Clone, Copy)]
struct Numbers {
    first_byte_ms: u64,
    keep_alive_ms: u64,
    head_ms: u64,
    body_ms: u64,
    write_ms: u64,
    /// Zero for none.
    request_ms: u64,
    body_bytes_max: u64,
}

impl Plan {
    fn read(inside: Raising, options: VALUE) -> Self {
        let at = |name| inside.option(options, name);
        let number = |name| u64::try_from(inside.to_number(at(name))).unwrap_or(0);
        Self {
            app: at(c"app"),
            env: at(c"env"),
            listeners: inside.to_array(at(c"listeners")),
            sendfile: inside.to_array(at(c"sendfile")),
            fleet: at(c"fleet"),
            worker: usize::try_from(number(c"worker")).unwrap_or(0),
            threads: usize::try_from(number(c"threads")).unwrap_or(1).clamp(1, THREADS_MAX),
            numbers: Numbers {
                first_byte_ms: number(c"first_byte_ms"),
                keep_alive_ms: number(c"keep_alive_ms"),
                head_ms: number(c"head_ms"),
                body_ms: number(c"body_ms"),
                write_ms: number(c"write_ms"),
                request_ms: number(c"request_ms"),
                body_bytes_max: number(c"body_bytes_max"),
            },
        }
    }

    fn build(&self, lock: Lock, helper: VALUE) -> Result<Box<Server>, String> {
        let engine = Engine::new(self.numbers.settings(), self.listeners(lock)?, self.member()?)
            .map_err(|error| error.to_string())?;
        let roots = Rc::<Roots>::default();
        let server = Server {
            waiter: engine.waiter(),
            waker: engine.waker(),
            engine: RefCell::new(engine),
            environments: RefCell::new(Environments::new(lock, &roots, self.env)),
            baton: Baton::new(),
            contexts: (0..self.threads).map(|_| Context::new()).collect(),
            files: self.declared_folders(lock)?,
            is_stopping: Cell::new(false),
            requests: Cell::new(0),
            app: roots.keep(self.app),
            helper: roots.keep(helper),
            roots,
            names: Names::new(),
        };
        if self.threads > 1 {
            watch::start(server.baton.signal())
                .map_err(|error| format!("cannot start a thread: {error}"))?;
        }
        Ok(Box::new(server))
    }

    fn member(&self) -> Result<Option<Member>, String> {
        if self.fleet == NIL {
            return Ok(None);
        }
        // SAFETY: `Thruway::Server` gives a fleet or nil, so this does not raise.
        let fleet = unsafe { fleet_of(self.fleet) };
        fleet.member(self.worker).map(Some).map_err(|error| error.to_string())
    }

    fn listeners(&self, lock: Lock) -> Result<Vec<Listener>, String> {
        let take = |at| {
            // SAFETY: `Thruway::Server` gives the numbers of its open listeners.
            let number = unsafe { rb_sys::FIX2LONG(lock.element(self.listeners, at)) };
            let raw = RawFd::try_from(number).unwrap_or(-1);
            // SAFETY: as above; it is duplicated before anything else happens.
            let listener = unsafe { BorrowedFd::borrow_raw(raw) };
            let listener = listener.try_clone_to_owned().map_err(|error| error.to_string())?;
            Listener::from_socket(listener).map_err(|error| error.to_string())
        };
        (0..lock.array_length(self.listeners)).map(take).collect()
    }

    fn declared_folders(&self, lock: Lock) -> Result<DeclaredFolders, String> {
        let mut folders = DeclaredFolders::default();
        for at in 0..lock.array_length(self.sendfile) {
            let pair = lock.element(self.sendfile, at);
            // SAFETY: `Thruway::Server` gives pairs of Strings; no Ruby code runs meanwhile.
            let prefix = unsafe { lock.bytes(lock.element(pair, 0)) };
            // SAFETY: as above.
            let folder = unsafe { lock.bytes(lock.element(pair, 1)) };
            folders.declare(prefix, folder).map_err(|error| error.to_string())?;
        }
        Ok(folders)
    }
}

impl Numbers {
    fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        settings.timeouts.first_byte_ms = self.first_byte_ms;
        settings.timeouts.keep_alive_ms = self.keep_alive_ms;
        settings.timeouts.head_ms = self.head_ms;
        settings.timeouts.body_ms = self.body_ms;
        settings.timeouts.write_ms = self.write_ms;
        settings.timeouts.request_ms = (self.request_ms > 0).then_some(self.request_ms);
        settings.limits.body_bytes_max = self.body_bytes_max;
        settings
    }
}

/// `engine.serve(n)`: what the thread with that number does until the server stops.
unsafe extern "C" fn serve(this: VALUE, number: VALUE) -> VALUE {
    // SAFETY: called by Ruby.
    let server = unsafe { server_of(this) };
    // SAFETY: Ruby calls with the lock held.
    let lock = unsafe { Lock::assume() };
    // SAFETY: `Thruway::Server` gives small numbers.
    let me = usize::try_from(unsafe { rb_sys::FIX2LONG(number) }).unwrap_or(0);
    give(lock, server.serve(lock, me.min(server.contexts.len() - 1)).map(|()| NIL))
}

/// `engine.send_away`: what the porter of a worker does until the server stops.
unsafe extern "C" fn send_away(this: VALUE) -> VALUE {
    // SAFETY: called by Ruby.
    let server = unsafe { server_of(this) };
    // SAFETY: Ruby calls with the lock held.
    let lock = unsafe { Lock::assume() };
    give(lock, server.send_away(lock).map(|()| NIL))
}

/// `engine.drain`: no new connections; the others end after their answers.
unsafe extern "C" fn drain(this: VALUE) -> VALUE {
    // SAFETY: called by Ruby.
    let server = unsafe { server_of(this) };
    server.is_stopping.set(true);
    server.engine.borrow_mut().drain();
    server.waker.wake();
    server.baton.call_all();
    NIL
}

/// `engine.connections`: how many are open.
unsafe extern "C" fn connections(this: VALUE) -> VALUE {
    // SAFETY: called by Ruby.
    let server = unsafe { server_of(this) };
    let count = server.engine.borrow().connections();
    rb_sys::ULONG2NUM(count as u64)
}

/// `engine.requests`: how many the application has been called for.
unsafe extern "C" fn requests(this: VALUE) -> VALUE {
    // SAFETY: called by Ruby.
    let server = unsafe { server_of(this) };
    rb_sys::ULONG2NUM(server.requests.get())
}

/// `engine.take_connection`: for the request that this thread is in the middle of, an Array of the
/// connection's descriptor, what was read ahead, and the environment; nil if there is none.
unsafe extern "C" fn take_connection(this: VALUE) -> VALUE {
    // SAFETY: called by Ruby.
    let server = unsafe { server_of(this) };
    // SAFETY: Ruby calls with the lock held.
    let lock = unsafe { Lock::assume() };
    let thread = lock.current_thread();
    let context = server
        .contexts
        .iter()
        .find(|context| context.thread.get() == thread && context.stage.get() == Stage::Unsent);
    let Some((context, ticket)) = context.and_then(|c| c.ticket.get().map(|t| (c, t))) else {
        return NIL;
    };
    let Some((socket, input)) = server.detach(lock, ticket) else { return NIL };
    context.stage.set(Stage::Done);
    let taken = lock.array();
    [socket, input, context.env.get()].into_iter().for_each(|value| lock.push(taken, value));
    taken
}

/// `engine.write(ticket, string)`: true if the client is still there.
unsafe extern "C" fn write(this: VALUE, ticket: VALUE, string: VALUE) -> VALUE {
    // SAFETY: called by Ruby.
    let server = unsafe { server_of(this) };
    // SAFETY: Ruby calls with the lock held.
    let lock = unsafe { Lock::assume() };
    give(
        lock,
        lock.protect(|inside| {
            let ticket = ticket_of(inside, ticket);
            let string = inside.to_string(string);
            // SAFETY: no Ruby code runs while the bytes are used.
            let written = server.engine.borrow_mut().write(ticket, unsafe { lock.bytes(string) });
            let is_there = written != Written::Gone;
            truth(is_there && server.wait_for_client(inside, ticket, written))
        }),
    )
}

/// `engine.finish(ticket)`: the stream is complete.
unsafe extern "C" fn finish(this: VALUE, ticket: VALUE) -> VALUE {
    // SAFETY: called by Ruby.
    let server = unsafe { server_of(this) };
    // SAFETY: Ruby calls with the lock held.
    let lock = unsafe { Lock::assume() };
    give(
        lock,
        lock.protect(|inside| {
            let ticket = ticket_of(inside, ticket);
            server.engine.borrow_mut().finish(ticket);
            // The leader may be waiting, with the connection's next request read already.
            server.waker.wake();
            NIL
        }),
    )
}

/// `engine.abort(ticket)`: the stream will never be complete.
unsafe extern "C" fn abort(this: VALUE, ticket: VALUE) -> VALUE {
    // SAFETY: called by Ruby.
    let server = unsafe { server_of(this) };
    // SAFETY: Ruby calls with the lock held.
    let lock = unsafe { Lock::assume() };
    give(
        lock,
        lock.protect(|inside| {
            let ticket = ticket_of(inside, ticket);
            server.engine.borrow_mut().abort(ticket);
            NIL
        }),
    )
}

fn ticket_of(inside: Raising, number: VALUE) -> Ticket {
    Ticket::from_number(inside.to_unsigned(number))
}
