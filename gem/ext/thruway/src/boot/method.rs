//! Replaces methods of Ruby with ours.

use std::ffi::CStr;

use rb_sys::VALUE;

use crate::ruby::call::{ask, send};
use crate::ruby::define::{self, Method};
use crate::ruby::{Gvl, NIL, RModule, Symbol};

/// Replaces a function of Kernel's with `method`, unless a program has defined Ruby code there.
pub(super) fn replace_kernel_function(gvl: Gvl, name: &'static CStr, method: Method) {
    let kernel = RModule::kernel().value();
    if is_native(gvl, kernel, c"instance_method", name) {
        define::private_method(gvl, RModule::kernel(), name, method);
    }
    if is_native(gvl, kernel, c"method", name) {
        define::singleton_method(gvl, kernel, name, method);
    }
}

/// Replaces Ruby's own `require`, also under the name `gem_original_require`.
///
/// RubyGems keeps Ruby's method as `gem_original_require`, and calls it from a `require` of its own. In a backtrace, an
/// alias has the name of the method that it stands for, and that name has to be `require`. So our method is first
/// defined as `require`, in place of RubyGems' method, and then aliased; after that, RubyGems' method is restored.
pub(super) fn replace_require(gvl: Gvl, method: Method) {
    replace_kernel_function(gvl, c"require", method);
    let kernel = RModule::kernel().value();
    let alias = c"gem_original_require";
    let [old, new] = [alias, c"require"].map(|name| Symbol::new(gvl, name).value());
    if !ask(gvl, kernel, c"private_method_defined?", &[old])
        || !is_native(gvl, kernel, c"instance_method", alias)
    {
        return;
    }
    let Some(outer) = send(gvl, kernel, c"instance_method", &[new]) else { return };
    define::private_method(gvl, RModule::kernel(), c"require", method);
    define::alias(gvl, RModule::kernel(), alias, c"require");
    send(gvl, kernel, c"define_method", &[new, outer]);
    send(gvl, kernel, c"private", &[new]);
}

/// Whether the method is written in C.
pub(super) fn is_native(
    gvl: Gvl,
    receiver: VALUE,
    finder: &'static CStr,
    name: &'static CStr,
) -> bool {
    let method = send(gvl, receiver, finder, &[Symbol::new(gvl, name).value()]);
    method.and_then(|method| send(gvl, method, c"source_location", &[])) == Some(NIL)
}
