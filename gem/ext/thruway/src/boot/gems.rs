//! `Gem::Specification`: supplies compiled gemspecs, and tells RubyGems, without queries to the disk, which gems lack a
//! feature.
//!
//! RubyGems reads and evaluates gemspecs; each start of Ruby does so for all default gems. Reading is not changed.
//! The code comes from the pack if the source equals, byte for byte, the source that was compiled. So the disk need
//! not be asked.

use std::ffi::CStr;
use std::sync::{Mutex, OnceLock, PoisonError};

use rb_sys::VALUE;
use thruway_boot::document::Token;
use thruway_boot::{Boot, Part};

use super::compiler_output::OutputObservation;
use super::originals::{self, Side};
use super::{code, current, iseq, values, vm};
use crate::ruby::call::{ask, call, call_super, send};
use crate::ruby::constants::module_at;
use crate::ruby::define::{self, Method};
use crate::ruby::{
    FALSE, Gvl, NIL, PinnedObject, ProtectedCall, RArray, RModule, RString, Symbol, read_all,
};

/// The first lines of a gemspec that RubyGems itself has written. Other gemspecs may do anything, such as asking for
/// their own path.
const WRITTEN_BY_RUBYGEMS: &[u8] = b"# -*- encoding: utf-8 -*-\n# stub: ";

/// The folders of gems. Nothing is stored in the gems themselves, where `Marshal` would see the data.
struct Gems {
    /// An `ObjectSpace::WeakMap` that maps each gem to an index in `folders`.
    numbers: PinnedObject,
    /// Lists of folders. Gems that are created again by `Gem.refresh` get the lists of their predecessors.
    folders: Mutex<Vec<Vec<Vec<u8>>>>,
}

static GEMS: OnceLock<Gems> = OnceLock::new();

const HAVE_FILE: &CStr = c"have_file?";
/// RubyGems' own method, which can be loaded a second time.
static OWN_HAVE_FILE: Mutex<Option<PinnedObject>> = Mutex::new(None);

/// Installs the methods in `Gem::Specification`, whose `load` calls `eval` on itself.
pub(super) fn install(gvl: Gvl) {
    let wanted = current::boot().is_some_and(|boot| boot.options.has(Part::Gems));
    let specification = module_at(gvl, &[c"Gem", c"Specification"]);
    if let (true, Some(specification)) = (wanted, specification) {
        define::private_singleton_method(gvl, specification, c"eval", Method::of_any(eval));
        stand_for_have_file(gvl);
    }
}

/// Replaces RubyGems' own method. A program that defines the method later replaces ours in turn.
fn stand_for_have_file(gvl: Gvl) {
    let name = Symbol::new(gvl, HAVE_FILE).value();
    let Some(class) = module_at(gvl, &[c"Gem", c"BasicSpecification"]) else { return };
    let Some(own) = send(gvl, class.value(), c"instance_method", &[name]) else { return };
    if send(gvl, own, c"owner", &[]) != Some(class.value()) || !is_of_rubygems(gvl, own) {
        return;
    }
    let Some(gems) = Gems::new(gvl) else { return };
    GEMS.get_or_init(|| gems);
    *OWN_HAVE_FILE.lock().unwrap_or_else(PoisonError::into_inner) =
        Some(PinnedObject::new(gvl, own));
    let have_file = Method::of_2(have_file);
    define::quietly(gvl, || define::private_method(gvl, class, HAVE_FILE, have_file));
}

/// Whether a method is defined in RubyGems' own file. Ours is not.
fn is_of_rubygems(gvl: Gvl, method: VALUE) -> bool {
    let location = send(gvl, method, c"source_location", &[]);
    let file = location.and_then(|location| originals::source_file(gvl, location));
    let is_its = |file: &[u8]| file.ends_with(b"/rubygems/basic_specification.rb");
    file.is_some_and(|file| file.read(gvl, is_its))
}

/// `have_file?(name, suffixes)`: RubyGems calls this method of every gem for a feature that is not in the load path.
fn have_file(ruby: ProtectedCall, gem: VALUE, name: VALUE, suffixes: VALUE) -> VALUE {
    let gvl = ruby.gvl();
    if !may_have_file(gvl, gem, name, suffixes).unwrap_or(true) {
        return FALSE;
    }
    let own = *OWN_HAVE_FILE.lock().unwrap_or_else(PoisonError::into_inner);
    let own = own.map_or(NIL, PinnedObject::value);
    call(ruby, own, Symbol::new(gvl, c"bind_call"), &[gem, name, suffixes])
}

/// Whether the gem may contain such a file; `None` if the pack does not know.
fn may_have_file(gvl: Gvl, gem: VALUE, name: VALUE, suffixes: VALUE) -> Option<bool> {
    let boot = current::serving(gvl)?;
    let number = GEMS.get()?.number(gvl, gem)?;
    let name = RString::plain(gvl, name)?;
    if !are_usual(gvl, suffixes)? || !asks_the_disk(gvl) {
        return None;
    }
    let known = GEMS.get()?.folders.try_lock().ok()?;
    let folders = known.get(number)?;
    name.read(gvl, |name| {
        // RubyGems looks up absolute names below the gem, too.
        let name = name.strip_prefix(b"/").unwrap_or(name);
        let may_hold = || folders.iter().any(|folder| boot.files.may_hold(folder, name));
        (!name.is_empty()).then(may_hold)
    })
}

/// Whether all suffixes are among those that `require` tries. On macOS, libraries have another suffix. RubyGems then
/// asks the disk, since file systems may ignore case.
fn are_usual(gvl: Gvl, suffixes: VALUE) -> Option<bool> {
    let suffixes = RArray::of(gvl, suffixes)?;
    let is_usual = |suffix: &[u8]| matches!(suffix, b"" | b".rb" | b".so");
    let suffix = |place| RString::plain(gvl, suffixes.get(gvl, place)?);
    let mut suffixes = (0..suffixes.len(gvl)).map(suffix);
    Some(suffixes.all(|suffix| suffix.is_some_and(|suffix| suffix.read(gvl, is_usual))))
}

/// Whether RubyGems' own method would ask the disk, because no program has replaced the methods that it calls.
fn asks_the_disk(gvl: Gvl) -> bool {
    let file = RModule::named(gvl, c"File");
    let is_original = |name: &&'static CStr| originals::is_original(gvl, file, Side::Own, name);
    [c"file?", c"join"].iter().all(is_original)
}

impl Gems {
    fn new(gvl: Gvl) -> Option<Self> {
        let map = send(gvl, RModule::named(gvl, c"ObjectSpace::WeakMap").value(), c"new", &[])?;
        Some(Self { numbers: PinnedObject::new(gvl, map), folders: Mutex::default() })
    }

    /// The index of the list of the gem's folders.
    fn number(&self, gvl: Gvl, gem: VALUE) -> Option<usize> {
        let known = send(gvl, self.numbers.value(), c"[]", &[gem])?;
        if let Some(Token::Integer(number)) = values::simple_token(gvl, known) {
            return usize::try_from(number).ok();
        }
        let folders = folders_of(gvl, gem)?;
        let number = {
            let mut known = self.folders.try_lock().ok()?;
            known.iter().position(|other| *other == folders).unwrap_or_else(|| {
                known.push(folders);
                known.len() - 1
            })
        };
        let value = values::simple_object(gvl, Token::Integer(number.try_into().ok()?))?;
        send(gvl, self.numbers.value(), c"[]=", &[gem, value])?;
        Some(number)
    }
}

/// The folders that contain the gem's features.
fn folders_of(gvl: Gvl, gem: VALUE) -> Option<Vec<Vec<u8>>> {
    let gems = send(gvl, gem, c"gems_dir", &[])?;
    let own = send(gvl, gem, c"full_name", &[])?;
    let paths = RArray::of(gvl, send(gvl, gem, c"raw_require_paths", &[])?)?;
    let mut folders = Vec::new();
    for path in (0..).map_while(|place| paths.get(gvl, place)) {
        let folder = vm::join_paths(gvl, &[gems, own, path])?;
        folders.push(folder.to_vec(gvl));
    }
    if ask(gvl, gem, c"have_extensions?", &[]) {
        let folder = RString::plain(gvl, send(gvl, gem, c"extension_dir", &[])?)?;
        folders.push(folder.to_vec(gvl));
    }
    Some(folders)
}

fn eval(ruby: ProtectedCall, _class: VALUE, arguments: &[VALUE]) -> VALUE {
    let gvl = ruby.gvl();
    if !is_evaluated_by_ruby(gvl) {
        return call_super(ruby, arguments);
    }
    if let [source, _binding, path] = *arguments
        && let Some(code) = compiled(gvl, source, path)
    {
        return iseq::evaluate(ruby, code);
    }
    vm::eval(ruby, arguments)
}

/// Whether `eval` would be Kernel's, if ours did not exist, and would evaluate code.
fn is_evaluated_by_ruby(gvl: Gvl) -> bool {
    let is_original = |class, side| originals::is_original(gvl, class, side, c"eval");
    module_at(gvl, &[c"Gem", c"BasicSpecification"])
        .is_some_and(|class| is_original(class, Side::Own))
        && is_original(RModule::named(gvl, c"Binding"), Side::Instances)
}

/// The code of a gemspec with that source, if the pack has it; otherwise the code is learned for the next pack.
fn compiled(gvl: Gvl, source: VALUE, path: VALUE) -> Option<VALUE> {
    let boot = current::serving(gvl)?;
    let (source, path) = (RString::plain(gvl, source)?, RString::plain(gvl, path)?);
    if !source.read(gvl, |text| text.starts_with(WRITTEN_BY_RUBYGEMS))
        || code::is_compiled_otherwise(gvl)
        || !iseq::is_by_ruby(gvl)
    {
        return None;
    }
    match read_all(gvl, [path, source], |[name, text]| boot.script(name, text)) {
        Some(code) => iseq::load_code(gvl, code),
        None => learn(gvl, boot, source, path),
    }
}

/// Compiles the gemspec for the next pack, if its code does not depend on where it is evaluated and compiles without
/// warnings.
fn learn(gvl: Gvl, boot: &Boot, source: RString, path: RString) -> Option<VALUE> {
    if !boot.is_learning() || !iseq::warns_on_stderr(gvl) {
        return None;
    }
    let observation = OutputObservation::begin(gvl)?;
    let code = iseq::compile(gvl, source, path);
    let is_silent = observation.ends_in_silence(gvl);
    let code = code.filter(|code| is_silent && !iseq::refers_to_self(gvl, *code))?;
    let binary = iseq::to_binary(gvl, code)?;
    read_all(gvl, [path, source, binary], |[name, text, binary]| {
        boot.learn_script(name, text, binary);
    });
    None
}
