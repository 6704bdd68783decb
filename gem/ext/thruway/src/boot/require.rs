//! `Kernel#require` and `require_relative`: a name becomes a path, and Ruby does the rest.

use rb_sys::VALUE;
use thruway_boot::{Boot, Lookup, Part, Resolution};

use super::search::{self, PathMark, Search};
use super::{current, documents, gems, load_path, method, take_over, vm, zones};
use crate::preload;
use crate::ruby::constants::global;
use crate::ruby::define::{self, Method};
use crate::ruby::ractor;
use crate::ruby::{Gvl, ProtectedCall, RArray, RString, TRUE, raise};

/// Length of the longest path that is passed to Ruby. Linux opens no longer path.
const PATH_BYTES_MAX: usize = 4096;

/// Replaces Ruby's own methods. The methods that RubyGems, Bundler or Zeitwerk have defined on top of those stay.
pub(super) fn install(gvl: Gvl) {
    define::quietly(gvl, || {
        method::replace_require(gvl, Method::of_1(require));
        let require_relative = Method::of_1(require_relative);
        method::replace_kernel_function(gvl, c"require_relative", require_relative);
    });
}

/// `Kernel#require`: the work is done by Ruby's own function.
fn require(ruby: ProtectedCall, receiver: VALUE, name: VALUE) -> VALUE {
    if ractor::is_main(ruby.gvl()) {
        searching(ruby, |ruby| find_and_require(ruby, receiver, name))
    } else {
        vm::require(ruby, receiver, name)
    }
}

/// `Kernel#require_relative`: the name is relative to the real path of the calling file.
fn require_relative(ruby: ProtectedCall, receiver: VALUE, name: VALUE) -> VALUE {
    let Some(file) = vm::calling_file(ruby.gvl()) else {
        raise::load_error(ruby, c"cannot infer basepath");
    };
    require(ruby, receiver, absolute_path(ruby, name, vm::dirname(ruby, file)))
}

/// The absolute path of a name below a folder. On Windows Ruby looks for the long form of its last component.
fn absolute_path(ruby: ProtectedCall, name: VALUE, folder: VALUE) -> VALUE {
    #[cfg(windows)]
    if RString::plain(ruby.gvl(), name).is_some() && answers().is_some_and(Boot::answers_search) {
        // No Ruby code runs for a plain String.
        super::answers::expand();
        let expand = |ruby| vm::absolute_path(ruby, name, folder);
        return ruby.ensure(expand, super::answers::end_expansion);
    }
    vm::absolute_path(ruby, name, folder)
}

/// Calls `body` while look-ups of Ruby on this thread are answered. Exceptions propagate.
pub(super) fn searching(ruby: ProtectedCall, body: impl Fn(ProtectedCall) -> VALUE) -> VALUE {
    if answers().is_some_and(Boot::answers_search) {
        // The proofs of an earlier search do not count for this one.
        #[cfg(windows)]
        super::answers::stop();
        search::begin();
    }
    ruby.ensure(body, search::end)
}

/// The boot, if it answers look-ups.
fn answers() -> Option<&'static Boot> {
    current::boot().filter(|boot| boot.options.has(Part::Lookups))
}

fn find_and_require(ruby: ProtectedCall, receiver: VALUE, name: VALUE) -> VALUE {
    let gvl = ruby.gvl();
    let plain = RString::plain(gvl, name);
    if plain.is_some_and(|name| name.read(gvl, take_over::is_awaited)) {
        return take_over::finish(ruby);
    }
    preload::check_guard(ruby, name);
    if let Some(boot) = answers().filter(|boot| cfg!(windows) || boot.options.portable) {
        // Ruby expands its load path next, without a call that could be observed: on Windows the calls do not tell
        // which path is expanded. SAFETY: the closure does nothing.
        unsafe { load_path::current(gvl, boot, |_| ()) };
    }
    if cfg!(windows) && plain.is_none() {
        // Ruby asks such an object for its name, by Ruby code. There, more than a search makes the same calls.
        search::end();
    }
    let feature = plain.map_or(name, |name| path_of(ruby, name).value());
    let is_new = vm::require(ruby, receiver, feature);
    if is_new == TRUE {
        loaded(gvl);
    }
    is_new
}

/// An action that runs after a feature has been loaded.
struct OnLoadHook {
    /// The end of the feature's path.
    end: &'static [u8],
    install: fn(Gvl),
}

const ON_LOAD_HOOKS: [OnLoadHook; 4] = [
    OnLoadHook { end: b"/rubygems/specification.rb", install: gems::install },
    OnLoadHook { end: b"/psych.rb", install: documents::install_yaml },
    OnLoadHook { end: b"/json/ext.rb", install: documents::install_json },
    OnLoadHook { end: b"/tzinfo.rb", install: zones::install },
];

/// Runs the hook of the feature that was loaded last.
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

/// The path of the feature's file, if the boot knows it; otherwise the name unchanged.
fn path_of(ruby: ProtectedCall, name: RString) -> RString {
    let gvl = ruby.gvl();
    let Some(boot) = searched(gvl, name) else { return name };
    // Ruby itself finds features that are loaded or being loaded. Under this name, that may be another file than the
    // first in the load path.
    if vm::is_provided(ruby, name) {
        // The settled load path is valid for the next look-up of Ruby only.
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

/// The path of the first file in the load path that provides the feature, if the boot knows it; otherwise the name
/// unchanged.
pub(super) fn path_in_load_path(gvl: Gvl, name: RString) -> RString {
    let Some(boot) = searched(gvl, name) else { return name };
    let mut path = [0; PATH_BYTES_MAX];
    match find(gvl, boot, name, &mut path) {
        Some(length) => RString::like(gvl, name, &path[..length]),
        None => name,
    }
}

/// The boot, if Ruby looks up that name in the load path and the boot answers look-ups.
fn searched(gvl: Gvl, name: RString) -> Option<&'static Boot> {
    let is_elsewhere = name.read(gvl, |name| {
        let is_on_drive = cfg!(windows) && name.get(1) == Some(&b':');
        matches!(name.first(), None | Some(b'/' | b'.' | b'~')) || name.contains(&0) || is_on_drive
    });
    if is_elsewhere { None } else { answers() }
}

/// Records whether the whole load path was searched, for the search that follows.
fn settle(is_settled: bool) {
    search::set(Search { is_settled, ..search::current() });
}

/// Finds the feature's file, checks that the file can be loaded, and writes its path to `path`.
fn find(gvl: Gvl, boot: &Boot, name: RString, path: &mut [u8; PATH_BYTES_MAX]) -> Option<usize> {
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
        // The file existed when its folder was listed. So the boot's knowledge of folders is outdated.
        boot.files.invalidate();
        settle(false);
        return None;
    };
    search::record_file(PathMark::of(&found), file);
    path.get_mut(..found.len())?.copy_from_slice(&found);
    boot.counts.resolved.add(1);
    Some(found.len())
}
