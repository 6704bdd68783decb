//! The environment of a program: the parent's environment with changes.

use std::ffi::{OsStr, OsString};

#[cfg(windows)]
use thruway_resolve::{fold::fold, native};

/// Changes to the environment, in order.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    cleared: bool,
    /// The new value of each variable; `None` removes the variable.
    changes: Vec<(OsString, Option<OsString>)>,
}

impl Environment {
    pub(crate) fn clear(&mut self) {
        self.cleared = true;
        self.changes.clear();
    }

    pub(crate) fn change(&mut self, key: &OsStr, value: Option<&OsStr>) {
        self.changes.retain(|(changed, _)| !same(changed, key));
        self.changes.push((key.to_owned(), value.map(OsStr::to_owned)));
    }

    /// Whether the program inherits the parent's environment unchanged.
    #[cfg(windows)]
    pub(crate) fn is_unchanged(&self) -> bool {
        !self.cleared && self.changes.is_empty()
    }

    /// Returns the new value of `key`, or `None` if the variable is unchanged. The inner `None` means removed.
    pub(crate) fn changed(&self, key: &str) -> Option<Option<&OsStr>> {
        let change = self.changes.iter().find(|(changed, _)| same(changed, OsStr::new(key)));
        match change {
            Some((_, value)) => Some(value.as_deref()),
            None => self.cleared.then_some(None),
        }
    }

    /// Returns all variables of the program.
    pub(crate) fn variables(&self) -> Vec<(OsString, OsString)> {
        let own = || std::env::vars_os().filter(|(key, _)| !self.is_changed(key));
        let mut variables: Vec<_> = if self.cleared { Vec::new() } else { own().collect() };
        let added = self.changes.iter().filter_map(|(key, value)| Some((key, value.as_ref()?)));
        variables.extend(added.map(|(key, value)| (key.clone(), value.clone())));
        variables
    }

    fn is_changed(&self, key: &OsStr) -> bool {
        self.changes.iter().any(|(changed, _)| same(changed, key))
    }
}

/// Whether two names denote the same variable. Windows ignores case.
fn same(one: &OsStr, other: &OsStr) -> bool {
    #[cfg(unix)]
    return one == other;
    #[cfg(windows)]
    return fold(&native::bytes(one)) == fold(&native::bytes(other));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(environment: &Environment, key: &str) -> Option<OsString> {
        let mut found = environment.variables().into_iter().filter(|(k, _)| same(k, key.as_ref()));
        let (value, more) = (found.next(), found.next());
        assert_eq!(more, None, "{key} is there once");
        value.map(|(_, value)| value)
    }

    #[test]
    fn the_last_change_counts() {
        let mut environment = Environment::default();
        environment.change("A".as_ref(), Some("1".as_ref()));
        environment.change("A".as_ref(), Some("2".as_ref()));
        environment.change("PATH".as_ref(), None);
        assert_eq!(value(&environment, "A"), Some("2".into()));
        assert_eq!(value(&environment, "PATH"), None);
        assert_eq!(environment.changed("PATH"), Some(None));
        assert_eq!(environment.changed("B"), None);
    }

    #[test]
    fn a_cleared_environment_holds_what_was_added_since() {
        let mut environment = Environment::default();
        environment.change("A".as_ref(), Some("1".as_ref()));
        environment.clear();
        environment.change("B".as_ref(), Some("2".as_ref()));
        assert_eq!(environment.variables(), [("B".into(), "2".into())]);
        assert_eq!(environment.changed("PATH"), Some(None));
    }
}
