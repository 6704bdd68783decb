//! Strings.

use std::ffi::{c_char, c_long};

use rb_sys::{ID, VALUE, ruby_value_type};

use super::gvl::{Gvl, Protected};
use super::value::{Object, class_of, has_type, is_exactly};

/// A String, or an object of a class derived from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RString(VALUE);

impl RString {
    /// The object, if it is a String.
    pub(crate) fn of(gvl: Gvl, value: VALUE) -> Option<Self> {
        has_type(gvl, value, ruby_value_type::RUBY_T_STRING).then_some(Self(value))
    }

    /// The object, if it is a String and of no derived class.
    pub(crate) fn plain(gvl: Gvl, value: VALUE) -> Option<Self> {
        (class_of(gvl, value) == string_class()).then_some(Self(value))
    }

    /// The object, if it is nothing more than a String in UTF-8.
    pub(crate) fn utf8(gvl: Gvl, value: VALUE) -> Option<Self> {
        if !is_exactly(gvl, value, string_class()) {
            return None;
        }
        // SAFETY: may be called at any time.
        let utf8 = unsafe { rb_sys::rb_utf8_encindex() };
        // SAFETY: it is a String.
        let is_utf8 = unsafe { rb_sys::rb_enc_get_index(value) } == utf8;
        is_utf8.then_some(Self(value))
    }

    /// As Ruby converts an argument; raises TypeError if it is none.
    pub(crate) fn from_argument(_: Protected, mut value: VALUE) -> Self {
        // SAFETY: what it raises is caught.
        Self(unsafe { rb_sys::rb_string_value(&raw mut value) })
    }

    /// What an object's `to_s` gives.
    pub(crate) fn convert(_: Protected, value: VALUE) -> Self {
        // SAFETY: a live object; what it raises is caught.
        Self(unsafe { rb_sys::rb_obj_as_string(value) })
    }

    /// What Ruby takes for a path: a String, or what has `to_path` or `to_str`. It has no NUL, and an encoding with
    /// ASCII's characters.
    pub(crate) fn from_path(_: Protected, value: VALUE) -> Self {
        // SAFETY: what it raises is caught.
        Self(unsafe { rb_sys::rb_get_path(value) })
    }

    /// A new String with a copy of the bytes, in UTF-8.
    pub(crate) fn new(_: Gvl, bytes: &[u8]) -> Self {
        // SAFETY: the pointer is valid for the length, and Ruby copies.
        Self(unsafe { rb_sys::rb_utf8_str_new(start(bytes), length(bytes)) })
    }

    /// A new String with a copy of the bytes, in the encoding of another one.
    pub(crate) fn like(_: Gvl, other: Self, bytes: &[u8]) -> Self {
        // SAFETY: the pointer is valid for the length, and Ruby copies.
        let string = unsafe { rb_sys::rb_str_new(start(bytes), length(bytes)) };
        // SAFETY: both are Strings.
        unsafe { rb_sys::rb_enc_copy(string, other.0) };
        Self(string)
    }

    /// The one frozen String with these bytes, in UTF-8.
    pub(crate) fn interned(_: Gvl, bytes: &[u8]) -> Self {
        // SAFETY: may be called at any time.
        let utf8 = unsafe { rb_sys::rb_utf8_encoding() };
        // SAFETY: the pointer is valid for the length, and Ruby copies.
        Self(unsafe { rb_sys::rb_enc_interned_str(start(bytes), length(bytes), utf8) })
    }

    /// The one frozen String with these bytes, in US-ASCII if they are that, otherwise without an encoding.
    pub(crate) fn interned_bytes(_: Gvl, bytes: &[u8]) -> Self {
        // SAFETY: the pointer is valid for the length, and Ruby copies.
        Self(unsafe { rb_sys::rb_interned_str(start(bytes), length(bytes)) })
    }

    /// A new String with a copy of the bytes, without an encoding.
    pub(crate) fn binary(_: Gvl, bytes: &[u8]) -> Self {
        // SAFETY: the pointer is valid for the length, and Ruby copies.
        Self(unsafe { rb_sys::rb_str_new(start(bytes), length(bytes)) })
    }

    /// Another String with the same bytes, which are copied when either is changed.
    pub(crate) fn dup(self, _: Gvl) -> Self {
        // SAFETY: it is a String.
        Self(unsafe { rb_sys::rb_str_dup(self.0) })
    }

    /// The String as it is now, whatever happens to this one later.
    pub(crate) fn frozen(self, _: Gvl) -> FrozenString {
        // SAFETY: it is a String.
        FrozenString(Self(unsafe { rb_sys::rb_str_new_frozen(self.0) }))
    }

    /// A String that reads the bytes in place, and copies them before it is changed.
    pub(crate) fn of_static(_: Gvl, bytes: &'static [u8]) -> Self {
        // SAFETY: the bytes live as long as the process, and Ruby does not write to them.
        Self(unsafe { rb_sys::rb_str_new_static(start(bytes), length(bytes)) })
    }

    /// Lets `read` look at the bytes. See [`read_all`].
    pub(crate) fn read<T>(self, gvl: Gvl, read: impl FnOnce(&[u8]) -> T + Send) -> T {
        read_all(gvl, [self], |[bytes]| read(bytes))
    }

    /// A copy of the bytes.
    pub(crate) fn to_vec(self, gvl: Gvl) -> Vec<u8> {
        self.read(gvl, <[u8]>::to_vec)
    }

    /// A copy of the bytes as text.
    pub(crate) fn to_text(self, gvl: Gvl) -> String {
        self.read(gvl, |bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// The bytes. [`read_all`] and [`FrozenString`] need no promise.
    ///
    /// # Safety
    /// The String stays on the caller's stack, or is held by what is there. While the slice lives, no Ruby code runs:
    /// nothing that is called with it has a proof of the lock.
    pub(crate) unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: it is a String.
        let start = unsafe { rb_sys::RSTRING_PTR(self.0) }.cast::<u8>();
        // SAFETY: as above.
        let length = unsafe { rb_sys::RSTRING_LEN(self.0) }.unsigned_abs();
        // SAFETY: the pointer and the length are of one String, unchanged since.
        unsafe { std::slice::from_raw_parts(start, length as usize) }
    }

    /// Its length in bytes.
    pub(crate) fn len(self, _: Gvl) -> usize {
        // SAFETY: it is a String.
        usize::try_from(unsafe { rb_sys::RSTRING_LEN(self.0) }).unwrap_or(0)
    }

    pub(crate) fn value(self) -> VALUE {
        self.0
    }
}

impl Object for RString {
    fn value(self) -> VALUE {
        self.0
    }
}

/// A String that is frozen. Its bytes stay as they are while any Ruby code runs.
pub(crate) struct FrozenString(RString);

impl FrozenString {
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: nothing changes a frozen String, and it is on the stack until this value is dropped.
        unsafe { self.0.bytes() }
    }

    pub(crate) fn string(&self) -> RString {
        self.0
    }
}

impl Drop for FrozenString {
    /// Keeps the object on the stack so far, where the collector finds it. Ruby may unwind this frame without it.
    fn drop(&mut self) {
        std::hint::black_box(self.0);
    }
}

/// Lets `read` look at the bytes of Strings. No Ruby code runs meanwhile, which could change them: `read` is `Send`,
/// and so it has no proof of the lock.
pub(crate) fn read_all<const COUNT: usize, T>(
    _: Gvl,
    strings: [RString; COUNT],
    read: impl FnOnce([&[u8]; COUNT]) -> T + Send,
) -> T {
    // SAFETY: `read` cannot call Ruby, and the Strings are on this stack until it has returned.
    let result = read(strings.map(|string| unsafe { string.bytes() }));
    std::hint::black_box(strings);
    result
}

/// The name of the Symbol with that number.
pub(super) fn symbol_name(_: Gvl, id: ID) -> RString {
    // SAFETY: the number is a symbol's.
    RString(unsafe { rb_sys::rb_id2str(id) })
}

fn string_class() -> VALUE {
    // SAFETY: set when Ruby starts, and never again.
    unsafe { rb_sys::rb_cString }
}

/// Where the bytes start. Ruby reads the first word even of an empty String, so there must be one.
fn start(bytes: &[u8]) -> *const c_char {
    static NOTHING: u64 = 0;
    if bytes.is_empty() { (&raw const NOTHING).cast() } else { bytes.as_ptr().cast() }
}

fn length(bytes: &[u8]) -> c_long {
    // No slice is longer.
    c_long::try_from(bytes.len()).unwrap_or(c_long::MAX)
}
