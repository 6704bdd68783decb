//! `Gem::Specification.load`: the code of gemspecs comes compiled.
//!
//! RubyGems reads a gemspec and evaluates it; every start of Ruby does that for all default gems.
//! Reading is left as it is. What is evaluated comes from the pack if its source is, byte for byte,
//! the one that was compiled; so nothing has to be asked of the disk.

use std::ffi::c_int;

use rb_sys::VALUE;
use thruway_boot::{Boot, Part};

use super::vm;
use super::{code, interpose};

/// How a gemspec begins that RubyGems has written itself. Others may do anything, such as asking where
/// they are evaluated.
const WRITTEN_BY_RUBYGEMS: &[u8] = b"# -*- encoding: utf-8 -*-\n# stub: ";

/// `Gem::Specification` is there. Its `load` calls `eval` on itself.
pub(super) fn install() {
    let wanted = super::boot().is_some_and(|boot| boot.options.has(Part::Gems));
    if let (true, Some(class)) = (wanted, vm::constant_at(&[c"Gem", c"Specification"])) {
        vm::define_private_singleton_method(class, c"eval", eval);
    }
}

unsafe extern "C" fn eval(count: c_int, arguments: *const VALUE, _class: VALUE) -> VALUE {
    // SAFETY: Ruby passes as many arguments as it says.
    let arguments = unsafe { vm::arguments(count, arguments) };
    if let [source, _binding, path] = *arguments
        && let Some(code) = compiled(source, path)
    {
        return vm::evaluate(code);
    }
    vm::eval(arguments)
}

/// The code of a gemspec with that source, from the pack; or from now on in the next one.
fn compiled(source: VALUE, path: VALUE) -> Option<VALUE> {
    let boot = super::boot()?;
    // SAFETY: both stay on the caller's stack, and no Ruby code runs while the slices live.
    let (text, name) = (unsafe { vm::plain_bytes(source) }?, unsafe { vm::plain_bytes(path) }?);
    if !text.starts_with(WRITTEN_BY_RUBYGEMS) || code::is_compiled_otherwise() {
        return None;
    }
    match boot.script(name, text) {
        Some(code) => vm::load_code(code),
        None => learn(boot, source, path),
    }
}

/// Compiles the gemspec for the next pack, if it says nothing of where it is evaluated, and if Ruby has
/// nothing to say about it.
fn learn(boot: &Boot, source: VALUE, path: VALUE) -> Option<VALUE> {
    if !boot.is_learning() || !vm::warns_on_stderr() {
        return None;
    }
    interpose::count_writes();
    let writes = interpose::writes()?;
    let code = vm::compile(source, path)?;
    if interpose::writes() != Some(writes) || vm::refers_to_self(code) {
        return None;
    }
    let binary = vm::to_binary(code)?;
    // SAFETY: all stay on this stack, and no Ruby code runs while the slices live.
    let (text, binary) = (unsafe { vm::plain_bytes(source) }?, unsafe { vm::plain_bytes(binary) }?);
    // SAFETY: as above.
    let name = unsafe { vm::plain_bytes(path) }?;
    boot.learn_script(name, text, binary);
    None
}
