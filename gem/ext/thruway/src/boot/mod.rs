//! `require "thruway/boot"`: Ruby's own `require`, with its look-ups answered and its code supplied.
//!
//! Reading order: [`require`] (a name becomes a path before Ruby searches), [`interpose`] (what Ruby
//! still asks libc is answered), [`code`] (compiled code is handed over, or learned).

mod allocations;
mod code;
mod collector;
mod dependencies;
mod documents;
mod feature_path;
mod features;
mod gems;
mod import;
mod interpose;
mod iseq;
mod library;
mod load_path;
mod method;
mod objects;
mod originals;
mod outside;
mod ractor;
mod require;
mod search;
mod take_over;
mod values;
mod vm;

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rb_sys::VALUE;
use thruway_boot::{Boot, Environment, Options, Part};
use thruway_sys::imports::Object;

use crate::ruby;

/// The one boot of this process, and the process that it belongs to: a forked child goes on using it,
/// but what is written at exit is written once.
static BOOT: OnceLock<(Boot, u32)> = OnceLock::new();

pub(crate) fn define(thruway: VALUE) {
    // Another copy of this extension may have been here before: the boot is its.
    if let Some(module) = iseq::started() {
        return method::quietly(|| vm::set_constant(thruway, c"Boot", module));
    }
    let module = vm::define_module_under(thruway, c"Boot");
    method::define_singleton_method_1(module, c"start", start);
    method::define_singleton_method_1(module, c"take_over", take_over::take_over);
    method::define_singleton_method_0(module, c"running?", is_running);
    method::define_singleton_method_0(module, c"pack", pack);
    method::define_singleton_method_0(module, c"save", save);
}

/// The boot, once it has started.
fn boot() -> Option<&'static Boot> {
    BOOT.get().map(|(boot, _)| boot)
}

/// The boot, for Ruby code that it serves. Other Ractors than the main one share nothing with it, and
/// run at the same time: they are left to Ruby.
fn serving() -> Option<&'static Boot> {
    boot().filter(|_| ractor::is_main())
}

/// `Thruway::Boot.start(folder)`: the application is looked for from that folder upwards. Answers
/// `true` the first time.
unsafe extern "C" fn start(module: VALUE, folder: VALUE) -> VALUE {
    // SAFETY: Ruby calls with the lock held; may raise, and nothing with a destructor lives yet.
    let folder = unsafe { ruby::to_string(folder) };
    // SAFETY: the String is on this stack, and nothing below changes it.
    vm::boolean(start_in(module, unsafe { ruby::bytes(folder) }))
}

/// Starts with what the environment says. Nothing is left half done: what cannot be taken over stays
/// with Ruby.
fn start_in(module: VALUE, folder: &[u8]) -> bool {
    let variable = |name: &str| std::env::var_os(name);
    let (words, pack) = (variable("THRUWAY_BOOT"), variable("THRUWAY_PACK"));
    let mut options = Options::from_environment(words.as_deref(), pack.as_deref());
    keep_report(&mut options);
    if options.off || iseq::started().is_some() {
        return false;
    }
    iseq::mark_as_started(module);
    ractor::mark_main();
    let identity = identity();
    let environment = Environment::from_environment(variable);
    let folder = Path::new(OsStr::from_bytes(folder));
    let named = options.pack.clone();
    let own = || environment.cache_path(&environment.application(folder), &identity);
    let (boot, note) = Boot::start(options, &identity, named.or_else(own));
    if let Some(note) = note {
        say(&note);
    }
    if BOOT.set((boot, std::process::id())).is_err() {
        return false;
    }
    install();
    true
}

/// A report is wanted of the Ruby that was started, not of those that it starts: the process that gives
/// one puts its number down, under which programs that take its place go on.
fn keep_report(options: &mut Options) {
    let process = std::process::id();
    if options.explain && *options.explained_process.get_or_insert(process) == process {
        vm::set_environment("THRUWAY_BOOT", &options.words());
    } else {
        options.explain = false;
    }
}

fn install() {
    let Some(boot) = boot() else { return };
    if let Err(error) = interpose::install(rb_sys::rb_f_require as *const ()) {
        say(&format!("look-ups are left to Ruby: {error}"));
    }
    // Where it cannot be done, Ruby goes on copying.
    let _ = features::grow_in_place(rb_sys::rb_f_require as *const ());
    if let Some(megabytes) = boot.options.gc_after_mb {
        collector::wait_for(megabytes);
    }
    require::install();
    feature_path::install();
    if boot.options.has(Part::Code) {
        code::install();
    }
    gems::install();
    documents::install_yaml();
    documents::install_json();
    vm::at_exit(finish);
}

/// What compiled code depends on, besides its source: Ruby as it describes itself, its compile options,
/// the encoding of file names, and the build of libruby, since a security update keeps the version.
fn identity() -> Vec<u8> {
    let mut identity = Vec::new();
    for line in [vm::description(), iseq::compile_options(), vm::file_name_encoding()] {
        // SAFETY: the String is on this stack, and nothing changes it meanwhile.
        identity.extend_from_slice(line.map_or(b"", |line| unsafe { ruby::bytes(line) }));
        identity.push(b'\n');
    }
    let object = Object::containing(rb_sys::rb_f_require as *const ());
    let build = object.and_then(|object| object.build_id()).unwrap_or_default();
    let build: String = build.iter().map(|byte| format!("{byte:02x}")).collect();
    identity.extend_from_slice(format!("build {build}").as_bytes());
    identity
}

/// Writes what was learned, and the report if one is wanted.
unsafe extern "C" fn finish(_: VALUE) {
    let Some((boot, process)) = BOOT.get() else { return };
    if *process != std::process::id() {
        return;
    }
    write_pack(boot);
    if boot.options.explain {
        write_to_stderr(boot.report().as_bytes());
    }
}

/// `Thruway::Boot.save`: writes what was learned so far, whichever process learned it. A server has
/// booted long before it ends, and its workers may be killed.
unsafe extern "C" fn save(_module: VALUE) -> VALUE {
    if let Some(boot) = boot() {
        write_pack(boot);
    }
    vm::NIL
}

fn write_pack(boot: &Boot) {
    if let Err(error) = boot.finish() {
        say(&error.to_string());
    }
}

/// A closed stderr leaves nobody to tell.
fn write_to_stderr(text: &[u8]) {
    let _ = std::io::stderr().write_all(text);
}

/// One line to whoever started the program, which goes on in any case. What follows from the first
/// note is not worth a second.
fn say(note: &str) {
    static HAS_SAID: AtomicBool = AtomicBool::new(false);
    if !HAS_SAID.swap(true, Ordering::Relaxed) {
        write_to_stderr(format!("thruway: note: {note}\n").as_bytes());
    }
}

unsafe extern "C" fn is_running(_module: VALUE) -> VALUE {
    vm::boolean(boot().is_some())
}

/// `Thruway::Boot.pack`: the path of the pack, whether there is one yet or not.
unsafe extern "C" fn pack(_module: VALUE) -> VALUE {
    match boot().and_then(Boot::pack_path) {
        Some(path) => ruby::utf8_string(path.as_os_str().as_bytes()),
        None => vm::NIL,
    }
}
