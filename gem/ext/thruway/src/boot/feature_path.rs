//! `$LOAD_PATH.resolve_feature_path`: where a feature would be loaded from.
//!
//! Ruby 3.3 asks it at each `require` below Bundler (`bundled_gems.rb`), in every folder of the load path.

use std::ffi::CStr;
use std::sync::OnceLock;

use rb_sys::VALUE;

use super::originals;
use super::vm::{self, Kept};
use super::{method, ractor, require};

const NAME: &CStr = c"resolve_feature_path";

/// Ruby's own method.
static OWN: OnceLock<Kept> = OnceLock::new();

/// Puts ours in the place of Ruby's own, unless somebody has put Ruby code there.
pub(super) fn install() {
    let load_path = vm::global(c"$LOAD_PATH");
    if method::is_native(load_path, c"method", NAME)
        && let Some(own) = originals::own_method(load_path, NAME)
    {
        OWN.get_or_init(|| vm::kept(own));
        method::quietly(|| method::define_singleton_method_1(load_path, NAME, resolve));
    }
}

unsafe extern "C" fn resolve(load_path: VALUE, name: VALUE) -> VALUE {
    // Raises as Ruby's own does, and from here: a backtrace shows one method of this name.
    // SAFETY: nothing with a destructor lives here.
    let name = unsafe { rb_sys::rb_get_path(name) };
    if ractor::is_main() { require::searching(find, [load_path, name]) } else { call_own(name) }
}

unsafe extern "C" fn find(arguments: VALUE) -> VALUE {
    // SAFETY: `searching` passes the address of two values.
    let [_load_path, name] = unsafe { *(arguments as *const [VALUE; 2]) };
    call_own(require::path_in_load_path(name))
}

fn call_own(name: VALUE) -> VALUE {
    let Some(own) = OWN.get() else { return vm::NIL };
    // SAFETY: it is a Method; the pointer is valid for one value, which is on this stack.
    unsafe { rb_sys::rb_method_call(1, &raw const name, own.value()) }
}
