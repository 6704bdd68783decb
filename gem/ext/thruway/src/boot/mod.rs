//! `require "thruway/boot"`: Ruby's own `require`, with its look-ups answered and its code supplied.
//!
//! Reading order:
//!
//! 1. [`start`]: what is put where.
//! 2. [`require`]: a name becomes a path before Ruby searches.
//! 3. [`interpose`]: what Ruby still asks libc is answered.
//! 4. [`code`]: compiled code is handed over, or learned.

mod allocations;
mod code;
mod collector;
mod compiler_output;
pub(crate) mod current;
mod dependencies;
mod documents;
pub(crate) mod errno;
mod feature_path;
mod features;
mod gems;
pub(crate) mod import;
mod interpose;
mod iseq;
mod json_files;
mod library;
mod load_path;
mod method;
mod objects;
mod originals;
mod outside;
mod require;
mod search;
mod start;
mod take_over;
mod values;
mod vm;

use std::os::unix::ffi::OsStrExt;

use rb_sys::VALUE;
use thruway_boot::Boot;

use crate::ruby::define::{self, Method};
use crate::ruby::{NIL, Pinned, Protected, RModule, RString, boolean};

pub(crate) fn define(ruby: Protected, thruway: RModule) {
    let gvl = ruby.gvl();
    // Another copy of this extension may have been here before: the boot is its.
    if let Some(module) = iseq::started(gvl) {
        return define::quietly(gvl, || define::constant(ruby, thruway, c"Boot", module));
    }
    let module = define::module_under(ruby, thruway.value(), c"Boot");
    define::singleton_method(gvl, module, c"start", Method::of_1(start));
    define::singleton_method(gvl, module, c"take_over", Method::of_1(take_over));
    define::singleton_method(gvl, module, c"running?", Method::of_0(is_running));
    define::singleton_method(gvl, module, c"pack", Method::of_0(pack));
    define::singleton_method(gvl, module, c"save", Method::of_0(save));
    define::singleton_method(gvl, module, c"see_first", Method::of_0(see_first));
    define::singleton_method(gvl, module, c"observe", Method::of_1(observe));
}

/// `Thruway::Boot.start(folder)`: the application is looked for from that folder upwards. Answers
/// `true` the first time.
fn start(ruby: Protected, module: VALUE, folder: VALUE) -> VALUE {
    let folder = RString::from_argument(ruby, folder);
    boolean(start::start_in(ruby.gvl(), module, &folder.to_vec(ruby.gvl())))
}

/// `Thruway::Boot.take_over(clean)`: starts the boot, and keeps the Proc that takes our names out of
/// `$LOADED_FEATURES`. Answers whether it is the first time.
fn take_over(ruby: Protected, module: VALUE, clean: VALUE) -> VALUE {
    let gvl = ruby.gvl();
    let Some(folder) = vm::current_folder(gvl) else { return boolean(false) };
    start::start_in(gvl, module, &folder.to_vec(gvl));
    boolean(take_over::keep(Pinned::new(gvl, clean)))
}

/// `Thruway::Boot.save`: writes what was learned so far, whichever process learned it. A server has
/// booted long before it ends, and its workers may be killed.
fn save(_ruby: Protected, _module: VALUE) -> VALUE {
    if let Some(boot) = current::boot() {
        start::write_pack(boot);
    }
    NIL
}

/// `Thruway::Boot.see_first`: what is compiled is learned before any TracePoint is called that exists now.
fn see_first(ruby: Protected, _module: VALUE) -> VALUE {
    code::see_first(ruby.gvl());
    NIL
}

/// `Thruway::Boot.observe(callable)`: it is called with `:hit`, `:stale` or `:miss`, a path, and why; nil ends that.
fn observe(ruby: Protected, _module: VALUE, callable: VALUE) -> VALUE {
    code::observe(ruby.gvl(), callable);
    NIL
}

/// `Thruway::Boot.running?`
fn is_running(_ruby: Protected, _module: VALUE) -> VALUE {
    boolean(current::boot().is_some())
}

/// `Thruway::Boot.pack`: the path of the pack, whether there is one yet or not.
fn pack(ruby: Protected, _module: VALUE) -> VALUE {
    match current::boot().and_then(Boot::pack_path) {
        Some(path) => RString::new(ruby.gvl(), path.as_os_str().as_bytes()).value(),
        None => NIL,
    }
}
