//! The synchronization primitives: those of the standard library, or those of a scheduler that explores interleavings.
//!
//! The crate's own unit tests run under [shuttle](https://docs.rs/shuttle): each operation on an atomic, a mutex or a
//! condition variable is a point at which another thread may run. Dependents of the crate get `std::sync`.

#[cfg(not(test))]
pub(crate) use std::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering},
};

#[cfg(test)]
pub(crate) use shuttle::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering},
};
