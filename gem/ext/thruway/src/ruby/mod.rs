//! The layer over Ruby's C API, on which everything else in the extension is built.
//!
//! Two proofs are passed from call to call. [`Gvl`] proves that the thread holds the interpreter lock, and so may
//! touch objects. [`ProtectedCall`] proves in addition that exceptions are caught further up, so that Ruby may raise
//! one. Ruby unwinds by `longjmp`, so no value with a destructor lives across such a call.
//!
//! A `VALUE` is a live object: either the collector finds it on the thread's stack, or it is [`PinnedObject`].
//! Types state the class: [`RString`], [`RArray`], [`RHash`], [`RModule`] and [`Symbol`] are created from a `VALUE`
//! by a check.
//!
//! Reading order: [`immediate`], [`gvl`], [`value`], [`string`], [`array`], [`hash`], [`symbol`], [`module`],
//! [`object`], [`encoding`], [`constants`], [`call`] (calling methods), [`define`] (defining methods), [`data_type`],
//! [`collector`], [`block`], [`raise`], [`ractor`], [`fiber`], [`io_buffer`], [`event`].

pub(crate) mod array;
pub(crate) mod block;
pub(crate) mod call;
pub(crate) mod collector;
pub(crate) mod constants;
pub(crate) mod data_type;
pub(crate) mod define;
pub(crate) mod encoding;
pub(crate) mod event;
pub(crate) mod fiber;
pub(crate) mod gvl;
pub(crate) mod hash;
pub(crate) mod immediate;
#[cfg(target_os = "linux")]
pub(crate) mod io_buffer;
pub(crate) mod module;
pub(crate) mod number;
pub(crate) mod object;
pub(crate) mod ractor;
pub(crate) mod raise;
pub(crate) mod string;
pub(crate) mod symbol;
pub(crate) mod thread;
pub(crate) mod value;

pub(crate) use array::RArray;
pub(crate) use gvl::{Gvl, NonLocalExit, ProtectedCall};
pub(crate) use hash::{NewHash, RHash};
pub(crate) use immediate::{FALSE, NIL, TRUE, boolean, is_true};
pub(crate) use module::RModule;
pub(crate) use string::{RString, read_all};
pub(crate) use symbol::Symbol;
pub(crate) use value::{Object, PinnedObject};
