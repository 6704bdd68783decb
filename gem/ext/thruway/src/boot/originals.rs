//! Whether the methods between a call and its result are the ones that Ruby and its library came with.
//!
//! What a program has put in their place may answer anything; so nothing is learned, and nothing is
//! answered, while one of them is another method. All of them are compared at each call: a program may
//! change a method at any time, and Ruby tells nobody.
//!
//! Core methods carry a mark of Ruby's (`rb_method_basic_definition_p`). Those of a library are compared
//! with what was there when it had just been loaded, and that has to come from the library's own files.

use std::ffi::CStr;
use std::sync::OnceLock;

use rb_sys::{ID, VALUE};

use super::values;
use super::vm::{self, Kept, NIL};

/// How the file of a core method begins that is written in Ruby.
const WRITTEN_IN_RUBY: &[u8] = b"<internal:";

/// Methods of a class or module, by its path of constants.
pub(super) struct Methods {
    pub(super) path: &'static [&'static CStr],
    /// Of the class itself, or of its instances.
    pub(super) side: Side,
    pub(super) names: &'static [&'static CStr],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Own,
    Instances,
}

/// What a library's results depend on. What this version of it does not have is left out.
pub(super) struct Dependencies {
    /// How the path of its main file ends.
    pub(super) feature: &'static [u8],
    /// Its folder begins with the path of the main file without this end.
    pub(super) folder_ends_at: &'static [u8],
    pub(super) library: &'static [Methods],
    pub(super) core: &'static [Methods],
    /// Constants that its code reads, in the modules in which it looks for them.
    pub(super) constants: &'static [Constants],
}

pub(super) struct Constants {
    pub(super) path: &'static [&'static CStr],
    pub(super) names: &'static [&'static CStr],
}

/// The state of a library when it had just been loaded.
pub(super) struct Originals {
    /// Classes and methods in turn, as `methods` says.
    objects: Kept,
    methods: Vec<(Side, ID)>,
    /// Classes, as `basics` says.
    classes: Kept,
    basics: Vec<(Side, ID)>,
    /// Modules and values in turn, as `constants` says; a constant that is not there has no value.
    values: Kept,
    constants: Vec<(ID, bool)>,
    /// The library's main file.
    feature: Vec<u8>,
    /// Where its other files are, with a slash at the end.
    folder: Vec<u8>,
    are_genuine: OnceLock<bool>,
    /// `==`
    equal: ID,
}

impl Originals {
    /// Takes the library as it is now; `None` if it is not there.
    pub(super) fn of(dependencies: &Dependencies) -> Option<Self> {
        let feature = feature(dependencies.feature)?;
        let folder = feature.strip_suffix(dependencies.folder_ends_at)?;
        let mut originals = Self::new([folder, b"/"].concat(), feature);
        dependencies.library.iter().try_for_each(|methods| originals.keep(methods))?;
        dependencies.core.iter().try_for_each(|methods| originals.keep_core(methods))?;
        dependencies.constants.iter().for_each(|constants| originals.keep_constants(constants));
        Some(originals)
    }

    /// Takes core methods as they are now.
    pub(super) fn of_core(methods: &[Methods]) -> Option<Self> {
        let mut originals = Self::new(WRITTEN_IN_RUBY.to_vec(), WRITTEN_IN_RUBY.to_vec());
        methods.iter().try_for_each(|methods| originals.keep_core(methods))?;
        Some(originals)
    }

    fn new(folder: Vec<u8>, feature: Vec<u8>) -> Self {
        Self {
            objects: vm::kept_array(),
            methods: Vec::new(),
            classes: vm::kept_array(),
            basics: Vec::new(),
            values: vm::kept_array(),
            constants: Vec::new(),
            folder,
            feature,
            are_genuine: OnceLock::new(),
            equal: vm::id(c"=="),
        }
    }

    fn keep(&mut self, methods: &Methods) -> Option<()> {
        let Some(class) = vm::constant_at(methods.path) else { return Some(()) };
        let names = methods.names.iter().map(|name| vm::id(name));
        names.into_iter().try_for_each(|name| self.keep_method(class, methods.side, name))
    }

    /// Core methods that are written in Ruby have no mark.
    fn keep_core(&mut self, methods: &Methods) -> Option<()> {
        let Some(class) = vm::constant_at(methods.path) else { return Some(()) };
        for name in methods.names.iter().map(|name| vm::id(name)) {
            if is_basic(class, methods.side, name) {
                vm::push(self.classes.value(), class);
                self.basics.push((methods.side, name));
            } else {
                self.keep_method(class, methods.side, name)?;
            }
        }
        Some(())
    }

    fn keep_method(&mut self, class: VALUE, side: Side, name: ID) -> Option<()> {
        if is_defined(class, side, name) {
            let method = vm::protect(|| method(class, side, name))?;
            vm::push(self.objects.value(), class);
            vm::push(self.objects.value(), method);
            self.methods.push((side, name));
        }
        Some(())
    }

    fn keep_constants(&mut self, constants: &Constants) {
        let Some(module) = vm::constant_at(constants.path) else { return };
        for name in constants.names.iter().map(|name| vm::id(name)) {
            let value = vm::protect(|| constant(module, name)).unwrap_or(None);
            vm::push(self.values.value(), module);
            vm::push(self.values.value(), value.unwrap_or(NIL));
            self.constants.push((name, value.is_some()));
        }
    }

    /// What is not as it was, or never was the library's own, as Ruby writes it; `None` if all is.
    pub(super) fn first_change(&self) -> Option<String> {
        // SAFETY: the Arrays are ours alone, and do not change any more.
        let all = unsafe {
            [self.objects, self.classes, self.values].map(|array| vm::elements(array.value()))
        };
        let [objects, classes, values] = all;
        let mut basics = classes.iter().zip(&self.basics);
        if let Some((class, (side, name))) =
            basics.find(|(class, (side, name))| !is_basic(**class, *side, *name))
        {
            return Some(written(*class, *side, *name));
        }
        let mut place = 0;
        let is_same = vm::protect(|| self.has_same(objects, values, &mut place));
        if is_same != Some(true) {
            let changed = objects.chunks_exact(2).zip(&self.methods).nth(place);
            return Some(match changed {
                Some((pair, (side, name))) => written(pair[0], *side, *name),
                None => "one of its constants".to_owned(),
            });
        }
        let is_genuine = *self.are_genuine.get_or_init(|| self.is_genuine(objects));
        (!is_genuine).then(|| "a method that was there before".to_owned())
    }

    /// Compares all methods, the one at `place` now, and then all constants. May raise.
    fn has_same(&self, objects: &[VALUE], values: &[VALUE], place: &mut usize) -> bool {
        for (pair, (side, name)) in objects.chunks_exact(2).zip(&self.methods) {
            if !vm::is_true(vm::call(pair[1], self.equal, &[method(pair[0], *side, *name)])) {
                return false;
            }
            *place += 1;
        }
        let mut constants = values.chunks_exact(2).zip(&self.constants);
        constants
            .all(|(pair, (name, is_there))| constant(pair[0], *name) == is_there.then_some(pair[1]))
    }

    /// Whether each method was written in C or in the library's files, under its own name.
    fn is_genuine(&self, objects: &[VALUE]) -> bool {
        objects.chunks_exact(2).all(|pair| self.is_of_library(pair[1]))
    }

    pub(super) fn is_of_library(&self, method: VALUE) -> bool {
        let is_alias = vm::send(method, c"name", &[]) != vm::send(method, c"original_name", &[]);
        let is_own = match vm::send(method, c"source_location", &[]) {
            Some(NIL) => true,
            Some(location) => values::element(location, 0).is_some_and(|file| {
                // SAFETY: the Array holds the String, and no Ruby code runs while the slice lives.
                unsafe { vm::plain_bytes(file) }.is_some_and(|file| self.is_file_of_library(file))
            }),
            None => false,
        };
        is_own && !is_alias
    }

    /// Psych makes methods by `eval`, without naming the file, and by Forwardable.
    fn is_file_of_library(&self, file: &[u8]) -> bool {
        let file = file.strip_prefix(b"(eval at ").unwrap_or(file);
        let is_made = file == b"(eval)"
            || file.starts_with(WRITTEN_IN_RUBY)
            || file.ends_with(b"/forwardable.rb");
        is_made || file == self.feature || file.starts_with(&self.folder)
    }
}

/// An object's own method; `None` if there is none of that name.
pub(super) fn own_method(object: VALUE, name: &CStr) -> Option<VALUE> {
    let name = vm::id(name);
    vm::protect(|| method(object, Side::Own, name))
}

/// Whether a method is still Ruby's own.
pub(super) fn is_basic(class: VALUE, side: Side, name: ID) -> bool {
    // SAFETY: it is a class or a module, and the number is a symbol's.
    unsafe { rb_sys::rb_method_basic_definition_p(looked_up_in(class, side), name) != 0 }
}

/// The method as Ruby's documents write it.
fn written(class: VALUE, side: Side, name: ID) -> String {
    // SAFETY: it is a class or a module.
    let class = unsafe { rb_sys::rb_class_name(class) };
    // SAFETY: the number is a symbol's.
    let name = unsafe { rb_sys::rb_id2str(name) };
    // SAFETY: both are Strings on this stack, and no Ruby code runs while the slices live.
    let [class, name] = [class, name].map(|string| unsafe { crate::ruby::bytes(string) });
    let mark = if side == Side::Own { "." } else { "#" };
    format!("{}{mark}{}", String::from_utf8_lossy(class), String::from_utf8_lossy(name))
}

fn is_defined(class: VALUE, side: Side, name: ID) -> bool {
    // SAFETY: as above.
    unsafe { rb_sys::rb_method_boundp(looked_up_in(class, side), name, 0) != 0 }
}

fn looked_up_in(class: VALUE, side: Side) -> VALUE {
    match side {
        Side::Instances => class,
        // SAFETY: it is a class or a module.
        Side::Own => unsafe { rb_sys::rb_singleton_class(class) },
    }
}

/// Raises NameError if there is none.
fn method(class: VALUE, side: Side, name: ID) -> VALUE {
    // SAFETY: the number is a symbol's.
    let symbol = unsafe { rb_sys::rb_id2sym(name) };
    match side {
        // SAFETY: `protect` catches what it raises.
        Side::Own => unsafe { rb_sys::rb_obj_method(class, symbol) },
        Side::Instances => vm::call(class, vm::id(c"instance_method"), &[symbol]),
    }
}

/// A constant of the module itself. May raise.
fn constant(module: VALUE, name: ID) -> Option<VALUE> {
    // SAFETY: it is a module, and the number is a symbol's.
    let is_defined = unsafe { rb_sys::rb_const_defined_at(module, name) } != 0;
    // SAFETY: as above; `protect` catches what it raises.
    is_defined.then(|| unsafe { rb_sys::rb_const_get_at(module, name) })
}

/// The last feature whose path ends like that.
fn feature(end: &[u8]) -> Option<Vec<u8>> {
    // SAFETY: it is an Array, and no Ruby code runs while the slice lives.
    let features = unsafe { vm::elements(vm::global(c"$LOADED_FEATURES")) };
    // SAFETY: as above, for the Strings.
    let mut paths =
        features.iter().rev().filter_map(|feature| unsafe { vm::plain_bytes(*feature) });
    paths.find(|path| path.ends_with(end)).map(<[u8]>::to_vec)
}
