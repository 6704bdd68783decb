//! The options that `Thruway::Server` passes, and the server that is built from them.

use std::cell::{Cell, RefCell};
use std::ffi::CStr;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use rb_sys::VALUE;
use thruway_roles::Limits;
use thruway_serve::workers::WorkerHandle;
use thruway_serve::{Bind, Engine, Listener, Settings};

use super::callbacks::Callbacks;
use super::collections::{self, Totals};
use super::context::Context;
use super::env::Environments;
use super::fibers::pool::Fibers;
use super::files::DeclaredFolders;
use super::forks::HomeProcess;
use super::helpers::Helpers;
use super::herald::Herald;
use super::leadership::Leadership;
use super::rack_engine::{Names, RackEngine};
use super::roles::{Figures, Roles, StandbyBell};
use super::roots::Roots;
use super::shared_engine::SharedEngine;
use super::worker_group;
use crate::ruby::object::PlainClass;
use crate::ruby::{
    Gvl, NIL, ProtectedCall, RArray, RHash, RString, Symbol, is_true, number, raise, read_all,
};

/// The maximum number of threads of one kind in a server.
const THREADS_MAX: u32 = 1024;

/// How long a call may compute while requests wait, until another thread takes the lead, if requests run in fibers.
/// Those that are known to compute for long do not run in the leader's thread: see `thruway_roles::ComputeLane`.
const LEAD_LIMIT_IN_FIBERS: Duration = Duration::from_millis(20);

/// Requests in fibers of one server at most: the system allows a process some 65,000 mappings, and each fiber's stack
/// takes two.
const FIBERS_MAX: usize = 30_000;

/// The options of a server as they were read, before any has an effect.
#[derive(Clone, Copy)]
pub(super) struct Options {
    app: VALUE,
    env: RHash,
    /// The class of the objects that take a request's connection.
    hijack: VALUE,
    /// Descriptors; where TLS is spoken or belongs to the site, each in a pair with its URI.
    listeners: Option<RArray>,
    /// Pairs of a path prefix and the folder that it stands for.
    sendfile: Option<RArray>,
    /// A `Thruway::WorkerTable` or nil, and which of its workers this is.
    worker_table: VALUE,
    worker: usize,
    limits: Limits,
    /// Requests in fibers at most; zero for requests in threads.
    fibers: usize,
    /// Strings.
    fair_by: RString,
    client_source: RString,
    trusted_proxies: RString,
    health_path: RString,
    counts: bool,
    /// The index of the first listener for metrics, if there is one.
    metrics_listener: Option<usize>,
    has_status_page: bool,
    has_http2: bool,
    has_http2_sockets: bool,
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
    /// Zero means none.
    request_ms: u64,
    body_bytes_max: u64,
    response_memory_bytes_max: u64,
    worker_memory_bytes_max: u64,
    response_file_bytes_max: u64,
    write_bytes_per_second_min: u64,
    socket_message_bytes_max: usize,
    /// Zero means none.
    socket_ping_ms: u64,
    request_line_bytes_max: usize,
    head_bytes_max: usize,
    head_fields_max: usize,
    /// Zero means none.
    queue_ms: u64,
    /// Zero means no cache.
    cache_bytes_max: usize,
    cache_item_bytes_max: usize,
}

impl Options {
    /// Reads a Hash of options.
    pub(super) fn read(ruby: ProtectedCall, options: VALUE) -> Self {
        let gvl = ruby.gvl();
        let hash = |value| {
            let error = |gvl| RString::binary(gvl, b"options are a Hash");
            RHash::of(gvl, value).unwrap_or_else(|| raise::type_error(ruby, error(gvl)))
        };
        let options = hash(options);
        let at = |name| options.get_symbol(gvl, Symbol::new(gvl, name));
        let number = |name| u64::try_from(number::to_i64(ruby, at(name))).unwrap_or(0);
        let size = |name| usize::try_from(number(name)).unwrap_or(usize::MAX);
        Self {
            app: at(c"app"),
            env: hash(at(c"env")),
            hijack: at(c"hijack"),
            listeners: RArray::convert(ruby, at(c"listeners")),
            sendfile: RArray::convert(ruby, at(c"sendfile")),
            worker_table: at(c"worker_table"),
            worker: usize::try_from(number(c"worker")).unwrap_or(0),
            limits: read_limits(number),
            fibers: size(c"fibers").min(FIBERS_MAX),
            fair_by: RString::convert(ruby, at(c"fair_by")),
            client_source: RString::convert(ruby, at(c"client_source")),
            trusted_proxies: RString::convert(ruby, at(c"trusted_proxies")),
            health_path: RString::convert(ruby, at(c"health_path")),
            counts: is_true(at(c"counts")),
            metrics_listener: number::small(at(c"metrics_listener"))
                .and_then(|index| usize::try_from(index).ok()),
            has_status_page: is_true(at(c"has_status_page")),
            has_http2: is_true(at(c"has_http2")),
            has_http2_sockets: is_true(at(c"has_http2_sockets")),
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
                socket_message_bytes_max: size(c"socket_message_bytes_max"),
                socket_ping_ms: number(c"socket_ping_ms"),
                request_line_bytes_max: size(c"request_line_bytes_max"),
                head_bytes_max: size(c"head_bytes_max"),
                head_fields_max: size(c"head_fields_max"),
                queue_ms: number(c"queue_ms"),
                cache_bytes_max: size(c"cache_bytes_max"),
                cache_item_bytes_max: size(c"cache_item_bytes_max"),
            },
        }
    }

    /// Builds the server, whose callbacks are the methods of `server`.
    pub(super) fn build(&self, gvl: Gvl, server: VALUE) -> Result<Box<RackEngine>, String> {
        let worker = worker_group::worker_handle(gvl, self.worker_table, self.worker)?;
        let board = worker.as_ref().map(WorkerHandle::board);
        let hijack = PlainClass::of(gvl, self.hijack).ok_or("hijack is not a plain class")?;
        let engine = Engine::new(self.settings(gvl)?, self.listeners(gvl)?, worker)
            .map_err(|error| error.to_string())?;
        let metrics = engine.handle().metrics;
        let if_reported =
            |reported| metrics.as_ref().filter(|_| collections::REPORTS_PAUSES == reported);
        let pauses = if_reported(true).map(|metrics| collections::measure(gvl, metrics));
        let collections = if_reported(false).map(|metrics| Totals::new(gvl, metrics));
        let limits = self.limits;
        let failed = |error| format!("cannot start a thread: {error}");
        let herald =
            (self.fibers > 0).then(|| Herald::start(gvl)).transpose().map_err(failed)?.flatten();
        let lock_requests = herald.as_ref().map(Herald::requests);
        let figures = Figures::new(limits.threads(), board.clone(), metrics, lock_requests.clone());
        figures.set_threads(limits.threads_max);
        let bell = StandbyBell(engine.handle().bell);
        let mut roles = Roles::new(bell, figures, limits);
        if self.fibers > 0 {
            roles = roles.with_lead_limit(LEAD_LIMIT_IN_FIBERS);
        }
        let roles = Arc::new(roles);
        let engine = Arc::new(SharedEngine::new(engine));
        let files = self.declared_folders(gvl)?;
        let helpers = Helpers::start(&engine, &roles, pauses, herald).map_err(failed)?;
        let roots = Arc::<Roots>::default();
        let threads = limits.threads() as usize;
        Ok(Box::new(RackEngine {
            this: Cell::new(NIL),
            engine,
            helpers: Cell::new(Some(helpers)),
            environments: RefCell::new(Environments::new(gvl, &roots, self.env)),
            leadership: Leadership::new(roles),
            collections,
            contexts: (0..threads + self.fibers).map(Context::new).collect(),
            fibers: (self.fibers > 0)
                .then(|| Fibers::new(threads, threads..threads + self.fibers, board)),
            lock_requests,
            gathers: Cell::new(false),
            next_limit_log_us: Cell::new(0),
            files,
            is_stopping: Cell::new(false),
            home: HomeProcess::current(),
            requests: Cell::new(0),
            app: roots.keep(gvl, self.app),
            callbacks: Callbacks::new(gvl, &roots, server),
            hijack: roots.keep(gvl, hijack),
            roots,
            deflater: RefCell::default(),
            names: Names::new(gvl),
        }))
    }

    fn settings(&self, gvl: Gvl) -> Result<Settings, String> {
        let mut settings = self.numbers.settings();
        settings.fair_by = self.fair_by.to_text(gvl).parse()?;
        settings.client_source = self.client_source.to_text(gvl).parse()?;
        settings.trust = self.trusted_proxies.to_text(gvl).parse()?;
        let path = self.health_path.to_vec(gvl);
        settings.health_path = Some(path).filter(|path| !path.is_empty());
        settings.counts = self.counts;
        settings.metrics_listener = self.metrics_listener;
        settings.has_status_page = self.has_status_page;
        settings.has_http2 = self.has_http2;
        settings.has_http2_sockets = self.has_http2_sockets;
        Ok(settings)
    }

    fn listeners(&self, gvl: Gvl) -> Result<Vec<Listener>, String> {
        let take = |value| {
            let (value, bind) = match RArray::of(gvl, value) {
                Some(pair) => (pair.get(gvl, 0).unwrap_or(NIL), Some(bind_of(gvl, pair)?)),
                None => (value, None),
            };
            let raw = number::small(value).and_then(|number| RawFd::try_from(number).ok());
            let raw = raw.filter(|raw| *raw >= 0).ok_or("a listener is not a descriptor")?;
            // SAFETY: `Thruway::Server` passes the descriptors of its open listeners; each is duplicated at once.
            let listener = unsafe { BorrowedFd::borrow_raw(raw) };
            let listener = listener.try_clone_to_owned().map_err(|error| error.to_string())?;
            let listener = Listener::from_socket(listener).map_err(|error| error.to_string())?;
            Ok(match bind {
                Some(bind) => listener.with_rules_of(&bind),
                None => listener,
            })
        };
        elements(gvl, self.listeners).map(take).collect()
    }

    fn declared_folders(&self, gvl: Gvl) -> Result<DeclaredFolders, String> {
        let mut folders = DeclaredFolders::default();
        for pair in elements(gvl, self.sendfile) {
            let pair = RArray::of(gvl, pair).ok_or("sendfile has no pairs")?;
            let text = |at| RString::of(gvl, pair.get(gvl, at)?);
            let (Some(prefix), Some(folder)) = (text(0), text(1)) else {
                return Err("sendfile has no pairs of Strings".into());
            };
            let declared =
                read_all(gvl, [prefix, folder], |[prefix, folder]| folders.declare(prefix, folder));
            declared.map_err(|error| error.to_string())?;
        }
        Ok(folders)
    }
}

fn read_limits(number: impl Fn(&'static CStr) -> u64) -> Limits {
    let count = |name| u32::try_from(number(name)).unwrap_or(u32::MAX).min(THREADS_MAX);
    let threads_max = count(c"threads").max(1);
    Limits {
        threads_min: count(c"threads_min").clamp(1, threads_max),
        threads_max,
        io_max: count(c"max_io_threads"),
        waiting_max: count(c"waiting_threads"),
    }
}

/// The rules in the URI of a pair.
fn bind_of(gvl: Gvl, pair: RArray) -> Result<Bind, String> {
    let uri = pair.get(gvl, 1).and_then(|uri| RString::of(gvl, uri));
    let uri = uri.ok_or("a listener has no URI")?;
    uri.to_text(gvl).parse()
}

fn elements(gvl: Gvl, array: Option<RArray>) -> impl Iterator<Item = VALUE> {
    let length = array.map_or(0, |array| array.len(gvl));
    (0..length).filter_map(move |at| array?.get(gvl, at))
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
        settings.socket_limits.message_bytes_max = self.socket_message_bytes_max;
        settings.socket_ping_ms = self.socket_ping_ms;
        settings.limits.request_line_bytes_max = self.request_line_bytes_max;
        settings.limits.head_bytes_max = self.head_bytes_max;
        settings.limits.fields_max = self.head_fields_max;
        settings.queue_ms = (self.queue_ms > 0).then_some(self.queue_ms);
        settings.cache =
            worker_group::cache_limits(self.cache_bytes_max, self.cache_item_bytes_max);
        settings
    }
}
