//! `YAML.load_file` and its siblings, and `JSON.parse`: documents are supplied from the pack.
//!
//! The methods [replace](super::library) those of Psych and JSON, and call them for everything that the pack does not
//! hold: reading, parsing, and errors. A YAML file is identified by its stamp. A JSON text is identified by its
//! digest, and is kept as long as the file that it most likely came from. Nothing is answered or learned while a
//! method [between](super::dependencies) the call and its result is not the library's own.

use std::ffi::CStr;

use rb_sys::VALUE;
use thruway_boot::{Boot, CachedDocument, Part};

use super::dependencies::{JSON, JSON_CODE, YAML};
use super::library::LibrarySlot;
use super::objects::{decode, encode};
use super::originals::Side;
use super::{current, json_files, values, vm};
use crate::ruby::call::{ask, has_keywords, send};
use crate::ruby::constants::constant_at;
use crate::ruby::define::Method;
use crate::ruby::{FALSE, Gvl, NIL, ProtectedCall, RHash, RModule, RString, Symbol, read_all};

/// Shorter texts are parsed faster than they are looked up.
const JSON_BYTES_MIN: usize = 1024;

static PSYCH: LibrarySlot = LibrarySlot::new();
static JSON_LIBRARY: LibrarySlot = LibrarySlot::new();

/// Replaces the methods of Psych, which has just been loaded.
pub(super) fn install_yaml(gvl: Gvl) {
    let methods = [
        (c"load_file", Method::of_any(load_file)),
        (c"safe_load_file", Method::of_any(safe_load_file)),
        (c"unsafe_load_file", Method::of_any(unsafe_load_file)),
    ];
    if current::boot().is_some_and(|boot| boot.options.has(Part::Yaml)) {
        PSYCH.take(gvl, (&[c"Psych"], Side::Own), &methods, &YAML, None);
    }
}

/// Replaces the methods of JSON, which has just been loaded.
pub(super) fn install_json(gvl: Gvl) {
    if current::boot().is_some_and(|boot| boot.options.has(Part::Json)) {
        let methods = [(c"parse", Method::of_any(parse))];
        JSON_LIBRARY.take(gvl, (&[c"JSON"], Side::Own), &methods, &JSON, Some(&JSON_CODE));
        json_files::note();
    }
}

/// Whether all methods between a call and its result are the library's own.
fn is_original(gvl: Gvl, boot: &Boot, part: Part, library: &LibrarySlot) -> bool {
    match library.first_change(gvl) {
        None => true,
        Some(change) => {
            boot.counts.record_inactive_part(part, change);
            false
        }
    }
}

fn load_file(ruby: ProtectedCall, psych: VALUE, arguments: &[VALUE]) -> VALUE {
    load(ruby, c"load_file", psych, arguments)
}

fn safe_load_file(ruby: ProtectedCall, psych: VALUE, arguments: &[VALUE]) -> VALUE {
    load(ruby, c"safe_load_file", psych, arguments)
}

fn unsafe_load_file(ruby: ProtectedCall, psych: VALUE, arguments: &[VALUE]) -> VALUE {
    load(ruby, c"unsafe_load_file", psych, arguments)
}

fn load(ruby: ProtectedCall, method: &CStr, psych: VALUE, arguments: &[VALUE]) -> VALUE {
    let gvl = ruby.gvl();
    let load_by_library = || PSYCH.call(ruby, method, psych, arguments);
    let Some((boot, path, variant)) = yaml_request(ruby, method, arguments) else {
        return load_by_library();
    };
    let (path, variant) = (path.frozen(gvl), variant.frozen(gvl));
    let (name, how) = (path.bytes(), variant.bytes());
    match boot.yaml(name, how) {
        CachedDocument::Hit(data) => decode(gvl, data).unwrap_or_else(load_by_library),
        CachedDocument::Uncacheable | CachedDocument::Unavailable => load_by_library(),
        CachedDocument::Miss(stamp) => {
            let object = load_by_library();
            // A pseudo file (`/proc`) has another size than its stamp says, and changes without a new stamp.
            let text = thruway_boot::read(name).filter(|text| text.len() as u64 == stamp.size);
            let is_original =
                is_original(gvl, boot, Part::Yaml, &PSYCH) && values::makes_dates_itself(gvl);
            if let (Some(text), true) = (text, is_original) {
                let data = if is_plain_yaml(&text) { encode(gvl, object) } else { None };
                boot.learn_yaml(name, how, stamp, data);
            }
            object
        }
    }
}

/// The boot, the file's path, and all other inputs on which the result depends.
fn yaml_request(
    ruby: ProtectedCall,
    method: &CStr,
    arguments: &[VALUE],
) -> Option<(&'static Boot, RString, RString)> {
    let gvl = ruby.gvl();
    let boot = current::serving(gvl)?;
    let (path, options) = match *arguments {
        [path] => (path, None),
        [path, options] if has_keywords(ruby) => (path, Some(options)),
        _ => return None,
    };
    let is_plain = options.is_none_or(|options| values::is_printable_hash(gvl, options));
    if vm::transcodes(gvl) || !is_plain {
        return None;
    }
    if !is_original(gvl, boot, Part::Yaml, &PSYCH)
        || has_tag_for_untagged(gvl)
        || !values::makes_dates_itself(gvl)
    {
        return None;
    }
    let path = vm::absolute_path_of(gvl, path)?;
    let version = constant_at(gvl, &[c"Psych", c"VERSION"])?;
    let options = match options {
        Some(options) => string(gvl, options, c"inspect")?,
        None => RString::new(gvl, b"{}"),
    };
    Some((boot, path, variant(gvl, method, string(gvl, version, c"to_s")?, options)))
}

/// Whether the program has called `Psych.add_tag(nil, …)`, which applies to all values without a tag.
fn has_tag_for_untagged(gvl: Gvl) -> bool {
    let tags = constant_at(gvl, &[c"Psych"]).and_then(|psych| send(gvl, psych, c"load_tags", &[]));
    tags.is_none_or(|tags| {
        values::plain_hash(gvl, tags).is_none() || ask(gvl, tags, c"key?", &[NIL])
    })
}

/// Whether a YAML file has no tags. A program can define what a tag does.
fn is_plain_yaml(text: &[u8]) -> bool {
    let before = |at: usize| at.checked_sub(1).map(|at| text[at]);
    let marks = text.iter().enumerate().filter(|(_, byte)| **byte == b'!');
    marks.into_iter().all(|(at, _)| {
        let starts = before(at).is_none_or(|byte| b" \t\r\n[{,:-?".contains(&byte));
        !starts || text.get(at + 1).is_none_or(|next| b" \t\r\n\"'".contains(next))
    })
}

/// `JSON.parse(source, opts = {})`, and from version 3 on `JSON.parse(source, **options)`
fn parse(ruby: ProtectedCall, json: VALUE, arguments: &[VALUE]) -> VALUE {
    let gvl = ruby.gvl();
    let parse_by_library = || JSON_LIBRARY.call(ruby, c"parse", json, arguments);
    let Some((boot, source, options)) = json_request(gvl, arguments) else {
        return parse_by_library();
    };
    // From version 3 on, JSON refuses options in a Hash that is not passed as keywords.
    let form = if options == NIL || has_keywords(ruby) { c"parse" } else { c"parse of Hash" };
    let opened = json_files::take().filter(|_| boot.is_learning());
    // Most texts are not in the pack and do not come from a file. Nothing else is checked for them.
    if opened.is_none() && !source.read(gvl, |text| boot.knows_json(text)) {
        return parse_by_library();
    }
    // Ruby code runs from here on: `inspect` of the options, and the library's code.
    let source = source.frozen(gvl);
    let Some(variant) = json_variant(gvl, form, options) else { return parse_by_library() };
    let variant = variant.frozen(gvl);
    let (text, how) = (source.bytes(), variant.bytes());
    if !is_original(gvl, boot, Part::Json, &JSON_LIBRARY) {
        return parse_by_library();
    }
    if let Some(object) = boot.json(text, how).and_then(|data| decode(gvl, data)) {
        return object;
    }
    let object = parse_by_library();
    if let Some(opened) = opened
        && is_original(gvl, boot, Part::Json, &JSON_LIBRARY)
        && let Some(data) = encode(gvl, object)
    {
        boot.learn_json(opened.bytes(), text, how, &data);
    }
    object
}

/// The boot, the text and the options; nil for no options.
fn json_request(gvl: Gvl, arguments: &[VALUE]) -> Option<(&'static Boot, RString, VALUE)> {
    let (source, options) = match *arguments {
        [source] => (source, NIL),
        [source, options] => (source, options),
        _ => return None,
    };
    let source = RString::utf8(gvl, source)?;
    if source.len(gvl) < JSON_BYTES_MIN {
        None
    } else {
        Some((current::serving(gvl)?, source, options))
    }
}

/// The variant of a text that was parsed with those options, in that form of the call; `None` if classes of the program
/// may take part.
fn json_variant(gvl: Gvl, form: &CStr, options: VALUE) -> Option<RString> {
    let hash = RHash::of(gvl, options);
    let is_plain = hash.is_some_and(|_| values::is_printable_hash(gvl, options));
    if options != NIL && (!is_plain || makes_objects(gvl, options)) {
        return None;
    }
    let options = string(gvl, options, c"inspect")?;
    let version = RString::of(gvl, constant_at(gvl, &[c"JSON", c"VERSION"])?)?;
    Some(variant(gvl, form, version, options))
}

/// Whether classes of the program may take part in parsing with those options.
fn makes_objects(gvl: Gvl, options: VALUE) -> bool {
    const CLASSES: [&CStr; 4] =
        [c"object_class", c"array_class", c"decimal_class", c"match_string"];
    let option = |name| send(gvl, options, c"[]", &[Symbol::new(gvl, name).value()]).unwrap_or(NIL);
    let is_plain = |value| {
        value == NIL
            || [c"Hash", c"Array"].iter().any(|name| RModule::named(gvl, name).value() == value)
    };
    // Without the option, additions are off. From version 2.8 on, JSON takes nil as "on, with a warning".
    let name = Symbol::new(gvl, c"create_additions").value();
    let is_asked = ask(gvl, options, c"key?", &[name]) && option(c"create_additions") != FALSE;
    is_asked || !CLASSES.map(option).into_iter().all(is_plain)
}

/// The String that a method without arguments returns.
fn string(gvl: Gvl, object: VALUE, method: &'static CStr) -> Option<RString> {
    RString::of(gvl, send(gvl, object, method, &[])?)
}

/// The way in which a file is read, as one String.
fn variant(gvl: Gvl, method: &CStr, version: RString, options: RString) -> RString {
    let joined = read_all(gvl, [version, options], |[version, options]| {
        [method.to_bytes(), version, options].join(&b' ')
    });
    RString::new(gvl, &joined)
}
