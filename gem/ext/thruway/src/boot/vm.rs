//! What the boot needs of Ruby, each call with its invariant.
//!
//! Everything here is called with the interpreter lock held, and lets no Ruby exception out unless it
//! says so.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::OnceLock;

use rb_sys::{ID, VALUE};

/// `nil`.
pub(super) const NIL: VALUE = rb_sys::Qnil as VALUE;
pub(super) const TRUE: VALUE = rb_sys::Qtrue as VALUE;
pub(super) const FALSE: VALUE = rb_sys::Qfalse as VALUE;

/// A method of no argument, one and three, as Ruby calls it.
pub(super) type Method0 = unsafe extern "C" fn(VALUE) -> VALUE;
pub(super) type Method1 = unsafe extern "C" fn(VALUE, VALUE) -> VALUE;
pub(super) type Method3 = unsafe extern "C" fn(VALUE, VALUE, VALUE, VALUE) -> VALUE;
/// A method of any number of arguments.
pub(super) type Variadic = unsafe extern "C" fn(c_int, *const VALUE, VALUE) -> VALUE;
/// A hook that Ruby calls for a trace point.
pub(super) type Hook = unsafe extern "C" fn(VALUE, *mut c_void);

unsafe extern "C" {
    /// What `Coverage` has collected; false while it does not run. Exported, but in no header.
    fn rb_get_coverages() -> VALUE;
}

/// A setter of Ruby's that is watched: the Method itself, and whom to tell that it was called.
struct Watched {
    setter: OnceLock<Kept>,
    told: OnceLock<fn()>,
}

/// `RubyVM::InstructionSequence.compile_option=`
static COMPILE_OPTION: Watched = Watched { setter: OnceLock::new(), told: OnceLock::new() };
/// `Warning.[]=`
static WARNING_CATEGORY: Watched = Watched { setter: OnceLock::new(), told: OnceLock::new() };
/// `RubyVM::InstructionSequence.compile_option.inspect` at the start.
static COMPILE_OPTIONS: OnceLock<Option<Kept>> = OnceLock::new();

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

fn is_true(value: VALUE) -> bool {
    value != FALSE && value != NIL
}

/// The symbol's number; names are literals, so that there are few.
fn id(name: &CStr) -> ID {
    // SAFETY: the name ends in NUL; interning a literal cannot raise.
    unsafe { rb_sys::rb_intern(name.as_ptr()) }
}

fn symbol(name: &CStr) -> VALUE {
    // SAFETY: the number is a symbol's.
    unsafe { rb_sys::rb_id2sym(id(name)) }
}

fn kernel() -> VALUE {
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

pub(super) fn define_singleton_method_0(receiver: VALUE, name: &CStr, method: Method0) {
    // SAFETY: Ruby calls the function with as many values as the arity says: self alone.
    let any = unsafe { transmute::<Method0, unsafe extern "C" fn() -> VALUE>(method) };
    // SAFETY: the name ends in NUL, and the function lives as long as the process.
    unsafe { rb_sys::rb_define_singleton_method(receiver, name.as_ptr(), Some(any), 0) };
}

pub(super) fn define_singleton_method_1(receiver: VALUE, name: &CStr, method: Method1) {
    // SAFETY: the name ends in NUL, and the function lives as long as the process.
    unsafe { rb_sys::rb_define_singleton_method(receiver, name.as_ptr(), Some(any(method)), 1) };
}

pub(super) fn define_singleton_method_3(receiver: VALUE, name: &CStr, method: Method3) {
    // SAFETY: Ruby calls the function with as many values as the arity says: self and three arguments.
    let any = unsafe { transmute::<Method3, unsafe extern "C" fn() -> VALUE>(method) };
    // SAFETY: the name ends in NUL, and the function lives as long as the process.
    unsafe { rb_sys::rb_define_singleton_method(receiver, name.as_ptr(), Some(any), 3) };
}

/// Defines a private `receiver.name(*arguments)`.
pub(super) fn define_private_singleton_method(receiver: VALUE, name: &CStr, method: Variadic) {
    // SAFETY: Ruby calls the function with a count, that many values, and self, as the arity -1 says.
    let any = unsafe { transmute::<Variadic, unsafe extern "C" fn() -> VALUE>(method) };
    // SAFETY: the receiver is a class or a module.
    let class = unsafe { rb_sys::rb_singleton_class(receiver) };
    // SAFETY: the name ends in NUL, and the function lives as long as the process.
    unsafe { rb_sys::rb_define_private_method(class, name.as_ptr(), Some(any), -1) };
}

fn define_private_method_1(module: VALUE, name: &CStr, method: Method1) {
    // SAFETY: the name ends in NUL, and the function lives as long as the process.
    unsafe { rb_sys::rb_define_private_method(module, name.as_ptr(), Some(any(method)), 1) };
}

fn any(method: Method1) -> unsafe extern "C" fn() -> VALUE {
    // SAFETY: Ruby calls the function with as many values as the arity says: self and an argument.
    unsafe { transmute::<Method1, unsafe extern "C" fn() -> VALUE>(method) }
}

/// Runs without Ruby's remarks about methods that are defined a second time.
pub(super) fn quietly(work: impl FnOnce()) {
    // SAFETY: the place is valid for the whole process.
    let place = unsafe { rb_sys::rb_ruby_verbose_ptr() };
    // SAFETY: it is written with the lock held only.
    let verbose = unsafe { place.replace(NIL) };
    work();
    // SAFETY: as above.
    unsafe { place.write(verbose) };
}

/// Puts `method` in the place of a function of Kernel's, unless somebody has put Ruby code there.
pub(super) fn replace_kernel_function(name: &CStr, method: Method1) {
    if is_native(kernel(), c"instance_method", name) {
        define_private_method_1(kernel(), name, method);
    }
    if is_native(kernel(), c"method", name) {
        define_singleton_method_1(kernel(), name, method);
    }
}

/// Puts `method` in the place of Ruby's own `require`, wherever that has gone.
///
/// RubyGems keeps it under another name and calls it from a `require` of its own. An alias answers
/// to the name of the method that it was made from, in backtraces too; so ours is `require` for
/// a moment, and RubyGems' method is put back.
pub(super) fn replace_require(method: Method1) {
    replace_kernel_function(c"require", method);
    let alias = c"gem_original_require";
    if !ask(kernel(), c"private_method_defined?", &[symbol(alias)])
        || !is_native(kernel(), c"instance_method", alias)
    {
        return;
    }
    let Some(outer) = send(kernel(), c"instance_method", &[symbol(c"require")]) else { return };
    define_private_method_1(kernel(), c"require", method);
    // SAFETY: both names end in NUL, and the method was defined just now.
    unsafe { rb_sys::rb_define_alias(kernel(), alias.as_ptr(), c"require".as_ptr()) };
    send(kernel(), c"define_method", &[symbol(c"require"), outer]);
    send(kernel(), c"private", &[symbol(c"require")]);
}

/// Whether the method is written in C.
fn is_native(receiver: VALUE, finder: &CStr, name: &CStr) -> bool {
    let method = send(receiver, finder, &[symbol(name)]);
    method.and_then(|method| send(method, c"source_location", &[])) == Some(NIL)
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
pub(super) fn kept_array() -> VALUE {
    // SAFETY: the lock is held.
    kept(unsafe { rb_sys::rb_ary_new() }).0
}

/// Makes `array` hold what `other` holds.
pub(super) fn replace_elements(array: VALUE, other: VALUE) {
    // SAFETY: both are Arrays, and the first is not frozen.
    unsafe { rb_sys::rb_ary_replace(array, other) };
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

/// `RubyVM::InstructionSequence`.
pub(super) fn instruction_sequence() -> VALUE {
    class(c"RubyVM::InstructionSequence")
}

/// A class or module that every Ruby of ours has.
fn class(path: &CStr) -> VALUE {
    // SAFETY: the path ends in NUL, and names something that is there from the start.
    unsafe { rb_sys::rb_path2class(path.as_ptr()) }
}

/// The code as an object that can be run. Ruby reads the bytes in place, and only here.
pub(super) fn load_code(code: &'static [u8]) -> Option<VALUE> {
    let length = code.len().try_into().ok()?;
    // SAFETY: the bytes live as long as the process, and Ruby does not write to them.
    let string = unsafe { rb_sys::rb_str_new_static(code.as_ptr().cast::<c_char>(), length) };
    send(instruction_sequence(), c"load_from_binary", &[string])
}

/// Code that was compiled from `source` as the file at `path`; `None` for a syntax error.
pub(super) fn compile(source: VALUE, path: VALUE) -> Option<VALUE> {
    const FIRST_LINE: VALUE = 3; // the number 1
    send(instruction_sequence(), c"compile", &[source, path, path, FIRST_LINE])
}

/// The binary form of code.
pub(super) fn to_binary(code: VALUE) -> Option<VALUE> {
    send(code, c"to_binary", &[])
}

/// Whether code does anything: the empty file and nothing but comments have no lines.
pub(super) fn has_lines(code: VALUE) -> bool {
    let lines = send(code, c"trace_points", &[]);
    // SAFETY: the Array is on this stack, and no Ruby code runs while the slice lives.
    lines.is_some_and(|lines| !unsafe { elements(lines) }.is_empty())
}

/// Whether the file at that path has no syntax error.
pub(super) fn compiles(path: VALUE) -> bool {
    let mut compiles = false;
    quietly(|| compiles = send(instruction_sequence(), c"compile_file", &[path]).is_some());
    compiles
}

/// Whether code uses `self`, or may use a local variable of where it is evaluated: a name that is not
/// known when it is compiled becomes a call of `self`'s method.
pub(super) fn refers_to_self(code: VALUE) -> bool {
    let text = send(code, c"disasm", &[]);
    // SAFETY: the String is on this stack, and no Ruby code runs while the slice lives.
    let text = text.map(|text| unsafe { crate::ruby::bytes(text) });
    text.is_none_or(|text| text.windows(7).any(|word| word == b"putself"))
}

/// Runs code at the top, and answers with its value. What it raises goes on.
pub(super) fn evaluate(code: VALUE) -> VALUE {
    // SAFETY: it is code; nothing with a destructor lives in our callers.
    unsafe { rb_sys::rb_funcallv(code, id(c"eval"), 0, std::ptr::null()) }
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

/// Puts methods in front of those of the object at that path of constants.
pub(super) fn prepend_to_singleton(path: &[&CStr], methods: &[(&CStr, Variadic)]) {
    let Some(object) = constant_at(path) else { return };
    // SAFETY: the lock is held.
    let module = unsafe { rb_sys::rb_module_new() };
    for (name, method) in methods {
        // SAFETY: Ruby calls with a count, that many values, and self, as the arity -1 says.
        let any = unsafe { transmute::<Variadic, unsafe extern "C" fn() -> VALUE>(*method) };
        // SAFETY: the name ends in NUL, and the function lives as long as the process.
        unsafe { rb_sys::rb_define_method(module, name.as_ptr(), Some(any), -1) };
    }
    // SAFETY: the object is a class or a module.
    let singleton = unsafe { rb_sys::rb_singleton_class(object) };
    // SAFETY: both are modules.
    unsafe { rb_sys::rb_prepend_module(singleton, module) };
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

/// The path and the code of what a `script_compiled` event tells of; `None` for `eval`.
pub(super) fn compiled_code(trace_point: VALUE) -> Option<(VALUE, VALUE)> {
    if ask(trace_point, c"eval_script", &[]) {
        return None;
    }
    let code = send(trace_point, c"instruction_sequence", &[])?;
    Some((send(code, c"path", &[])?, code))
}

/// Calls `hook` after every file that Ruby compiles from now on.
pub(super) fn on_script_compiled(hook: Hook) {
    let event = rb_sys::RUBY_EVENT_SCRIPT_COMPILED;
    // SAFETY: the hook has the type that Ruby calls, and needs no data.
    let trace_point = unsafe { rb_sys::rb_tracepoint_new(NIL, event, Some(hook), null_mut()) };
    // SAFETY: it is a TracePoint.
    unsafe { rb_sys::rb_tracepoint_enable(kept(trace_point).0) };
}

pub(super) fn measures_coverage() -> bool {
    // SAFETY: the lock is held.
    is_true(unsafe { rb_get_coverages() })
}

/// What `$VERBOSE` says: nil is 0, false 1, true 2.
pub(super) fn verbosity() -> u8 {
    // SAFETY: may be called at any time.
    let place = unsafe { rb_sys::rb_ruby_verbose_ptr() };
    // SAFETY: the place is valid for the whole process.
    let verbose = unsafe { place.read() };
    if verbose == NIL { 0 } else { 1 + u8::from(is_true(verbose)) }
}

/// The categories of warnings that are on, one bit each.
pub(super) fn warning_categories() -> u8 {
    const CATEGORIES: [&CStr; 3] = [c"deprecated", c"experimental", c"performance"];
    let is_on = |category: &CStr| ask(class(c"Warning"), c"[]", &[symbol(category)]);
    let bits = CATEGORIES.iter().enumerate();
    bits.fold(0, |categories, (bit, category)| categories | u8::from(is_on(category)) << bit)
}

/// Whether a warning becomes a write of libruby's: nobody handles warnings in another way, and
/// `$stderr` is the one that Ruby began with.
pub(super) fn warns_on_stderr() -> bool {
    let warning = class(c"Warning");
    // SAFETY: it is an object.
    let singleton = unsafe { rb_sys::rb_singleton_class(warning) };
    // SAFETY: the number is a symbol's.
    let is_basic = unsafe { rb_sys::rb_method_basic_definition_p(singleton, id(c"warn")) } != 0;
    // SAFETY: set when Ruby starts; `STDERR` is a constant that is there from the start.
    let object = unsafe { rb_sys::rb_cObject };
    // SAFETY: as above.
    let stderr = unsafe { rb_sys::rb_const_get(object, id(c"STDERR")) };
    is_basic && global(c"$stderr") == stderr
}

/// Makes the module of that name, as Ruby itself does it.
pub(super) fn define_module(name: &CStr) {
    // SAFETY: the name ends in NUL, and nothing else has it.
    unsafe { rb_sys::rb_define_module(name.as_ptr()) };
}

/// Whether there is a constant of that name at the top.
pub(super) fn is_module_defined(name: &CStr) -> bool {
    // SAFETY: set when Ruby starts, and never again.
    let object = unsafe { rb_sys::rb_cObject };
    ask(object, c"const_defined?", &[symbol(name)])
}

/// Calls a Proc without arguments. What it raises goes on.
pub(super) fn call_proc(proc: VALUE) {
    // SAFETY: it is a Proc; nothing with a destructor lives in our callers.
    unsafe { rb_sys::rb_funcallv(proc, id(c"call"), 0, std::ptr::null()) };
}

/// Whether this Ruby comes with syntax_suggest: 3.2 and later.
pub(super) fn has_syntax_suggest() -> bool {
    let version = constant(c"RUBY_VERSION");
    // SAFETY: the constant is a frozen String.
    version.is_some_and(|version| unsafe { crate::ruby::bytes(version) } >= b"3.2")
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

/// Marks this Ruby as one whose boot has started; `false` if it was marked before. The mark is
/// a variable that no Ruby code can see.
pub(super) fn mark_as_started() -> bool {
    let (class, mark) = (instruction_sequence(), id(c"thruway"));
    // SAFETY: the class is live.
    let is_marked = is_true(unsafe { rb_sys::rb_ivar_defined(class, mark) });
    // SAFETY: as above, and it is not frozen.
    unsafe { rb_sys::rb_ivar_set(class, mark, TRUE) };
    !is_marked
}

/// Calls `told` after `RubyVM::InstructionSequence.compile_option=`.
pub(super) fn watch_compile_options(told: fn()) {
    COMPILE_OPTIONS.get_or_init(|| compile_options().map(kept));
    let class = instruction_sequence();
    if COMPILE_OPTION.watch(class, c"compile_option=", told) {
        quietly(|| define_singleton_method_1(class, c"compile_option=", set_compile_option));
    }
}

/// Calls `told` after `Warning.[]=`.
pub(super) fn watch_warning_categories(told: fn()) {
    let warning = class(c"Warning");
    if WARNING_CATEGORY.watch(warning, c"[]=", told) {
        let define = crate::ruby::define_singleton_method_2;
        quietly(|| define(warning, c"[]=", set_warning_category));
    }
}

/// Whether the compile options are as they were when they began to be watched.
pub(super) fn has_same_compile_options() -> bool {
    let before = COMPILE_OPTIONS.get().copied().flatten();
    match (compile_options(), before) {
        (Some(now), Some(before)) => ask(now, c"==", &[before.0]),
        _ => false,
    }
}

/// `RubyVM::InstructionSequence.compile_option.inspect`.
pub(super) fn compile_options() -> Option<VALUE> {
    send(send(instruction_sequence(), c"compile_option", &[])?, c"inspect", &[])
}

unsafe extern "C" fn set_compile_option(_class: VALUE, options: VALUE) -> VALUE {
    // SAFETY: the setter takes one argument, and nothing with a destructor lives here if it raises.
    unsafe { COMPILE_OPTION.call(&[options]) }
}

unsafe extern "C" fn set_warning_category(_class: VALUE, category: VALUE, is_on: VALUE) -> VALUE {
    // SAFETY: the setter takes two arguments, and nothing with a destructor lives here if it raises.
    unsafe { WARNING_CATEGORY.call(&[category, is_on]) }
}

impl Watched {
    /// Puts the setter aside; whoever asks defines another one that calls it.
    fn watch(&self, receiver: VALUE, name: &CStr, told: fn()) -> bool {
        let Some(setter) = send(receiver, c"method", &[symbol(name)]) else { return false };
        self.told.set(told).is_ok() && self.setter.set(kept(setter)).is_ok()
    }

    /// Calls the setter, and tells of it.
    ///
    /// # Safety
    /// The setter takes that many arguments, and no value with a destructor is alive in the caller.
    unsafe fn call(&self, arguments: &[VALUE]) -> VALUE {
        let (Some(setter), Some(told)) = (self.setter.get(), self.told.get()) else { return NIL };
        let count = arguments.len() as c_int;
        // SAFETY: as this function's own.
        let result = unsafe { rb_sys::rb_method_call(count, arguments.as_ptr(), setter.0) };
        told();
        result
    }
}

/// Calls `last` when Ruby ends, after everything that is registered from now on.
pub(super) fn at_exit(last: unsafe extern "C" fn(VALUE)) {
    // SAFETY: the function lives as long as the process, and ignores its argument.
    unsafe { rb_sys::rb_set_end_proc(Some(last), NIL) };
}
