//! `Thruway.expand_path`: lexical expansion for Ruby, as in `File.expand_path`.
//!
//! The rules are those of `thruway_resolve`. Ruby decides which objects are paths, which folders are home and
//! current, and which encodings are compatible.

use rb_sys::VALUE;
use thruway_resolve::expand::ruby::{Surroundings, expand_path};
use thruway_resolve::{Error, Flavour, native};

use crate::ruby::call::call;
use crate::ruby::define::{self, Method};
use crate::ruby::encoding::Encoding;
use crate::ruby::{Gvl, NIL, ProtectedCall, RString, Symbol, raise, read_all};

pub(crate) fn define(gvl: Gvl, thruway: VALUE) {
    define::singleton_method(gvl, thruway, c"expand_posix", Method::of_2(expand_posix));
    define::singleton_method(gvl, thruway, c"expand_windows", Method::of_2(expand_windows));
}

/// `expand_posix(path, base)`, where the base may be nil.
fn expand_posix(ruby: ProtectedCall, _thruway: VALUE, name: VALUE, base: VALUE) -> VALUE {
    let name = RString::from_path(ruby, name);
    let base = (base != NIL).then(|| RString::from_path(ruby, base));
    posix(ruby, name, base).value()
}

/// `expand_windows(path, base)` for UTF-8 Strings, on a host without Windows folders: relative names without a base
/// start at `C:\`.
fn expand_windows(ruby: ProtectedCall, _thruway: VALUE, name: VALUE, base: VALUE) -> VALUE {
    let name = RString::from_argument(ruby, name);
    let base = (base != NIL).then(|| RString::from_argument(ruby, base));
    let expanded = windows(ruby.gvl(), name, base);
    give(ruby, expanded).value()
}

fn windows(gvl: Gvl, name: RString, base: Option<RString>) -> Result<RString, RString> {
    let home = std::env::var_os("HOME");
    let home = home.as_ref().map(|home| native::bytes(home));
    let home = home.as_deref();
    let is_based = base.is_some();
    let answer = read_all(gvl, [name, base.unwrap_or(name)], |[name, base]| {
        let surroundings = Surroundings { home, ..Surroundings::new(br"C:\") };
        expand_path(Flavour::Windows, name, is_based.then_some(base), &surroundings)
    });
    answer.map(|expanded| RString::new(gvl, &expanded)).map_err(|error| message(gvl, &error))
}

fn posix(ruby: ProtectedCall, name: RString, base: Option<RString>) -> RString {
    let gvl = ruby.gvl();
    let start = start_of(ruby, name, base);
    let encoding = if first_byte(gvl, name) == Some(b'~') {
        Encoding::of(gvl, start)
    } else {
        let (one, other) = if base.is_none() { (name, start) } else { (start, name) };
        common_encoding(ruby, one, other)
    };
    let is_given = base == Some(start);
    let answer = read_all(gvl, [start, name], |[start, name]| expand_from(start, name, is_given));
    let answer = answer.map(|path| encoding.string(gvl, &path));
    let expanded = give(ruby, answer.map_err(|error| message(gvl, &error)));
    // Raises if the encodings are not compatible.
    common_encoding(ruby, name, expanded);
    expanded
}

/// Expands a name from the folder `start`. `is_given` tells that the caller has passed the folder as a base, which Ruby
/// expands first; a home folder and the current folder are used unchanged.
fn expand_from(start: &[u8], name: &[u8], is_given: bool) -> Result<Vec<u8>, Error> {
    let home_of = |_: &[u8]| Some(start.to_vec());
    let surroundings =
        Surroundings { home: Some(start), home_of: &home_of, ..Surroundings::new(start) };
    expand_path(Flavour::Posix, name, is_given.then_some(start), &surroundings)
}

/// The folder from which a name is expanded. For an absolute name, which needs no folder, the name itself is returned.
fn start_of(ruby: ProtectedCall, name: RString, base: Option<RString>) -> RString {
    let gvl = ruby.gvl();
    match (first_byte(gvl, name), base) {
        (Some(b'/'), _) => name,
        (Some(b'~'), _) => home(ruby, name),
        (_, None) => working_folder(ruby),
        (_, Some(base)) => {
            let is_same = Encoding::of(gvl, base) == Encoding::of(gvl, name);
            let is_plain = first_byte(gvl, base) == Some(b'/') && is_same;
            if is_plain { base } else { posix(ruby, base, None) }
        }
    }
}

fn first_byte(gvl: Gvl, string: RString) -> Option<u8> {
    string.read(gvl, |bytes| bytes.first().copied())
}

/// `Dir.pwd`, even if a program has redefined the method.
fn working_folder(ruby: ProtectedCall) -> RString {
    // SAFETY: exceptions are caught further up.
    RString::from_argument(ruby, unsafe { rb_sys::rb_dir_getwd() })
}

/// The home with which a name begins: `~` or `~user`.
fn home(ruby: ProtectedCall, name: RString) -> RString {
    let gvl = ruby.gvl();
    let user = name.read(gvl, |name| {
        let user = name.get(1..).and_then(|rest| rest.split(|byte| *byte == b'/').next());
        user.unwrap_or_default().to_vec()
    });
    if !user.is_empty() {
        let user = Encoding::of(gvl, name).string(gvl, &user);
        return dir_home(ruby, &[user.value()]);
    }
    own_home(gvl).unwrap_or_else(|| dir_home(ruby, &[]))
}

/// The variable HOME. Ruby's ENV writes to the process's environment.
fn own_home(gvl: Gvl) -> Option<RString> {
    let home = std::env::var_os("HOME")?;
    Some(Encoding::of_file_names(gvl).string(gvl, &native::bytes(&home)))
}

/// `Dir.home`: the home of a user according to the system. Raises Ruby's own errors.
fn dir_home(ruby: ProtectedCall, arguments: &[VALUE]) -> RString {
    // SAFETY: the value is set when Ruby starts, and never changes.
    let dir = unsafe { rb_sys::rb_cDir };
    let home = call(ruby, dir, Symbol::new(ruby.gvl(), c"home"), arguments);
    // A program may have redefined the method.
    RString::from_argument(ruby, home)
}

/// The common encoding of two Strings. Raises if there is none. US-ASCII yields to the other encoding.
fn common_encoding(ruby: ProtectedCall, one: RString, other: RString) -> Encoding {
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

/// The message of an error.
fn message(gvl: Gvl, error: &Error) -> RString {
    RString::new(gvl, error.to_string().as_bytes())
}

/// Returns the String, or raises ArgumentError with the message.
fn give(ruby: ProtectedCall, answer: Result<RString, RString>) -> RString {
    match answer {
        Ok(string) => string,
        Err(message) => raise::argument_error(ruby, message),
    }
}
