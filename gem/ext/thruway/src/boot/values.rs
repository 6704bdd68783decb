//! Ruby's plain values: asking what they are, and making them.
//!
//! Called with the interpreter lock held. What makes an object may raise NoMemoryError.

use std::ffi::{c_char, c_long};

use rb_sys::{VALUE, ruby_value_type};
use thruway_boot::document::Token;

use super::originals;
use super::vm::{self, NIL};

/// The token of an object that has no identity, and no parts.
pub(super) fn simple_token<'a>(object: VALUE) -> Option<Token<'a>> {
    match object {
        NIL => return Some(Token::Nil),
        vm::TRUE => return Some(Token::True),
        vm::FALSE => return Some(Token::False),
        _ => {}
    }
    if rb_sys::FIXNUM_P(object) {
        // SAFETY: it is a Fixnum.
        return Some(Token::Integer(unsafe { rb_sys::FIX2LONG(object) }));
    }
    // SAFETY: any VALUE may be asked for its type.
    if unsafe { rb_sys::RB_FLOAT_TYPE_P(object) } {
        // SAFETY: it is a Float.
        return Some(Token::Float(unsafe { rb_sys::rb_float_value(object) }));
    }
    // SAFETY: any VALUE may be asked for its type.
    if unsafe { rb_sys::RB_SYMBOL_P(object) } {
        // SAFETY: it is a Symbol; its name lives as long as it does.
        let name = unsafe { rb_sys::rb_sym2str(object) };
        // SAFETY: as above.
        return unsafe { text(name) }.map(Token::Symbol);
    }
    None
}

/// The object of a token that [`simple_token`] gives.
pub(super) fn simple_object(token: Token<'_>) -> Option<VALUE> {
    Some(match token {
        Token::Nil => NIL,
        Token::True => vm::TRUE,
        Token::False => vm::FALSE,
        Token::Integer(number) => integer(number),
        // SAFETY: any number may become a Float.
        Token::Float(number) => unsafe { rb_sys::rb_float_new(number) },
        Token::Symbol(name) => symbol(name),
        _ => return None,
    })
}

fn integer(number: i64) -> VALUE {
    // SAFETY: any number may become an Integer.
    unsafe { rb_sys::rb_ll2inum(number) }
}

fn symbol(name: &[u8]) -> VALUE {
    let length = name.len() as c_long;
    // SAFETY: the pointer is valid for the length, and Ruby copies.
    let id = unsafe { rb_sys::rb_intern3(name.as_ptr().cast::<c_char>(), length, utf8()) };
    // SAFETY: it is a symbol's number.
    unsafe { rb_sys::rb_id2sym(id) }
}

/// The bytes of a UTF-8 String that is nothing more than that.
///
/// # Safety
/// `object` is held by somebody and not changed while the slice lives.
pub(super) unsafe fn utf8_text<'a>(object: VALUE) -> Option<&'a [u8]> {
    // SAFETY: set when Ruby starts, and never again.
    if !is_exactly(object, unsafe { rb_sys::rb_cString }) {
        return None;
    }
    // SAFETY: it is a String.
    let encoding = unsafe { rb_sys::rb_enc_get_index(object) };
    // SAFETY: may be called at any time.
    let is_utf8 = encoding == unsafe { rb_sys::rb_utf8_encindex() };
    // SAFETY: it is a String; the rest is this function's own condition.
    if is_utf8 { unsafe { text(object) } } else { None }
}

/// # Safety
/// `string` is a String, held by somebody and not changed while the slice lives.
unsafe fn text<'a>(string: VALUE) -> Option<&'a [u8]> {
    // SAFETY: as this function's own.
    let bytes = unsafe { crate::ruby::bytes(string) };
    (bytes.is_ascii() || std::str::from_utf8(bytes).is_ok()).then_some(bytes)
}

/// The elements of an Array that is nothing more than that.
///
/// # Safety
/// `object` is held by somebody and not changed while the slice lives.
pub(super) unsafe fn plain_elements<'a>(object: VALUE) -> Option<&'a [VALUE]> {
    // SAFETY: set when Ruby starts, and never again.
    let is_plain = is_exactly(object, unsafe { rb_sys::rb_cArray });
    // SAFETY: it is an Array; the rest is this function's own condition.
    is_plain.then(|| unsafe { vm::elements(object) })
}

/// How many pairs a Hash holds that is nothing more than that: no default, keys by their value.
pub(super) fn plain_hash_length(object: VALUE) -> Option<usize> {
    // SAFETY: set when Ruby starts, and never again.
    let is_hash = is_exactly(object, unsafe { rb_sys::rb_cHash });
    let is_plain = is_hash
        && vm::send(object, c"default", &[]) == Some(NIL)
        && vm::send(object, c"default_proc", &[]) == Some(NIL)
        && !vm::ask(object, c"compare_by_identity?", &[]);
    // SAFETY: it is a Hash.
    is_plain.then(|| unsafe { rb_sys::rb_hash_size_num(object) } as usize)
}

/// A `Date`: its Julian day number, and where its calendar changes.
pub(super) fn date(object: VALUE) -> Option<(i64, f64)> {
    let class = vm::constant_at(&[c"Date"])?;
    if !is_exactly(object, class) {
        return None;
    }
    let numbers = (vm::send(object, c"jd", &[])?, vm::send(object, c"start", &[])?);
    match (simple_token(numbers.0)?, simple_token(numbers.1)?) {
        (Token::Integer(day), Token::Float(start)) => Some((day, start)),
        _ => None,
    }
}

/// A new `Date`, whose class is loaded if it is not there.
pub(super) fn new_date(day: i64, start: f64) -> Option<VALUE> {
    let class = vm::constant_at(&[c"Date"]).or_else(|| {
        vm::require(c"date")?;
        vm::constant_at(&[c"Date"])
    })?;
    // SAFETY: any number may become a Float.
    let start = unsafe { rb_sys::rb_float_new(start) };
    vm::send(class, c"jd", &[integer(day), start])
}

/// Whether `Date` reads and makes dates by its own methods, which are written in C; it does, too, if it
/// is not there yet.
pub(super) fn makes_dates_itself() -> bool {
    let Some(class) = vm::constant_at(&[c"Date"]) else { return true };
    [c"strptime", c"jd"].into_iter().all(|name| {
        let method = originals::own_method(class, name);
        method.is_some_and(|method| {
            let ask = |question| vm::send(method, question, &[]);
            ask(c"source_location") == Some(NIL) && ask(c"name") == ask(c"original_name")
        })
    })
}

/// Whether an object is of that class, of no subclass, and has no variables.
fn is_exactly(object: VALUE, class: VALUE) -> bool {
    // SAFETY: any VALUE may be asked for its class.
    let has_class = unsafe { rb_sys::rb_obj_class(object) } == class;
    // SAFETY: an object of one of these classes may be asked for its variables.
    has_class && unsafe { rb_sys::rb_ivar_count(object) } == 0
}

pub(super) fn is_frozen(object: VALUE) -> bool {
    // SAFETY: any VALUE may be asked.
    unsafe { rb_sys::rb_obj_frozen_p(object) == vm::TRUE }
}

pub(super) fn frozen_if(object: VALUE, is_frozen: bool) -> VALUE {
    if is_frozen {
        // SAFETY: any object may be frozen.
        unsafe { rb_sys::rb_obj_freeze(object) };
    }
    object
}

/// The one frozen String with these bytes.
pub(super) fn interned(text: &[u8]) -> VALUE {
    let length = text.len() as c_long;
    // SAFETY: the pointer is valid for the length, and Ruby copies.
    unsafe { rb_sys::rb_enc_interned_str(text.as_ptr().cast::<c_char>(), length, utf8()) }
}

fn utf8() -> *mut rb_sys::rb_encoding {
    // SAFETY: may be called at any time.
    unsafe { rb_sys::rb_utf8_encoding() }
}

/// An empty Array with room for so many elements.
pub(super) fn new_array_for(length: usize) -> VALUE {
    // SAFETY: the lock is held.
    unsafe { rb_sys::rb_ary_new_capa(length as c_long) }
}

/// The element at that place, if there is one.
pub(super) fn element(array: VALUE, place: usize) -> Option<VALUE> {
    // SAFETY: it is an Array, and no Ruby code runs while the slice lives.
    unsafe { vm::elements(array) }.get(place).copied()
}

pub(super) fn new_hash() -> VALUE {
    // SAFETY: the lock is held.
    unsafe { rb_sys::rb_hash_new() }
}

/// Whether `object` is a Hash whose values are plain enough to be told from what they print:
/// true, false, nil, symbols, and lists of symbols and classes.
pub(super) fn is_printable_hash(object: VALUE) -> bool {
    unsafe extern "C" fn pair(key: VALUE, value: VALUE, is_printable: VALUE) -> std::ffi::c_int {
        let is_plain = is_printable_value(key) && is_printable_value(value);
        if !is_plain {
            // SAFETY: `is_printable_hash` passes the address of its own local.
            unsafe { *(is_printable as *mut bool) = false };
        }
        std::ffi::c_int::from(!is_plain)
    }
    let mut is_printable = has_type(object, ruby_value_type::RUBY_T_HASH);
    if is_printable {
        // SAFETY: it is a Hash; `pair` runs no Ruby code.
        unsafe { rb_sys::rb_hash_foreach(object, Some(pair), &raw mut is_printable as VALUE) };
    }
    is_printable
}

fn is_printable_value(value: VALUE) -> bool {
    let is_named = |value: VALUE| {
        // SAFETY: any VALUE may be asked for its type.
        let is_symbol = unsafe { rb_sys::RB_SYMBOL_P(value) };
        is_symbol || has_type(value, ruby_value_type::RUBY_T_CLASS)
    };
    if has_type(value, ruby_value_type::RUBY_T_ARRAY) {
        // SAFETY: it is an Array, and no Ruby code runs while the slice lives.
        return unsafe { vm::elements(value) }.iter().all(|value| is_named(*value));
    }
    matches!(value, NIL | vm::TRUE | vm::FALSE) || is_named(value)
}

fn has_type(object: VALUE, kind: ruby_value_type) -> bool {
    // SAFETY: any VALUE may be asked for its type.
    unsafe { rb_sys::RB_TYPE(object) == kind }
}
