//! What this Ruby is to be, as its environment said.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::OnceLock;

use thruway_preload::plan::Variable;
use thruway_preload::role::{self, Assignment, Role};

use crate::ruby::call::send;
use crate::ruby::constants::constant;
use crate::ruby::{Gvl, RString};

static ROLE: OnceLock<Option<Role>> = OnceLock::new();
/// The environment that it was started with.
static ENVIRONMENT: OnceLock<BTreeMap<OsString, OsString>> = OnceLock::new();

/// Reads the variable, and takes it out of the environment.
pub(super) fn take(gvl: Gvl) {
    ROLE.get_or_init(|| {
        let value = std::env::var_os(role::VARIABLE)?;
        let name = RString::new(gvl, role::VARIABLE.as_bytes());
        send(gvl, constant(gvl, c"ENV")?, c"delete", &[name.value()]);
        Role::of(&value, std::process::id())
    });
    if role().is_some() {
        ENVIRONMENT.get_or_init(|| std::env::vars_os().collect());
    }
}

pub(super) fn role() -> Option<&'static Role> {
    ROLE.get()?.as_ref()
}

pub(super) fn is_template() -> bool {
    template().is_some()
}

/// The post of a template.
pub(super) fn template() -> Option<&'static Assignment> {
    match role()? {
        Role::Template(post) | Role::TemplateOfWords(post) => Some(post),
        Role::Learner(_) => None,
    }
}

/// Whether the template is for commands of the same words alone.
pub(super) fn is_of_words() -> bool {
    matches!(role(), Some(Role::TemplateOfWords(_)))
}

/// The post of a command that learns, in the process that was meant.
pub(super) fn learner() -> Option<&'static Assignment> {
    match role()? {
        Role::Learner(post) if post.process == std::process::id() => Some(post),
        _ => None,
    }
}

/// The value of a variable as it was at the start.
pub(super) fn given(name: &str) -> Option<Vec<u8>> {
    let value = ENVIRONMENT.get()?.get(std::ffi::OsStr::new(name))?;
    Some(value.as_encoded_bytes().to_vec())
}

/// The variables that are not as they were at the start: without a value, if they are gone.
pub(super) fn changed_variables() -> Vec<Variable> {
    let Some(before) = ENVIRONMENT.get() else { return Vec::new() };
    let now: BTreeMap<_, _> = std::env::vars_os().collect();
    let names: std::collections::BTreeSet<_> = before.keys().chain(now.keys()).collect();
    // The report's own word is no change of the program's.
    let counts = |name: &OsString| name != "THRUWAY_BOOT" && before.get(name) != now.get(name);
    let changed = names.into_iter().filter(|name| counts(name));
    changed
        .map(|name| {
            let value = now.get(name).map(|value| value.as_encoded_bytes().to_vec());
            (name.as_encoded_bytes().to_vec(), value)
        })
        .collect()
}
