//! Functions of Ruby that only the boot uses.

use std::ffi::{CStr, c_int};

use rb_sys::VALUE;

use crate::ruby::call::{ask, call, call_super, send};
use crate::ruby::constants::{constant, constant_at};
use crate::ruby::{Gvl, NIL, ProtectedCall, RModule, RString, Symbol};

/// Ruby's own `require`. Exceptions propagate.
pub(super) fn require(_: ProtectedCall, receiver: VALUE, name: VALUE) -> VALUE {
    // SAFETY: the method passes the same arguments; exceptions are caught further up.
    unsafe { rb_sys::rb_f_require(receiver, name) }
}

/// `require`, as a program would call it; `None` if it raised.
pub(super) fn require_as_program(gvl: Gvl, feature: &'static CStr) -> Option<VALUE> {
    let feature = RString::new(gvl, feature.to_bytes());
    send(gvl, RModule::kernel().value(), c"require", &[feature.value()])
}

/// Whether Ruby has loaded, or is loading, a feature of that name. The name contains no NUL. May expand the load
/// path.
pub(super) fn is_provided(_: ProtectedCall, name: RString) -> bool {
    let mut name = name.value();
    // SAFETY: the name is a String; exceptions are caught further up.
    let start = unsafe { rb_sys::rb_string_value_cstr(&raw mut name) };
    // SAFETY: the bytes end in NUL; exceptions are caught further up.
    unsafe { rb_sys::rb_provided(start) != 0 }
}

/// The file whose code called the running method, as `require_relative` determines it; `None` for code without a
/// file.
pub(super) fn calling_file(gvl: Gvl) -> Option<RString> {
    const FRAMES: usize = 16;
    let (mut frames, mut lines) = ([NIL; FRAMES], [0; FRAMES]);
    // SAFETY: both arrays are valid for that many frames.
    let count = unsafe {
        rb_sys::rb_profile_frames(0, FRAMES as c_int, frames.as_mut_ptr(), lines.as_mut_ptr())
    };
    // The first frame is the running method itself.
    let frames = frames.iter().take(count.unsigned_abs() as usize).skip(1);
    frames.copied().find_map(|frame| file_of_frame(gvl, frame))?
}

/// The real path of a frame's file; the outer `None` stands for a method written in C.
fn file_of_frame(gvl: Gvl, frame: VALUE) -> Option<Option<RString>> {
    // SAFETY: the frame is one of `rb_profile_frames`.
    let path = RString::of(gvl, unsafe { rb_sys::rb_profile_frame_path(frame) })?;
    // SAFETY: as above.
    let real_path = unsafe { rb_sys::rb_profile_frame_absolute_path(frame) };
    if let Some(real_path) = RString::of(gvl, real_path) {
        return Some(Some(real_path));
    }
    let is_implicit = path.read(gvl, |path| {
        path == b"(eval)" || path.starts_with(b"(eval at ") && path.ends_with(b")")
    });
    Some((!is_implicit).then_some(path))
}

/// `File.dirname(path)`.
pub(super) fn dirname(_: ProtectedCall, path: RString) -> VALUE {
    // SAFETY: the path is a String; exceptions are caught further up.
    unsafe { rb_sys::rb_file_dirname(path.value()) }
}

/// `File.absolute_path(name, folder)`; raises TypeError as Ruby's method does.
pub(super) fn absolute_path(_: ProtectedCall, name: VALUE, folder: VALUE) -> VALUE {
    // SAFETY: exceptions are caught further up.
    unsafe { rb_sys::rb_file_absolute_path(name, folder) }
}

/// `Kernel#eval`, even if a class has a method of that name. Exceptions propagate.
pub(super) fn eval(ruby: ProtectedCall, arguments: &[VALUE]) -> VALUE {
    match *arguments {
        // `binding.eval(source, …)` is `eval(source, binding, …)`.
        [source, binding, ref rest @ ..] if binding != NIL && rest.len() < 3 => {
            let mut all = [source, NIL, NIL];
            all[1..=rest.len()].copy_from_slice(rest);
            let eval = Symbol::new(ruby.gvl(), c"eval");
            call(ruby, binding, eval, &all[..arguments.len() - 1])
        }
        _ => call_super(ruby, arguments),
    }
}

/// A Method of another receiver, bound to `receiver`. May raise.
pub(super) fn bound(ruby: ProtectedCall, method: VALUE, receiver: VALUE) -> VALUE {
    let gvl = ruby.gvl();
    bind(ruby, call(ruby, method, Symbol::new(gvl, c"unbind"), &[]), receiver)
}

/// The Method of `receiver` for an UnboundMethod. May raise.
pub(super) fn bind(ruby: ProtectedCall, method: VALUE, receiver: VALUE) -> VALUE {
    call(ruby, method, Symbol::new(ruby.gvl(), c"bind"), &[receiver])
}

/// Whether Ruby converts text that it reads to another encoding than UTF-8.
pub(super) fn transcodes(_: Gvl) -> bool {
    // SAFETY: the function may be called at any time.
    let internal = unsafe { rb_sys::rb_default_internal_encoding() };
    // SAFETY: as above.
    !internal.is_null() && internal != unsafe { rb_sys::rb_utf8_encoding() }
}

/// The absolute form of a path, if the path is a plain String or Pathname. Raises nothing.
pub(super) fn absolute_path_of(gvl: Gvl, path: VALUE) -> Option<RString> {
    let path = send(gvl, RModule::named(gvl, c"File").value(), c"path", &[path])?;
    RString::of(gvl, send(gvl, RModule::named(gvl, c"File").value(), c"absolute_path", &[path])?)
}

/// `File.join(*paths)`; `None` if it raised.
pub(super) fn join_paths(gvl: Gvl, paths: &[VALUE]) -> Option<RString> {
    RString::plain(gvl, send(gvl, RModule::named(gvl, c"File").value(), c"join", paths)?)
}

/// Whether the program may have boxes (`Ruby::Box`, since Ruby 4.0). Each box has a load path, features and methods of
/// its own, and the boot knows one of each.
pub(super) fn has_boxes(gvl: Gvl) -> bool {
    constant_at(gvl, &[c"Ruby", c"Box"]).is_some_and(|class| ask(gvl, class, c"enabled?", &[]))
}

/// `ENV[name] = value`.
pub(super) fn set_environment(gvl: Gvl, name: &str, value: &str) {
    let [name, value] = [name, value].map(|text| RString::new(gvl, text.as_bytes()).value());
    if let Some(environment) = constant(gvl, c"ENV") {
        send(gvl, environment, c"[]=", &[name, value]);
    }
}

/// Whether this Ruby has that version or a later one.
pub(super) fn is_at_least(gvl: Gvl, version: &[u8]) -> bool {
    let own = constant(gvl, c"RUBY_VERSION").and_then(|own| RString::of(gvl, own));
    own.is_some_and(|own| own.read(gvl, |own| own >= version))
}

/// `RUBY_DESCRIPTION`.
pub(super) fn description(gvl: Gvl) -> Option<RString> {
    RString::of(gvl, constant(gvl, c"RUBY_DESCRIPTION")?)
}

/// The name of the encoding of file names.
pub(super) fn file_name_encoding(gvl: Gvl) -> Option<RString> {
    let name = RString::new(gvl, b"filesystem").value();
    let encoding = send(gvl, RModule::named(gvl, c"Encoding").value(), c"find", &[name])?;
    RString::of(gvl, send(gvl, encoding, c"to_s", &[])?)
}

/// `Dir.pwd`.
pub(super) fn current_folder(gvl: Gvl) -> Option<RString> {
    RString::of(gvl, send(gvl, RModule::named(gvl, c"Dir").value(), c"pwd", &[])?)
}
