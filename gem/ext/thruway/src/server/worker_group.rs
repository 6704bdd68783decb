//! `Thruway::Fleet`: what the workers of a cluster share, made before they are forked.

use std::ffi::c_void;

use rb_sys::VALUE;
use thruway_serve::WorkerGroup;

use super::data_type::{DataType, Method, Owner, define_class, define_method, give};
use super::gvl::{Gvl, NIL};

/// Workers of one fleet at most.
const WORKERS_MAX: usize = 1024;

static TYPE: DataType = DataType::new(c"Thruway::Fleet", None, free);

unsafe extern "C" fn free(group: *mut c_void) {
    // SAFETY: the pointer is the one that `create` wrapped, and its object is unreachable.
    drop(unsafe { Box::from_raw(group.cast::<WorkerGroup>()) });
}

/// Defines `Thruway::Fleet`.
pub(super) fn define(thruway: VALUE) {
    let class = define_class(thruway, c"Fleet");
    define_method(class, Owner::Class, c"create", Method::One(create));
    define_method(class, Owner::Instance, c"bury", Method::One(bury));
}

/// The fleet behind an object.
///
/// # Safety
/// As for [`DataType::value_of`].
pub(super) unsafe fn group_of<'a>(object: VALUE) -> &'a WorkerGroup {
    // SAFETY: as this function's own; fleets alone are wrapped with this type.
    unsafe { TYPE.value_of(object) }
}

/// `Fleet.create(workers)`.
unsafe extern "C" fn create(class: VALUE, workers: VALUE) -> VALUE {
    // SAFETY: Ruby calls with the lock held.
    let gvl = unsafe { Gvl::assume() };
    give(
        gvl,
        gvl.protect(|ruby| ruby.to_unsigned(workers)).and_then(|workers| {
            let workers = usize::try_from(workers).unwrap_or(0).clamp(1, WORKERS_MAX);
            match WorkerGroup::new(workers)
                .map_err(|error| gvl.string(error.to_string().as_bytes()))
            {
                Ok(group) => Ok(TYPE.wrap(class, Box::new(group))),
                Err(message) => gvl.protect(|ruby| ruby.runtime_error(message)),
            }
        }),
    )
}

/// `group.mark_dead(worker)`: it is dead, and gets no connections until another takes its place.
unsafe extern "C" fn bury(this: VALUE, worker: VALUE) -> VALUE {
    // SAFETY: called by Ruby.
    let group = unsafe { group_of(this) };
    // SAFETY: `Thruway::Cluster` gives small numbers.
    let worker = unsafe { rb_sys::FIX2LONG(worker) };
    group.mark_dead(usize::try_from(worker).unwrap_or(0));
    NIL
}
