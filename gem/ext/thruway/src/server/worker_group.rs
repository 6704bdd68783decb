//! `Thruway::WorkerTable`: the state that the workers of a cluster share. It is created before the workers are
//! forked.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use rb_sys::VALUE;
use thruway_serve::CacheLimits;
use thruway_serve::workers::{Handover, VERSION, WorkerHandle};

use crate::ruby::data_type::{DataType, Marker, ObjectData};
use crate::ruby::define::{self, Method};
use crate::ruby::{Gvl, NIL, ProtectedCall, RArray, RModule, RString, boolean, number, raise};

/// The largest number of workers in a group.
const WORKERS_MAX: usize = 1024;

/// The table of the workers, as a `Thruway::WorkerTable` owns it.
struct WorkerTable(thruway_serve::WorkerTable);

static TYPE: DataType<WorkerTable> = DataType::new(c"Thruway::WorkerTable");

impl ObjectData for WorkerTable {
    fn mark(&self, _: Marker) {}
}

/// Defines `Thruway::WorkerTable`.
pub(super) fn define(ruby: ProtectedCall, thruway: RModule) {
    let Some(class) = define::class_under(ruby, thruway, c"WorkerTable") else { return };
    let gvl = ruby.gvl();
    define::singleton_method(gvl, class.value(), c"create", Method::of_2(create));
    define::method(gvl, class, c"mark_dead", Method::of_1(mark_dead));
    define::method(gvl, class, c"accepts?", Method::of_1(accepts));
    define::method(gvl, class, c"sweep", Method::of_0(sweep));
    define::method(gvl, class, c"handover", Method::of_0(handover));
    define::method(gvl, class, c"stats", Method::of_0(stats));
    define::method(gvl, class, c"make_cache", Method::of_2(make_cache));
    define::method(gvl, class, c"purge", Method::of_1(purge));
    define::method(gvl, class, c"report_certificates_of", Method::of_1(report_certificates_of));
}

/// The handle of worker `index` in the group that an object owns; `None` for nil.
pub(super) fn worker_handle(
    gvl: Gvl,
    table: VALUE,
    index: usize,
) -> Result<Option<WorkerHandle>, String> {
    if table == NIL {
        return Ok(None);
    }
    let group =
        gvl.protect(|ruby| TYPE.get(ruby, &table)).ok_or("it is not a Thruway::WorkerTable")?;
    Ok(Some(group.0.handle(index)))
}

/// `WorkerTable.create(workers, inherited)`: `inherited` is nil, or the result of `handover` of the preceding server.
fn create(ruby: ProtectedCall, class: VALUE, workers: VALUE, inherited: VALUE) -> VALUE {
    let gvl = ruby.gvl();
    let workers = usize::try_from(number::to_u64(ruby, workers)).unwrap_or(0);
    make(gvl, class, workers.clamp(1, WORKERS_MAX), inherited_handover(gvl, inherited))
        .unwrap_or_else(|message| raise::runtime_error(ruby, message))
}

fn make(
    gvl: Gvl,
    class: VALUE,
    workers: usize,
    inherited: Option<(Handover, Option<OwnedFd>)>,
) -> Result<VALUE, RString> {
    let class = RModule::of(gvl, class).ok_or(RString::binary(gvl, b"it is not a class"))?;
    let group = match inherited {
        Some((handover, ticket_keys)) => {
            thruway_serve::WorkerTable::with(workers, handover, ticket_keys)
        }
        None => thruway_serve::WorkerTable::new(workers),
    };
    let group = group.map_err(|error| RString::binary(gvl, error.to_string().as_bytes()))?;
    Ok(TYPE.wrap(gvl, class, Box::new(WorkerTable(group))))
}

/// The state that the preceding server has passed; `None` if there is none, or if it has another form.
fn inherited_handover(gvl: Gvl, inherited: VALUE) -> Option<(Handover, Option<OwnedFd>)> {
    let inherited = RArray::of(gvl, inherited)?;
    let at = |index| number::small(inherited.get(gvl, index)?);
    let descriptor = |index| {
        let number = at(index).and_then(|number| RawFd::try_from(number).ok());
        // SAFETY: the descriptor was passed to this process, which has not used it yet.
        number.filter(|number| *number >= 0).map(|number| unsafe { OwnedFd::from_raw_fd(number) })
    };
    let (ends, ticket_keys) = ([descriptor(1)?, descriptor(2)?], descriptor(3));
    (at(0) == Some(VERSION.into())).then(|| (Handover::from_descriptors(ends), ticket_keys))
}

/// `table.handover`: returns the form of the state that is passed to the next server, the two descriptors for it, and
/// a descriptor for the keys of session tickets.
fn handover(ruby: ProtectedCall, this: VALUE) -> VALUE {
    let gvl = ruby.gvl();
    let table = TYPE.get(ruby, &this);
    let list = RArray::with_room(gvl, 4);
    list.push(gvl, number::from_u64(gvl, VERSION.into()));
    let ends = table.0.handover().descriptors();
    for end in ends.into_iter().chain([table.0.ticket_keys()]) {
        list.push(gvl, rb_sys::LONG2NUM(end.as_raw_fd().into()));
    }
    list.value()
}

/// `table.sweep`: see `thruway_serve::WorkerTable::sweep`.
fn sweep(ruby: ProtectedCall, this: VALUE) -> VALUE {
    TYPE.get(ruby, &this).0.sweep();
    NIL
}

/// `table.mark_dead(worker)`: the worker has ended. Its entry gets no connections until another worker takes it.
fn mark_dead(ruby: ProtectedCall, this: VALUE, worker: VALUE) -> VALUE {
    TYPE.get(ruby, &this).0.mark_dead(number::small_count(worker));
    NIL
}

/// `table.accepts?(worker)`: whether the worker accepts connections.
fn accepts(ruby: ProtectedCall, this: VALUE, worker: VALUE) -> VALUE {
    boolean(TYPE.get(ruby, &this).0.accepts(number::small_count(worker)))
}

/// `table.make_cache(bytes_max, item_bytes_max)`: makes the cache of responses that the workers share.
fn make_cache(ruby: ProtectedCall, this: VALUE, bytes_max: VALUE, item_bytes_max: VALUE) -> VALUE {
    let size = |value| usize::try_from(number::to_u64(ruby, value)).unwrap_or(usize::MAX);
    let limits = cache_limits(size(bytes_max), size(item_bytes_max));
    let made = limits.map_or(Ok(()), |limits| TYPE.get(ruby, &this).0.make_cache(limits));
    if let Err(error) = made {
        let message = RString::binary(ruby.gvl(), error.to_string().as_bytes());
        raise::runtime_error(ruby, message);
    }
    NIL
}

/// `table.report_certificates_of(uri)`: the statistics report the certificates that an agent keeps for a listener.
fn report_certificates_of(ruby: ProtectedCall, this: VALUE, uri: VALUE) -> VALUE {
    let uri = RString::convert(ruby, uri).to_vec(ruby.gvl());
    // The listeners are open, so a URI that cannot be read is none of theirs.
    if let Some(bind) = str::from_utf8(&uri).ok().and_then(|uri| uri.parse().ok()) {
        TYPE.get(ruby, &this).0.report_certificates_of(&bind);
    }
    NIL
}

/// The limits of a cache of that size in bytes; `None` if the server has no cache.
pub(super) fn cache_limits(bytes_max: usize, item_bytes_max: usize) -> Option<CacheLimits> {
    (bytes_max > 0).then_some(CacheLimits { bytes_max, item_bytes_max })
}

/// `table.purge(pattern)`: removes responses from the cache. Returns how many.
fn purge(ruby: ProtectedCall, this: VALUE, pattern: VALUE) -> VALUE {
    let pattern = RString::convert(ruby, pattern).to_vec(ruby.gvl());
    let removed = thruway_serve::purge_cache(TYPE.get(ruby, &this).0.cache(), &pattern);
    purged(ruby, removed)
}

/// Returns the result of a purge to Ruby, or raises ArgumentError.
pub(super) fn purged(ruby: ProtectedCall, removed: Result<usize, &'static str>) -> VALUE {
    match removed {
        Ok(count) => number::from_u64(ruby.gvl(), count as u64),
        Err(text) => {
            raise::argument_error(ruby, RString::binary(ruby.gvl(), text.as_bytes()));
        }
    }
}

/// `table.stats`: returns the statistics of all workers as JSON.
fn stats(ruby: ProtectedCall, this: VALUE) -> VALUE {
    let stats = TYPE.get(ruby, &this).0.stats();
    RString::new(ruby.gvl(), stats.as_bytes()).value()
}
