//! The start of a boot, and its end.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rb_sys::VALUE;
use thruway_boot::{Boot, Environment, Options, Part};
use thruway_sys::imports::Object;

use super::{
    code, collector, current, documents, feature_path, features, gems, interpose, iseq, require, vm,
};
use crate::preload;
use crate::ruby::Gvl;
use crate::ruby::define::at_exit;
use crate::ruby::ractor;

/// Starts with what the environment says. Nothing is left half done: what cannot be taken over stays
/// with Ruby.
pub(super) fn start_in(gvl: Gvl, module: VALUE, folder: &[u8]) -> bool {
    let variable = |name: &str| std::env::var_os(name);
    let (words, pack) = (variable("THRUWAY_BOOT"), variable("THRUWAY_PACK"));
    let mut options = Options::from_environment(words.as_deref(), pack.as_deref());
    keep_report(gvl, &mut options);
    if options.off || iseq::started(gvl).is_some() {
        return false;
    }
    iseq::mark_as_started(gvl, module);
    ractor::mark_main(gvl);
    let identity = identity(gvl);
    let environment = Environment::from_environment(variable);
    let folder = Path::new(OsStr::from_bytes(folder));
    let libruby = rb_sys::rb_f_require as *const ();
    options.portable = options.portable || interpose::install(libruby).is_err();
    let named = options.pack.clone();
    let own = || environment.cache_path(&environment.application(folder), &identity);
    let (boot, note) = Boot::start(options, &identity, named.or_else(own));
    if let Some(note) = note {
        say(&note);
    }
    let is_first = current::begin(boot);
    if is_first {
        current::boot().iter().for_each(|boot| preload::begin(gvl, boot));
        install(gvl);
        preload::watch();
    }
    is_first
}

/// A report is wanted of the Ruby that was started, not of those that it starts. So the process that
/// gives one puts its id down. A program that takes its place keeps that id.
fn keep_report(gvl: Gvl, options: &mut Options) {
    let process = std::process::id();
    if options.explain && *options.explained_process.get_or_insert(process) == process {
        vm::set_environment(gvl, "THRUWAY_BOOT", &options.words());
    } else {
        options.explain = false;
    }
}

fn install(gvl: Gvl) {
    let Some(boot) = current::boot() else { return };
    if !boot.options.portable {
        // Where it cannot be done, Ruby goes on copying.
        let _ = features::grow_in_place(gvl, rb_sys::rb_f_require as *const ());
        if let Some(megabytes) = boot.options.gc_after_mb {
            collector::wait_for(gvl, megabytes);
        }
    }
    require::install(gvl);
    feature_path::install(gvl);
    if boot.options.has(Part::Code) {
        code::install(gvl);
    }
    gems::install(gvl);
    documents::install_yaml(gvl);
    documents::install_json(gvl);
    at_exit(gvl, finish);
}

/// What compiled code depends on, besides its source: Ruby as it describes itself, its compile options,
/// the encoding of file names, and the build of libruby, since a security update keeps the version.
fn identity(gvl: Gvl) -> Vec<u8> {
    let mut identity = Vec::new();
    for line in [vm::description(gvl), iseq::compile_options(gvl), vm::file_name_encoding(gvl)] {
        identity.extend(line.map_or_else(Vec::new, |line| line.to_vec(gvl)));
        identity.push(b'\n');
    }
    let object = Object::containing(rb_sys::rb_f_require as *const ());
    let build = object.and_then(|object| object.build_id()).unwrap_or_default();
    let build: String = build.iter().map(|byte| format!("{byte:02x}")).collect();
    identity.extend_from_slice(format!("build {build}").as_bytes());
    identity
}

/// Writes what was learned, and the report if one is wanted.
fn finish() {
    let Some(boot) = current::own() else { return };
    preload::learn();
    write_pack(boot);
    if boot.options.explain {
        code::note_supplier(boot);
        write_to_stderr(boot.report().as_bytes());
    }
}

pub(super) fn write_pack(boot: &Boot) {
    if let Err(error) = boot.finish() {
        say(&error.to_string());
    }
}

/// With stderr closed, the text is dropped.
fn write_to_stderr(text: &[u8]) {
    let _ = std::io::stderr().write_all(text);
}

/// Writes one line to stderr; the program goes on in any case. What follows from the first note is not worth a
/// second one.
fn say(note: &str) {
    static HAS_SAID: AtomicBool = AtomicBool::new(false);
    if !HAS_SAID.swap(true, Ordering::Relaxed) {
        write_to_stderr(format!("thruway: note: {note}\n").as_bytes());
    }
}
