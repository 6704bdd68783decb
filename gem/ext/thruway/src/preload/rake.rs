//! The state of Rake's application when a command loads the first of Rails' files. A boot may depend on it: Rails
//! before 7.1 and dotenv-rails choose the environment by the tasks that Rake is to run.

use std::ffi::CStr;

use rb_sys::{VALUE, ruby_value_type};
use thruway_preload::plan::RakeState;

use crate::ruby::call::send;
use crate::ruby::constants::{constant, constant_at};
use crate::ruby::object::variable;
use crate::ruby::value::has_type;
use crate::ruby::{Gvl, NIL, RArray, RString, Symbol};

/// Returns the state; it is empty if Rake has no application yet. Attributes come first, then options, whose names
/// begin with `options.`.
pub(super) fn state(gvl: Gvl) -> RakeState {
    let rake = constant_at(gvl, &[c"Rake"]).map(|rake| of(gvl, rake, c"@application"));
    let Some(application) = rake.filter(|application| *application != NIL) else {
        return RakeState::new();
    };
    let attributes = [c"@name", c"@rakefile", c"@top_level_tasks"];
    let attributes = attributes.iter().filter_map(|name| {
        let value = marshalled(gvl, of(gvl, application, name))?;
        Some((name.to_bytes()[1..].to_vec(), value))
    });
    attributes.chain(options(gvl, application)).collect()
}

fn options(gvl: Gvl, application: VALUE) -> RakeState {
    let options = of(gvl, application, c"@options");
    let pairs = send(gvl, options, c"to_h", &[]).and_then(|all| send(gvl, all, c"to_a", &[]));
    let Some(pairs) = pairs.and_then(|pairs| RArray::of(gvl, pairs)) else {
        return RakeState::new();
    };
    let option = |place| {
        let pair = RArray::of(gvl, pairs.get(gvl, place)?)?;
        let name = Symbol::name_of(gvl, pair.get(gvl, 0)?)?.to_vec(gvl);
        Some(([b"options.", &name[..]].concat(), marshalled(gvl, pair.get(gvl, 1)?)?))
    };
    (0..pairs.len(gvl)).filter_map(option).collect()
}

fn of(gvl: Gvl, object: VALUE, name: &'static CStr) -> VALUE {
    variable(gvl, object, Symbol::new(gvl, name))
}

/// The value as `Marshal` writes it; `None` for a stream or another object with a state of its own, which a template
/// leaves as it is.
fn marshalled(gvl: Gvl, value: VALUE) -> Option<Vec<u8>> {
    let others = [
        ruby_value_type::RUBY_T_FILE,
        ruby_value_type::RUBY_T_OBJECT,
        ruby_value_type::RUBY_T_DATA,
    ];
    if others.into_iter().any(|kind| has_type(gvl, value, kind)) {
        return None;
    }
    let bytes = send(gvl, constant(gvl, c"Marshal")?, c"dump", &[value])?;
    Some(RString::of(gvl, bytes)?.to_vec(gvl))
}
