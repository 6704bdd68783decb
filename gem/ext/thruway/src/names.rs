//! `Thruway.expand_path`: lexical expansion for Ruby, as `File.expand_path` has it.
//!
//! The rules are `thruway_resolve`'s. What they are applied to is Ruby's own business and left to Ruby:
//! what counts as a path, where homes and the current folder are, and which encodings go together.

use std::ffi::c_int;
use std::os::unix::ffi::OsStrExt;

use rb_sys::{Qnil, VALUE};
use thruway_resolve::expand::ruby::{Surroundings, expand_path};
use thruway_resolve::{Error, Flavour};

use crate::ruby;

const NIL: VALUE = Qnil as VALUE;

pub(crate) fn define(thruway: VALUE) {
    ruby::define_singleton_method_2(thruway, c"expand_posix", expand_posix);
    ruby::define_singleton_method_2(thruway, c"expand_windows", expand_windows);
}

/// `expand_posix(path, base)`: the base may be nil.
unsafe extern "C" fn expand_posix(_thruway: VALUE, name: VALUE, base: VALUE) -> VALUE {
    // SAFETY: Ruby calls with the lock held; nothing with a destructor lives yet.
    let name = unsafe { Text::of_path(name) };
    // SAFETY: as above.
    let base = (base != NIL).then(|| unsafe { Text::of_path(base) });
    // SAFETY: as above.
    unsafe { posix(name, base) }.0
}

/// `expand_windows(path, base)` of UTF-8 Strings, on a host that has no folders of Windows: relative
/// names without a base start at `C:\`.
unsafe extern "C" fn expand_windows(_thruway: VALUE, name: VALUE, base: VALUE) -> VALUE {
    // SAFETY: Ruby calls with the lock held; nothing with a destructor lives yet.
    let name = unsafe { Text::of_string(name) };
    // SAFETY: as above.
    let base = (base != NIL).then(|| unsafe { Text::of_string(base) });
    let answer = windows(name, base);
    // SAFETY: what `windows` needed is gone.
    unsafe { give(answer) }.0
}

fn windows(name: Text, base: Option<Text>) -> Result<Text, Text> {
    let home = std::env::var_os("HOME");
    let home = home.as_ref().map(|home| home.as_bytes());
    let surroundings = Surroundings { home, ..Surroundings::new(br"C:\") };
    let base = base.as_ref().map(Text::bytes);
    let answer = expand_path(Flavour::Windows, name.bytes(), base, &surroundings);
    answer.map(|expanded| Text(ruby::utf8_string(&expanded))).map_err(message)
}

/// # Safety
/// The lock is held, and nothing with a destructor is alive in the caller, because this may raise.
unsafe fn posix(name: Text, base: Option<Text>) -> Text {
    // SAFETY: as this function's own.
    let start = unsafe { start_of(name, base) };
    let encoding = if name.bytes().starts_with(b"~") {
        start.encoding()
    } else {
        let (one, other) = if base.is_none() { (name, start) } else { (start, name) };
        // SAFETY: as this function's own.
        unsafe { common_encoding(one, other) }
    };
    let answer = expand_from(start, name, base == Some(start));
    // SAFETY: as this function's own.
    let expanded = unsafe { give(answer.map(|path| Text::new(&path, encoding)).map_err(message)) };
    // SAFETY: as this function's own; it raises if the two do not go together.
    unsafe { common_encoding(name, expanded) };
    expanded
}

/// Ruby takes a home or the current folder as it is, and expands a base that is `given`.
fn expand_from(start: Text, name: Text, given: bool) -> Result<Vec<u8>, Error> {
    let home_of = |_: &[u8]| Some(start.bytes().to_vec());
    let surroundings = Surroundings {
        home: Some(start.bytes()),
        home_of: &home_of,
        ..Surroundings::new(start.bytes())
    };
    let base = given.then(|| start.bytes());
    expand_path(Flavour::Posix, name.bytes(), base, &surroundings)
}

/// The folder that a name is expanded from; an absolute name needs none, and is given back.
///
/// # Safety
/// As for [`posix`].
unsafe fn start_of(name: Text, base: Option<Text>) -> Text {
    match (name.bytes().first(), base) {
        (Some(b'/'), _) => name,
        // SAFETY: as this function's own.
        (Some(b'~'), _) => unsafe { home(name) },
        // SAFETY: as this function's own.
        (_, None) => Text(unsafe { rb_sys::rb_dir_getwd() }),
        (_, Some(base)) => {
            let is_plain = base.bytes().starts_with(b"/") && base.encoding() == name.encoding();
            // SAFETY: as this function's own.
            if is_plain { base } else { unsafe { posix(base, None) } }
        }
    }
}

/// The home that a name begins with: `~`, or `~user`.
///
/// # Safety
/// As for [`posix`].
unsafe fn home(name: Text) -> Text {
    let user = name.bytes()[1..].split(|byte| *byte == b'/').next().unwrap_or_default();
    if !user.is_empty() {
        let user = Text::new(user, name.encoding());
        // SAFETY: as this function's own.
        return unsafe { dir_home(&[user.0]) };
    }
    match own_home() {
        Some(home) => home,
        // SAFETY: as this function's own.
        None => unsafe { dir_home(&[]) },
    }
}

/// The variable HOME, which Ruby's ENV writes to the process's environment.
fn own_home() -> Option<Text> {
    let home = std::env::var_os("HOME")?;
    // SAFETY: it may be called at any time.
    let encoding = unsafe { rb_sys::rb_filesystem_encindex() };
    Some(Text::new(home.as_bytes(), encoding))
}

/// `Dir.home`: what the system knows of a user, or an error in Ruby's words.
///
/// # Safety
/// As for [`posix`].
unsafe fn dir_home(arguments: &[VALUE]) -> Text {
    // SAFETY: the name ends in NUL.
    let method = unsafe { rb_sys::rb_intern(c"home".as_ptr()) };
    // SAFETY: Ruby sets the global once, before any extension is loaded.
    let dir = unsafe { rb_sys::rb_cDir };
    let count = arguments.len() as c_int;
    // SAFETY: the arguments are as many as are counted; the rest as this function's own.
    let home = unsafe { rb_sys::rb_funcallv(dir, method, count, arguments.as_ptr()) };
    // SAFETY: as this function's own; somebody may have redefined the method.
    unsafe { Text::of_string(home) }
}

/// A String of Ruby's, on the stack of whoever has it, and changed by nobody meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Text(VALUE);

impl Text {
    /// What Ruby takes for a path: a String, or what answers to `to_path` or `to_str`, without a NUL
    /// and in an encoding that has ASCII's characters.
    ///
    /// # Safety
    /// As for [`posix`].
    unsafe fn of_path(value: VALUE) -> Self {
        // SAFETY: as this function's own.
        Self(unsafe { rb_sys::rb_get_path(value) })
    }

    /// # Safety
    /// As for [`posix`].
    unsafe fn of_string(value: VALUE) -> Self {
        // SAFETY: as this function's own.
        Self(unsafe { ruby::to_string(value) })
    }

    /// A new one with a copy of `bytes`.
    fn new(bytes: &[u8], encoding: c_int) -> Self {
        let length = bytes.len().try_into().unwrap_or(0);
        // SAFETY: it is the number of an encoding.
        let encoding = unsafe { rb_sys::rb_enc_from_index(encoding) };
        // SAFETY: the pointer is valid for the length, and Ruby copies.
        Self(unsafe { rb_sys::rb_enc_str_new(bytes.as_ptr().cast(), length, encoding) })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: it is a String on the caller's stack, and nobody changes it.
        unsafe { ruby::bytes(self.0) }
    }

    /// The number of its encoding.
    fn encoding(self) -> c_int {
        // SAFETY: it is a String.
        unsafe { rb_sys::rb_enc_get_index(self.0) }
    }
}

/// The encoding of both together; raises if there is none. US-ASCII gives way.
///
/// # Safety
/// As for [`posix`].
unsafe fn common_encoding(one: Text, other: Text) -> c_int {
    let (first, second) = (one.encoding(), other.encoding());
    if first == second {
        return first;
    }
    // SAFETY: both are Strings; the rest as this function's own.
    let common = unsafe { rb_sys::rb_enc_check(one.0, other.0) };
    // SAFETY: it is an encoding of Ruby's.
    let common = unsafe { rb_sys::rb_enc_to_index(common) };
    // SAFETY: it may be called at any time.
    let ascii = unsafe { rb_sys::rb_usascii_encindex() };
    match common {
        common if common != ascii => common,
        _ if first == ascii => second,
        _ => first,
    }
}

/// The error's message.
fn message(error: Error) -> Text {
    Text(ruby::utf8_string(error.to_string().as_bytes()))
}

/// The String, or an ArgumentError with the message.
///
/// # Safety
/// As for [`posix`].
unsafe fn give(answer: Result<Text, Text>) -> Text {
    match answer {
        Ok(string) => string,
        Err(message) => {
            // SAFETY: Ruby sets the global once, before any extension is loaded.
            let class = unsafe { rb_sys::rb_eArgError };
            // SAFETY: both are of the kinds that they are said to be.
            let error = unsafe { rb_sys::rb_exc_new_str(class, message.0) };
            // SAFETY: as this function's own.
            unsafe { rb_sys::rb_exc_raise(error) }
        }
    }
}
