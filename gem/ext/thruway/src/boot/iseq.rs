//! Compiled code, and what its compiler goes by: options, warnings, coverage.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

use rb_sys::VALUE;

use super::method::{Method1, define_singleton_method_1, quietly};
use super::originals::{self, Methods, Originals, Side};
use super::vm::{
    Kept, NIL, ask, class, elements, global, id, is_at_least, is_true, kept, send, symbol,
};

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

/// `METHODS` as they were when the boot began.
static ORIGINALS: OnceLock<Option<Originals>> = OnceLock::new();
/// `RubyVM::InstructionSequence.load_iseq`, which is ours.
static LOADER: OnceLock<Kept> = OnceLock::new();
/// `RubyVM::InstructionSequence.compile_option=`
static COMPILE_OPTION: Watched = Watched { setter: OnceLock::new(), told: OnceLock::new() };
/// `RubyVM.keep_script_lines=`
static KEPT_LINES: Watched = Watched { setter: OnceLock::new(), told: OnceLock::new() };
/// `Warning.[]=`
static WARNING_CATEGORY: Watched = Watched { setter: OnceLock::new(), told: OnceLock::new() };
/// `RubyVM::InstructionSequence.compile_option.inspect` at the start.
static COMPILE_OPTIONS: OnceLock<Option<Kept>> = OnceLock::new();

/// What code is made, written and read by.
const METHODS: [Methods; 3] = [
    Methods {
        path: &[c"RubyVM", c"InstructionSequence"],
        side: Side::Own,
        names: &[c"compile", c"compile_file", c"load_from_binary"],
    },
    Methods {
        path: &[c"RubyVM", c"InstructionSequence"],
        side: Side::Instances,
        names: &[c"disasm", c"eval", c"path", c"to_binary", c"trace_points"],
    },
    Methods {
        path: &[c"TracePoint"],
        side: Side::Instances,
        names: &[c"eval_script", c"instruction_sequence"],
    },
];

/// Whether code is made, written and read by Ruby's own methods.
pub(super) fn is_by_ruby() -> bool {
    let originals = ORIGINALS.get_or_init(|| Originals::of_core(&METHODS));
    originals.as_ref().is_some_and(|originals| originals.first_change().is_none())
}

/// `RubyVM::InstructionSequence`.
pub(super) fn instruction_sequence() -> VALUE {
    class(c"RubyVM::InstructionSequence")
}

/// Makes `load` supply the code of each file, unless something else does already.
pub(super) fn supply_code(load: Method1) {
    let (class, name) = (instruction_sequence(), c"load_iseq");
    if !ask(class, c"respond_to?", &[symbol(name)]) {
        define_singleton_method_1(class, name, load);
        if let Some(method) = originals::own_method(class, name) {
            LOADER.get_or_init(|| kept(method));
        }
    }
}

/// Whether Ruby compiles what our supplier does not have: what a program has put in its place, or in front
/// of it, may compile something else.
pub(super) fn is_sole_supplier() -> bool {
    let now = originals::own_method(instruction_sequence(), c"load_iseq");
    LOADER.get().zip(now).is_some_and(|(own, now)| ask(own.value(), c"==", &[now]))
}

/// The code as an object that can be run. Ruby reads the bytes in place, and only here.
pub(super) fn load_code(code: &'static [u8]) -> Option<VALUE> {
    let load = c"load_from_binary";
    if !originals::is_basic(instruction_sequence(), Side::Own, id(load)) {
        return None;
    }
    let length = code.len().try_into().ok()?;
    // SAFETY: the bytes live as long as the process, and Ruby does not write to them.
    let string = unsafe { rb_sys::rb_str_new_static(code.as_ptr().cast::<c_char>(), length) };
    send(instruction_sequence(), load, &[string])
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
    unsafe { rb_sys::rb_tracepoint_enable(kept(trace_point).value()) };
}

pub(super) fn measures_coverage() -> bool {
    // SAFETY: the lock is held.
    is_true(unsafe { rb_get_coverages() })
}

/// Whether code is to remember its source.
pub(super) fn keeps_lines() -> bool {
    ask(class(c"RubyVM"), c"keep_script_lines", &[])
}

/// Whether Ruby puts the lines of what it compiles into the Hash `SCRIPT_LINES__`.
pub(super) fn collects_lines() -> bool {
    // SAFETY: set when Ruby starts, and never again.
    let object = unsafe { rb_sys::rb_cObject };
    // SAFETY: the number is a symbol's.
    unsafe { rb_sys::rb_const_defined_at(object, id(c"SCRIPT_LINES__")) != 0 }
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
    let known = if is_at_least(b"3.3") { 3 } else { 2 };
    let bits = CATEGORIES[..known].iter().enumerate();
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

/// Marks this Ruby as one whose boot has started, with the module `Boot` that belongs to it. The mark is
/// a variable that no Ruby code can see.
pub(super) fn mark_as_started(boot: VALUE) {
    // SAFETY: the class is live, and it is not frozen.
    unsafe { rb_sys::rb_ivar_set(instruction_sequence(), id(c"thruway"), boot) };
}

/// The module `Boot` of the copy of this extension whose boot has started here.
pub(super) fn started() -> Option<VALUE> {
    // SAFETY: the class is live.
    let boot = unsafe { rb_sys::rb_ivar_get(instruction_sequence(), id(c"thruway")) };
    is_true(boot).then_some(boot)
}

/// Calls `told` after `RubyVM::InstructionSequence.compile_option=`.
pub(super) fn watch_compile_options(told: fn()) {
    COMPILE_OPTIONS.get_or_init(|| compile_options().map(kept));
    let class = instruction_sequence();
    if COMPILE_OPTION.watch(class, c"compile_option=", told) {
        quietly(|| define_singleton_method_1(class, c"compile_option=", set_compile_option));
    }
}

/// Calls `told` after `RubyVM.keep_script_lines=`.
pub(super) fn watch_kept_lines(told: fn()) {
    let vm = class(c"RubyVM");
    if KEPT_LINES.watch(vm, c"keep_script_lines=", told) {
        quietly(|| define_singleton_method_1(vm, c"keep_script_lines=", set_kept_lines));
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
        (Some(now), Some(before)) => ask(now, c"==", &[before.value()]),
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

unsafe extern "C" fn set_kept_lines(_class: VALUE, is_on: VALUE) -> VALUE {
    // SAFETY: the setter takes one argument, and nothing with a destructor lives here if it raises.
    unsafe { KEPT_LINES.call(&[is_on]) }
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
        let result = unsafe { rb_sys::rb_method_call(count, arguments.as_ptr(), setter.value()) };
        told();
        result
    }
}
