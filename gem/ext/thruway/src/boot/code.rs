//! `RubyVM::InstructionSequence.load_iseq`: supplies compiled code from the pack, or learns Ruby's own code for the
//! next pack.
//!
//! Ruby asks `load_iseq` for a feature's compiled code before it reads the source. If there is none, Ruby compiles
//! the source and fires the event `script_compiled`. The code that Ruby made goes into the pack, so labels, line
//! numbers and everything else equal those of a plain `require`.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use rb_sys::VALUE;
use thruway_boot::{Boot, FoundFile, Lookup, Reason, Warnings};
use thruway_pack::Stamp;

use super::compiler_output::OutputObservation;
use super::search::{self, PathMark};
use super::{current, iseq};
use crate::preload;
use crate::ruby::call::call;
use crate::ruby::define::Method;
use crate::ruby::{Gvl, NIL, PinnedObject, ProtectedCall, RString, Symbol, is_true, read_all};

/// The state of code loading in this process. Each value is independent of the others; the atomics are caches of
/// Ruby's settings, written with the interpreter lock held.
struct CodeState {
    /// Whether the compile options are still those of the pack.
    has_same_options: AtomicBool,
    /// Whether the compile options of the pack note where Strings are created.
    notes_strings: AtomicBool,
    /// Whether `RubyVM.keep_script_lines` is on.
    keeps_lines: AtomicBool,
    /// The categories of warnings that are on.
    categories: AtomicU8,
    /// The hook that receives the code that Ruby compiles, created with the first file that can be learned.
    hook: OnceLock<PinnedObject>,
    /// The callable that was passed to `Thruway::Boot.on_event`.
    observer: Mutex<Option<PinnedObject>>,
}

static STATE: CodeState = CodeState {
    has_same_options: AtomicBool::new(true),
    notes_strings: AtomicBool::new(false),
    keeps_lines: AtomicBool::new(false),
    categories: AtomicU8::new(0),
    hook: OnceLock::new(),
    observer: Mutex::new(None),
};

/// A feature that Ruby is compiling on this thread.
#[derive(Debug)]
struct PendingCompilation {
    path: PathMark,
    /// The stamp of the file before Ruby reads the file, and the time at which the stamp was taken.
    stamp: (Stamp, i64),
    warnings: Warnings,
    observation: OutputObservation,
}

thread_local! {
    static PENDING: Cell<Option<PendingCompilation>> = const { Cell::new(None) };
}

pub(super) fn install(gvl: Gvl) {
    iseq::supply_code(gvl, Method::of_1(load_iseq));
    iseq::watch_compile_options(gvl, options_changed);
    STATE.notes_strings.store(iseq::notes_strings(gvl), Ordering::Relaxed);
    lines_changed(gvl);
    iseq::watch_kept_lines(gvl, lines_changed);
    categories_changed(gvl);
    iseq::watch_warning_categories(gvl, categories_changed);
}

/// Called by Ruby for each file that it is about to compile.
fn load_iseq(ruby: ProtectedCall, _class: VALUE, path: VALUE) -> VALUE {
    let gvl = ruby.gvl();
    let (last_file, search) = (search::last_file(), search::current());
    search::end();
    // If a compilation is still pending here, it ended with an error.
    PENDING.take().map(|pending| pending.observation.ends_in_silence(gvl));
    let (Some(boot), Some(path)) = (current::serving(gvl), RString::plain(gvl, path)) else {
        return NIL;
    };
    // Ruby passes a frozen String; a program may pass any other.
    let path = path.frozen(gvl);
    let bytes = path.bytes();
    preload::record_load(gvl, bytes);
    let mark = PathMark::of(bytes);
    let file = match last_file {
        Some((last, file)) if last == mark => FoundFile { is_searched: true, ..file },
        _ => match boot.files.look_up(bytes) {
            Lookup::File(file) => FoundFile { is_searched: search.is_last_file(mark), ..file },
            Lookup::Missing | Lookup::Undecided => {
                return leave_to_ruby(boot, bytes, Reason::NotRegular);
            }
        },
    };
    let warnings = warnings(gvl);
    let found = packed_code(gvl, boot, bytes, &file, warnings);
    if let Some(observer) = observer() {
        tell(ruby, observer, found.err(), path.string());
    }
    match found {
        Ok(code) => code,
        Err(reason) => {
            watch(gvl, boot, mark, &file, warnings, reason);
            leave_to_ruby(boot, bytes, reason)
        }
    }
}

/// Records, for the report at exit, where code came from if the pack was not the only supplier.
pub(super) fn note_supplier(boot: &Boot) {
    // SAFETY: Ruby calls functions that are registered for its exit with the lock held.
    let gvl = unsafe { Gvl::assume() };
    if let Some(place) = iseq::other_supplier(gvl) {
        boot.counts.record_supplier(String::from_utf8_lossy(&place).into_owned());
    }
}

/// Makes `observer` receive an event for each file of code, or removes the observer if the value is nil.
pub(super) fn observe(gvl: Gvl, observer: VALUE) {
    let observer = is_true(observer).then(|| PinnedObject::new(gvl, observer));
    *STATE.observer.lock().unwrap_or_else(PoisonError::into_inner) = observer;
}

fn observer() -> Option<PinnedObject> {
    *STATE.observer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls the observer with the event, the path, and the reason why the code is not from the pack. Exceptions that the
/// observer raises propagate.
fn tell(ruby: ProtectedCall, observer: PinnedObject, reason: Option<Reason>, path: RString) {
    let gvl = ruby.gvl();
    let event = match reason {
        None => c"hit",
        Some(Reason::Stale | Reason::Moved) => c"stale",
        Some(_) => c"miss",
    };
    let words = reason.map_or(NIL, |reason| RString::new(gvl, reason.words().as_bytes()).value());
    let arguments = [Symbol::new(gvl, event).value(), path.value(), words];
    call(ruby, observer.value(), Symbol::new(gvl, c"call"), &arguments);
}

/// Leaves the file to Ruby's compiler, and records the reason for the report.
fn leave_to_ruby(boot: &Boot, path: &[u8], reason: Reason) -> VALUE {
    boot.counts.record_compiled(path, reason, boot.options.explain);
    NIL
}

/// Returns the code of a file from the pack, or the reason why Ruby has to compile the file.
fn packed_code(
    gvl: Gvl,
    boot: &Boot,
    path: &[u8],
    file: &FoundFile,
    warnings: Warnings,
) -> Result<VALUE, Reason> {
    if let Some(reason) = compiled_otherwise(gvl) {
        return Err(reason);
    }
    let bytes = boot.code(path, file, warnings)?;
    let code = iseq::load_code(gvl, bytes).ok_or(Reason::Refused)?;
    boot.loaded(bytes);
    boot.counts.from_pack.add(1);
    Ok(code)
}

/// The reason why Ruby would compile code differently from the code in the pack, if there is one.
fn compiled_otherwise(gvl: Gvl) -> Option<Reason> {
    if iseq::measures_coverage(gvl) {
        return Some(Reason::Coverage);
    }
    if STATE.notes_strings.load(Ordering::Relaxed) || iseq::is_debugging(gvl) {
        return Some(Reason::Debug);
    }
    if STATE.keeps_lines.load(Ordering::Relaxed) || iseq::collects_lines(gvl) {
        return Some(Reason::Lines);
    }
    (!STATE.has_same_options.load(Ordering::Relaxed)).then_some(Reason::CompileOption)
}

/// Whether Ruby would compile code differently from the code in the pack.
pub(super) fn is_compiled_otherwise(gvl: Gvl) -> bool {
    compiled_otherwise(gvl).is_some()
}

/// Prepares to learn the file that Ruby is about to compile, if the file can be learned.
fn watch(
    gvl: Gvl,
    boot: &Boot,
    path: PathMark,
    file: &FoundFile,
    warnings: Warnings,
    reason: Reason,
) {
    let depends_on_the_run =
        matches!(reason, Reason::Coverage | Reason::CompileOption | Reason::Debug | Reason::Lines);
    let (Some(stamp), true) = (file.stamp, boot.is_learning()) else { return };
    let stamp = (stamp, thruway_boot::now_ns());
    if depends_on_the_run || !iseq::warns_on_stderr(gvl) || !iseq::is_sole_supplier(gvl) {
        return;
    }
    STATE.hook.get_or_init(|| hook_compilations(gvl));
    let pending = |observation| PendingCompilation { path, stamp, warnings, observation };
    PENDING.set(OutputObservation::begin(gvl).map(pending));
}

fn hook_compilations(gvl: Gvl) -> PinnedObject {
    iseq::on_script_compiled(gvl, compiled)
}

/// Moves our hook before all existing TracePoints, any of which may abort the load.
pub(super) fn see_first(gvl: Gvl) {
    iseq::go_first(gvl, *STATE.hook.get_or_init(|| hook_compilations(gvl)));
}

/// Called by Ruby after each compilation.
unsafe extern "C" fn compiled(trace_point: VALUE, _: *mut std::ffi::c_void) {
    let Some(pending) = PENDING.take() else { return };
    // SAFETY: Ruby calls its hooks with the lock held.
    let gvl = unsafe { Gvl::assume() };
    // Most likely the compiler has warned. A later boot has to print the warning again, so the file is not learned.
    if !pending.observation.ends_in_silence(gvl) || !iseq::is_by_ruby(gvl) {
        return;
    }
    let (Some(boot), Some((path, code))) = (current::boot(), iseq::compiled_code(gvl, trace_point))
    else {
        return;
    };
    let Some(code) = binary_of(gvl, code, path) else { return };
    read_all(gvl, [path, code], |[path, code]| {
        if PathMark::of(path) == pending.path {
            boot.learn(path, pending.stamp, pending.warnings, code.to_vec());
        }
    });
}

/// The binary form of code. For a file with a syntax error, Ruby passes code without instructions here, and raises
/// the error later.
fn binary_of(gvl: Gvl, code: VALUE, path: RString) -> Option<RString> {
    let is_sound = iseq::has_lines(gvl, code) || iseq::has_valid_syntax(gvl, path);
    if is_sound { iseq::to_binary(gvl, code) } else { None }
}

/// The warnings that Ruby would print while compiling.
fn warnings(gvl: Gvl) -> Warnings {
    Warnings { level: iseq::verbosity(gvl), categories: STATE.categories.load(Ordering::Relaxed) }
}

fn options_changed(gvl: Gvl) {
    STATE.has_same_options.store(iseq::compile_options_are_unchanged(gvl), Ordering::Relaxed);
}

fn lines_changed(gvl: Gvl) {
    STATE.keeps_lines.store(iseq::keeps_lines(gvl), Ordering::Relaxed);
}

fn categories_changed(gvl: Gvl) {
    STATE.categories.store(iseq::warning_categories(gvl), Ordering::Relaxed);
}
