//! `YAML.load_file` and its siblings, and `JSON.parse`: what a file says comes from the pack.
//!
//! The methods stand in front of Psych's and JSON's own (a prepended module), which do everything that
//! is not known: read, parse, complain. A YAML file is known by its stamp. A JSON text is known by its
//! digest, wherever it came from, once it was seen to be what a file holds.

use std::cell::Cell;
use std::ffi::c_int;

use rb_sys::VALUE;
use thruway_boot::{Boot, Known, Part};

use super::objects::{decode, encode};
use super::vm::{self, NIL};
use super::{interpose, method, values};

/// Smaller texts are parsed faster than they are looked up.
const JSON_BYTES_MIN: usize = 1024;

thread_local! {
    /// The JSON file that this thread opened last.
    static OPENED: Cell<Option<[u8; PATH_BYTES]>> = const { Cell::new(None) };
}

/// Longest path of a JSON file that is remembered, with the NUL that ends it.
const PATH_BYTES: usize = 512;

/// Psych is there.
pub(super) fn install_yaml() {
    let methods: [(_, method::Variadic); 3] = [
        (c"load_file", load_file),
        (c"safe_load_file", safe_load_file),
        (c"unsafe_load_file", unsafe_load_file),
    ];
    if super::boot().is_some_and(|boot| boot.options.has(Part::Yaml)) {
        method::prepend_to_singleton(&[c"Psych"], &methods);
    }
}

/// JSON is there.
pub(super) fn install_json() {
    if super::boot().is_some_and(|boot| boot.options.has(Part::Json)) {
        method::prepend_to_singleton(&[c"JSON"], &[(c"parse", parse)]);
        interpose::note_json_files();
    }
}

unsafe extern "C" fn load_file(count: c_int, arguments: *const VALUE, _psych: VALUE) -> VALUE {
    // SAFETY: Ruby passes as many arguments as it says.
    load("load_file", unsafe { vm::arguments(count, arguments) })
}

unsafe extern "C" fn safe_load_file(count: c_int, arguments: *const VALUE, _psych: VALUE) -> VALUE {
    // SAFETY: Ruby passes as many arguments as it says.
    load("safe_load_file", unsafe { vm::arguments(count, arguments) })
}

unsafe extern "C" fn unsafe_load_file(count: c_int, arguments: *const VALUE, _: VALUE) -> VALUE {
    // SAFETY: Ruby passes as many arguments as it says.
    load("unsafe_load_file", unsafe { vm::arguments(count, arguments) })
}

fn load(method: &str, arguments: &[VALUE]) -> VALUE {
    let Some((boot, path, variant)) = yaml_request(method, arguments) else {
        return vm::call_super(arguments);
    };
    // SAFETY: both stay on this stack, and no Ruby code runs while the slices live.
    let (name, how) = (unsafe { crate::ruby::bytes(path) }, unsafe { crate::ruby::bytes(variant) });
    match boot.yaml(name, how) {
        Known::Data(data) => decode(data).unwrap_or_else(|| vm::call_super(arguments)),
        Known::Unsuited | Known::Unknown => vm::call_super(arguments),
        Known::News(stamp) => {
            let object = vm::call_super(arguments);
            let data = if is_plain_yaml(name) { encode(object) } else { None };
            boot.learn_yaml(name, how, stamp, data);
            object
        }
    }
}

/// The boot, the file's path, and everything else that the result depends on.
fn yaml_request(method: &str, arguments: &[VALUE]) -> Option<(&'static Boot, VALUE, VALUE)> {
    let boot = super::serving()?;
    let (path, options) = match *arguments {
        [path] => (path, None),
        [path, options] if vm::has_keywords() => (path, Some(options)),
        _ => return None,
    };
    if vm::transcodes() || options.is_some_and(|options| !values::is_printable_hash(options)) {
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

/// Whether a YAML file has no tags: what a tag makes of a value is up to the program.
fn is_plain_yaml(path: &[u8]) -> bool {
    thruway_boot::read(path).is_some_and(|text| {
        let before = |at: usize| at.checked_sub(1).map(|at| text[at]);
        let marks = text.iter().enumerate().filter(|(_, byte)| **byte == b'!');
        marks.into_iter().all(|(at, _)| {
            let starts = before(at).is_none_or(|byte| b" \t\r\n[{,:-?".contains(&byte));
            !starts || text.get(at + 1).is_none_or(|next| b" \t\r\n\"'".contains(next))
        })
    })
}

/// `JSON.parse(source, opts = {})`
unsafe extern "C" fn parse(count: c_int, arguments: *const VALUE, _json: VALUE) -> VALUE {
    // SAFETY: Ruby passes as many arguments as it says.
    let arguments = unsafe { vm::arguments(count, arguments) };
    let Some((boot, source, variant)) = json_request(arguments) else {
        return vm::call_super(arguments);
    };
    // SAFETY: both stay on this stack, and no Ruby code runs while the slices live.
    let (text, how) =
        (unsafe { crate::ruby::bytes(source) }, unsafe { crate::ruby::bytes(variant) });
    if let Some(object) = boot.json(text, how).and_then(decode) {
        return object;
    }
    let object = vm::call_super(arguments);
    if boot.is_learning()
        && is_content_of_last_file(text)
        && let Some(data) = encode(object)
    {
        boot.learn_json(text, how, data);
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
    if text.len() < JSON_BYTES_MIN || !is_plain {
        return None;
    }
    let options = vm::send(options, c"inspect", &[])?;
    let version = vm::constant_at(&[c"JSON", c"VERSION"])?;
    Some((boot, source, variant("parse", version, options)))
}

/// How a file is read, as one String.
fn variant(method: &str, version: VALUE, options: VALUE) -> VALUE {
    // SAFETY: the String stays on the caller's stack, and no Ruby code runs while the slice lives.
    let version = unsafe { crate::ruby::bytes(version) };
    // SAFETY: as above.
    let options = unsafe { crate::ruby::bytes(options) };
    crate::ruby::utf8_string(&[method.as_bytes(), version, options].join(&b' '))
}

/// libruby opens a file; one whose name ends in `.json` is remembered.
pub(super) fn opened(path: &[u8]) {
    if path.ends_with(b".json") && path.len() < PATH_BYTES {
        let mut kept = [0; PATH_BYTES];
        kept[..path.len()].copy_from_slice(path);
        OPENED.set(Some(kept));
    }
}

/// Whether the text is the content of the JSON file that was opened last, which was most likely for it.
fn is_content_of_last_file(text: &[u8]) -> bool {
    let Some(kept) = OPENED.take() else { return false };
    let length = kept.iter().position(|byte| *byte == 0).unwrap_or(0);
    thruway_boot::read(&kept[..length]).is_some_and(|content| content == text)
}
