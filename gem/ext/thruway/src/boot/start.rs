//! The start of a boot and its end.

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use rb_sys::VALUE;
use thruway_boot::{Boot, Environment, Options, Part};
use thruway_resolve::native;
#[cfg(unix)]
use thruway_sys::imports::Object;

#[cfg(windows)]
use super::answers;
use super::{
    code, current, documents, feature_path, gems, heap, iseq, require, time_code, vm, zones,
};
#[cfg(unix)]
use super::{collector, features};
#[cfg(unix)]
use crate::interpose::calls;
use crate::preload;
use crate::ruby::Gvl;
use crate::ruby::define::at_exit;
use crate::ruby::ractor;

/// Starts a boot with the options in the environment. The start is all or nothing: where a part cannot be installed,
/// Ruby does its work.
pub(super) fn start_in(gvl: Gvl, module: VALUE, folder: &[u8]) -> bool {
    let variable = |name: &str| std::env::var_os(name);
    let (words, pack) = (variable("THRUWAY_BOOT"), variable("THRUWAY_PACK"));
    let mut options = Options::from_environment(words.as_deref(), pack.as_deref());
    keep_report(gvl, &mut options);
    if options.off || iseq::started(gvl).is_some() {
        return false;
    }
    if vm::has_boxes(gvl) {
        if options.explain {
            write_to_stderr(b"thruway: Ruby boots without the pack: RUBY_BOX=1 is set\n");
        }
        return false;
    }
    iseq::mark_as_started(gvl, module);
    ractor::mark_main(gvl);
    let identity = identity(gvl);
    let environment = Environment::from_environment(variable);
    let folder = PathBuf::from(native::os_string(folder.to_vec()));
    if !options.portable {
        interpose_libruby(&mut options);
    }
    let named = options.pack.clone();
    let own = || environment.cache_path(&environment.application(&folder), &identity);
    let (boot, note) = Boot::start(options, &identity, named.or_else(own));
    if let Some(note) = note {
        say(&note);
    }
    let is_first = current::begin(boot);
    if is_first {
        current::boot().iter().for_each(|boot| preload::begin_notes(gvl, boot));
        install(gvl);
        preload::observe_calls();
    }
    is_first
}

/// Lets the boot answer libruby's calls. Where that is not possible, the boot is in the portable mode.
#[cfg(unix)]
fn interpose_libruby(options: &mut Options) {
    options.portable = calls::interpose_libruby(rb_sys::rb_f_require as *const ()).is_err();
}

/// As on Unix.
#[cfg(windows)]
fn interpose_libruby(options: &mut Options) {
    options.portable = !answers::begin(address_in_libruby());
}

/// Limits the report to the Ruby that the user started, excluding those that it starts in turn. The reporting process
/// stores its id in the environment. A program that replaces the process by `exec` keeps the id.
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
    #[cfg(unix)]
    if !boot.options.portable {
        // Where this is not possible, Ruby goes on copying its features.
        let _ = features::grow_in_place(gvl, rb_sys::rb_f_require as *const ());
        if let Some(megabytes) = boot.options.gc_after_mb {
            collector::wait_for(gvl, megabytes);
        }
    }
    heap::grow(gvl, boot);
    require::install(gvl);
    feature_path::install(gvl);
    if boot.options.has(Part::Code) {
        code::install(gvl);
    }
    gems::install(gvl);
    documents::install_yaml(gvl);
    documents::install_json(gvl);
    time_code::note_core(gvl);
    zones::install(gvl);
    at_exit(gvl, finish);
}

/// Everything that compiled code depends on besides its source: Ruby's description, its compile options, the encoding
/// of file names, and the build of libruby, since a security update keeps the version.
fn identity(gvl: Gvl) -> Vec<u8> {
    let mut identity = Vec::new();
    for line in [vm::description(gvl), iseq::compile_options(gvl), vm::file_name_encoding(gvl)] {
        identity.extend(line.map_or_else(Vec::new, |line| line.to_vec(gvl)));
        identity.push(b'\n');
    }
    identity.extend_from_slice(format!("build {}", libruby_build()).as_bytes());
    identity
}

/// Returns the address of a constant in libruby. The address of a function could be that of a stub in this extension.
#[cfg(windows)]
fn address_in_libruby() -> *const () {
    (&raw const rb_sys::ruby_api_version).cast()
}

/// Returns a text that differs between builds of libruby.
#[cfg(unix)]
fn libruby_build() -> String {
    let object = Object::containing(rb_sys::rb_f_require as *const ());
    let build = object.and_then(|object| object.build_id()).unwrap_or_default();
    build.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a text that differs between builds of libruby: DLLs have no build id, so the file's name, size and time
/// stand for it.
#[cfg(windows)]
fn libruby_build() -> String {
    let file = thruway_sys::loaded_module::file_of(address_in_libruby());
    let Ok(file) = file else { return String::new() };
    let metadata = std::fs::metadata(&file).ok();
    let size = metadata.as_ref().map_or(0, std::fs::Metadata::len);
    let changed = metadata.and_then(|metadata| metadata.modified().ok());
    let changed = changed.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    format!("{} {size} {}", file.display(), changed.unwrap_or_default().as_nanos())
}

/// Writes everything that was learned, and the report if one was requested.
fn finish() {
    let Some(boot) = current::own() else { return };
    preload::write_plan();
    write_pack(boot);
    if boot.options.explain {
        code::note_supplier(boot);
        write_to_stderr(boot.report().as_bytes());
    }
}

pub(super) fn write_pack(boot: &Boot) {
    // SAFETY: the callers are a method, and a function that Ruby calls at its exit, with the lock held.
    heap::note_size(unsafe { Gvl::assume() }, boot);
    if let Err(error) = boot.finish() {
        say(&error.to_string());
    }
}

/// Writes to stderr. If stderr is closed, the text is dropped.
fn write_to_stderr(text: &[u8]) {
    let _ = std::io::stderr().write_all(text);
}

/// Writes one line to stderr, once in a process. Further notes would only report consequences of the first.
fn say(note: &str) {
    static HAS_SAID: AtomicBool = AtomicBool::new(false);
    if !HAS_SAID.swap(true, Ordering::Relaxed) {
        write_to_stderr(format!("thruway: note: {note}\n").as_bytes());
    }
}
