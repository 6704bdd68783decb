//! The start below `thruway run`: before RubyGems, and without a trace of it afterwards.

use std::sync::OnceLock;

use rb_sys::VALUE;
use thruway_boot::Features;

use super::vm::{self, Kept};

/// What is done when Ruby asks for the file a second time.
struct TakeOver {
    /// The path of the file that is required twice.
    file: Kept,
    /// `$LOADED_FEATURES` before it was required the first time.
    loaded: Kept,
    /// Loads what Ruby would have loaded.
    prelude: Kept,
}

static TAKE_OVER: OnceLock<TakeOver> = OnceLock::new();

/// `Thruway::Boot.take_over(file, loaded, prelude)`: starts the boot, and remembers the rest for
/// [`finish`]. Answers whether it is started.
pub(super) unsafe extern "C" fn take_over(
    module: VALUE,
    file: VALUE,
    loaded: VALUE,
    prelude: VALUE,
) -> VALUE {
    let Some(folder) = vm::current_folder() else { return vm::boolean(false) };
    // SAFETY: the String is on this stack, and nothing below changes it.
    let folder = unsafe { crate::ruby::bytes(folder) };
    super::start_in(module, folder);
    let [file, loaded, prelude] = [file, loaded, prelude].map(vm::kept);
    let is_first = TAKE_OVER.set(TakeOver { file, loaded, prelude }).is_ok();
    vm::boolean(is_first)
}

/// Whether `name` is the file that is required twice.
pub(super) fn is_awaited(name: &[u8]) -> bool {
    TAKE_OVER.get().is_some_and(|take_over| {
        // SAFETY: the String is kept, and frozen.
        unsafe { crate::ruby::bytes(take_over.file.value()) == name }
    })
}

/// Ruby's features are again what they were, and RubyGems and its companions are loaded, unless they
/// are not wanted. What they raise goes on.
pub(super) fn finish() -> VALUE {
    let Some(take_over) = TAKE_OVER.get() else { return vm::boolean(false) };
    vm::replace_elements(vm::global(c"$LOADED_FEATURES"), take_over.loaded.value());
    if !vm::is_module_defined(c"Gem") {
        define_parts(wanted());
        vm::call_proc(take_over.prelude.value());
    }
    vm::boolean(true)
}

/// What the environment and the command line leave on. Our own options come first in `RUBYOPT`, so what
/// follows the last mention of the file is the user's.
fn wanted() -> Features {
    let words = std::env::var_os("RUBYOPT").unwrap_or_default().into_encoded_bytes();
    let own = b"thruway/run";
    let end = words.windows(own.len()).rposition(|window| window == own);
    let user = end.map_or(&words[..], |end| &words[end..]);
    let user = user.iter().position(u8::is_ascii_whitespace).map_or(&b""[..], |at| &user[at..]);
    let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let arguments = line.split(|byte| *byte == 0);
    Features::ALL.after_environment(user).after_arguments(arguments)
}

/// Ruby marks a wanted part by a module of its name.
fn define_parts(features: Features) {
    let parts = [
        (features.gems, c"Gem"),
        (features.error_highlight, c"ErrorHighlight"),
        (features.did_you_mean, c"DidYouMean"),
        (features.syntax_suggest && vm::has_syntax_suggest(), c"SyntaxSuggest"),
    ];
    if features.gems {
        parts
            .iter()
            .filter(|(is_wanted, _)| *is_wanted)
            .for_each(|(_, name)| vm::define_module(name));
    }
}
