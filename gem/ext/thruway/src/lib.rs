//! The gem's extension, which Ruby loads as `thruway/thruway.so` by calling [`Init_thruway`].
//!
//! Each module connects one part of the workspace to Ruby. Two rules hold everywhere: no value with a destructor
//! lives across a call that can raise, since Ruby unwinds by `longjmp`; and Ruby objects are used only with the
//! interpreter lock held. [`ruby`] has a proof for each rule.
#![expect(unsafe_code, reason = "Ruby's C API: see ARCHITECTURE.md")]
#![cfg_attr(
    windows,
    expect(
        clippy::missing_const_for_thread_local,
        reason = "the initializers are const there too"
    )
)]

#[cfg_attr(windows, expect(dead_code, reason = "fewer calls of libruby's are answered there"))]
mod boot;
mod interpose;
mod names;
#[cfg(target_os = "linux")]
mod preload;
#[cfg(not(target_os = "linux"))]
#[path = "preload/none.rs"]
mod preload;
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, unused_imports, reason = "templates and the server use more of it")
)]
mod ruby;
#[cfg(target_os = "linux")]
mod server;

use ruby::{ProtectedCall, RModule, define, raise};

/// Called by Ruby when the extension is loaded.
#[unsafe(no_mangle)]
pub extern "C" fn Init_thruway() {
    // SAFETY: `require` calls the function with the lock held, and catches exceptions.
    let ruby = unsafe { ProtectedCall::assume() };
    require_matching_ruby(ruby);
    let Some(thruway) = RModule::of(ruby.gvl(), define::module(ruby, c"Thruway")) else { return };
    preload::define(ruby, thruway);
    boot::define(ruby, thruway);
    names::define(ruby.gvl(), thruway.value());
    #[cfg(target_os = "linux")]
    server::define(ruby, thruway);
}

/// Raises LoadError in a version of Ruby for which this extension was not built. Nothing else prevents such a load,
/// and the layout of objects differs between versions.
fn require_matching_ruby(ruby: ProtectedCall) {
    let built_for = [rb_sys::RUBY_API_VERSION_MAJOR, rb_sys::RUBY_API_VERSION_MINOR];
    // SAFETY: the value is a constant of libruby's.
    let [major, minor, _] = unsafe { rb_sys::ruby_api_version };
    if [major, minor].map(i32::unsigned_abs) != built_for {
        let message =
            c"thruway was built for another version of Ruby; build or install it with this one";
        raise::load_error(ruby, message);
    }
}
