//! `RubyVM::InstructionSequence.load_iseq`: compiled code from the pack, or Ruby's own for the next
//! one.
//!
//! Ruby asks for a feature's compiled code before it reads the source. Where there is none, it
//! compiles, and says so (`script_compiled`). The code that it made is what goes into the pack, so
//! labels, line numbers and everything else are those of a plain `require`.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use rb_sys::VALUE;
use thruway_boot::{Boot, FoundFile, Lookup, Reason, Warnings};
use thruway_pack::Stamp;

use super::compiler_output::Listening;
use super::search::{self, PathMark};
use super::{current, iseq};
use crate::preload;
use crate::ruby::call::call;
use crate::ruby::define::Method;
use crate::ruby::{Gvl, NIL, Pinned, Protected, RString, Symbol, is_true, read_all};

/// Whether the compile options are still those of the pack.
static HAS_SAME_OPTIONS: AtomicBool = AtomicBool::new(true);
/// Whether `RubyVM.keep_script_lines` is on.
static KEEPS_LINES: AtomicBool = AtomicBool::new(false);
/// The categories of warnings that are on.
static CATEGORIES: AtomicU8 = AtomicU8::new(0);
/// The hook that sees what Ruby compiled, once there is something to learn.
static HOOK: OnceLock<Pinned> = OnceLock::new();

/// A feature that Ruby is compiling on this thread.
#[derive(Debug)]
struct Compiling {
    path: PathMark,
    /// Of the file before Ruby reads it, and when that was.
    stamp: (Stamp, i64),
    warnings: Warnings,
    listening: Listening,
}

/// What `Thruway::Boot.on_event` was given.
static OBSERVER: Mutex<Option<Pinned>> = Mutex::new(None);

thread_local! {
    static COMPILING: Cell<Option<Compiling>> = const { Cell::new(None) };
}

pub(super) fn install(gvl: Gvl) {
    iseq::supply_code(gvl, Method::of_1(load_iseq));
    iseq::watch_compile_options(gvl, options_changed);
    lines_changed(gvl);
    iseq::watch_kept_lines(gvl, lines_changed);
    categories_changed(gvl);
    iseq::watch_warning_categories(gvl, categories_changed);
}

/// Called by Ruby for every file that it is about to compile.
fn load_iseq(ruby: Protected, _class: VALUE, path: VALUE) -> VALUE {
    let gvl = ruby.gvl();
    let (seen, search) = (search::seen(), search::current());
    search::end();
    // What was compiled last had an error.
    COMPILING.take().map(|compiling| compiling.listening.ends_in_silence(gvl));
    let (Some(boot), Some(path)) = (current::serving(gvl), RString::plain(gvl, path)) else {
        return NIL;
    };
    // Ruby passes a frozen String, a program any other one.
    let path = path.frozen(gvl);
    let bytes = path.bytes();
    preload::begun(gvl, bytes);
    let mark = PathMark::of(bytes);
    let file = match seen {
        Some((seen, file)) if seen == mark => file,
        _ => match boot.files.look_up(bytes) {
            Lookup::File(file) => FoundFile { is_searched: search.has_seen(mark), ..file },
            Lookup::Missing | Lookup::Undecided => return left(boot, bytes, Reason::NotRegular),
        },
    };
    let warnings = warnings(gvl);
    let found = code(gvl, boot, bytes, &file, warnings);
    if let Some(observer) = observer() {
        tell(ruby, observer, found.err(), path.string());
    }
    match found {
        Ok(code) => code,
        Err(reason) => {
            watch(gvl, boot, mark, &file, warnings, reason);
            left(boot, bytes, reason)
        }
    }
}

/// The program ends: says for the report who supplied code, if that was not the pack alone.
pub(super) fn note_supplier(boot: &Boot) {
    // SAFETY: Ruby calls what is registered for its end with the lock held.
    let gvl = unsafe { Gvl::assume() };
    if let Some(place) = iseq::other_supplier(gvl) {
        boot.counts.record_supplier(String::from_utf8_lossy(&place).into_owned());
    }
}

/// From now on `observer` is called for each file of code, or nothing if it is nil.
pub(super) fn observe(gvl: Gvl, observer: VALUE) {
    let observer = is_true(observer).then(|| Pinned::new(gvl, observer));
    *OBSERVER.lock().unwrap_or_else(PoisonError::into_inner) = observer;
}

fn observer() -> Option<Pinned> {
    *OBSERVER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls the observer with an event, the file, and why its code is not that of the pack. What it raises goes on.
fn tell(ruby: Protected, observer: Pinned, reason: Option<Reason>, path: RString) {
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

fn left(boot: &Boot, path: &[u8], reason: Reason) -> VALUE {
    boot.counts.record_compiled(path, reason, boot.options.explain);
    NIL
}

fn code(
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

/// Why code would not be compiled now as it was for the pack.
fn compiled_otherwise(gvl: Gvl) -> Option<Reason> {
    if iseq::measures_coverage(gvl) {
        return Some(Reason::Coverage);
    }
    if KEEPS_LINES.load(Ordering::Relaxed) || iseq::collects_lines(gvl) {
        return Some(Reason::Lines);
    }
    (!HAS_SAME_OPTIONS.load(Ordering::Relaxed)).then_some(Reason::CompileOption)
}

/// Whether code would be compiled now in another way than it was for the pack.
pub(super) fn is_compiled_otherwise(gvl: Gvl) -> bool {
    compiled_otherwise(gvl).is_some()
}

/// Remembers what is about to be compiled, if it can be learned.
fn watch(
    gvl: Gvl,
    boot: &Boot,
    path: PathMark,
    file: &FoundFile,
    warnings: Warnings,
    reason: Reason,
) {
    let depends_on_the_run =
        matches!(reason, Reason::Coverage | Reason::CompileOption | Reason::Lines);
    let (Some(stamp), true) = (file.stamp, boot.is_learning()) else { return };
    let stamp = (stamp, thruway_boot::now_ns());
    if depends_on_the_run || !iseq::warns_on_stderr(gvl) || !iseq::is_sole_supplier(gvl) {
        return;
    }
    HOOK.get_or_init(|| begin_to_see(gvl));
    let compiling = |listening| Compiling { path, stamp, warnings, listening };
    COMPILING.set(Listening::begin(gvl).map(compiling));
}

fn begin_to_see(gvl: Gvl) -> Pinned {
    iseq::on_script_compiled(gvl, compiled)
}

/// Sees what Ruby compiled before any TracePoint does, which may end the load there.
pub(super) fn see_first(gvl: Gvl) {
    iseq::go_first(gvl, *HOOK.get_or_init(|| begin_to_see(gvl)));
}

/// Called by Ruby after it compiled anything.
unsafe extern "C" fn compiled(trace_point: VALUE, _: *mut std::ffi::c_void) {
    let Some(compiling) = COMPILING.take() else { return };
    // SAFETY: Ruby calls its hooks with the lock held.
    let gvl = unsafe { Gvl::assume() };
    // Something was said: a warning, most likely, which a later boot has to give again.
    if !compiling.listening.ends_in_silence(gvl) || !iseq::is_by_ruby(gvl) {
        return;
    }
    let (Some(boot), Some((path, code))) = (current::boot(), iseq::compiled_code(gvl, trace_point))
    else {
        return;
    };
    let Some(code) = binary_of(gvl, code, path) else { return };
    read_all(gvl, [path, code], |[path, code]| {
        if PathMark::of(path) == compiling.path {
            boot.learn(path, compiling.stamp, compiling.warnings, code.to_vec());
        }
    });
}

/// The binary form of code. What has a syntax error is code that does nothing at this point: Ruby
/// raises the error later.
fn binary_of(gvl: Gvl, code: VALUE, path: RString) -> Option<RString> {
    let is_sound = iseq::has_lines(gvl, code) || iseq::compiles(gvl, path);
    if is_sound { iseq::to_binary(gvl, code) } else { None }
}

/// What Ruby would say while it compiles.
fn warnings(gvl: Gvl) -> Warnings {
    Warnings { level: iseq::verbosity(gvl), categories: CATEGORIES.load(Ordering::Relaxed) }
}

fn options_changed(gvl: Gvl) {
    HAS_SAME_OPTIONS.store(iseq::has_same_compile_options(gvl), Ordering::Relaxed);
}

fn lines_changed(gvl: Gvl) {
    KEEPS_LINES.store(iseq::keeps_lines(gvl), Ordering::Relaxed);
}

fn categories_changed(gvl: Gvl) {
    CATEGORIES.store(iseq::warning_categories(gvl), Ordering::Relaxed);
}
