//! `RubyVM::InstructionSequence.load_iseq`: compiled code from the pack, or Ruby's own for the next
//! one.
//!
//! Ruby asks for a feature's compiled code before it reads the source. Where there is none, it
//! compiles, and says so (`script_compiled`): the code that it made is what goes into the pack, so
//! labels, line numbers and everything else are those of a plain `require`.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use rb_sys::VALUE;
use thruway_boot::{Boot, FoundFile, Lookup, Reason, Warnings};
use thruway_pack::Stamp;

use super::search::{self, PathMark};
use super::vm::{self, NIL};
use super::{interpose, iseq};

/// Whether the compile options are still those of the pack.
static HAS_SAME_OPTIONS: AtomicBool = AtomicBool::new(true);
/// Whether `RubyVM.keep_script_lines` is on.
static KEEPS_LINES: AtomicBool = AtomicBool::new(false);
/// The categories of warnings that are on.
static CATEGORIES: AtomicU8 = AtomicU8::new(0);
/// The hook that sees what Ruby compiled, once there is something to learn.
static HOOK: OnceLock<()> = OnceLock::new();

/// A feature that Ruby is compiling on this thread.
#[derive(Debug, Clone, Copy)]
struct Compiling {
    path: PathMark,
    /// Of the file before Ruby reads it, and when that was.
    stamp: (Stamp, i64),
    warnings: Warnings,
    writes: u64,
}

thread_local! {
    static COMPILING: Cell<Option<Compiling>> = const { Cell::new(None) };
}

pub(super) fn install() {
    iseq::supply_code(load_iseq);
    iseq::watch_compile_options(options_changed);
    lines_changed();
    iseq::watch_kept_lines(lines_changed);
    categories_changed();
    iseq::watch_warning_categories(categories_changed);
}

/// Called by Ruby for every file that it is about to compile.
unsafe extern "C" fn load_iseq(_class: VALUE, path: VALUE) -> VALUE {
    let seen = search::seen();
    search::end();
    let Some(boot) = super::serving() else { return NIL };
    // SAFETY: Ruby passes a frozen String that stays on its stack.
    let Some(bytes) = (unsafe { vm::plain_bytes(path) }) else { return NIL };
    let mark = PathMark::of(bytes);
    let file = match seen {
        Some((seen, file)) if seen == mark => file,
        _ => match boot.files.look_up(bytes) {
            Lookup::File(file) => file,
            Lookup::Missing | Lookup::Ask => return left(boot, bytes, Reason::NotRegular),
        },
    };
    let warnings = warnings();
    match code(boot, bytes, &file, warnings) {
        Ok(code) => code,
        Err(reason) => {
            watch(boot, mark, &file, warnings, reason);
            left(boot, bytes, reason)
        }
    }
}

fn left(boot: &Boot, path: &[u8], reason: Reason) -> VALUE {
    boot.counts.left(path, reason, boot.options.explain);
    NIL
}

fn code(boot: &Boot, path: &[u8], file: &FoundFile, warnings: Warnings) -> Result<VALUE, Reason> {
    if let Some(reason) = compiled_otherwise() {
        return Err(reason);
    }
    let bytes = boot.code(path, file, warnings)?;
    let code = iseq::load_code(bytes).ok_or(Reason::Refused)?;
    boot.loaded(bytes);
    boot.counts.from_pack.add(1);
    Ok(code)
}

/// Why code would not be compiled now as it was for the pack.
fn compiled_otherwise() -> Option<Reason> {
    if iseq::measures_coverage() {
        return Some(Reason::Coverage);
    }
    if KEEPS_LINES.load(Ordering::Relaxed) || iseq::collects_lines() {
        return Some(Reason::Lines);
    }
    (!HAS_SAME_OPTIONS.load(Ordering::Relaxed)).then_some(Reason::CompileOption)
}

/// Whether code would be compiled now in another way than it was for the pack.
pub(super) fn is_compiled_otherwise() -> bool {
    compiled_otherwise().is_some()
}

/// Remembers what is about to be compiled, if it can be learned.
fn watch(boot: &Boot, path: PathMark, file: &FoundFile, warnings: Warnings, reason: Reason) {
    let depends_on_the_run =
        matches!(reason, Reason::Coverage | Reason::CompileOption | Reason::Lines);
    let (Some(stamp), true) = (file.stamp, boot.is_learning()) else { return };
    let stamp = (stamp, thruway_boot::now_ns());
    if depends_on_the_run || !iseq::warns_on_stderr() || !iseq::is_sole_supplier() {
        return;
    }
    HOOK.get_or_init(|| {
        interpose::count_writes();
        iseq::on_script_compiled(compiled);
    });
    let writes = interpose::writes();
    COMPILING.set(writes.map(|writes| Compiling { path, stamp, warnings, writes }));
}

/// Called by Ruby after it compiled anything.
unsafe extern "C" fn compiled(trace_point: VALUE, _: *mut std::ffi::c_void) {
    let Some(compiling) = COMPILING.take() else { return };
    // Something was said: a warning, most likely, which a later boot has to give again.
    if interpose::writes() != Some(compiling.writes) || !iseq::is_by_ruby() {
        return;
    }
    let (Some(boot), Some((path, code))) = (super::boot(), iseq::compiled_code(trace_point)) else {
        return;
    };
    let Some(code) = binary_of(code, path) else { return };
    // SAFETY: both Strings are on this stack, and no Ruby code runs while the slices live.
    let (path, code) = (unsafe { crate::ruby::bytes(path) }, unsafe { crate::ruby::bytes(code) });
    if PathMark::of(path) == compiling.path {
        boot.learn(path, compiling.stamp, compiling.warnings, code.to_vec());
    }
}

/// The binary form of code. What has a syntax error is code that does nothing at this point: Ruby
/// raises the error later.
fn binary_of(code: VALUE, path: VALUE) -> Option<VALUE> {
    let is_sound = iseq::has_lines(code) || iseq::compiles(path);
    if is_sound { iseq::to_binary(code) } else { None }
}

/// What Ruby would say while it compiles.
fn warnings() -> Warnings {
    Warnings { level: iseq::verbosity(), categories: CATEGORIES.load(Ordering::Relaxed) }
}

fn options_changed() {
    HAS_SAME_OPTIONS.store(iseq::has_same_compile_options(), Ordering::Relaxed);
}

fn lines_changed() {
    KEEPS_LINES.store(iseq::keeps_lines(), Ordering::Relaxed);
}

fn categories_changed() {
    CATEGORIES.store(iseq::warning_categories(), Ordering::Relaxed);
}
