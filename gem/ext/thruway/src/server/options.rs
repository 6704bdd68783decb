//! What `Thruway::Server` asks for, and the server that is built of it.

use std::cell::{Cell, RefCell};
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::{Arc, Mutex};

use rb_sys::VALUE;
use thruway_serve::workers::WorkerHandle;
use thruway_serve::{Engine, Listener, Settings};

use super::context::Context;
use super::duty::Duty;
use super::env::Environments;
use super::files::DeclaredFolders;
use super::gvl::{Gvl, NIL, Protected};
use super::leadership::Leadership;
use super::load::Load;
use super::roots::Roots;
use super::signal::Signal;
use super::worker_group::group_of;
use super::{Names, RackEngine, standby};

/// Threads of one server at most.
const THREADS_MAX: usize = 1024;

/// The options of a server, read and not yet acted on.
#[derive(Clone, Copy)]
pub(super) struct Options {
    app: VALUE,
    env: VALUE,
    /// The class whose objects take a request's connection.
    hijack: VALUE,
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
    response_memory_bytes_max: u64,
    worker_memory_bytes_max: u64,
    response_file_bytes_max: u64,
    write_bytes_per_second_min: u64,
    request_line_bytes_max: usize,
    head_bytes_max: usize,
    head_fields_max: usize,
}

impl Options {
    pub(super) fn read(ruby: Protected, options: VALUE) -> Self {
        let at = |name| ruby.option(options, name);
        let number = |name| u64::try_from(ruby.to_number(at(name))).unwrap_or(0);
        let size = |name| usize::try_from(number(name)).unwrap_or(usize::MAX);
        Self {
            app: at(c"app"),
            env: at(c"env"),
            hijack: at(c"hijack"),
            listeners: ruby.to_array(at(c"listeners")),
            sendfile: ruby.to_array(at(c"sendfile")),
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
                response_memory_bytes_max: number(c"response_memory_bytes_max"),
                worker_memory_bytes_max: number(c"worker_memory_bytes_max"),
                response_file_bytes_max: number(c"response_file_bytes_max"),
                write_bytes_per_second_min: number(c"write_bytes_per_second_min"),
                request_line_bytes_max: size(c"request_line_bytes_max"),
                head_bytes_max: size(c"head_bytes_max"),
                head_fields_max: size(c"head_fields_max"),
            },
        }
    }

    pub(super) fn build(&self, gvl: Gvl, callbacks: VALUE) -> Result<Box<RackEngine>, String> {
        let worker = self.worker_handle()?;
        let load = Load::new(self.threads, worker.as_ref().map(WorkerHandle::board));
        let failed = |error: thruway_serve::Error| error.to_string();
        let engine =
            Engine::new(self.numbers.settings(), self.listeners(gvl)?, worker).map_err(failed)?;
        let signal = Arc::new(Signal::new(Duty::new(engine.bell()), load));
        let roots = Arc::<Roots>::default();
        let server = RackEngine {
            waiter: engine.waiter(),
            waker: engine.waker(),
            engine: Arc::new(Mutex::new(engine)),
            environments: RefCell::new(Environments::new(gvl, &roots, self.env)),
            leadership: Leadership::new(Arc::clone(&signal)),
            contexts: (0..self.threads).map(Context::new).collect(),
            files: self.declared_folders(gvl)?,
            is_stopping: Cell::new(false),
            requests: Cell::new(0),
            app: roots.keep(self.app),
            callbacks: roots.keep(callbacks),
            hijack: roots.keep(self.hijack),
            roots,
            names: Names::new(),
        };
        standby::start(&server.engine, signal)
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok(Box::new(server))
    }

    fn worker_handle(&self) -> Result<Option<WorkerHandle>, String> {
        if self.fleet == NIL {
            return Ok(None);
        }
        // SAFETY: `Thruway::Server` gives a fleet or nil, so this does not raise.
        let group = unsafe { group_of(self.fleet) };
        group.handle(self.worker).map(Some).map_err(|error| error.to_string())
    }

    fn listeners(&self, gvl: Gvl) -> Result<Vec<Listener>, String> {
        let take = |at| {
            // SAFETY: `Thruway::Server` gives the numbers of its open listeners.
            let number = unsafe { rb_sys::FIX2LONG(gvl.element(self.listeners, at)) };
            let raw = RawFd::try_from(number).unwrap_or(-1);
            // SAFETY: as above; it is duplicated before anything else happens.
            let listener = unsafe { BorrowedFd::borrow_raw(raw) };
            let listener = listener.try_clone_to_owned().map_err(|error| error.to_string())?;
            Listener::from_socket(listener).map_err(|error| error.to_string())
        };
        (0..gvl.array_length(self.listeners)).map(take).collect()
    }

    fn declared_folders(&self, gvl: Gvl) -> Result<DeclaredFolders, String> {
        let mut folders = DeclaredFolders::default();
        for at in 0..gvl.array_length(self.sendfile) {
            let pair = gvl.element(self.sendfile, at);
            // SAFETY: `Thruway::Server` gives pairs of Strings; no Ruby code runs meanwhile.
            let prefix = unsafe { gvl.bytes(gvl.element(pair, 0)) };
            // SAFETY: as above.
            let folder = unsafe { gvl.bytes(gvl.element(pair, 1)) };
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
        let bytes = |number| usize::try_from(number).unwrap_or(usize::MAX);
        settings.response_memory_bytes_max = bytes(self.response_memory_bytes_max);
        settings.worker_memory_bytes_max = bytes(self.worker_memory_bytes_max);
        settings.response_file_bytes_max = self.response_file_bytes_max;
        settings.write_bytes_per_second_min = self.write_bytes_per_second_min;
        settings.limits.request_line_bytes_max = self.request_line_bytes_max;
        settings.limits.head_bytes_max = self.head_bytes_max;
        settings.limits.fields_max = self.head_fields_max;
        settings
    }
}
