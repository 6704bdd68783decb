//! A library some of whose methods are replaced by ours, to answer from the pack.
//!
//! Our methods replace those of the library, and call the originals. A prepended module would be simpler. But a
//! program that aliases `load_file` and then defines its own method would recurse for ever.

use std::ffi::CStr;
use std::sync::{Mutex, PoisonError};

use rb_sys::VALUE;

use super::called_names::CodeSearch;
use super::originals::{self, Dependencies, Originals, Side};
use super::vm;
use crate::ruby::call::forward_to_method;
use crate::ruby::constants::module_at;
use crate::ruby::define::{self, Method};
use crate::ruby::{Gvl, NIL, PinnedObject, ProtectedCall, RModule, Symbol};

/// The original methods, and the dependencies of their results.
struct Library {
    /// The object whose methods are replaced.
    receiver: PinnedObject,
    /// Whether they are the object's own, or those of a class's instances.
    side: Side,
    /// The original methods by name.
    methods: Vec<(&'static CStr, PinnedObject)>,
    originals: Originals,
}

/// The place for a library. A library can be loaded a second time: a gem after Ruby's own copy.
pub(super) struct LibrarySlot {
    library: Mutex<Option<&'static Library>>,
}

impl LibrarySlot {
    pub(super) const fn new() -> Self {
        Self { library: Mutex::new(None) }
    }

    /// Replaces methods of the module at that path of constants. The library has just been loaded. Methods that are
    /// not the library's own are left in place; then the result is `false`. `search` finds further dependencies in the
    /// library's code.
    pub(super) fn take(
        &self,
        gvl: Gvl,
        (path, side): (&[&'static CStr], Side),
        methods: &[(&'static CStr, Method)],
        dependencies: &Dependencies,
        search: Option<&CodeSearch>,
    ) -> bool {
        let Some(receiver) = module_at(gvl, path) else { return false };
        let names = methods.iter().map(|(name, _)| *name);
        let Some(library) = Library::new(gvl, (receiver, side), names, dependencies, search) else {
            return false;
        };
        *self.library.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Box::leak(Box::new(library)));
        define::quietly(gvl, || {
            for (name, method) in methods {
                match side {
                    Side::Own => define::singleton_method(gvl, receiver.value(), name, *method),
                    Side::Instances => define::method(gvl, receiver, name, *method),
                }
            }
        });
        true
    }

    /// The first method between ours and a result that is not the library's own, in words; `None` if there is none.
    pub(super) fn first_change(&self, gvl: Gvl) -> Option<String> {
        self.library()?.originals.first_change(gvl)
    }

    /// Calls the library's original method with the arguments that ours received. Exceptions propagate.
    pub(super) fn call(
        &self,
        ruby: ProtectedCall,
        name: &CStr,
        receiver: VALUE,
        arguments: &[VALUE],
    ) -> VALUE {
        let Some(library) = self.library() else { return NIL };
        let method = library.method(name).unwrap_or(NIL);
        let method = match library.side {
            Side::Own if receiver == library.receiver.value() => method,
            // A copy of the library's module has our methods, too.
            Side::Own => vm::bound(ruby, method, receiver),
            Side::Instances => vm::bind(ruby, method, receiver),
        };
        forward_to_method(ruby, method, arguments)
    }

    fn library(&self) -> Option<&'static Library> {
        *self.library.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Library {
    fn new(
        gvl: Gvl,
        (receiver, side): (RModule, Side),
        names: impl Iterator<Item = &'static CStr>,
        dependencies: &Dependencies,
        search: Option<&CodeSearch>,
    ) -> Option<Self> {
        let mut originals = Originals::of(gvl, dependencies)?;
        search.map_or(Some(()), |search| search.follow(gvl, &mut originals))?;
        let mut methods = Vec::new();
        for name in names {
            let symbol = Symbol::new(gvl, name);
            let method =
                gvl.protect(|ruby| originals::method(ruby, receiver.value(), side, symbol))?;
            originals.is_of_library(gvl, method).then_some(())?;
            methods.push((name, PinnedObject::new(gvl, method)));
        }
        let receiver = PinnedObject::new(gvl, receiver.value());
        Some(Self { receiver, side, methods, originals })
    }

    fn method(&self, name: &CStr) -> Option<VALUE> {
        let method = self.methods.iter().find(|(known, _)| *known == name);
        method.map(|(_, method)| method.value())
    }
}
