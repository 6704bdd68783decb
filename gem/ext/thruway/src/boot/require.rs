//! `Kernel#require` and `require_relative`: the name becomes a path, and Ruby does the rest.

use rb_sys::VALUE;
use thruway_boot::{Boot, Lookup, Part, Resolution};

use super::search::{self, PathMark, Search};
use super::{current, documents, gems, load_path, method, take_over, vm};
use crate::preload;
use crate::ruby::constants::global;
use crate::ruby::define::{self, Method};
use crate::ruby::ractor;
use crate::ruby::{Gvl, Protected, RArray, RString, TRUE, raise};

/// Longest path that is handed to Ruby; Linux opens none that is longer.
const PATH_BYTES_MAX: usize = 4096;

/// Puts our methods in the place of Ruby's own. Whatever RubyGems, Bundler or Zeitwerk have put on top
/// of those stays on top.
pub(super) fn install(gvl: Gvl) {
    define::quietly(gvl, || {
        method::replace_require(gvl, Method::of_1(require));
        let require_relative = Method::of_1(require_relative);
        method::replace_kernel_function(gvl, c"require_relative", require_relative);
    });
}

/// As `Kernel#require`, whose whole work is done by Ruby's own function.
fn require(ruby: Protected, receiver: VALUE, name: VALUE) -> VALUE {
    if ractor::is_main(ruby.gvl()) {
        searching(ruby, |ruby| find_and_require(ruby, receiver, name))
    } else {
        vm::require(ruby, receiver, name)
    }
}

/// As `Kernel#require_relative`: the name starts at the real path of the file that calls.
fn require_relative(ruby: Protected, receiver: VALUE, name: VALUE) -> VALUE {
    let Some(file) = vm::calling_file(ruby.gvl()) else {
        raise::load_error(ruby, c"cannot infer basepath");
    };
    let path = vm::absolute_path(ruby, name, vm::dirname(ruby, file));
    require(ruby, receiver, path)
}

/// Calls `body` while Ruby's look-ups on this thread are answered. What it raises goes on.
pub(super) fn searching(ruby: Protected, body: impl Fn(Protected) -> VALUE) -> VALUE {
    if answers().is_some_and(|boot| !boot.options.portable) {
        search::begin();
    }
    ruby.ensure(body, search::end)
}

/// The boot, if it answers look-ups.
fn answers() -> Option<&'static Boot> {
    current::boot().filter(|boot| boot.options.has(Part::Lookups))
}

fn find_and_require(ruby: Protected, receiver: VALUE, name: VALUE) -> VALUE {
    let gvl = ruby.gvl();
    let plain = RString::plain(gvl, name);
    if plain.is_some_and(|name| name.read(gvl, take_over::is_awaited)) {
        return take_over::finish(ruby);
    }
    preload::check_guard(ruby, name);
    if let Some(boot) = answers().filter(|boot| boot.options.portable) {
        // Ruby expands its load path next, and nothing tells of it.
        // SAFETY: the closure does nothing.
        unsafe { load_path::current(gvl, boot, |_| ()) };
    }
    let feature = plain.map_or(name, |name| path_of(ruby, name).value());
    let is_new = vm::require(ruby, receiver, feature);
    if is_new == TRUE {
        loaded(gvl);
    }
    is_new
}

/// What is done when a feature has been loaded.
struct OnLoadHook {
    /// How its path ends.
    end: &'static [u8],
    install: fn(Gvl),
}

const ON_LOAD_HOOKS: [OnLoadHook; 3] = [
    OnLoadHook { end: b"/rubygems/specification.rb", install: gems::install },
    OnLoadHook { end: b"/psych.rb", install: documents::install_yaml },
    OnLoadHook { end: b"/json/ext.rb", install: documents::install_json },
];

/// A feature has been loaded: the last that Ruby knows.
fn loaded(gvl: Gvl) {
    let features = RArray::of(gvl, global(gvl, c"$LOADED_FEATURES"));
    let last = features.and_then(|all| all.get(gvl, all.len(gvl).checked_sub(1)?));
    let Some(feature) = last.and_then(|last| RString::plain(gvl, last)) else { return };
    for hook in ON_LOAD_HOOKS {
        if feature.read(gvl, |feature| feature.ends_with(hook.end)) {
            (hook.install)(gvl);
        }
    }
}

/// The path of the feature's file, if it is known; else the name as it came.
fn path_of(ruby: Protected, name: RString) -> RString {
    let gvl = ruby.gvl();
    let Some(boot) = searched(gvl, name) else { return name };
    // Ruby itself finds what is loaded already, or being loaded. By this name it may be another file than the
    // first one in the load path.
    if vm::is_provided(ruby, name) {
        // Only what Ruby asks next is answered by that.
        if !boot.options.portable {
            let knows = |load_path: &_| name.read(gvl, |name| boot.files.knows(load_path, name));
            // SAFETY: the closure does not call Ruby.
            let knows = unsafe { load_path::current(gvl, boot, knows) };
            settle(knows == Some(true));
        }
        return name;
    }
    path_in_load_path(gvl, name)
}

/// The path of the first file in the load path that has the feature, if it is known; else the name as it
/// came.
pub(super) fn path_in_load_path(gvl: Gvl, name: RString) -> RString {
    let Some(boot) = searched(gvl, name) else { return name };
    let mut path = [0; PATH_BYTES_MAX];
    match found(gvl, boot, name, &mut path) {
        Some(length) => RString::like(gvl, name, &path[..length]),
        None => name,
    }
}

/// The boot, if Ruby looks for that name in the load path and the boot answers look-ups.
fn searched(gvl: Gvl, name: RString) -> Option<&'static Boot> {
    let is_elsewhere = name.read(gvl, |name| {
        matches!(name.first(), None | Some(b'/' | b'.' | b'~')) || name.contains(&0)
    });
    if is_elsewhere { None } else { answers() }
}

/// What was seen of the load path counts for this search.
fn settle(is_settled: bool) {
    search::set(Search { is_settled, ..search::current() });
}

/// Finds the feature's file, sees that it can be loaded, and puts its path into `path`.
fn found(gvl: Gvl, boot: &Boot, name: RString, path: &mut [u8; PATH_BYTES_MAX]) -> Option<usize> {
    let resolve = |load_path: &_| name.read(gvl, |name| boot.files.resolve(load_path, name));
    // SAFETY: the closure does not call Ruby.
    let resolution = unsafe { load_path::current(gvl, boot, resolve) };
    let resolution = resolution.unwrap_or(Resolution::Unknown);
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
