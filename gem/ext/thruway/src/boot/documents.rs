//! `YAML.load_file` and its siblings, and `JSON.parse`: what a file says comes from the pack.
//!
//! The methods stand in the [place](super::library) of Psych's and JSON's own, which do everything that
//! is not known: read, parse, complain. A YAML file is known by its stamp. A JSON text is known by its
//! digest, and is kept as long as the file that it most likely came from. Nothing is answered or
//! learned while a method [between](super::dependencies) the call and its result is not the library's own.

use std::cell::Cell;
use std::ffi::{CStr, c_int};

use rb_sys::VALUE;
use thruway_boot::{Boot, CachedDocument, Part};

use super::dependencies::{JSON, YAML};
use super::library::LibrarySlot;
use super::objects::{decode, encode};
use super::vm::{self, NIL};
use super::{interpose, method, values};

/// Smaller texts are parsed faster than they are looked up.
const JSON_BYTES_MIN: usize = 1024;

/// Longest path of a JSON file that is remembered, with the NUL that ends it.
const PATH_BYTES: usize = 512;

static PSYCH: LibrarySlot = LibrarySlot::new();
static JSON_LIBRARY: LibrarySlot = LibrarySlot::new();

thread_local! {
    /// The JSON file that this thread opened last.
    static OPENED: Cell<Option<[u8; PATH_BYTES]>> = const { Cell::new(None) };
}

/// Psych is there.
pub(super) fn install_yaml() {
    let methods: [(_, method::Variadic); 3] = [
        (c"load_file", load_file),
        (c"safe_load_file", safe_load_file),
        (c"unsafe_load_file", unsafe_load_file),
    ];
    if super::boot().is_some_and(|boot| boot.options.has(Part::Yaml)) {
        PSYCH.take(&[c"Psych"], &methods, &YAML);
    }
}

/// JSON is there.
pub(super) fn install_json() {
    if super::boot().is_some_and(|boot| boot.options.has(Part::Json)) {
        JSON_LIBRARY.take(&[c"JSON"], &[(c"parse", parse)], &JSON);
        interpose::note_json_files();
    }
}

/// Whether everything between a call and its result is the library's own.
fn is_original(boot: &Boot, part: Part, library: &LibrarySlot) -> bool {
    match library.first_change() {
        None => true,
        Some(change) => {
            boot.counts.left_part(part, change);
            false
        }
    }
}

unsafe extern "C" fn load_file(count: c_int, arguments: *const VALUE, psych: VALUE) -> VALUE {
    // SAFETY: Ruby passes as many arguments as it says.
    load(c"load_file", psych, unsafe { vm::arguments(count, arguments) })
}

unsafe extern "C" fn safe_load_file(count: c_int, arguments: *const VALUE, psych: VALUE) -> VALUE {
    // SAFETY: Ruby passes as many arguments as it says.
    load(c"safe_load_file", psych, unsafe { vm::arguments(count, arguments) })
}

unsafe extern "C" fn unsafe_load_file(
    count: c_int,
    arguments: *const VALUE,
    psych: VALUE,
) -> VALUE {
    // SAFETY: Ruby passes as many arguments as it says.
    load(c"unsafe_load_file", psych, unsafe { vm::arguments(count, arguments) })
}

fn load(method: &CStr, psych: VALUE, arguments: &[VALUE]) -> VALUE {
    let Some((boot, path, variant)) = yaml_request(method, arguments) else {
        return PSYCH.call(method, psych, arguments);
    };
    // SAFETY: both stay on this stack, and no Ruby code runs while the slices live.
    let (name, how) = (unsafe { crate::ruby::bytes(path) }, unsafe { crate::ruby::bytes(variant) });
    match boot.yaml(name, how) {
        CachedDocument::Hit(data) => {
            decode(data).unwrap_or_else(|| PSYCH.call(method, psych, arguments))
        }
        CachedDocument::Uncacheable | CachedDocument::Unavailable => {
            PSYCH.call(method, psych, arguments)
        }
        CachedDocument::Miss(stamp) => {
            let object = PSYCH.call(method, psych, arguments);
            // A pseudo file (`/proc`) is of another size than it says, and changes within its stamp.
            let text = thruway_boot::read(name).filter(|text| text.len() as u64 == stamp.size);
            let is_original = is_original(boot, Part::Yaml, &PSYCH) && values::makes_dates_itself();
            if let (Some(text), true) = (text, is_original) {
                let data = if is_plain_yaml(&text) { encode(object) } else { None };
                boot.learn_yaml(name, how, stamp, data);
            }
            object
        }
    }
}

/// The boot, the file's path, and everything else that the result depends on.
fn yaml_request(method: &CStr, arguments: &[VALUE]) -> Option<(&'static Boot, VALUE, VALUE)> {
    let boot = super::serving()?;
    let (path, options) = match *arguments {
        [path] => (path, None),
        [path, options] if vm::has_keywords() => (path, Some(options)),
        _ => return None,
    };
    if vm::transcodes() || options.is_some_and(|options| !values::is_printable_hash(options)) {
        return None;
    }
    if !is_original(boot, Part::Yaml, &PSYCH)
        || has_tag_for_untagged()
        || !values::makes_dates_itself()
    {
        return None;
    }
    let path = vm::absolute_path_of(path)?;
    let version = vm::send(vm::constant_at(&[c"Psych", c"VERSION"])?, c"to_s", &[])?;
    let options = match options {
        Some(options) => vm::send(options, c"inspect", &[])?,
        None => crate::ruby::utf8_string(b"{}"),
    };
    Some((boot, path, variant(method, version, options)))
}

/// Whether `Psych.add_tag(nil, …)` was called: it is about everything that has no tag.
fn has_tag_for_untagged() -> bool {
    let tags = vm::constant_at(&[c"Psych"]).and_then(|psych| vm::send(psych, c"load_tags", &[]));
    tags.is_none_or(|tags| {
        values::plain_hash_length(tags).is_none() || vm::ask(tags, c"key?", &[NIL])
    })
}

/// Whether a YAML file has no tags: what a tag makes of a value is up to the program.
fn is_plain_yaml(text: &[u8]) -> bool {
    let before = |at: usize| at.checked_sub(1).map(|at| text[at]);
    let marks = text.iter().enumerate().filter(|(_, byte)| **byte == b'!');
    marks.into_iter().all(|(at, _)| {
        let starts = before(at).is_none_or(|byte| b" \t\r\n[{,:-?".contains(&byte));
        !starts || text.get(at + 1).is_none_or(|next| b" \t\r\n\"'".contains(next))
    })
}

/// `JSON.parse(source, opts = {})`
unsafe extern "C" fn parse(count: c_int, arguments: *const VALUE, json: VALUE) -> VALUE {
    // SAFETY: Ruby passes as many arguments as it says.
    let arguments = unsafe { vm::arguments(count, arguments) };
    let Some((boot, source, variant)) = json_request(arguments) else {
        return JSON_LIBRARY.call(c"parse", json, arguments);
    };
    // SAFETY: both stay on this stack, and no Ruby code runs while the slices live.
    let (text, how) =
        (unsafe { crate::ruby::bytes(source) }, unsafe { crate::ruby::bytes(variant) });
    // Most texts are not in the pack: only for one that is, everything between is compared.
    if let Some(data) = boot.json(text, how)
        && is_original(boot, Part::Json, &JSON_LIBRARY)
        && let Some(object) = decode(data)
    {
        return object;
    }
    let opened = OPENED.take().filter(|_| boot.is_learning());
    let opened = opened.filter(|_| is_original(boot, Part::Json, &JSON_LIBRARY));
    let object = JSON_LIBRARY.call(c"parse", json, arguments);
    if let Some(opened) = opened
        && is_original(boot, Part::Json, &JSON_LIBRARY)
        && let Some(data) = encode(object)
    {
        let length = opened.iter().position(|byte| *byte == 0).unwrap_or(0);
        boot.learn_json(&opened[..length], text, how, &data);
    }
    object
}

fn json_request(arguments: &[VALUE]) -> Option<(&'static Boot, VALUE, VALUE)> {
    let boot = super::serving()?;
    let (source, options) = match *arguments {
        [source] => (source, NIL),
        [source, options] => (source, options),
        _ => return None,
    };
    // SAFETY: the source stays on the caller's stack, and no Ruby code runs while the slice lives.
    let text = unsafe { values::utf8_text(source) }?;
    let is_plain = options == NIL || values::is_printable_hash(options);
    if text.len() < JSON_BYTES_MIN || !is_plain || makes_objects(options) {
        return None;
    }
    let options = vm::send(options, c"inspect", &[])?;
    let version = vm::constant_at(&[c"JSON", c"VERSION"])?;
    Some((boot, source, variant(c"parse", version, options)))
}

/// Whether classes of the program's may take part in what JSON makes.
fn makes_objects(options: VALUE) -> bool {
    const CLASSES: [&CStr; 4] =
        [c"object_class", c"array_class", c"decimal_class", c"match_string"];
    let option = |name| {
        let value =
            if options == NIL { Some(NIL) } else { vm::send(options, c"[]", &[vm::symbol(name)]) };
        value.unwrap_or(NIL)
    };
    let is_plain = |class| class == NIL || [c"Hash", c"Array"].map(vm::class).contains(&class);
    // Without the option it is off; JSON takes nil for "on, and to be warned of", from 2.8 on.
    let is_asked = options != NIL
        && vm::ask(options, c"key?", &[vm::symbol(c"create_additions")])
        && option(c"create_additions") != vm::FALSE;
    is_asked || !CLASSES.map(option).into_iter().all(is_plain)
}

/// How a file is read, as one String.
fn variant(method: &CStr, version: VALUE, options: VALUE) -> VALUE {
    // SAFETY: the String stays on the caller's stack, and no Ruby code runs while the slice lives.
    let version = unsafe { crate::ruby::bytes(version) };
    // SAFETY: as above.
    let options = unsafe { crate::ruby::bytes(options) };
    crate::ruby::utf8_string(&[method.to_bytes(), version, options].join(&b' '))
}

/// libruby opens a file; one whose name ends in `.json` is remembered.
pub(super) fn opened(path: &[u8]) {
    if path.ends_with(b".json") && path.len() < PATH_BYTES {
        let mut kept = [0; PATH_BYTES];
        kept[..path.len()].copy_from_slice(path);
        OPENED.set(Some(kept));
    }
}
