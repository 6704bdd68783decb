//! `Thruway.expand_path`: lexical expansion for Ruby, as `File.expand_path` has it.
//!
//! The rules are `thruway_resolve`'s. What they are applied to is left to Ruby. That is what counts as
//! a path, where homes and the current folder are, and which encodings go together.

use std::os::unix::ffi::OsStrExt;

use rb_sys::VALUE;
use thruway_resolve::expand::ruby::{Surroundings, expand_path};
use thruway_resolve::{Error, Flavour};

use crate::ruby::call::call;
use crate::ruby::define::{self, Method};
use crate::ruby::encoding::Encoding;
use crate::ruby::{Gvl, NIL, Protected, RString, Symbol, raise};

pub(crate) fn define(gvl: Gvl, thruway: VALUE) {
    define::singleton_method(gvl, thruway, c"expand_posix", Method::of_2(expand_posix));
    define::singleton_method(gvl, thruway, c"expand_windows", Method::of_2(expand_windows));
}

/// `expand_posix(path, base)`: the base may be nil.
fn expand_posix(ruby: Protected, _thruway: VALUE, name: VALUE, base: VALUE) -> VALUE {
    let name = RString::from_path(ruby, name);
    let base = (base != NIL).then(|| RString::from_path(ruby, base));
    posix(ruby, name, base).value()
}

/// `expand_windows(path, base)` of UTF-8 Strings, on a host that has no folders of Windows: relative
/// names without a base start at `C:\`.
fn expand_windows(ruby: Protected, _thruway: VALUE, name: VALUE, base: VALUE) -> VALUE {
    let name = RString::from_argument(ruby, name);
    let base = (base != NIL).then(|| RString::from_argument(ruby, base));
    let expanded = windows(ruby.gvl(), name, base);
    give(ruby, expanded).value()
}

fn windows(gvl: Gvl, name: RString, base: Option<RString>) -> Result<RString, RString> {
    let home = std::env::var_os("HOME");
    let home = home.as_ref().map(|home| home.as_bytes());
    let surroundings = Surroundings { home, ..Surroundings::new(br"C:\") };
    let base = base.as_ref().map(bytes);
    let answer = expand_path(Flavour::Windows, bytes(&name), base, &surroundings);
    answer.map(|expanded| RString::new(gvl, &expanded)).map_err(|error| message(gvl, &error))
}

fn posix(ruby: Protected, name: RString, base: Option<RString>) -> RString {
    let gvl = ruby.gvl();
    let start = start_of(ruby, name, base);
    let encoding = if bytes(&name).starts_with(b"~") {
        Encoding::of(gvl, start)
    } else {
        let (one, other) = if base.is_none() { (name, start) } else { (start, name) };
        common_encoding(ruby, one, other)
    };
    let answer = expand_from(start, name, base == Some(start));
    let answer = answer.map(|path| encoding.string(gvl, &path));
    let expanded = give(ruby, answer.map_err(|error| message(gvl, &error)));
    // Raises if the two do not go together.
    common_encoding(ruby, name, expanded);
    expanded
}

/// Ruby takes a home or the current folder as it is, and expands a base that is `given`.
fn expand_from(start: RString, name: RString, given: bool) -> Result<Vec<u8>, Error> {
    let home_of = |_: &[u8]| Some(bytes(&start).to_vec());
    let surroundings = Surroundings {
        home: Some(bytes(&start)),
        home_of: &home_of,
        ..Surroundings::new(bytes(&start))
    };
    let base = given.then(|| bytes(&start));
    expand_path(Flavour::Posix, bytes(&name), base, &surroundings)
}

/// The folder that a name is expanded from; an absolute name needs none, and is given back.
fn start_of(ruby: Protected, name: RString, base: Option<RString>) -> RString {
    match (bytes(&name).first(), base) {
        (Some(b'/'), _) => name,
        (Some(b'~'), _) => home(ruby, name),
        (_, None) => working_folder(ruby),
        (_, Some(base)) => {
            let gvl = ruby.gvl();
            let is_same = Encoding::of(gvl, base) == Encoding::of(gvl, name);
            let is_plain = bytes(&base).starts_with(b"/") && is_same;
            if is_plain { base } else { posix(ruby, base, None) }
        }
    }
}

/// `Dir.pwd`, whatever a program has put in its place.
fn working_folder(ruby: Protected) -> RString {
    // SAFETY: what it raises is caught.
    RString::from_argument(ruby, unsafe { rb_sys::rb_dir_getwd() })
}

/// The home that a name begins with: `~`, or `~user`.
fn home(ruby: Protected, name: RString) -> RString {
    let gvl = ruby.gvl();
    let user = bytes(&name)[1..].split(|byte| *byte == b'/').next().unwrap_or_default();
    if !user.is_empty() {
        let user = Encoding::of(gvl, name).string(gvl, user);
        return dir_home(ruby, &[user.value()]);
    }
    own_home(gvl).unwrap_or_else(|| dir_home(ruby, &[]))
}

/// The variable HOME, which Ruby's ENV writes to the process's environment.
fn own_home(gvl: Gvl) -> Option<RString> {
    let home = std::env::var_os("HOME")?;
    Some(Encoding::of_file_names(gvl).string(gvl, home.as_bytes()))
}

/// `Dir.home`: what the system knows of a user, or an error in Ruby's words.
fn dir_home(ruby: Protected, arguments: &[VALUE]) -> RString {
    // SAFETY: set when Ruby starts, and never again.
    let dir = unsafe { rb_sys::rb_cDir };
    let home = call(ruby, dir, Symbol::new(ruby.gvl(), c"home"), arguments);
    // A program may have redefined the method.
    RString::from_argument(ruby, home)
}

/// The bytes of a String that is on the stack of a method of ours.
fn bytes(string: &RString) -> &[u8] {
    // SAFETY: nothing that runs while the methods here do changes their arguments or what they made.
    unsafe { string.bytes() }
}

/// The encoding of both together; raises if there is none. US-ASCII gives way.
fn common_encoding(ruby: Protected, one: RString, other: RString) -> Encoding {
    let gvl = ruby.gvl();
    let (first, second) = (Encoding::of(gvl, one), Encoding::of(gvl, other));
    if first == second {
        return first;
    }
    let (common, ascii) = (Encoding::common(ruby, one, other), Encoding::us_ascii(gvl));
    match common {
        common if common != ascii => common,
        _ if first == ascii => second,
        _ => first,
    }
}

/// The error's message.
fn message(gvl: Gvl, error: &Error) -> RString {
    RString::new(gvl, error.to_string().as_bytes())
}

/// The String, or an ArgumentError with the message.
fn give(ruby: Protected, answer: Result<RString, RString>) -> RString {
    match answer {
        Ok(string) => string,
        Err(message) => raise::argument_error(ruby, message),
    }
}
