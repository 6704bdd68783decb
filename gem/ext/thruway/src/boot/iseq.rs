//! Compiled code, and what its compiler goes by: options, warnings, coverage.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

use rb_sys::VALUE;

use super::originals::{self, Methods, Originals, Side};
use super::vm::is_at_least;
use crate::ruby::call::{ask, call, call_method, send};
use crate::ruby::constants::{constant, global};
use crate::ruby::define::{Method, quietly, singleton_method};
use crate::ruby::{Gvl, NIL, Pinned, Protected, RArray, RModule, RString, Symbol, is_true};

/// A hook that Ruby calls for a trace point.
pub(super) type Hook = unsafe extern "C" fn(VALUE, *mut c_void);

unsafe extern "C" {
    /// What `Coverage` has collected; false while it does not run. Exported, but in no header.
    fn rb_get_coverages() -> VALUE;
}

/// A setter of Ruby's that is watched: the Method itself, and what to call after it.
struct Watched {
    setter: OnceLock<Pinned>,
    told: OnceLock<fn(Gvl)>,
}

/// `METHODS` as they were when the boot began.
static ORIGINALS: OnceLock<Option<Originals>> = OnceLock::new();
/// `RubyVM::InstructionSequence.load_iseq`, which is ours.
static LOADER: OnceLock<Pinned> = OnceLock::new();
/// `RubyVM::InstructionSequence.compile_option=`
static COMPILE_OPTION: Watched = Watched { setter: OnceLock::new(), told: OnceLock::new() };
/// `RubyVM.keep_script_lines=`
static KEPT_LINES: Watched = Watched { setter: OnceLock::new(), told: OnceLock::new() };
/// `Warning.[]=`
static WARNING_CATEGORY: Watched = Watched { setter: OnceLock::new(), told: OnceLock::new() };
/// `RubyVM::InstructionSequence.compile_option.inspect` at the start.
static COMPILE_OPTIONS: OnceLock<Option<Pinned>> = OnceLock::new();

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
pub(super) fn is_by_ruby(gvl: Gvl) -> bool {
    let originals = ORIGINALS.get_or_init(|| Originals::of_core(gvl, &METHODS));
    originals.as_ref().is_some_and(|originals| originals.first_change(gvl).is_none())
}

/// `RubyVM::InstructionSequence`.
fn instruction_sequence(gvl: Gvl) -> RModule {
    RModule::named(gvl, c"RubyVM::InstructionSequence")
}

/// Makes `load` supply the code of each file, unless something else does already.
pub(super) fn supply_code(gvl: Gvl, load: Method) {
    let (class, name) = (instruction_sequence(gvl).value(), c"load_iseq");
    if !ask(gvl, class, c"respond_to?", &[Symbol::new(gvl, name).value()]) {
        singleton_method(gvl, class, name, load);
        if let Some(method) = originals::own_method(gvl, class, name) {
            LOADER.get_or_init(|| Pinned::new(gvl, method));
        }
    }
}

/// Whether Ruby compiles what our supplier does not have. What a program has put in its place, or in front
/// of it, may compile something else.
pub(super) fn is_sole_supplier(gvl: Gvl) -> bool {
    let now = originals::own_method(gvl, instruction_sequence(gvl).value(), c"load_iseq");
    LOADER.get().zip(now).is_some_and(|(own, now)| ask(gvl, own.value(), c"==", &[now]))
}

/// Where the `load_iseq` is defined that Ruby asks now, if it is not ours; an empty path is C code.
pub(super) fn other_supplier(gvl: Gvl) -> Option<Vec<u8>> {
    let now = originals::own_method(gvl, instruction_sequence(gvl).value(), c"load_iseq")?;
    if is_sole_supplier(gvl) {
        return None;
    }
    let place = send(gvl, now, c"source_location", &[]).and_then(|place| RArray::of(gvl, place));
    let path = place.and_then(|place| RString::plain(gvl, place.get(gvl, 0)?));
    Some(path.map_or_else(Vec::new, |path| path.to_vec(gvl)))
}

/// The code as an object that can be run. Ruby reads the bytes in place, and only here.
pub(super) fn load_code(gvl: Gvl, code: &'static [u8]) -> Option<VALUE> {
    let (load, class) = (c"load_from_binary", instruction_sequence(gvl));
    if !originals::is_original(gvl, class, Side::Own, load) {
        return None;
    }
    send(gvl, class.value(), load, &[RString::of_static(gvl, code).value()])
}

/// Code that was compiled from `source` as the file at `path`; `None` for a syntax error.
pub(super) fn compile(gvl: Gvl, source: RString, path: RString) -> Option<VALUE> {
    const FIRST_LINE: VALUE = 3; // the number 1
    let arguments = [source.value(), path.value(), path.value(), FIRST_LINE];
    send(gvl, instruction_sequence(gvl).value(), c"compile", &arguments)
}

/// The binary form of code.
pub(super) fn to_binary(gvl: Gvl, code: VALUE) -> Option<RString> {
    RString::plain(gvl, send(gvl, code, c"to_binary", &[])?)
}

/// Whether code does anything: the empty file and nothing but comments have no lines.
pub(super) fn has_lines(gvl: Gvl, code: VALUE) -> bool {
    let lines = send(gvl, code, c"trace_points", &[]).and_then(|lines| RArray::of(gvl, lines));
    lines.is_some_and(|lines| lines.get(gvl, 0).is_some())
}

/// Whether the file at that path has no syntax error.
pub(super) fn compiles(gvl: Gvl, path: RString) -> bool {
    let mut compiles = false;
    let compile =
        || send(gvl, instruction_sequence(gvl).value(), c"compile_file", &[path.value()]).is_some();
    quietly(gvl, || compiles = compile());
    compiles
}

/// Whether code uses `self`, or may use a local variable of where it is evaluated. A name that is not
/// known at compile time becomes a call of `self`'s method.
pub(super) fn refers_to_self(gvl: Gvl, code: VALUE) -> bool {
    let text = send(gvl, code, c"disasm", &[]).and_then(|text| RString::of(gvl, text));
    let has_self = |text: &[u8]| text.windows(7).any(|word| word == b"putself");
    text.is_none_or(|text| text.read(gvl, has_self))
}

/// Runs code at the top, and answers with its value. What it raises goes on.
pub(super) fn evaluate(ruby: Protected, code: VALUE) -> VALUE {
    call(ruby, code, Symbol::new(ruby.gvl(), c"eval"), &[])
}

/// The path and the code of what a `script_compiled` event tells of; `None` for `eval`.
pub(super) fn compiled_code(gvl: Gvl, trace_point: VALUE) -> Option<(RString, VALUE)> {
    if ask(gvl, trace_point, c"eval_script", &[]) {
        return None;
    }
    let code = send(gvl, trace_point, c"instruction_sequence", &[])?;
    Some((RString::of(gvl, send(gvl, code, c"path", &[])?)?, code))
}

/// Calls `hook` after every file that Ruby compiles from now on; the TracePoint.
pub(super) fn on_script_compiled(gvl: Gvl, hook: Hook) -> Pinned {
    let event = rb_sys::RUBY_EVENT_SCRIPT_COMPILED;
    // SAFETY: the hook has the type that Ruby calls, and needs no data.
    let trace_point = unsafe { rb_sys::rb_tracepoint_new(NIL, event, Some(hook), null_mut()) };
    let trace_point = Pinned::new(gvl, trace_point);
    // SAFETY: it is a TracePoint.
    unsafe { rb_sys::rb_tracepoint_enable(trace_point.value()) };
    trace_point
}

/// Lets a TracePoint of ours go before all others: the latest one goes first.
pub(super) fn go_first(_: Gvl, trace_point: Pinned) {
    // SAFETY: it is a TracePoint.
    unsafe { rb_sys::rb_tracepoint_disable(trace_point.value()) };
    // SAFETY: as above.
    unsafe { rb_sys::rb_tracepoint_enable(trace_point.value()) };
}

pub(super) fn measures_coverage(_: Gvl) -> bool {
    // SAFETY: the lock is held.
    is_true(unsafe { rb_get_coverages() })
}

/// Whether code is to remember its source.
pub(super) fn keeps_lines(gvl: Gvl) -> bool {
    ask(gvl, RModule::named(gvl, c"RubyVM").value(), c"keep_script_lines", &[])
}

/// Whether Ruby puts the lines of what it compiles into the Hash `SCRIPT_LINES__`.
pub(super) fn collects_lines(gvl: Gvl) -> bool {
    RModule::object().has_constant(gvl, Symbol::new(gvl, c"SCRIPT_LINES__"))
}

/// What `$VERBOSE` says: nil is 0, false 1, true 2.
pub(super) fn verbosity(_: Gvl) -> u8 {
    // SAFETY: may be called at any time.
    let place = unsafe { rb_sys::rb_ruby_verbose_ptr() };
    // SAFETY: the place is valid for the whole process.
    let verbose = unsafe { place.read() };
    if verbose == NIL { 0 } else { 1 + u8::from(is_true(verbose)) }
}

/// The categories of warnings that are on, one bit each.
pub(super) fn warning_categories(gvl: Gvl) -> u8 {
    const CATEGORIES: [&CStr; 3] = [c"deprecated", c"experimental", c"performance"];
    let warning = RModule::named(gvl, c"Warning").value();
    let is_on = |name| ask(gvl, warning, c"[]", &[Symbol::new(gvl, name).value()]);
    let known = if is_at_least(gvl, b"3.3") { 3 } else { 2 };
    let bits = CATEGORIES[..known].iter().enumerate();
    bits.fold(0, |categories, (bit, category)| categories | u8::from(is_on(category)) << bit)
}

/// Whether a warning becomes a write of libruby's: `Warning.warn` is Ruby's own, and `$stderr` is the stream that
/// Ruby began with.
pub(super) fn warns_on_stderr(gvl: Gvl) -> bool {
    let warning = RModule::named(gvl, c"Warning");
    originals::is_original(gvl, warning, Side::Own, c"warn")
        && constant(gvl, c"STDERR") == Some(global(gvl, c"$stderr"))
}

/// Marks this Ruby as one whose boot has started, with the module `Boot` that belongs to it. The mark is
/// a variable that no Ruby code can see.
pub(super) fn mark_as_started(gvl: Gvl, boot: VALUE) {
    instruction_sequence(gvl).set_hidden_variable(gvl, c"thruway", boot);
}

/// The module `Boot` of the copy of this extension whose boot has started here.
pub(super) fn started(gvl: Gvl) -> Option<VALUE> {
    let boot = instruction_sequence(gvl).hidden_variable(gvl, c"thruway");
    is_true(boot).then_some(boot)
}

/// Calls `told` after `RubyVM::InstructionSequence.compile_option=`.
pub(super) fn watch_compile_options(gvl: Gvl, told: fn(Gvl)) {
    let options = || compile_options(gvl).map(|text| Pinned::new(gvl, text.value()));
    COMPILE_OPTIONS.get_or_init(options);
    let set = Method::of_1(set_compile_option);
    COMPILE_OPTION.watch(gvl, instruction_sequence(gvl).value(), c"compile_option=", set, told);
}

/// Calls `told` after `RubyVM.keep_script_lines=`.
pub(super) fn watch_kept_lines(gvl: Gvl, told: fn(Gvl)) {
    let set = Method::of_1(set_kept_lines);
    KEPT_LINES.watch(gvl, RModule::named(gvl, c"RubyVM").value(), c"keep_script_lines=", set, told);
}

/// Calls `told` after `Warning.[]=`.
pub(super) fn watch_warning_categories(gvl: Gvl, told: fn(Gvl)) {
    let set = Method::of_2(set_warning_category);
    WARNING_CATEGORY.watch(gvl, RModule::named(gvl, c"Warning").value(), c"[]=", set, told);
}

/// Whether the compile options are as they were when they began to be watched.
pub(super) fn has_same_compile_options(gvl: Gvl) -> bool {
    let before = COMPILE_OPTIONS.get().copied().flatten();
    match (compile_options(gvl), before) {
        (Some(now), Some(before)) => ask(gvl, now.value(), c"==", &[before.value()]),
        _ => false,
    }
}

/// `RubyVM::InstructionSequence.compile_option.inspect`.
pub(super) fn compile_options(gvl: Gvl) -> Option<RString> {
    let options = send(gvl, instruction_sequence(gvl).value(), c"compile_option", &[])?;
    RString::of(gvl, send(gvl, options, c"inspect", &[])?)
}

fn set_compile_option(ruby: Protected, _class: VALUE, options: VALUE) -> VALUE {
    COMPILE_OPTION.call(ruby, &[options])
}

fn set_kept_lines(ruby: Protected, _class: VALUE, is_on: VALUE) -> VALUE {
    KEPT_LINES.call(ruby, &[is_on])
}

fn set_warning_category(ruby: Protected, _class: VALUE, category: VALUE, is_on: VALUE) -> VALUE {
    WARNING_CATEGORY.call(ruby, &[category, is_on])
}

impl Watched {
    /// Puts ours in the place of the setter, which it [calls](Self::call).
    fn watch(&self, gvl: Gvl, receiver: VALUE, name: &'static CStr, ours: Method, told: fn(Gvl)) {
        let symbol = Symbol::new(gvl, name).value();
        let Some(setter) = send(gvl, receiver, c"method", &[symbol]) else { return };
        if self.told.set(told).is_ok() && self.setter.set(Pinned::new(gvl, setter)).is_ok() {
            quietly(gvl, || singleton_method(gvl, receiver, name, ours));
        }
    }

    /// Calls the setter, and tells of it.
    fn call(&self, ruby: Protected, arguments: &[VALUE]) -> VALUE {
        let (Some(setter), Some(told)) = (self.setter.get(), self.told.get()) else { return NIL };
        let result = call_method(ruby, setter.value(), arguments);
        told(ruby.gvl());
        result
    }
}
