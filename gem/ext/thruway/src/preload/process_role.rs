//! The role of this Ruby, which its environment determines.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::OnceLock;

use thruway_preload::plan::Variable;
use thruway_preload::role::{self, Assignment, Role};

use crate::ruby::call::send;
use crate::ruby::constants::constant;
use crate::ruby::{Gvl, RString};

/// The role and the first environment of this process. Both are set once, when the extension is loaded.
struct ProcessRole {
    role: OnceLock<Option<Role>>,
    /// The environment at the start of the process.
    environment: OnceLock<BTreeMap<OsString, OsString>>,
}

static PROCESS: ProcessRole = ProcessRole { role: OnceLock::new(), environment: OnceLock::new() };

/// Reads the role from its variable, and removes the variable from the environment.
pub(super) fn take(gvl: Gvl) {
    PROCESS.role.get_or_init(|| {
        let value = std::env::var_os(role::VARIABLE)?;
        let name = RString::new(gvl, role::VARIABLE.as_bytes());
        send(gvl, constant(gvl, c"ENV")?, c"delete", &[name.value()]);
        Role::of(&value, std::process::id())
    });
    if role().is_some() {
        PROCESS.environment.get_or_init(|| std::env::vars_os().collect());
    }
}

pub(super) fn role() -> Option<&'static Role> {
    PROCESS.role.get()?.as_ref()
}

pub(super) fn is_template() -> bool {
    template().is_some()
}

/// The assignment of this template; `None` in other processes.
pub(super) fn template() -> Option<&'static Assignment> {
    match role()? {
        Role::Template(assignment) | Role::TemplateOfWords(assignment) => Some(assignment),
        Role::Learner(_) => None,
    }
}

/// Whether this template serves only commands with the same words.
pub(super) fn is_of_words() -> bool {
    matches!(role(), Some(Role::TemplateOfWords(_)))
}

/// The assignment of a command from which a template is planned; `None` in its children and in other processes.
pub(super) fn learner() -> Option<&'static Assignment> {
    match role()? {
        Role::Learner(assignment) if assignment.process == std::process::id() => Some(assignment),
        _ => None,
    }
}

/// The value of a variable at the start of the process.
pub(super) fn given(name: &str) -> Option<Vec<u8>> {
    let value = PROCESS.environment.get()?.get(std::ffi::OsStr::new(name))?;
    Some(value.as_encoded_bytes().to_vec())
}

/// The variables that have changed since the start of the process; removed variables have no value.
pub(super) fn changed_variables() -> Vec<Variable> {
    let Some(before) = PROCESS.environment.get() else { return Vec::new() };
    let now: BTreeMap<_, _> = std::env::vars_os().collect();
    let names: std::collections::BTreeSet<_> = before.keys().chain(now.keys()).collect();
    // `THRUWAY_BOOT` is changed by the boot's report, not by the program.
    let counts = |name: &OsString| name != "THRUWAY_BOOT" && before.get(name) != now.get(name);
    let changed = names.into_iter().filter(|name| counts(name));
    changed
        .map(|name| {
            let value = now.get(name).map(|value| value.as_encoded_bytes().to_vec());
            (name.as_encoded_bytes().to_vec(), value)
        })
        .collect()
}
