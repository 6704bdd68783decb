//! Checks that the methods between a call and its result are those of Ruby and of the library itself.
//!
//! A method that a program has defined instead may return anything. So nothing is learned or answered while one of
//! the methods has been replaced. All of them are compared at each call: a program may replace a method at any time,
//! and Ruby has no hook for that.
//!
//! Ruby marks its core methods (`rb_method_basic_definition_p`). The methods of a library are compared with those
//! that existed when the library had just been loaded, and those have to come from the library's own files.

use std::ffi::CStr;
use std::sync::OnceLock;

use rb_sys::VALUE;

use crate::ruby::call::{self, method_of, send};
use crate::ruby::constants::{global, module_at};
use crate::ruby::{
    Gvl, NIL, PinnedObject, ProtectedCall, RArray, RModule, RString, Symbol, is_true,
};

/// The first bytes of the file name of a core method that is written in Ruby.
const WRITTEN_IN_RUBY: &[u8] = b"<internal:";

/// Methods of a class or module, by its path of constants.
pub(super) struct Methods {
    pub(super) path: &'static [&'static CStr],
    /// Whether the methods are those of the class itself, or of its instances.
    pub(super) side: Side,
    pub(super) names: &'static [&'static CStr],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Own,
    Instances,
}

/// The methods and constants on which a library's results depend. Dependencies that a version of the library lacks are
/// left out.
pub(super) struct Dependencies {
    /// The end of the path of the library's main file.
    pub(super) feature: &'static [u8],
    /// The end of the main file's path that is cut off to get the library's folder.
    pub(super) folder_ends_at: &'static [u8],
    pub(super) library: &'static [Methods],
    pub(super) core: &'static [Methods],
    /// Constants that the library's code reads, by the modules in which Ruby looks them up.
    pub(super) constants: &'static [Constants],
}

pub(super) struct Constants {
    pub(super) path: &'static [&'static CStr],
    pub(super) names: &'static [&'static CStr],
}

/// The state of a library when it had just been loaded.
pub(super) struct Originals {
    /// Classes and methods in turn, in the order of `methods`.
    objects: PinnedArray,
    methods: Vec<(Side, Symbol)>,
    /// Classes, in the order of `basics`.
    classes: PinnedArray,
    basics: Vec<(Side, Symbol)>,
    /// Modules and values in turn, in the order of `constants`; a missing constant has no value.
    values: PinnedArray,
    constants: Vec<(Symbol, bool)>,
    /// The library's main file.
    feature: Vec<u8>,
    /// The folder of the library's other files, with a slash at the end.
    folder: Vec<u8>,
    are_genuine: OnceLock<bool>,
    /// The Symbol `==`.
    equal: Symbol,
}

impl Originals {
    /// The current state of a library; `None` if the library is not loaded.
    pub(super) fn of(gvl: Gvl, dependencies: &Dependencies) -> Option<Self> {
        let feature = feature(gvl, dependencies.feature)?;
        let folder = feature.strip_suffix(dependencies.folder_ends_at)?;
        let mut originals = Self::new(gvl, [folder, b"/"].concat(), feature);
        for methods in dependencies.library {
            originals.keep(gvl, methods, Self::keep_method)?;
        }
        for methods in dependencies.core {
            originals.keep(gvl, methods, Self::keep_core_method)?;
        }
        dependencies
            .constants
            .iter()
            .for_each(|constants| originals.keep_constants(gvl, constants));
        Some(originals)
    }

    /// The current state of core methods.
    pub(super) fn of_core(gvl: Gvl, methods: &[Methods]) -> Option<Self> {
        let mut originals = Self::new(gvl, WRITTEN_IN_RUBY.to_vec(), WRITTEN_IN_RUBY.to_vec());
        for methods in methods {
            originals.keep(gvl, methods, Self::keep_core_method)?;
        }
        Some(originals)
    }

    /// The current state of methods whose origin the caller has checked.
    pub(super) fn of_methods(gvl: Gvl, methods: &[(RModule, Side, Symbol)]) -> Option<Self> {
        let mut originals = Self::new(gvl, Vec::new(), Vec::new());
        originals.are_genuine.get_or_init(|| true);
        for (class, side, name) in methods {
            originals.keep_core_method(gvl, *class, *side, *name)?;
        }
        Some(originals)
    }

    fn new(gvl: Gvl, folder: Vec<u8>, feature: Vec<u8>) -> Self {
        Self {
            objects: PinnedArray::new(gvl),
            methods: Vec::new(),
            classes: PinnedArray::new(gvl),
            basics: Vec::new(),
            values: PinnedArray::new(gvl),
            constants: Vec::new(),
            folder,
            feature,
            are_genuine: OnceLock::new(),
            equal: Symbol::new(gvl, c"=="),
        }
    }

    /// Adds methods of a class or module, each by a call of `keep_one`. Adds nothing if the class or module does not
    /// exist.
    fn keep(
        &mut self,
        gvl: Gvl,
        methods: &Methods,
        keep_one: fn(&mut Self, Gvl, RModule, Side, Symbol) -> Option<()>,
    ) -> Option<()> {
        let Some(class) = module_at(gvl, methods.path) else { return Some(()) };
        let mut names = methods.names.iter().map(|name| Symbol::new(gvl, name));
        names.try_for_each(|name| keep_one(self, gvl, class, methods.side, name))
    }

    /// Adds a core method. Ruby marks its core methods, except those that are written in Ruby.
    pub(super) fn keep_core_method(
        &mut self,
        gvl: Gvl,
        class: RModule,
        side: Side,
        name: Symbol,
    ) -> Option<()> {
        if !looked_up_in(gvl, class, side).is_basic(gvl, name) {
            return self.keep_method(gvl, class, side, name);
        }
        self.classes.array.push(gvl, class.value());
        self.basics.push((side, name));
        Some(())
    }

    /// Adds a method, if it exists.
    pub(super) fn keep_method(
        &mut self,
        gvl: Gvl,
        class: RModule,
        side: Side,
        name: Symbol,
    ) -> Option<()> {
        if looked_up_in(gvl, class, side).has_method(gvl, name) {
            let method = gvl.protect(|ruby| method(ruby, class.value(), side, name))?;
            self.objects.array.push(gvl, class.value());
            self.objects.array.push(gvl, method);
            self.methods.push((side, name));
        }
        Some(())
    }

    fn keep_constants(&mut self, gvl: Gvl, constants: &Constants) {
        let Some(module) = module_at(gvl, constants.path) else { return };
        for name in constants.names.iter().map(|name| Symbol::new(gvl, name)) {
            let value = gvl.protect(|ruby| module.constant(ruby, name)).unwrap_or(None);
            self.values.array.push(gvl, module.value());
            self.values.array.push(gvl, value.unwrap_or(NIL));
            self.constants.push((name, value.is_some()));
        }
    }

    /// The first method or constant that has changed, or that was not the library's own from the start, in Ruby's
    /// notation; `None` if there is no such method or constant.
    pub(super) fn first_change(&self, gvl: Gvl) -> Option<String> {
        // SAFETY: the Arrays are reachable from here alone, and do not change any more.
        let all =
            unsafe { [self.objects, self.classes, self.values].map(|kept| kept.array.elements()) };
        let [objects, classes, values] = all;
        let mut basics = classes.iter().zip(&self.basics);
        if let Some((class, (side, name))) =
            basics.find(|(class, (side, name))| !is_original_now(gvl, **class, *side, *name))
        {
            return Some(written(gvl, *class, *side, *name));
        }
        let mut place = 0;
        let is_same = gvl.protect(|ruby| self.has_same(ruby, objects, values, &mut place));
        if is_same != Some(true) {
            let changed = objects.chunks_exact(2).zip(&self.methods).nth(place);
            return Some(match changed {
                Some((pair, (side, name))) => written(gvl, pair[0], *side, *name),
                None => "one of its constants".to_owned(),
            });
        }
        let is_genuine = *self.are_genuine.get_or_init(|| self.is_genuine(gvl, objects));
        (!is_genuine).then(|| "a method that was there before".to_owned())
    }

    /// Compares the method at index `place`, all further methods, and all constants. May raise.
    fn has_same(
        &self,
        ruby: ProtectedCall,
        objects: &[VALUE],
        values: &[VALUE],
        place: &mut usize,
    ) -> bool {
        for (pair, (side, name)) in objects.chunks_exact(2).zip(&self.methods) {
            let now = method(ruby, pair[0], *side, *name);
            if !is_true(call::call(ruby, pair[1], self.equal, &[now])) {
                return false;
            }
            *place += 1;
        }
        let mut constants = values.chunks_exact(2).zip(&self.constants);
        constants.all(|(pair, (name, is_there))| {
            let now =
                RModule::of(ruby.gvl(), pair[0]).and_then(|module| module.constant(ruby, *name));
            now == is_there.then_some(pair[1])
        })
    }

    /// Whether each method is written in C or in the library's files, and has its original name.
    fn is_genuine(&self, gvl: Gvl, objects: &[VALUE]) -> bool {
        objects.chunks_exact(2).all(|pair| self.is_of_library(gvl, pair[1]))
    }

    pub(super) fn is_of_library(&self, gvl: Gvl, method: VALUE) -> bool {
        let is_alias = send(gvl, method, c"name", &[]) != send(gvl, method, c"original_name", &[]);
        let is_own = match send(gvl, method, c"source_location", &[]) {
            Some(NIL) => true,
            Some(location) => source_file(gvl, location)
                .is_some_and(|file| file.read(gvl, |file| self.is_file_of_library(file))),
            None => false,
        };
        is_own && !is_alias
    }

    /// Whether a file is one of the library's. Psych defines methods by `eval`, without a file name, and by
    /// Forwardable.
    fn is_file_of_library(&self, file: &[u8]) -> bool {
        let file = file.strip_prefix(b"(eval at ").unwrap_or(file);
        let is_made = file == b"(eval)"
            || file.starts_with(WRITTEN_IN_RUBY)
            || file.ends_with(b"/forwardable.rb");
        is_made || file == self.feature || file.starts_with(&self.folder)
    }
}

/// An Array that lives as long as the process.
#[derive(Debug, Clone, Copy)]
struct PinnedArray {
    array: RArray,
}

impl PinnedArray {
    fn new(gvl: Gvl) -> Self {
        let array = RArray::with_room(gvl, 0);
        PinnedObject::new(gvl, array.value());
        Self { array }
    }
}

/// The file in a result of `source_location`.
pub(super) fn source_file(gvl: Gvl, location: VALUE) -> Option<RString> {
    RString::plain(gvl, RArray::of(gvl, location)?.get(gvl, 0)?)
}

/// An object's own method; `None` if it has none of that name.
pub(super) fn own_method(gvl: Gvl, object: VALUE, name: &'static CStr) -> Option<VALUE> {
    gvl.protect(|ruby| method_of(ruby, object, Symbol::new(gvl, name)))
}

/// Whether a method is still Ruby's own.
pub(super) fn is_original(gvl: Gvl, class: RModule, side: Side, name: &'static CStr) -> bool {
    looked_up_in(gvl, class, side).is_basic(gvl, Symbol::new(gvl, name))
}

/// Like [`is_original`], for a class whose `VALUE` an earlier call has stored.
fn is_original_now(gvl: Gvl, class: VALUE, side: Side, name: Symbol) -> bool {
    let class = RModule::of(gvl, class);
    class.is_some_and(|class| looked_up_in(gvl, class, side).is_basic(gvl, name))
}

/// The method in the notation of Ruby's documentation.
pub(super) fn written(gvl: Gvl, class: VALUE, side: Side, name: Symbol) -> String {
    let class = RModule::of(gvl, class).unwrap_or(RModule::object());
    let mark = if side == Side::Own { "." } else { "#" };
    format!("{}{mark}{}", class.name(gvl).to_text(gvl), name.name(gvl).to_text(gvl))
}

pub(super) fn looked_up_in(gvl: Gvl, class: RModule, side: Side) -> RModule {
    match side {
        Side::Instances => class,
        Side::Own => class.singleton_class(gvl),
    }
}

/// Raises NameError if there is no such method.
pub(super) fn method(ruby: ProtectedCall, class: VALUE, side: Side, name: Symbol) -> VALUE {
    match side {
        Side::Own => method_of(ruby, class, name),
        Side::Instances => {
            let finder = Symbol::new(ruby.gvl(), c"instance_method");
            call::call(ruby, class, finder, &[name.value()])
        }
    }
}

/// The feature that was loaded last, of those whose path has that end.
fn feature(gvl: Gvl, end: &[u8]) -> Option<Vec<u8>> {
    let features = RArray::of(gvl, global(gvl, c"$LOADED_FEATURES"))?;
    let places = (0..features.len(gvl)).rev();
    let mut paths = places.filter_map(|place| RString::plain(gvl, features.get(gvl, place)?));
    paths.find(|path| path.read(gvl, |path| path.ends_with(end))).map(|path| path.to_vec(gvl))
}
