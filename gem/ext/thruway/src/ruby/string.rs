//! Strings.

use std::ffi::{c_char, c_long};

use rb_sys::{ID, VALUE, ruby_value_type};

use super::gvl::{Gvl, ProtectedCall};
use super::value::{Object, class_of, has_type, is_exactly};

/// A String, or an object of a derived class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RString(VALUE);

impl RString {
    /// Returns the object as a String if it is one.
    pub(crate) fn of(gvl: Gvl, value: VALUE) -> Option<Self> {
        has_type(gvl, value, ruby_value_type::RUBY_T_STRING).then_some(Self(value))
    }

    /// Returns the object as a String if its class is exactly `String`.
    pub(crate) fn plain(gvl: Gvl, value: VALUE) -> Option<Self> {
        (class_of(gvl, value) == string_class()).then_some(Self(value))
    }

    /// Returns the object as a String if its class is exactly `String`, it has no instance variables, and its
    /// encoding is UTF-8.
    pub(crate) fn utf8(gvl: Gvl, value: VALUE) -> Option<Self> {
        if !is_exactly(gvl, value, string_class()) {
            return None;
        }
        // SAFETY: the function may be called at any time.
        let utf8 = unsafe { rb_sys::rb_utf8_encindex() };
        // SAFETY: the value is a String.
        let is_utf8 = unsafe { rb_sys::rb_enc_get_index(value) } == utf8;
        is_utf8.then_some(Self(value))
    }

    /// Converts an object to a String, as Ruby converts arguments. Raises TypeError.
    pub(crate) fn from_argument(_: ProtectedCall, mut value: VALUE) -> Self {
        // SAFETY: exceptions are caught further up.
        Self(unsafe { rb_sys::rb_string_value(&raw mut value) })
    }

    /// Converts an object to a String by its `to_s`.
    pub(crate) fn convert(_: ProtectedCall, value: VALUE) -> Self {
        // SAFETY: a live object; exceptions are caught further up.
        Self(unsafe { rb_sys::rb_obj_as_string(value) })
    }

    /// Converts an object to a path: a String, or an object with `to_path` or `to_str`. A path contains no NUL, and
    /// its encoding is compatible with ASCII.
    pub(crate) fn from_path(_: ProtectedCall, value: VALUE) -> Self {
        // SAFETY: exceptions are caught further up.
        Self(unsafe { rb_sys::rb_get_path(value) })
    }

    /// Returns a new UTF-8 String with a copy of the bytes.
    pub(crate) fn new(_: Gvl, bytes: &[u8]) -> Self {
        // SAFETY: the pointer is valid for the length, and Ruby copies.
        Self(unsafe { rb_sys::rb_utf8_str_new(start(bytes), length(bytes)) })
    }

    /// Returns a new String with a copy of the bytes, in the encoding of another String.
    pub(crate) fn like(_: Gvl, other: Self, bytes: &[u8]) -> Self {
        // SAFETY: the pointer is valid for the length, and Ruby copies.
        let string = unsafe { rb_sys::rb_str_new(start(bytes), length(bytes)) };
        // SAFETY: both are Strings.
        unsafe { rb_sys::rb_enc_copy(string, other.0) };
        Self(string)
    }

    /// Returns the interned frozen UTF-8 String with these bytes.
    pub(crate) fn interned(_: Gvl, bytes: &[u8]) -> Self {
        // SAFETY: the function may be called at any time.
        let utf8 = unsafe { rb_sys::rb_utf8_encoding() };
        // SAFETY: the pointer is valid for the length, and Ruby copies.
        Self(unsafe { rb_sys::rb_enc_interned_str(start(bytes), length(bytes), utf8) })
    }

    /// Returns the interned frozen String with these bytes, in US-ASCII if possible and otherwise in binary encoding.
    pub(crate) fn interned_bytes(_: Gvl, bytes: &[u8]) -> Self {
        // SAFETY: the pointer is valid for the length, and Ruby copies.
        Self(unsafe { rb_sys::rb_interned_str(start(bytes), length(bytes)) })
    }

    /// Returns a new String with a copy of the bytes, in binary encoding.
    pub(crate) fn binary(_: Gvl, bytes: &[u8]) -> Self {
        // SAFETY: the pointer is valid for the length, and Ruby copies.
        Self(unsafe { rb_sys::rb_str_new(start(bytes), length(bytes)) })
    }

    /// Returns a String of that many bytes without a class, which `ObjectSpace` does not show.
    pub(crate) fn hidden(_: ProtectedCall, length: u64) -> Self {
        // SAFETY: exceptions are caught further up.
        Self(unsafe { rb_sys::rb_str_tmp_new(c_long::try_from(length).unwrap_or(0)) })
    }

    /// Returns another String with the same bytes, which are copied when either String changes.
    pub(crate) fn dup(self, _: Gvl) -> Self {
        // SAFETY: the value is a String.
        Self(unsafe { rb_sys::rb_str_dup(self.0) })
    }

    /// Returns a frozen String with the current bytes, which later changes do not affect.
    pub(crate) fn frozen(self, _: Gvl) -> FrozenString {
        // SAFETY: the value is a String.
        FrozenString(Self(unsafe { rb_sys::rb_str_new_frozen(self.0) }))
    }

    /// Returns a String that refers to the bytes in place, and copies them before a change.
    pub(crate) fn of_static(_: Gvl, bytes: &'static [u8]) -> Self {
        // SAFETY: the bytes live as long as the process, and Ruby does not write to them.
        Self(unsafe { rb_sys::rb_str_new_static(start(bytes), length(bytes)) })
    }

    /// Calls `read` with the bytes. See [`read_all`].
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

    /// The bytes. [`read_all`] and [`FrozenString`] give access without this contract.
    ///
    /// # Safety
    /// The String stays on the caller's stack, or is referenced from there. While the slice lives, no Ruby code runs:
    /// no function that is called meanwhile has a proof of the lock.
    pub(crate) unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: the value is a String.
        let start = unsafe { rb_sys::RSTRING_PTR(self.0) }.cast::<u8>();
        // SAFETY: as above.
        let length = unsafe { rb_sys::RSTRING_LEN(self.0) }.unsigned_abs();
        // SAFETY: the pointer and the length are those of one String, which has not changed in between.
        unsafe { std::slice::from_raw_parts(start, length as usize) }
    }

    /// The length in bytes.
    pub(crate) fn len(self, _: Gvl) -> usize {
        // SAFETY: the value is a String.
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

/// A frozen String, whose bytes stay the same while Ruby code runs.
pub(crate) struct FrozenString(RString);

impl FrozenString {
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: a frozen String does not change, and stays on the stack until this value is dropped.
        unsafe { self.0.bytes() }
    }

    pub(crate) fn string(&self) -> RString {
        self.0
    }
}

impl Drop for FrozenString {
    /// Keeps the object on the stack until here, where the collector finds it. If Ruby unwinds the frame, the drop is
    /// skipped, which does no harm.
    fn drop(&mut self) {
        std::hint::black_box(self.0);
    }
}

/// Calls `read` with the bytes of Strings. No Ruby code, which could change them, runs meanwhile: `read` is `Send`,
/// so it has no proof of the lock.
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

/// The name of the Symbol with that ID.
pub(super) fn symbol_name(_: Gvl, id: ID) -> RString {
    // SAFETY: the ID is a Symbol's.
    RString(unsafe { rb_sys::rb_id2str(id) })
}

fn string_class() -> VALUE {
    // SAFETY: the class is set when Ruby starts, and never changes.
    unsafe { rb_sys::rb_cString }
}

/// The address of the bytes. Ruby reads the first word even of an empty String, so the address must be valid.
fn start(bytes: &[u8]) -> *const c_char {
    static NOTHING: u64 = 0;
    if bytes.is_empty() { (&raw const NOTHING).cast() } else { bytes.as_ptr().cast() }
}

fn length(bytes: &[u8]) -> c_long {
    // No slice is longer.
    c_long::try_from(bytes.len()).unwrap_or(c_long::MAX)
}
