//! Compiled code (`RubyVM::InstructionSequence`), and the settings on which the compiler depends: options, warnings
//! and coverage.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

use rb_sys::VALUE;

use super::originals::{self, Methods, Originals, Side};
use super::vm::is_at_least;
use crate::ruby::call::{ask, call, call_method, send};
use crate::ruby::constants::{constant, global};
use crate::ruby::define::{Method, quietly, singleton_method};
use crate::ruby::{
    Gvl, NIL, PinnedObject, ProtectedCall, RArray, RModule, RString, Symbol, is_true,
};

/// A hook that Ruby calls for a trace point.
pub(super) type Hook = unsafe extern "C" fn(VALUE, *mut c_void);

unsafe extern "C" {
    /// The results that `Coverage` has collected; false while coverage is not measured. The function is exported, but
    /// is in no header.
    fn rb_get_coverages() -> VALUE;
}

/// A setter method of Ruby that is replaced to report changes: the original Method, and the function to call after it.
struct ObservedSetter {
    setter: OnceLock<PinnedObject>,
    report: OnceLock<fn(Gvl)>,
}

/// Objects of Ruby's compiler that the boot keeps for the life of the process. Each is set once, with the interpreter
/// lock held.
struct CompilerState {
    /// The originals of `METHODS`, taken when the boot began.
    originals: OnceLock<Option<Originals>>,
    /// The Method `RubyVM::InstructionSequence.load_iseq` of this extension.
    loader: OnceLock<PinnedObject>,
    /// `RubyVM::InstructionSequence.compile_option=`.
    compile_option: ObservedSetter,
    /// `RubyVM.keep_script_lines=`.
    kept_lines: ObservedSetter,
    /// `Warning.[]=`.
    warning_category: ObservedSetter,
    /// The result of `RubyVM::InstructionSequence.compile_option.inspect` at the start.
    compile_options: OnceLock<Option<PinnedObject>>,
}

static STATE: CompilerState = CompilerState {
    originals: OnceLock::new(),
    loader: OnceLock::new(),
    compile_option: ObservedSetter { setter: OnceLock::new(), report: OnceLock::new() },
    kept_lines: ObservedSetter { setter: OnceLock::new(), report: OnceLock::new() },
    warning_category: ObservedSetter { setter: OnceLock::new(), report: OnceLock::new() },
    compile_options: OnceLock::new(),
};

/// The core methods by which code is compiled, written and read. The boot has to notice when a program redefines one of
/// them: code from the pack is loaded without a call of the method, so the redefinition would have no effect.
const METHODS: [Methods; 3] = [
    Methods {
        path: &[c"RubyVM", c"InstructionSequence"],
        side: Side::Own,
        names: &[c"compile", c"compile_file", c"load_from_binary", c"of"],
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

/// Whether code is compiled, written and read by Ruby's own methods.
pub(super) fn is_by_ruby(gvl: Gvl) -> bool {
    let originals = STATE.originals.get_or_init(|| Originals::of_core(gvl, &METHODS));
    originals.as_ref().is_some_and(|originals| originals.first_change(gvl).is_none())
}

/// `RubyVM::InstructionSequence`.
fn instruction_sequence(gvl: Gvl) -> RModule {
    RModule::named(gvl, c"RubyVM::InstructionSequence")
}

/// Makes `load` supply the code of each file, unless another supplier is defined already.
pub(super) fn supply_code(gvl: Gvl, load: Method) {
    let (class, name) = (instruction_sequence(gvl).value(), c"load_iseq");
    if !ask(gvl, class, c"respond_to?", &[Symbol::new(gvl, name).value()]) {
        singleton_method(gvl, class, name, load);
        if let Some(method) = originals::own_method(gvl, class, name) {
            STATE.loader.get_or_init(|| PinnedObject::new(gvl, method));
        }
    }
}

/// Whether `load_iseq` is ours, so that Ruby compiles the code that the pack lacks. A method that a program has
/// defined instead may compile something else.
pub(super) fn is_sole_supplier(gvl: Gvl) -> bool {
    let now = originals::own_method(gvl, instruction_sequence(gvl).value(), c"load_iseq");
    STATE.loader.get().zip(now).is_some_and(|(own, now)| ask(gvl, own.value(), c"==", &[now]))
}

/// The file that defines the current `load_iseq`, if the method is not ours; empty for C code.
pub(super) fn other_supplier(gvl: Gvl) -> Option<Vec<u8>> {
    let now = originals::own_method(gvl, instruction_sequence(gvl).value(), c"load_iseq")?;
    if is_sole_supplier(gvl) {
        return None;
    }
    let place = send(gvl, now, c"source_location", &[]).and_then(|place| RArray::of(gvl, place));
    let path = place.and_then(|place| RString::plain(gvl, place.get(gvl, 0)?));
    Some(path.map_or_else(Vec::new, |path| path.to_vec(gvl)))
}

/// Code as an object that can be run. Ruby reads the bytes in place, and does not keep them.
pub(super) fn load_code(gvl: Gvl, code: &'static [u8]) -> Option<VALUE> {
    let (load, class) = (c"load_from_binary", instruction_sequence(gvl));
    if !originals::is_original(gvl, class, Side::Own, load) {
        return None;
    }
    send(gvl, class.value(), load, &[RString::of_static(gvl, code).value()])
}

/// Code that is compiled from `source` as the file at `path`; `None` for a syntax error.
pub(super) fn compile(gvl: Gvl, source: RString, path: RString) -> Option<VALUE> {
    const FIRST_LINE: VALUE = 3; // the number 1
    let arguments = [source.value(), path.value(), path.value(), FIRST_LINE];
    send(gvl, instruction_sequence(gvl).value(), c"compile", &arguments)
}

/// The binary form of code.
pub(super) fn to_binary(gvl: Gvl, code: VALUE) -> Option<RString> {
    RString::plain(gvl, send(gvl, code, c"to_binary", &[])?)
}

/// Whether code has lines: an empty file, or one with nothing but comments, has none.
pub(super) fn has_lines(gvl: Gvl, code: VALUE) -> bool {
    let lines = send(gvl, code, c"trace_points", &[]).and_then(|lines| RArray::of(gvl, lines));
    lines.is_some_and(|lines| lines.get(gvl, 0).is_some())
}

/// Whether the file at that path compiles without a syntax error.
pub(super) fn has_valid_syntax(gvl: Gvl, path: RString) -> bool {
    let mut compiles = false;
    let compile =
        || send(gvl, instruction_sequence(gvl).value(), c"compile_file", &[path.value()]).is_some();
    quietly(gvl, || compiles = compile());
    compiles
}

/// Whether code uses `self`, or possibly a local variable of the scope in which it is evaluated. A name that is
/// unknown at compile time becomes a call of a method of `self`.
pub(super) fn refers_to_self(gvl: Gvl, code: VALUE) -> bool {
    let text = send(gvl, code, c"disasm", &[]).and_then(|text| RString::of(gvl, text));
    let has_self = |text: &[u8]| text.windows(7).any(|word| word == b"putself");
    text.is_none_or(|text| text.read(gvl, has_self))
}

/// The code of a method in words, with all of its literals; `None` for a method written in C.
pub(super) fn text(gvl: Gvl, method: VALUE) -> Option<Vec<u8>> {
    let code = send(gvl, instruction_sequence(gvl).value(), c"of", &[method])?;
    RString::of(gvl, send(gvl, code, c"disasm", &[])?).map(|text| text.to_vec(gvl))
}

/// Runs code at the top level, and returns its value. Exceptions propagate.
pub(super) fn evaluate(ruby: ProtectedCall, code: VALUE) -> VALUE {
    call(ruby, code, Symbol::new(ruby.gvl(), c"eval"), &[])
}

/// The path and the code of a `script_compiled` event; `None` for `eval`.
pub(super) fn compiled_code(gvl: Gvl, trace_point: VALUE) -> Option<(RString, VALUE)> {
    if ask(gvl, trace_point, c"eval_script", &[]) {
        return None;
    }
    let code = send(gvl, trace_point, c"instruction_sequence", &[])?;
    Some((RString::of(gvl, send(gvl, code, c"path", &[])?)?, code))
}

/// Calls `hook` after each file that Ruby compiles from now on. Returns the TracePoint.
pub(super) fn on_script_compiled(gvl: Gvl, hook: Hook) -> PinnedObject {
    let event = rb_sys::RUBY_EVENT_SCRIPT_COMPILED;
    // SAFETY: the hook has the type that Ruby calls, and needs no data.
    let trace_point = unsafe { rb_sys::rb_tracepoint_new(NIL, event, Some(hook), null_mut()) };
    let trace_point = PinnedObject::new(gvl, trace_point);
    // SAFETY: the value is a TracePoint.
    unsafe { rb_sys::rb_tracepoint_enable(trace_point.value()) };
    trace_point
}

/// Moves a TracePoint before all others: Ruby calls the one that was enabled last first.
pub(super) fn go_first(_: Gvl, trace_point: PinnedObject) {
    // SAFETY: the value is a TracePoint.
    unsafe { rb_sys::rb_tracepoint_disable(trace_point.value()) };
    // SAFETY: as above.
    unsafe { rb_sys::rb_tracepoint_enable(trace_point.value()) };
}

pub(super) fn measures_coverage(_: Gvl) -> bool {
    // SAFETY: the lock is held.
    is_true(unsafe { rb_get_coverages() })
}

/// Whether the compile options make code note where its Strings are created. The binary form of code drops the notes.
pub(super) fn notes_strings(gvl: Gvl) -> bool {
    let options = send(gvl, instruction_sequence(gvl).value(), c"compile_option", &[]);
    let name = Symbol::new(gvl, c"debug_frozen_string_literal").value();
    options.is_some_and(|options| ask(gvl, options, c"[]", &[name]))
}

/// Whether `$DEBUG` is true: the compiler then notes where Strings are created, as with that option.
pub(super) fn is_debugging(_: Gvl) -> bool {
    // SAFETY: the function may be called at any time.
    let place = unsafe { rb_sys::rb_ruby_debug_ptr() };
    // SAFETY: the place is valid for the whole process.
    is_true(unsafe { place.read() })
}

/// Whether compiled code keeps its source.
pub(super) fn keeps_lines(gvl: Gvl) -> bool {
    ask(gvl, RModule::named(gvl, c"RubyVM").value(), c"keep_script_lines", &[])
}

/// Whether Ruby collects the lines of compiled files in the Hash `SCRIPT_LINES__`.
pub(super) fn collects_lines(gvl: Gvl) -> bool {
    RModule::object().has_constant(gvl, Symbol::new(gvl, c"SCRIPT_LINES__"))
}

/// The level of `$VERBOSE`: 0 for nil, 1 for false, 2 for true.
pub(super) fn verbosity(_: Gvl) -> u8 {
    // SAFETY: the function may be called at any time.
    let place = unsafe { rb_sys::rb_ruby_verbose_ptr() };
    // SAFETY: the place is valid for the whole process.
    let verbose = unsafe { place.read() };
    if verbose == NIL { 0 } else { 1 + u8::from(is_true(verbose)) }
}

/// The enabled categories of warnings, one bit each.
pub(super) fn warning_categories(gvl: Gvl) -> u8 {
    const CATEGORIES: [&CStr; 3] = [c"deprecated", c"experimental", c"performance"];
    let warning = RModule::named(gvl, c"Warning").value();
    let is_on = |name| ask(gvl, warning, c"[]", &[Symbol::new(gvl, name).value()]);
    let known = if is_at_least(gvl, b"3.3") { 3 } else { 2 };
    let bits = CATEGORIES[..known].iter().enumerate();
    bits.fold(0, |categories, (bit, category)| categories | u8::from(is_on(category)) << bit)
}

/// Whether warnings become writes of libruby: `Warning.warn` is Ruby's own, and `$stderr` is Ruby's original stream.
pub(super) fn warns_on_stderr(gvl: Gvl) -> bool {
    let warning = RModule::named(gvl, c"Warning");
    originals::is_original(gvl, warning, Side::Own, c"warn")
        && constant(gvl, c"STDERR") == Some(global(gvl, c"$stderr"))
}

/// Marks this Ruby's boot as started, with the module `Boot` of the copy of the extension that started the boot. The
/// mark is a variable that Ruby code cannot see.
pub(super) fn mark_as_started(gvl: Gvl, boot: VALUE) {
    instruction_sequence(gvl).set_hidden_variable(gvl, c"thruway", boot);
}

/// The module `Boot` of the copy of this extension that has started a boot in this Ruby.
pub(super) fn started(gvl: Gvl) -> Option<VALUE> {
    let boot = instruction_sequence(gvl).hidden_variable(gvl, c"thruway");
    is_true(boot).then_some(boot)
}

/// Calls `report` after each call of `RubyVM::InstructionSequence.compile_option=`.
pub(super) fn watch_compile_options(gvl: Gvl, report: fn(Gvl)) {
    let options = || compile_options(gvl).map(|text| PinnedObject::new(gvl, text.value()));
    STATE.compile_options.get_or_init(options);
    let set = Method::of_1(set_compile_option);
    STATE.compile_option.watch(
        gvl,
        instruction_sequence(gvl).value(),
        c"compile_option=",
        set,
        report,
    );
}

/// Calls `report` after each call of `RubyVM.keep_script_lines=`.
pub(super) fn watch_kept_lines(gvl: Gvl, report: fn(Gvl)) {
    let set = Method::of_1(set_kept_lines);
    STATE.kept_lines.watch(
        gvl,
        RModule::named(gvl, c"RubyVM").value(),
        c"keep_script_lines=",
        set,
        report,
    );
}

/// Calls `report` after each call of `Warning.[]=`.
pub(super) fn watch_warning_categories(gvl: Gvl, report: fn(Gvl)) {
    let set = Method::of_2(set_warning_category);
    STATE.warning_category.watch(gvl, RModule::named(gvl, c"Warning").value(), c"[]=", set, report);
}

/// Whether the compile options equal those at the start of the boot, with which the code in the pack was compiled.
pub(super) fn compile_options_are_unchanged(gvl: Gvl) -> bool {
    let before = STATE.compile_options.get().copied().flatten();
    match (compile_options(gvl), before) {
        (Some(now), Some(before)) => ask(gvl, now.value(), c"==", &[before.value()]),
        _ => false,
    }
}

/// The result of `RubyVM::InstructionSequence.compile_option.inspect`.
pub(super) fn compile_options(gvl: Gvl) -> Option<RString> {
    let options = send(gvl, instruction_sequence(gvl).value(), c"compile_option", &[])?;
    RString::of(gvl, send(gvl, options, c"inspect", &[])?)
}

fn set_compile_option(ruby: ProtectedCall, _class: VALUE, options: VALUE) -> VALUE {
    STATE.compile_option.call(ruby, &[options])
}

fn set_kept_lines(ruby: ProtectedCall, _class: VALUE, is_on: VALUE) -> VALUE {
    STATE.kept_lines.call(ruby, &[is_on])
}

fn set_warning_category(
    ruby: ProtectedCall,
    _class: VALUE,
    category: VALUE,
    is_on: VALUE,
) -> VALUE {
    STATE.warning_category.call(ruby, &[category, is_on])
}

impl ObservedSetter {
    /// Replaces the setter with `ours`, which [calls](Self::call) the original.
    fn watch(&self, gvl: Gvl, receiver: VALUE, name: &'static CStr, ours: Method, report: fn(Gvl)) {
        let symbol = Symbol::new(gvl, name).value();
        let Some(setter) = send(gvl, receiver, c"method", &[symbol]) else { return };
        if self.report.set(report).is_ok()
            && self.setter.set(PinnedObject::new(gvl, setter)).is_ok()
        {
            quietly(gvl, || singleton_method(gvl, receiver, name, ours));
        }
    }

    /// Calls the original setter, and then the function that reports the change.
    fn call(&self, ruby: ProtectedCall, arguments: &[VALUE]) -> VALUE {
        let (Some(setter), Some(report)) = (self.setter.get(), self.report.get()) else {
            return NIL;
        };
        let result = call_method(ruby, setter.value(), arguments);
        report(ruby.gvl());
        result
    }
}
