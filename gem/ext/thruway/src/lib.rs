//! The gem's extension. Ruby loads it as `thruway/thruway.so` and calls [`Init_thruway`].
//!
//! Each module joins one part of the workspace to Ruby. Two rules hold everywhere: no value with a
//! destructor lives across a call that can raise (Ruby unwinds by `longjmp`), and Ruby objects are
//! reached only with the interpreter lock held.
#![expect(unsafe_code, reason = "Ruby's C API: see ARCHITECTURE.md")]

mod boot;
mod names;
mod ruby;
mod server;

/// Called once by Ruby when the extension is loaded.
#[unsafe(no_mangle)]
pub extern "C" fn Init_thruway() {
    ruby::require_own_version();
    let thruway = ruby::define_module(c"Thruway");
    boot::define(thruway);
    names::define(thruway);
    server::define(thruway);
}
