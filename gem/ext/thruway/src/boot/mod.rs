//! `require "thruway/boot"`: Ruby's own `require`, with its look-ups answered and its code supplied.
//!
//! Reading order:
//!
//! 1. [`start`]: the start of a boot, and what is installed.
//! 2. [`require`]: names become paths before Ruby searches.
//! 3. [`answers`]: calls into libc that Ruby still makes are answered.
//! 4. [`code`]: compiled code is supplied or learned.

#[cfg(unix)]
mod allocations;
#[cfg(unix)]
pub(crate) mod answers;
#[cfg(windows)]
#[path = "answers/windows.rs"]
pub(crate) mod answers;
mod called_names;
#[cfg(windows)]
pub(crate) mod changes;
mod code;
#[cfg(unix)]
mod collector;
mod compiler_output;
pub(crate) mod current;
mod dependencies;
mod documents;
mod feature_path;
#[cfg(unix)]
mod features;
mod gems;
mod heap;
mod iseq;
mod json_files;
mod library;
mod load_path;
mod method;
mod objects;
mod originals;
#[cfg(unix)]
pub(crate) mod outside;
#[cfg(windows)]
#[path = "outside/windows.rs"]
pub(crate) mod outside;
mod require;
mod search;
mod start;
mod take_over;
mod time_code;
mod values;
mod vm;
pub(crate) mod writes;
mod zones;

use rb_sys::VALUE;
use thruway_boot::Boot;
use thruway_resolve::native;

use crate::ruby::define::{self, Method};
use crate::ruby::{NIL, PinnedObject, ProtectedCall, RModule, RString, boolean};

pub(crate) fn define(ruby: ProtectedCall, thruway: RModule) {
    let gvl = ruby.gvl();
    // Another copy of this extension may have started the boot. Then the boot belongs to that copy.
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

/// `Thruway::Boot.start(folder)`: starts the boot of the application that is found from `folder` upwards. Returns
/// `true` the first time.
fn start(ruby: ProtectedCall, module: VALUE, folder: VALUE) -> VALUE {
    let folder = RString::from_argument(ruby, folder);
    boolean(start::start_in(ruby.gvl(), module, &folder.to_vec(ruby.gvl())))
}

/// `Thruway::Boot.take_over(clean)`: starts the boot, and keeps the Proc that removes our files from
/// `$LOADED_FEATURES`. Returns whether this is the first call.
fn take_over(ruby: ProtectedCall, module: VALUE, clean: VALUE) -> VALUE {
    let gvl = ruby.gvl();
    let Some(folder) = vm::current_folder(gvl) else { return boolean(false) };
    start::start_in(gvl, module, &folder.to_vec(gvl));
    boolean(take_over::keep(PinnedObject::new(gvl, clean)))
}

/// `Thruway::Boot.save`: writes everything learned so far to the pack, in any process. A server has booted long
/// before it ends, and its workers may be killed.
fn save(_ruby: ProtectedCall, _module: VALUE) -> VALUE {
    if let Some(boot) = current::boot() {
        start::write_pack(boot);
    }
    NIL
}

/// `Thruway::Boot.see_first`: learns compiled code before any TracePoint that exists now is called.
fn see_first(ruby: ProtectedCall, _module: VALUE) -> VALUE {
    code::see_first(ruby.gvl());
    NIL
}

/// `Thruway::Boot.observe(callable)`: calls it with `:hit`, `:stale` or `:miss`, a path and a reason for each file of
/// code; nil removes the observer.
fn observe(ruby: ProtectedCall, _module: VALUE, callable: VALUE) -> VALUE {
    code::observe(ruby.gvl(), callable);
    NIL
}

/// `Thruway::Boot.running?`
fn is_running(_ruby: ProtectedCall, _module: VALUE) -> VALUE {
    boolean(current::boot().is_some())
}

/// `Thruway::Boot.pack`: returns the path of the pack, whether the file exists or not.
fn pack(ruby: ProtectedCall, _module: VALUE) -> VALUE {
    match current::boot().and_then(Boot::pack_path) {
        Some(path) => {
            let mut path = native::bytes(path.as_os_str()).into_owned();
            if cfg!(windows) {
                path.iter_mut().filter(|byte| **byte == b'\\').for_each(|byte| *byte = b'/');
            }
            RString::new(ruby.gvl(), &path).value()
        }
        None => NIL,
    }
}
