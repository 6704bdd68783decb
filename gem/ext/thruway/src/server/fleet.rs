//! `Thruway::Fleet`: what the workers of a cluster share, made before they are forked.

use std::ffi::c_void;

use rb_sys::VALUE;
use thruway_serve::Fleet;

use super::class::{DataType, Method, Owner, define_class, define_method, give};
use super::lock::{Lock, NIL};

/// Workers of one fleet at most.
const WORKERS_MAX: usize = 1024;

static TYPE: DataType = DataType::new(c"Thruway::Fleet", None, free);

unsafe extern "C" fn free(fleet: *mut c_void) {
    // SAFETY: the pointer is the one that `create` wrapped, and its object is unreachable.
    drop(unsafe { Box::from_raw(fleet.cast::<Fleet>()) });
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
pub(super) unsafe fn fleet_of<'a>(object: VALUE) -> &'a Fleet {
    // SAFETY: as this function's own; fleets alone are wrapped with this type.
    unsafe { TYPE.value_of(object) }
}

/// `Fleet.create(workers)`.
unsafe extern "C" fn create(class: VALUE, workers: VALUE) -> VALUE {
    // SAFETY: Ruby calls with the lock held.
    let lock = unsafe { Lock::assume() };
    give(
        lock,
        lock.protect(|inside| inside.to_unsigned(workers)).and_then(|workers| {
            let workers = usize::try_from(workers).unwrap_or(0).clamp(1, WORKERS_MAX);
            match Fleet::new(workers).map_err(|error| lock.string(error.to_string().as_bytes())) {
                Ok(fleet) => Ok(TYPE.wrap(class, Box::new(fleet))),
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
