//! What the boot needs of Ruby, each call with its invariant.
//!
//! Everything here is called with the interpreter lock held, and lets no Ruby exception out unless it
//! says so.

use std::ffi::{CStr, c_char, c_int};

use rb_sys::{ID, VALUE};

use super::method::Method0;

/// `nil`.
pub(super) const NIL: VALUE = rb_sys::Qnil as VALUE;
pub(super) const TRUE: VALUE = rb_sys::Qtrue as VALUE;
pub(super) const FALSE: VALUE = rb_sys::Qfalse as VALUE;

/// An object that the garbage collector neither frees nor moves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept(VALUE);

// SAFETY: a VALUE is a number; whoever uses it as an object holds the interpreter lock.
unsafe impl Send for Kept {}
// SAFETY: as above.
unsafe impl Sync for Kept {}

impl Kept {
    pub(super) fn value(self) -> VALUE {
        self.0
    }
}

/// Keeps the object for good.
pub(super) fn kept(object: VALUE) -> Kept {
    // SAFETY: the lock is held; the object is live, being on this stack.
    unsafe { rb_sys::rb_gc_register_mark_object(object) };
    Kept(object)
}

pub(super) fn boolean(value: bool) -> VALUE {
    if value { TRUE } else { FALSE }
}

pub(super) fn is_true(value: VALUE) -> bool {
    value != FALSE && value != NIL
}

/// The symbol's number; names are literals, so that there are few.
pub(super) fn id(name: &CStr) -> ID {
    // SAFETY: the name ends in NUL; interning a literal cannot raise.
    unsafe { rb_sys::rb_intern(name.as_ptr()) }
}

pub(super) fn symbol(name: &CStr) -> VALUE {
    // SAFETY: the number is a symbol's.
    unsafe { rb_sys::rb_id2sym(id(name)) }
}

pub(super) fn kernel() -> VALUE {
    // SAFETY: set when Ruby starts, and never again.
    unsafe { rb_sys::rb_mKernel }
}

/// `receiver.name(*arguments)`; `None` if it raised.
pub(super) fn send(receiver: VALUE, name: &CStr, arguments: &[VALUE]) -> Option<VALUE> {
    struct Call<'a> {
        receiver: VALUE,
        name: ID,
        arguments: &'a [VALUE],
    }
    unsafe extern "C" fn run(call: VALUE) -> VALUE {
        // SAFETY: `send` passes the address of its own local, which outlives the call.
        let call = unsafe { &*(call as *const Call<'_>) };
        let count = call.arguments.len() as c_int;
        // SAFETY: the pointer is valid for that many.
        unsafe { rb_sys::rb_funcallv(call.receiver, call.name, count, call.arguments.as_ptr()) }
    }
    let call = Call { receiver, name: id(name), arguments };
    let mut state = 0;
    // SAFETY: `run` gets back the address of `call`; nothing in it has a destructor.
    let result = unsafe { rb_sys::rb_protect(Some(run), &raw const call as VALUE, &raw mut state) };
    if state == 0 {
        return Some(result);
    }
    // SAFETY: clears what was raised, which is answered by `None`.
    unsafe { rb_sys::rb_set_errinfo(NIL) };
    None
}

/// What `work` gives; `None` if it raised, which is forgotten. Nothing with a destructor lives in it.
pub(super) fn protect<T>(work: impl FnOnce() -> T) -> Option<T> {
    struct Work<F, T> {
        work: Option<F>,
        result: Option<T>,
    }
    unsafe extern "C" fn run<F: FnOnce() -> T, T>(work: VALUE) -> VALUE {
        // SAFETY: `protect` passes the address of its own local, which outlives the call.
        let place = unsafe { &mut *(work as *mut Work<F, T>) };
        place.result = place.work.take().map(|work| work());
        NIL
    }
    fn runner<F: FnOnce() -> T, T>(_: &Work<F, T>) -> Method0 {
        run::<F, T>
    }
    let mut work = Work { work: Some(work), result: None };
    let run = runner(&work);
    let mut state = 0;
    // SAFETY: `run` gets back the address of `work`.
    unsafe { rb_sys::rb_protect(Some(run), &raw mut work as VALUE, &raw mut state) };
    if state != 0 {
        // SAFETY: clears what was raised, which is answered by `None`.
        unsafe { rb_sys::rb_set_errinfo(NIL) };
    }
    work.result
}

/// `receiver.name(*arguments)`. What it raises goes on.
pub(super) fn call(receiver: VALUE, name: ID, arguments: &[VALUE]) -> VALUE {
    // SAFETY: the pointer is valid for that many; nothing with a destructor lives in our callers.
    unsafe { rb_sys::rb_funcallv(receiver, name, arguments.len() as c_int, arguments.as_ptr()) }
}

/// `receiver.name` as Ruby's boolean; `false` if it raised.
pub(super) fn ask(receiver: VALUE, name: &CStr, arguments: &[VALUE]) -> bool {
    send(receiver, name, arguments).is_some_and(is_true)
}

/// Calls `body` with `data`, and `after` in any case, as `ensure` does. What `body` raises goes on.
///
/// # Safety
/// `data` is what `body` expects, and no value with a destructor is alive in the caller.
pub(super) unsafe fn ensure(body: Method0, data: VALUE, after: Method0) -> VALUE {
    // SAFETY: as this function's own.
    unsafe { rb_sys::rb_ensure(Some(body), data, Some(after), NIL) }
}

pub(super) fn define_module_under(outer: VALUE, name: &CStr) -> VALUE {
    // SAFETY: called while the extension is loaded; the name ends in NUL.
    unsafe { rb_sys::rb_define_module_under(outer, name.as_ptr()) }
}

pub(super) fn set_constant(outer: VALUE, name: &CStr, value: VALUE) {
    // SAFETY: called while the extension is loaded; the name ends in NUL, and is a constant's.
    unsafe { rb_sys::rb_const_set(outer, id(name), value) };
}

/// The bytes of an object that is exactly a String, no subclass.
///
/// # Safety
/// `value` stays on the caller's stack and is not changed while the slice lives.
pub(super) unsafe fn plain_bytes<'a>(value: VALUE) -> Option<&'a [u8]> {
    // SAFETY: any VALUE may be asked for its class.
    let class = unsafe { rb_sys::rb_obj_class(value) };
    // SAFETY: set when Ruby starts, and never again.
    let is_plain = class == unsafe { rb_sys::rb_cString };
    // SAFETY: it is a String; the rest is this function's own condition.
    is_plain.then(|| unsafe { crate::ruby::bytes(value) })
}

/// The elements of an Array.
///
/// # Safety
/// `array` is an Array that is not changed while the slice lives.
pub(super) unsafe fn elements<'a>(array: VALUE) -> &'a [VALUE] {
    // SAFETY: as this function's own.
    let length = unsafe { rb_sys::RARRAY_LEN(array) };
    // SAFETY: as above.
    let start = unsafe { rb_sys::RARRAY_CONST_PTR(array) };
    if length == 0 {
        return &[];
    }
    // SAFETY: the pointer and the length are of one Array, unchanged since.
    unsafe { std::slice::from_raw_parts(start, length as usize) }
}

/// An empty Array that lives as long as the process.
pub(super) fn kept_array() -> Kept {
    // SAFETY: the lock is held.
    kept(unsafe { rb_sys::rb_ary_new() })
}

/// Adds to an Array that nobody has frozen.
pub(super) fn push(array: VALUE, object: VALUE) {
    // SAFETY: as said above.
    unsafe { rb_sys::rb_ary_push(array, object) };
}

/// `File.join(*paths)`; `None` if it raised.
pub(super) fn join_paths(paths: &[VALUE]) -> Option<VALUE> {
    send(class(c"File"), c"join", paths)
}

/// Makes `array` hold what `other` holds.
pub(super) fn replace_elements(array: VALUE, other: VALUE) {
    // SAFETY: both are Arrays, and the first is not frozen.
    unsafe { rb_sys::rb_ary_replace(array, other) };
}

/// Whether neither Array was changed since one was put in the other's place; small ones never do.
pub(super) fn share_memory(one: VALUE, other: VALUE) -> bool {
    // SAFETY: both are Arrays.
    unsafe { rb_sys::rb_ary_shared_with_p(one, other) == boolean(true) }
}

/// A global variable's value.
pub(super) fn global(name: &CStr) -> VALUE {
    // SAFETY: the name ends in NUL; those that are asked for here have no getter that raises.
    unsafe { rb_sys::rb_gv_get(name.as_ptr()) }
}

/// Whether Ruby has a feature of that name, or is loading it. May raise, and expand the load path.
pub(super) fn is_provided(mut name: VALUE) -> bool {
    // SAFETY: the name is a String without NUL; Ruby gives it one at its end.
    let start = unsafe { rb_sys::rb_string_value_cstr(&raw mut name) };
    // SAFETY: the bytes end in NUL.
    unsafe { rb_sys::rb_provided(start) != 0 }
}

/// A new String with these bytes in the encoding of `other`. May raise NoMemoryError.
pub(super) fn string_like(other: VALUE, bytes: &[u8]) -> VALUE {
    // SAFETY: the pointer is valid for the length, and Ruby copies.
    let string = unsafe { rb_sys::rb_str_new(bytes.as_ptr().cast::<c_char>(), bytes.len() as _) };
    // SAFETY: both are Strings.
    unsafe { rb_sys::rb_enc_copy(string, other) };
    string
}

/// The file whose code called the method that is running, as `require_relative` sees it; `None` for
/// code without a file.
pub(super) fn calling_file() -> Option<VALUE> {
    const FRAMES: usize = 16;
    let (mut frames, mut lines) = ([NIL; FRAMES], [0; FRAMES]);
    // SAFETY: both arrays are valid for that many frames.
    let count = unsafe {
        rb_sys::rb_profile_frames(0, FRAMES as c_int, frames.as_mut_ptr(), lines.as_mut_ptr())
    };
    // The first frame is the running method itself.
    let frames = frames.iter().take(count.unsigned_abs() as usize).skip(1);
    frames.copied().find_map(file_of_frame)?
}

/// The real path of a frame's file; outer `None` for a frame of a method written in C.
fn file_of_frame(frame: VALUE) -> Option<Option<VALUE>> {
    // SAFETY: the frame is one of `rb_profile_frames`.
    let path = unsafe { rb_sys::rb_profile_frame_path(frame) };
    if path == NIL {
        return None;
    }
    // SAFETY: as above.
    let real_path = unsafe { rb_sys::rb_profile_frame_absolute_path(frame) };
    if real_path != NIL {
        return Some(Some(real_path));
    }
    // SAFETY: the path is a String of the frame's, which does not change.
    let bytes = unsafe { crate::ruby::bytes(path) };
    let is_implicit =
        bytes == b"(eval)" || bytes.starts_with(b"(eval at ") && bytes.ends_with(b")");
    Some((!is_implicit).then_some(path))
}

pub(super) fn dirname(path: VALUE) -> VALUE {
    // SAFETY: the path is a String.
    unsafe { rb_sys::rb_file_dirname(path) }
}

/// `File.absolute_path(name, folder)`; raises TypeError as that does.
///
/// # Safety
/// No value with a destructor is alive in the caller.
pub(super) unsafe fn absolute_path(name: VALUE, folder: VALUE) -> VALUE {
    // SAFETY: as this function's own.
    unsafe { rb_sys::rb_file_absolute_path(name, folder) }
}

/// Raises LoadError.
pub(super) fn raise_load_error(message: &CStr) -> ! {
    // SAFETY: the message has no conversions, and nothing with a destructor lives in our callers.
    unsafe { rb_sys::rb_loaderror(message.as_ptr()) }
}

/// A class or module that every Ruby of ours has.
pub(super) fn class(path: &CStr) -> VALUE {
    // SAFETY: the path ends in NUL, and names something that is there from the start.
    unsafe { rb_sys::rb_path2class(path.as_ptr()) }
}

/// `Kernel#eval`, without what a class may have put in its place. What it raises goes on.
pub(super) fn eval(arguments: &[VALUE]) -> VALUE {
    let count = arguments.len() as c_int;
    match *arguments {
        // `binding.eval(source, …)` is `eval(source, binding, …)`.
        [source, binding, ref rest @ ..] if binding != NIL && rest.len() < 3 => {
            let mut call = [source, NIL, NIL];
            call[1..=rest.len()].copy_from_slice(rest);
            // SAFETY: the pointer is valid for as many; nothing with a destructor lives here.
            unsafe { rb_sys::rb_funcallv(binding, id(c"eval"), count - 1, call.as_ptr()) }
        }
        _ => {
            // SAFETY: as above.
            unsafe { rb_sys::rb_call_super(count, arguments.as_ptr()) }
        }
    }
}

/// A Method with that receiver. May raise.
pub(super) fn bound(method: VALUE, receiver: VALUE) -> VALUE {
    if send(method, c"receiver", &[]) == Some(receiver) {
        return method;
    }
    call(call(method, id(c"unbind"), &[]), id(c"bind"), &[receiver])
}

/// The block that the running method was called with.
pub(super) fn block() -> VALUE {
    // SAFETY: a method of ours is running.
    if unsafe { rb_sys::rb_block_given_p() } == 0 {
        return NIL;
    }
    // SAFETY: as above, and there is one.
    unsafe { rb_sys::rb_block_proc() }
}

/// The method that ours stands in front of, with the arguments as they came. What it raises goes on.
pub(super) fn call_super(arguments: &[VALUE]) -> VALUE {
    let count = arguments.len() as c_int;
    let keywords = c_int::from(has_keywords());
    // SAFETY: the pointer is valid for that many; nothing with a destructor lives in our callers.
    unsafe { rb_sys::rb_call_super_kw(count, arguments.as_ptr(), keywords) }
}

/// Whether the running method was called with keywords, which are its last argument then.
pub(super) fn has_keywords() -> bool {
    // SAFETY: a method of ours is running.
    unsafe { rb_sys::rb_keyword_given_p() != 0 }
}

/// Whether Ruby converts what it reads to another encoding than UTF-8.
pub(super) fn transcodes() -> bool {
    // SAFETY: may be called at any time.
    let internal = unsafe { rb_sys::rb_default_internal_encoding() };
    // SAFETY: as above.
    !internal.is_null() && internal != unsafe { rb_sys::rb_utf8_encoding() }
}

/// The absolute form of a path, if it is plain: a String, or a Pathname's. Raises nothing.
pub(super) fn absolute_path_of(path: VALUE) -> Option<VALUE> {
    let path = send(class(c"File"), c"path", &[path])?;
    send(class(c"File"), c"absolute_path", &[path])
}

/// `ENV[name] = value`
pub(super) fn set_environment(name: &str, value: &str) {
    let [name, value] = [name, value].map(|text| crate::ruby::utf8_string(text.as_bytes()));
    if let Some(environment) = constant(c"ENV") {
        send(environment, c"[]=", &[name, value]);
    }
}

/// `require`, as a program would call it; `None` if it raised.
pub(super) fn require(feature: &CStr) -> Option<VALUE> {
    send(kernel(), c"require", &[crate::ruby::utf8_string(feature.to_bytes())])
}

/// The arguments of a method that takes any number.
///
/// # Safety
/// Both are as Ruby passed them, and the slice does not outlive the call.
pub(super) unsafe fn arguments<'a>(count: c_int, arguments: *const VALUE) -> &'a [VALUE] {
    // SAFETY: as this function's own.
    unsafe { std::slice::from_raw_parts(arguments, count.unsigned_abs() as usize) }
}

/// The class or module at that path of constants, if it is there already; nothing is loaded for it.
pub(super) fn constant_at(path: &[&CStr]) -> Option<VALUE> {
    // SAFETY: set when Ruby starts, and never again.
    let object = unsafe { rb_sys::rb_cObject };
    path.iter().try_fold(object, |outer, name| {
        let is_loaded = ask(outer, c"const_defined?", &[symbol(name)])
            && send(outer, c"autoload?", &[symbol(name)]) == Some(NIL);
        if is_loaded { send(outer, c"const_get", &[symbol(name)]) } else { None }
    })
}

/// Calls a Proc without arguments. What it raises goes on.
pub(super) fn call_proc(proc: VALUE) {
    // SAFETY: it is a Proc; nothing with a destructor lives in our callers.
    unsafe { rb_sys::rb_funcallv(proc, id(c"call"), 0, std::ptr::null()) };
}

/// Whether this Ruby is of that version or a later one.
pub(super) fn is_at_least(version: &[u8]) -> bool {
    let own = constant(c"RUBY_VERSION");
    // SAFETY: the constant is a frozen String.
    own.is_some_and(|own| unsafe { crate::ruby::bytes(own) } >= version)
}

/// `RUBY_DESCRIPTION`.
pub(super) fn description() -> Option<VALUE> {
    constant(c"RUBY_DESCRIPTION")
}

/// The name of the encoding of file names.
pub(super) fn file_name_encoding() -> Option<VALUE> {
    let name = crate::ruby::utf8_string(b"filesystem");
    send(send(class(c"Encoding"), c"find", &[name])?, c"to_s", &[])
}

/// `Dir.pwd`.
pub(super) fn current_folder() -> Option<VALUE> {
    send(class(c"Dir"), c"pwd", &[])
}

fn constant(name: &CStr) -> Option<VALUE> {
    // SAFETY: set when Ruby starts, and never again.
    let object = unsafe { rb_sys::rb_cObject };
    send(object, c"const_get", &[symbol(name)])
}

/// Calls `last` when Ruby ends, after everything that is registered from now on.
pub(super) fn at_exit(last: unsafe extern "C" fn(VALUE)) {
    // SAFETY: the function lives as long as the process, and ignores its argument.
    unsafe { rb_sys::rb_set_end_proc(Some(last), NIL) };
}
