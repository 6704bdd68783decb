//! `Gem::Specification`: the code of gemspecs comes compiled, and a gem that does not hold a feature says
//! so without asking the disk.
//!
//! RubyGems reads a gemspec and evaluates it; every start of Ruby does that for all default gems.
//! Reading is left as it is. What is evaluated comes from the pack if its source is, byte for byte,
//! the one that was compiled; so nothing has to be asked of the disk.

use std::ffi::{CStr, c_int};
use std::sync::{Mutex, OnceLock, PoisonError};

use rb_sys::VALUE;
use thruway_boot::document::Token;
use thruway_boot::{Boot, Part};

use super::originals::{self, Side};
use super::vm::{self, Kept, NIL};
use super::{code, interpose, iseq, method, values};

/// How a gemspec begins that RubyGems has written itself. Others may do anything, such as asking where
/// they are evaluated.
const WRITTEN_BY_RUBYGEMS: &[u8] = b"# -*- encoding: utf-8 -*-\n# stub: ";

/// What is known of gems. Nothing is kept in a gem itself, where `Marshal` would see it.
struct Gems {
    /// An `ObjectSpace::WeakMap` from each gem that was asked to a place in `folders`.
    numbers: Kept,
    /// Lists of folders; gems that come again after `Gem.refresh` have the lists of those before.
    folders: Mutex<Vec<Vec<Vec<u8>>>>,
}

static GEMS: OnceLock<Gems> = OnceLock::new();

const HAVE_FILE: &CStr = c"have_file?";
/// RubyGems' own method, which may be loaded a second time.
static OWN_HAVE_FILE: Mutex<Option<Kept>> = Mutex::new(None);

/// `Gem::Specification` is there. Its `load` calls `eval` on itself.
pub(super) fn install() {
    let wanted = super::boot().is_some_and(|boot| boot.options.has(Part::Gems));
    if let (true, Some(class)) = (wanted, vm::constant_at(&[c"Gem", c"Specification"])) {
        method::define_private_singleton_method(class, c"eval", eval);
        stand_for_have_file();
    }
}

/// Puts ours in the place of RubyGems' own method: a program that defines its own has that then.
fn stand_for_have_file() {
    let Some(class) = vm::constant_at(&[c"Gem", c"BasicSpecification"]) else { return };
    let Some(own) = vm::send(class, c"instance_method", &[vm::symbol(HAVE_FILE)]) else { return };
    if vm::send(own, c"owner", &[]) != Some(class) || !is_of_rubygems(own) {
        return;
    }
    let Some(gems) = Gems::new() else { return };
    GEMS.get_or_init(|| gems);
    *OWN_HAVE_FILE.lock().unwrap_or_else(PoisonError::into_inner) = Some(vm::kept(own));
    method::quietly(|| method::define_private_method_2(class, HAVE_FILE, have_file));
}

/// Whether the method is written in the file of RubyGems that has it. Ours is not.
fn is_of_rubygems(method: VALUE) -> bool {
    let location = vm::send(method, c"source_location", &[]).filter(|location| *location != NIL);
    let file = location.and_then(|location| values::element(location, 0));
    // SAFETY: the Array holds the String, and no Ruby code runs while the slice lives.
    let file = file.and_then(|file| unsafe { vm::plain_bytes(file) });
    file.is_some_and(|file| file.ends_with(b"/rubygems/basic_specification.rb"))
}

/// `have_file?(name, suffixes)`: RubyGems asks it of every gem when a feature is not in the load path.
unsafe extern "C" fn have_file(gem: VALUE, name: VALUE, suffixes: VALUE) -> VALUE {
    if !may_have_file(gem, name, suffixes).unwrap_or(true) {
        return vm::boolean(false);
    }
    let own = *OWN_HAVE_FILE.lock().unwrap_or_else(PoisonError::into_inner);
    let own = own.map_or(NIL, Kept::value);
    vm::call(own, vm::id(c"bind_call"), &[gem, name, suffixes])
}

/// Whether the gem may hold such a file; `None` if it is not known.
fn may_have_file(gem: VALUE, name: VALUE, suffixes: VALUE) -> Option<bool> {
    let boot = super::serving()?;
    let number = GEMS.get()?.number(gem)?;
    // SAFETY: the name stays on the caller's stack, and no Ruby code runs while the slice lives.
    let name = unsafe { vm::plain_bytes(name) }?;
    // An absolute name, too, is looked for below the gem.
    let name = name.strip_prefix(b"/").unwrap_or(name);
    let is_usual = |suffix: &VALUE| {
        // SAFETY: as above: the Array holds the String.
        let suffix = unsafe { vm::plain_bytes(*suffix) };
        suffix.is_some_and(|suffix| matches!(suffix, b"" | b".rb" | b".so"))
    };
    // SAFETY: RubyGems passes an Array of its own, which is not changed meanwhile.
    let are_usual = unsafe { vm::elements(suffixes) }.iter().all(is_usual);
    if name.is_empty() || !are_usual || !asks_the_disk() {
        return None;
    }
    let known = GEMS.get()?.folders.try_lock().ok()?;
    Some(known.get(number)?.iter().any(|folder| boot.files.may_hold(folder, name)))
}

/// Whether RubyGems' own method would ask the disk: no program has changed what it asks by.
fn asks_the_disk() -> bool {
    let file = vm::class(c"File");
    [c"file?", c"join"].iter().all(|name| originals::is_basic(file, Side::Own, vm::id(name)))
}

impl Gems {
    fn new() -> Option<Self> {
        let map = vm::send(vm::class(c"ObjectSpace::WeakMap"), c"new", &[])?;
        Some(Self { numbers: vm::kept(map), folders: Mutex::default() })
    }

    /// The number of the list of the gem's folders.
    fn number(&self, gem: VALUE) -> Option<usize> {
        let known = vm::send(self.numbers.value(), c"[]", &[gem])?;
        if let Some(Token::Integer(number)) = values::simple_token(known) {
            return usize::try_from(number).ok();
        }
        let folders = folders_of(gem)?;
        let number = {
            let mut known = self.folders.try_lock().ok()?;
            known.iter().position(|other| *other == folders).unwrap_or_else(|| {
                known.push(folders);
                known.len() - 1
            })
        };
        let value = values::simple_object(Token::Integer(number.try_into().ok()?))?;
        vm::send(self.numbers.value(), c"[]=", &[gem, value])?;
        Some(number)
    }
}

/// The folders in which the gem's features are.
fn folders_of(gem: VALUE) -> Option<Vec<Vec<u8>>> {
    let (gems, own) = (vm::send(gem, c"gems_dir", &[])?, vm::send(gem, c"full_name", &[])?);
    let paths = vm::send(gem, c"raw_require_paths", &[])?;
    let mut folders = Vec::new();
    for path in (0..).map_while(|place| values::element(paths, place)) {
        let folder = vm::join_paths(&[gems, own, path])?;
        // SAFETY: the String is on this stack, and nobody changes it.
        folders.push(unsafe { vm::plain_bytes(folder) }?.to_vec());
    }
    if vm::ask(gem, c"have_extensions?", &[]) {
        let folder = vm::send(gem, c"extension_dir", &[])?;
        // SAFETY: as above.
        folders.push(unsafe { vm::plain_bytes(folder) }?.to_vec());
    }
    Some(folders)
}

unsafe extern "C" fn eval(count: c_int, arguments: *const VALUE, _class: VALUE) -> VALUE {
    // SAFETY: Ruby passes as many arguments as it says.
    let arguments = unsafe { vm::arguments(count, arguments) };
    if !is_evaluated_by_ruby() {
        return vm::call_super(arguments);
    }
    if let [source, _binding, path] = *arguments
        && let Some(code) = compiled(source, path)
    {
        return iseq::evaluate(code);
    }
    vm::eval(arguments)
}

/// Whether `eval` would be Kernel's, if it were not for ours, and evaluates code.
fn is_evaluated_by_ruby() -> bool {
    let class = vm::constant_at(&[c"Gem", c"BasicSpecification"]);
    let is_eval = |class| originals::is_basic(class, Side::Own, vm::id(c"eval"));
    let is_binding = originals::is_basic(vm::class(c"Binding"), Side::Instances, vm::id(c"eval"));
    class.is_some_and(is_eval) && is_binding
}

/// The code of a gemspec with that source, from the pack; or from now on in the next one.
fn compiled(source: VALUE, path: VALUE) -> Option<VALUE> {
    let boot = super::serving()?;
    // SAFETY: both stay on the caller's stack, and no Ruby code runs while the slices live.
    let (text, name) = (unsafe { vm::plain_bytes(source) }?, unsafe { vm::plain_bytes(path) }?);
    if !text.starts_with(WRITTEN_BY_RUBYGEMS)
        || code::is_compiled_otherwise()
        || !iseq::is_by_ruby()
    {
        return None;
    }
    match boot.script(name, text) {
        Some(code) => iseq::load_code(code),
        None => learn(boot, source, path),
    }
}

/// Compiles the gemspec for the next pack, if it says nothing of where it is evaluated, and if Ruby has
/// nothing to say about it.
fn learn(boot: &Boot, source: VALUE, path: VALUE) -> Option<VALUE> {
    if !boot.is_learning() || !iseq::warns_on_stderr() {
        return None;
    }
    interpose::count_writes();
    let writes = interpose::writes()?;
    let code = iseq::compile(source, path)?;
    if interpose::writes() != Some(writes) || iseq::refers_to_self(code) {
        return None;
    }
    let binary = iseq::to_binary(code)?;
    // SAFETY: all stay on this stack, and no Ruby code runs while the slices live.
    let (text, binary) = (unsafe { vm::plain_bytes(source) }?, unsafe { vm::plain_bytes(binary) }?);
    // SAFETY: as above.
    let name = unsafe { vm::plain_bytes(path) }?;
    boot.learn_script(name, text, binary);
    None
}
