//! Stands in for templates on other systems than Linux, which have none.

use rb_sys::VALUE;
use thruway_boot::Boot;

use crate::ruby::{Gvl, ProtectedCall, RModule};

pub(crate) fn define(_: ProtectedCall, _: RModule) {}

pub(crate) fn begin_notes(_: Gvl, _: &Boot) {}

pub(crate) fn observe_calls() {}

pub(crate) fn record_load(_: Gvl, _: &[u8]) {}

pub(crate) fn check_guard(_: ProtectedCall, _: VALUE) {}

pub(crate) fn write_plan() {}
