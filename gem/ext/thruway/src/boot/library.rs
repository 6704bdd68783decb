//! A library some of whose methods ours stand for, to answer from the pack.
//!
//! Ours are in the place of the library's, and call those. A method in front (a prepended module) would be
//! simpler, but a program that gives `load_file` another name and then defines its own would call itself
//! for ever.

use std::ffi::{CStr, c_int};
use std::sync::{Mutex, PoisonError};

use rb_sys::VALUE;

use super::method::{self, Variadic};
use super::originals::{self, Dependencies, Originals};
use super::vm::{self, Kept};

/// What ours stand for, and what the results depend on.
struct Library {
    /// The library's methods, as `names` says.
    methods: Kept,
    names: Vec<&'static CStr>,
    originals: Originals,
}

/// A place for a library, which may be loaded a second time: a gem of it after the one that is Ruby's.
pub(super) struct LibrarySlot {
    library: Mutex<Option<&'static Library>>,
}

impl LibrarySlot {
    pub(super) const fn new() -> Self {
        Self { library: Mutex::new(None) }
    }

    /// Puts methods in the place of those of the object at that path of constants. The library has just
    /// been loaded; what is not its own is left as it is.
    pub(super) fn take(
        &self,
        path: &[&CStr],
        methods: &[(&'static CStr, Variadic)],
        dependencies: &Dependencies,
    ) {
        let Some(receiver) = vm::constant_at(path) else { return };
        let names = methods.iter().map(|(name, _)| *name).collect();
        let Some(library) = Library::new(receiver, names, dependencies) else { return };
        *self.library.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Box::leak(Box::new(library)));
        method::quietly(|| {
            let define = method::define_singleton_method;
            methods.iter().for_each(|(name, method)| define(receiver, name, *method));
        });
    }

    /// What is not the library's own between ours and a result, in words; `None` if everything is.
    pub(super) fn first_change(&self) -> Option<String> {
        self.library()?.originals.first_change()
    }

    /// Calls the library's own method as ours was called. What it raises goes on.
    pub(super) fn call(&self, name: &CStr, receiver: VALUE, arguments: &[VALUE]) -> VALUE {
        let method = self.library().and_then(|library| library.method(name)).unwrap_or(vm::NIL);
        // A copy of the library's module has our methods, too.
        let method = vm::bound(method, receiver);
        let (count, block) = (arguments.len() as c_int, vm::block());
        let keywords = c_int::from(vm::has_keywords());
        // SAFETY: the pointer is valid for that many; nothing with a destructor lives in our callers.
        unsafe {
            rb_sys::rb_method_call_with_block_kw(count, arguments.as_ptr(), method, block, keywords)
        }
    }

    fn library(&self) -> Option<&'static Library> {
        *self.library.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Library {
    fn new(
        receiver: VALUE,
        names: Vec<&'static CStr>,
        dependencies: &Dependencies,
    ) -> Option<Self> {
        let originals = Originals::of(dependencies)?;
        let methods = vm::kept_array();
        for name in &names {
            let method = originals::own_method(receiver, name)?;
            vm::push(methods.value(), method);
            originals.is_of_library(method).then_some(())?;
        }
        Some(Self { methods, names, originals })
    }

    fn method(&self, name: &CStr) -> Option<VALUE> {
        let place = self.names.iter().position(|known| *known == name)?;
        // SAFETY: the Array is ours alone, and does not change any more.
        unsafe { vm::elements(self.methods.value()) }.get(place).copied()
    }
}
