//! Ruby's plain values as tokens of a [document](thruway_boot::document), and back.
//!
//! Functions that create objects may raise NoMemoryError.

use rb_sys::{VALUE, ruby_value_type};
use thruway_boot::document::Token;

use super::{originals, vm};
use crate::ruby::call::{ask, send};
use crate::ruby::constants::constant_at;
use crate::ruby::number;
use crate::ruby::symbol::is_symbol;
use crate::ruby::value::{has_type, is_exactly};
use crate::ruby::{FALSE, Gvl, NIL, RArray, RHash, RString, Symbol, TRUE};

/// The token of an object that has no identity and no parts.
pub(super) fn simple_token<'a>(gvl: Gvl, object: VALUE) -> Option<Token<'a>> {
    match object {
        NIL => return Some(Token::Nil),
        TRUE => return Some(Token::True),
        FALSE => return Some(Token::False),
        _ => {}
    }
    if let Some(number) = number::small(object) {
        return Some(Token::Integer(number));
    }
    // SAFETY: any live object may be asked for its type.
    if unsafe { rb_sys::RB_FLOAT_TYPE_P(object) } {
        // SAFETY: the value is a Float.
        return Some(Token::Float(unsafe { rb_sys::rb_float_value(object) }));
    }
    // SAFETY: the name of a Symbol lives as long as it does, and never changes.
    let name = Symbol::name_of(gvl, object).map(|name| unsafe { name.bytes() });
    name.filter(|name| is_utf8(name)).map(Token::Symbol)
}

/// The object of a token that [`simple_token`] returns.
pub(super) fn simple_object(gvl: Gvl, token: Token<'_>) -> Option<VALUE> {
    Some(match token {
        Token::Nil => NIL,
        Token::True => TRUE,
        Token::False => FALSE,
        Token::Integer(number) => number::from_i64(gvl, number),
        Token::Float(number) => float(gvl, number),
        Token::Symbol(name) => Symbol::of_utf8(gvl, name).value(),
        _ => return None,
    })
}

fn float(_: Gvl, number: f64) -> VALUE {
    // SAFETY: any number may become a Float.
    unsafe { rb_sys::rb_float_new(number) }
}

/// The result of `read` for the bytes of an object, if the object is a plain String of valid UTF-8.
pub(super) fn read_utf8<T>(
    gvl: Gvl,
    object: VALUE,
    read: impl FnOnce(&[u8]) -> T + Send,
) -> Option<T> {
    RString::utf8(gvl, object)?.read(gvl, |text| is_utf8(text).then(|| read(text)))
}

fn is_utf8(text: &[u8]) -> bool {
    text.is_ascii() || std::str::from_utf8(text).is_ok()
}

/// A plain Hash: without a default, and with keys compared by value.
pub(super) fn plain_hash(gvl: Gvl, object: VALUE) -> Option<RHash> {
    let hash = RHash::exactly(gvl, object)?;
    let is_plain = send(gvl, object, c"default", &[]) == Some(NIL)
        && send(gvl, object, c"default_proc", &[]) == Some(NIL)
        && !ask(gvl, object, c"compare_by_identity?", &[]);
    is_plain.then_some(hash)
}

/// The Julian day number of a `Date`, and the day on which its calendar changes.
pub(super) fn date(gvl: Gvl, object: VALUE) -> Option<(i64, f64)> {
    let class = constant_at(gvl, &[c"Date"])?;
    if !is_exactly(gvl, object, class) {
        return None;
    }
    let number = |name| simple_token(gvl, send(gvl, object, name, &[])?);
    match (number(c"jd")?, number(c"start")?) {
        (Token::Integer(day), Token::Float(start)) => Some((day, start)),
        _ => None,
    }
}

/// A new `Date`. Loads the class if it is not loaded yet.
pub(super) fn new_date(gvl: Gvl, day: i64, start: f64) -> Option<VALUE> {
    let class = constant_at(gvl, &[c"Date"]).or_else(|| {
        vm::require_as_program(gvl, c"date")?;
        constant_at(gvl, &[c"Date"])
    })?;
    send(gvl, class, c"jd", &[number::from_i64(gvl, day), float(gvl, start)])
}

/// Whether `Date` parses and creates dates by its own methods, which are written in C. Also true if `Date` is not
/// loaded yet.
pub(super) fn makes_dates_itself(gvl: Gvl) -> bool {
    let Some(class) = constant_at(gvl, &[c"Date"]) else { return true };
    [c"strptime", c"jd"].into_iter().all(|name| {
        let method = originals::own_method(gvl, class, name);
        method.is_some_and(|method| {
            let ask = |question| send(gvl, method, question, &[]);
            ask(c"source_location") == Some(NIL) && ask(c"name") == ask(c"original_name")
        })
    })
}

/// Whether `object` is a Hash whose printed form identifies its keys and values: true, false, nil, symbols, classes,
/// and lists of symbols and classes.
pub(super) fn is_printable_hash(gvl: Gvl, object: VALUE) -> bool {
    let Some(hash) = RHash::of(gvl, object) else { return false };
    let mut is_printable = true;
    hash.each(gvl, |key, value| {
        is_printable = is_printable_value(gvl, key) && is_printable_value(gvl, value);
        is_printable
    });
    is_printable
}

fn is_printable_value(gvl: Gvl, value: VALUE) -> bool {
    let is_named =
        |value: VALUE| is_symbol(gvl, value) || has_type(gvl, value, ruby_value_type::RUBY_T_CLASS);
    if let Some(list) = RArray::of(gvl, value) {
        // SAFETY: the Hash holds it, and no Ruby code runs while the slice lives.
        return unsafe { list.elements() }.iter().all(|value| is_named(*value));
    }
    matches!(value, NIL | TRUE | FALSE) || is_named(value)
}
