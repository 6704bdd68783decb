//! The code of the methods of `Time` by which TZInfo computes transitions.
//!
//! ActiveSupport replaces some of them by methods that treat its own classes, and otherwise call Ruby's. The results of
//! two processes are the same if both have the same code there. So a digest of the code takes part in the name of an
//! entry of the pack. Code is followed to the methods that it calls. After an unknown call,
//! nothing is answered.

use std::ffi::CStr;
use std::sync::{Mutex, OnceLock, PoisonError};

use rb_sys::VALUE;
use thruway_boot::zone;

use super::called_names::names_in;
use super::iseq;
use super::originals::{self, Originals, Side, looked_up_in, source_file};
use crate::ruby::call::{ask, send};
use crate::ruby::constants::{constant_at, module_at};
use crate::ruby::{Gvl, NIL, PinnedObject, RModule, RString, Symbol};

/// The methods of `Time` that TZInfo calls, and ActiveSupport may replace.
const METHODS: [(Side, &CStr); 4] =
    [(Side::Own, c"==="), (Side::Own, c"at"), (Side::Instances, c"+"), (Side::Instances, c"-")];

/// Ruby's own methods, which ActiveSupport keeps under other names.
const KEPT: [(Side, &CStr); 3] =
    [(Side::Own, c"at"), (Side::Instances, c"+"), (Side::Instances, c"-")];

/// The methods of arguments that ActiveSupport's code calls. TZInfo passes Integers and Times. The first eight are
/// Ruby's own for those and for the list of arguments. The others are called only of an object of one of
/// [`CLASSES`], or of an argument that has [`COERCED`].
const CALLED: [&CStr; 17] = [
    c"!=",
    c"==",
    c"empty?",
    c"first",
    c"is_a?",
    c"kind_of?",
    c"respond_to?",
    c"size",
    c"comparable_time",
    c"getlocal",
    c"since",
    c"to_datetime",
    c"to_f",
    c"to_r",
    c"to_time",
    c"until",
    c"value",
];

/// The classes that ActiveSupport's code treats in another way.
const CLASSES: [&[&CStr]; 3] =
    [&[c"DateTime"], &[c"ActiveSupport", c"Duration"], &[c"ActiveSupport", c"TimeWithZone"]];

/// The method by which an argument of `Time#-` declares a likeness to a Time.
const COERCED: &CStr = c"comparable_time";

/// The parts of the paths of ActiveSupport's files.
const FILES: [&[u8]; 2] = [b"/active_support/core_ext/", b"/active_support/duration.rb"];

/// Ruby's own methods, as they were when the boot began.
static CORE: OnceLock<Vec<PinnedObject>> = OnceLock::new();
/// The code of the last search.
static CODE: Mutex<Option<&'static TimeCode>> = Mutex::new(None);
/// The limit on searches of the code. A program that keeps replacing methods is left to Ruby.
const SEARCHES_MAX: usize = 8;

struct TimeCode {
    methods: Originals,
    digest: u128,
    /// The number of searches up to this one.
    searches: usize,
}

/// Keeps Ruby's own methods, before a program replaces them.
pub(super) fn note_core(gvl: Gvl) {
    CORE.get_or_init(|| {
        let time = module_at(gvl, &[c"Time"]);
        let kept = KEPT.iter().filter_map(|(side, name)| {
            let method = method(gvl, time?, *side, Symbol::new(gvl, name))?;
            is_native(gvl, method).then(|| PinnedObject::new(gvl, method))
        });
        kept.collect()
    });
}

/// The digest of the code of all methods; otherwise the name of the first method whose code is not known.
pub(super) fn digest(gvl: Gvl) -> Result<u128, String> {
    let integer = RModule::named(gvl, c"Integer");
    if integer.has_method(gvl, Symbol::new(gvl, COERCED)) {
        return Err("Integer#comparable_time".to_owned());
    }
    let known = *CODE.lock().unwrap_or_else(PoisonError::into_inner);
    let searches = match known {
        Some(code) => match code.methods.first_change(gvl) {
            None => return Ok(code.digest),
            Some(change) if code.searches >= SEARCHES_MAX => return Err(change),
            Some(_) => code.searches,
        },
        None => 0,
    };
    let mut search = TimeCodeSearch { gvl, found: Vec::new(), text: Vec::new() };
    let (methods, digest) = search.all()?;
    let code = Box::leak(Box::new(TimeCode { methods, digest, searches: searches + 1 }));
    *CODE.lock().unwrap_or_else(PoisonError::into_inner) = Some(code);
    Ok(digest)
}

/// The search through the code that computes with times, for the methods on which a zone depends.
struct TimeCodeSearch {
    gvl: Gvl,
    found: Vec<(RModule, Side, Symbol)>,
    /// The code of all methods but Ruby's own.
    text: Vec<u8>,
}

impl TimeCodeSearch {
    fn all(&mut self) -> Result<(Originals, u128), String> {
        let gvl = self.gvl;
        let time = RModule::named(gvl, c"Time");
        let methods = METHODS.map(|(side, name)| (time, side, Symbol::new(gvl, name)));
        methods.into_iter().try_for_each(|(class, side, name)| self.follow(class, side, name))?;
        // TZInfo's own class of times takes `at` from `Time`.
        let own =
            module_at(gvl, &[c"TZInfo", c"TimeWithOffset"]).ok_or("TZInfo::TimeWithOffset")?;
        let at = Symbol::new(gvl, c"at");
        let owner = |class| send(gvl, method(gvl, class, Side::Own, at)?, c"owner", &[]);
        if owner(own).is_none() || owner(own) != owner(time) {
            return Err(originals::written(gvl, own.value(), Side::Own, at));
        }
        self.found.push((own, Side::Own, at));
        let duration = module_at(gvl, CLASSES[1]);
        duration.map_or(Ok(()), |duration| {
            self.follow(duration, Side::Own, Symbol::new(gvl, c"==="))
        })?;
        let zero = crate::ruby::number::from_u64(gvl, 0);
        for class in CLASSES.iter().filter_map(|path| constant_at(gvl, path)) {
            if RModule::of(gvl, class).is_none() || ask(gvl, zero, c"is_a?", &[class]) {
                return Err("a class of ActiveSupport".to_owned());
            }
        }
        let found = Originals::of_methods(gvl, &self.found);
        Ok((found.ok_or("a method of Time")?, zone::digest(&self.text)))
    }

    /// Adds a method, and all methods of the same class that its code calls.
    fn follow(&mut self, class: RModule, side: Side, name: Symbol) -> Result<(), String> {
        if self.found.contains(&(class, side, name)) {
            return Ok(());
        }
        self.found.push((class, side, name));
        self.add(class, side, name)
            .unwrap_or_else(|| Err(originals::written(self.gvl, class.value(), side, name)))
    }

    /// `None` if the method's code is not known.
    fn add(&mut self, class: RModule, side: Side, name: Symbol) -> Option<Result<(), String>> {
        let gvl = self.gvl;
        if looked_up_in(gvl, class, side).is_basic(gvl, name) {
            return Some(Ok(()));
        }
        let method = method(gvl, class, side, name)?;
        if is_native(gvl, method) {
            let core = CORE.get()?;
            let is_core = |core: &PinnedObject| ask(gvl, core.value(), c"==", &[method]);
            return core.iter().any(is_core).then_some(Ok(()));
        }
        (is_of_active_support(gvl, method) && iseq::is_by_ruby(gvl)).then_some(())?;
        self.text.extend(iseq::text(gvl, method)?);
        let called = CALLED.map(|name| Symbol::new(gvl, name));
        let names = names_in(gvl, method)?.into_iter().filter(|name| !called.contains(name));
        for name in names {
            // `Duration === other` calls a method whose code is followed anyway.
            let is_match = name == Symbol::new(gvl, c"===");
            if !is_match && let Err(unknown) = self.follow(class, side, name) {
                return Some(Err(unknown));
            }
        }
        Some(Ok(()))
    }
}

/// Whether a method is written in C, or belongs to the part of Ruby that is written in Ruby.
fn is_native(gvl: Gvl, method: VALUE) -> bool {
    match send(gvl, method, c"source_location", &[]) {
        Some(NIL) => true,
        Some(location) => source_file(gvl, location)
            .is_some_and(|file| file.read(gvl, |file| file.starts_with(b"<internal:"))),
        None => false,
    }
}

fn is_of_active_support(gvl: Gvl, method: VALUE) -> bool {
    let location = send(gvl, method, c"source_location", &[]);
    let file = location.and_then(|location| source_file(gvl, location));
    file.is_some_and(|file: RString| {
        file.read(gvl, |file| {
            FILES.iter().any(|part| file.windows(part.len()).any(|bytes| bytes == *part))
        })
    })
}

fn method(gvl: Gvl, class: RModule, side: Side, name: Symbol) -> Option<VALUE> {
    let has_method = looked_up_in(gvl, class, side).has_method(gvl, name);
    has_method.then(|| gvl.protect(|ruby| originals::method(ruby, class.value(), side, name)))?
}
