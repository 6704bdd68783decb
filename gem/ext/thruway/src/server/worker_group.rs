//! `Thruway::Fleet`: what the workers of a cluster share, made before they are forked.

use rb_sys::VALUE;
use thruway_serve::WorkerGroup;
use thruway_serve::workers::WorkerHandle;

use crate::ruby::data_type::{DataType, Marker, Wrapped};
use crate::ruby::define::{self, Method};
use crate::ruby::{Gvl, NIL, Protected, RModule, RString, number, raise};

/// Workers of one group at most.
const WORKERS_MAX: usize = 1024;

/// A group, as a `Thruway::Fleet` owns it.
struct Fleet(WorkerGroup);

static TYPE: DataType<Fleet> = DataType::new(c"Thruway::Fleet");

impl Wrapped for Fleet {
    fn mark(&self, _: Marker) {}
}

/// Defines `Thruway::Fleet`.
pub(super) fn define(ruby: Protected, thruway: RModule) {
    let Some(class) = define::class_under(ruby, thruway, c"Fleet") else { return };
    let gvl = ruby.gvl();
    define::singleton_method(gvl, class.value(), c"create", Method::of_1(create));
    define::method(gvl, class, c"bury", Method::of_1(bury));
    define::method(gvl, class, c"stats", Method::of_0(stats));
}

/// The part of worker `index` in the group behind an object; none if that is nil.
pub(super) fn worker_handle(
    gvl: Gvl,
    fleet: VALUE,
    index: usize,
) -> Result<Option<WorkerHandle>, String> {
    if fleet == NIL {
        return Ok(None);
    }
    let group = gvl.protect(|ruby| TYPE.get(ruby, &fleet)).ok_or("it is no Thruway::Fleet")?;
    group.0.handle(index).map(Some).map_err(|error| error.to_string())
}

/// `Fleet.create(workers)`.
fn create(ruby: Protected, class: VALUE, workers: VALUE) -> VALUE {
    let workers = usize::try_from(number::to_u64(ruby, workers)).unwrap_or(0);
    make(ruby.gvl(), class, workers.clamp(1, WORKERS_MAX))
        .unwrap_or_else(|message| raise::runtime_error(ruby, message))
}

fn make(gvl: Gvl, class: VALUE, workers: usize) -> Result<VALUE, RString> {
    let class = RModule::of(gvl, class).ok_or(RString::binary(gvl, b"it is no class"))?;
    let group = WorkerGroup::new(workers)
        .map_err(|error| RString::binary(gvl, error.to_string().as_bytes()))?;
    Ok(TYPE.wrap(gvl, class, Box::new(Fleet(group))))
}

/// `fleet.bury(worker)`: it is dead, and gets no connections until another takes its place.
fn bury(ruby: Protected, this: VALUE, worker: VALUE) -> VALUE {
    TYPE.get(ruby, &this).0.mark_dead(number::small_count(worker));
    NIL
}

/// `fleet.stats`: what all workers have counted, as JSON.
fn stats(ruby: Protected, this: VALUE) -> VALUE {
    let stats = TYPE.get(ruby, &this).0.stats();
    RString::new(ruby.gvl(), stats.as_bytes()).value()
}
