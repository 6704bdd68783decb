//! `Kernel#require` and `require_relative`: the name becomes a path, and Ruby does the rest.

use rb_sys::VALUE;
use thruway_boot::{Boot, Lookup, Part, Resolution};

use super::documents;
use super::gems;
use super::load_path;
use super::method::{self, Method0};
use super::ractor;
use super::search::{self, PathMark, Search};
use super::take_over;
use super::vm;

/// Longest path that is handed to Ruby; Linux opens none that is longer.
const PATH_BYTES_MAX: usize = 4096;

/// Puts our methods in the place of Ruby's own. Whatever RubyGems, Bundler or Zeitwerk have put on top
/// of those stays on top.
pub(super) fn install() {
    method::quietly(|| {
        method::replace_require(require);
        method::replace_kernel_function(c"require_relative", require_relative);
    });
}

/// As `Kernel#require`, whose whole work is done by Ruby's own function.
unsafe extern "C" fn require(receiver: VALUE, name: VALUE) -> VALUE {
    search_for(receiver, name)
}

/// As `Kernel#require_relative`: the name starts at the real path of the file that calls.
unsafe extern "C" fn require_relative(receiver: VALUE, name: VALUE) -> VALUE {
    let Some(file) = vm::calling_file() else {
        vm::raise_load_error(c"cannot infer basepath");
    };
    let folder = vm::dirname(file);
    // SAFETY: may raise; nothing with a destructor lives here.
    let path = unsafe { vm::absolute_path(name, folder) };
    search_for(receiver, path)
}

fn search_for(receiver: VALUE, name: VALUE) -> VALUE {
    if !ractor::is_main() {
        // SAFETY: this is what the method that we stand for does with them.
        return unsafe { rb_sys::rb_f_require(receiver, name) };
    }
    searching(find_and_require, [receiver, name])
}

/// Calls `body` with the address of its two arguments while Ruby's look-ups on this thread are answered.
/// What it raises goes on.
pub(super) fn searching(body: Method0, arguments: [VALUE; 2]) -> VALUE {
    if answers().is_some() {
        search::begin();
    }
    // SAFETY: `body` gets back the arguments' address; they outlive the call.
    unsafe { vm::ensure(body, &raw const arguments as VALUE, end) }
}

/// The boot, if it answers look-ups.
fn answers() -> Option<&'static Boot> {
    super::boot().filter(|boot| boot.options.has(Part::Lookups))
}

unsafe extern "C" fn find_and_require(arguments: VALUE) -> VALUE {
    // SAFETY: `searching` passes the address of its own argument.
    let [receiver, name] = unsafe { *(arguments as *const [VALUE; 2]) };
    // SAFETY: the name stays on the callers' stacks, and no Ruby code runs while the slice lives.
    if unsafe { vm::plain_bytes(name) }.is_some_and(take_over::is_awaited) {
        return take_over::finish();
    }
    let feature = path_of(name);
    // SAFETY: this is what the method that we stand for does with them.
    let is_new = unsafe { rb_sys::rb_f_require(receiver, feature) };
    if is_new == vm::boolean(true) {
        loaded();
    }
    is_new
}

/// What is done when a feature has been loaded.
struct OnLoadHook {
    /// How its path ends.
    end: &'static [u8],
    install: fn(),
}

const ON_LOAD_HOOKS: [OnLoadHook; 3] = [
    OnLoadHook { end: b"/rubygems/specification.rb", install: gems::install },
    OnLoadHook { end: b"/psych.rb", install: documents::install_yaml },
    OnLoadHook { end: b"/json/ext.rb", install: documents::install_json },
];

/// A feature has been loaded: the last one that Ruby knows.
fn loaded() {
    // SAFETY: it is an Array, and no Ruby code runs while the slice lives.
    let features = unsafe { vm::elements(vm::global(c"$LOADED_FEATURES")) };
    // SAFETY: as above, for the String.
    let feature = features.last().and_then(|last| unsafe { vm::plain_bytes(*last) });
    for hook in ON_LOAD_HOOKS {
        if feature.is_some_and(|path| path.ends_with(hook.end)) {
            (hook.install)();
        }
    }
}

unsafe extern "C" fn end(_: VALUE) -> VALUE {
    search::end();
    vm::NIL
}

/// The path of the feature's file, if it is known; else the name as it came.
fn path_of(name: VALUE) -> VALUE {
    let Some((boot, bytes)) = searched(name) else { return name };
    // What is loaded already, or being loaded, is Ruby's to find: by this name it may be another file
    // than the first one in the load path.
    if vm::is_provided(name) {
        // SAFETY: `require` is called with the interpreter lock held; this does not call Ruby.
        settle(unsafe { load_path::current(boot, |load_path| boot.files.knows(load_path, bytes)) });
        return name;
    }
    path_in_load_path(name)
}

/// The path of the first file in the load path that has the feature, if it is known; else the name as it
/// came.
pub(super) fn path_in_load_path(name: VALUE) -> VALUE {
    let Some((boot, bytes)) = searched(name) else { return name };
    let mut path = [0; PATH_BYTES_MAX];
    match found(boot, bytes, &mut path) {
        Some(length) => vm::string_like(name, &path[..length]),
        None => name,
    }
}

/// The boot and the name, if Ruby looks for it in the load path and the boot answers look-ups. The bytes
/// count while the name stays on the caller's stack, and no Ruby code runs.
fn searched<'a>(name: VALUE) -> Option<(&'static Boot, &'a [u8])> {
    // SAFETY: as this function says.
    let bytes = unsafe { vm::plain_bytes(name) }?;
    let is_elsewhere = matches!(bytes.first(), None | Some(b'/' | b'.' | b'~'));
    if is_elsewhere || bytes.contains(&0) { None } else { Some((answers()?, bytes)) }
}

/// What was seen of the load path counts for this search.
fn settle(is_settled: bool) {
    search::set(Search { is_settled, ..search::current() });
}

/// Finds the feature's file, sees that it can be loaded, and puts its path into `path`.
fn found(boot: &Boot, name: &[u8], path: &mut [u8; PATH_BYTES_MAX]) -> Option<usize> {
    // SAFETY: `require` is called with the interpreter lock held; `resolve` does not call Ruby.
    let resolution =
        unsafe { load_path::current(boot, |load_path| boot.files.resolve(load_path, name)) };
    settle(resolution != Resolution::Unknown);
    let Resolution::Found(found) = resolution else {
        boot.counts.searched.add(1);
        return None;
    };
    let Lookup::File(file) = boot.files.look_up(&found) else {
        // It was there when its folder was looked at: what is known of folders is not so any more.
        boot.files.invalidate();
        settle(false);
        return None;
    };
    search::see(PathMark::of(&found), file);
    path.get_mut(..found.len())?.copy_from_slice(&found);
    boot.counts.resolved.add(1);
    Some(found.len())
}
