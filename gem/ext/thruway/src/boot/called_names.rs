//! The names of the methods that a library's own code calls, read from its compiled code.
//!
//! The next version of a library may call methods that no list of ours names. A method's compiled code names each
//! method that it calls, but not the method's class. So a name counts for all classes whose objects the code may
//! have.

use std::collections::VecDeque;

use rb_sys::VALUE;

use super::originals::{Methods, Originals, Side, looked_up_in, method};
use crate::ruby::call::send;
use crate::ruby::constants::module_at;
use crate::ruby::{Gvl, NIL, RArray, RHash, RModule, RString, Symbol};

/// The search through a library's code for the methods that it calls: where it starts, and how far it goes.
pub(super) struct CodeSearch {
    /// The methods that callers outside the library use.
    pub(super) entries: &'static [Methods],
    /// The modules whose own methods the code may call. The code of these methods is read in turn.
    pub(super) modules: &'static [Place],
    /// Core classes and modules whose objects the code may have.
    pub(super) core: &'static [Place],
    /// Methods of the library that no call reaches where the pack answers.
    pub(super) unreached: &'static [&'static std::ffi::CStr],
}

/// The methods of a module itself, or of its instances.
pub(super) struct Place {
    pub(super) path: &'static [&'static std::ffi::CStr],
    pub(super) side: Side,
}

impl CodeSearch {
    /// Adds each method that the code may call to `originals`; `None` if a program has replaced the means of reading.
    pub(super) fn follow(&self, gvl: Gvl, originals: &mut Originals) -> Option<()> {
        let places = |places: &'static [Place]| -> Vec<(RModule, Side)> {
            let found = places.iter().filter_map(|at| Some((module_at(gvl, at.path)?, at.side)));
            found.collect()
        };
        let (modules, core) = (places(self.modules), places(self.core));
        let mut known: Vec<Symbol> =
            self.unreached.iter().map(|name| Symbol::new(gvl, name)).collect();
        let mut unread = self.entries(gvl);
        while let Some(code) = unread.pop_front() {
            for name in names_in(gvl, code)? {
                if known.contains(&name) {
                    continue;
                }
                known.push(name);
                for (module, side) in &modules {
                    let own = own_method(gvl, *module, *side, name)
                        .filter(|_| !self.is_entry(gvl, *module, *side, name));
                    unread.extend(own);
                    own.map_or(Some(()), |_| originals.keep_method(gvl, *module, *side, name))?;
                }
                core.iter().try_for_each(|(class, side)| {
                    originals.keep_core_method(gvl, *class, *side, name)
                })?;
            }
        }
        Some(())
    }

    /// Whether callers outside the library meet a method first. The replaced part of the library keeps such methods.
    fn is_entry(&self, gvl: Gvl, module: RModule, side: Side, name: Symbol) -> bool {
        self.entries.iter().any(|entry| {
            let has_name = entry.names.iter().any(|known| Symbol::new(gvl, known) == name);
            entry.side == side && has_name && module_at(gvl, entry.path) == Some(module)
        })
    }

    fn entries(&self, gvl: Gvl) -> VecDeque<VALUE> {
        let of_module = |entry: &'static Methods| {
            let names = entry.names.iter().map(|name| Symbol::new(gvl, name));
            let module = module_at(gvl, entry.path);
            module.into_iter().flat_map(move |module| {
                names.clone().filter_map(move |name| own_method(gvl, module, entry.side, name))
            })
        };
        self.entries.iter().flat_map(of_module).collect()
    }
}

/// A method of the module itself.
fn own_method(gvl: Gvl, module: RModule, side: Side, name: Symbol) -> Option<VALUE> {
    let class = looked_up_in(gvl, module, side);
    if !class.has_method(gvl, name) {
        return None;
    }
    let method = gvl.protect(|ruby| method(ruby, module.value(), side, name))?;
    (send(gvl, method, c"owner", &[]) == Some(class.value())).then_some(method)
}

/// The names of the methods that a method calls, blocks and constructors included; empty for a method written in C.
pub(super) fn names_in(gvl: Gvl, method: VALUE) -> Option<Vec<Symbol>> {
    let class = module_at(gvl, &[c"RubyVM", c"InstructionSequence"])?;
    let (of, to_a) = (Symbol::new(gvl, c"of"), Symbol::new(gvl, c"to_a"));
    if !class.singleton_class(gvl).is_basic(gvl, of) || !class.is_basic(gvl, to_a) {
        return None;
    }
    let code = send(gvl, class.value(), c"of", &[method])?;
    let mut names = Vec::new();
    if code != NIL {
        add_names(gvl, send(gvl, code, c"to_a", &[])?, &mut names);
    }
    if names.contains(&Symbol::new(gvl, c"new")) {
        names.push(Symbol::new(gvl, c"initialize"));
    }
    Some(names)
}

/// Adds the names in a part of the form that `InstructionSequence#to_a` gives: nested Arrays, in which `mid` of a Hash
/// names the method of a call.
fn add_names(gvl: Gvl, part: VALUE, names: &mut Vec<Symbol>) {
    if let Some(parts) = RArray::of(gvl, part) {
        let place = |place| parts.get(gvl, place);
        // The instruction calls `===` without a name.
        let is_match = place(0).and_then(|first| Symbol::name_of(gvl, first));
        if is_match.is_some_and(|name| name.read(gvl, |name| name == b"checkmatch")) {
            names.push(Symbol::new(gvl, c"==="));
        }
        (0..parts.len(gvl)).filter_map(place).for_each(|part| add_names(gvl, part, names));
    } else if let Some(call) = RHash::of(gvl, part) {
        let name = Symbol::name_of(gvl, call.get_symbol(gvl, Symbol::new(gvl, c"mid")));
        names.extend(name.map(|name: RString| Symbol::of_utf8(gvl, &name.to_vec(gvl))));
    }
}
