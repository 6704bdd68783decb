//! Certificates that a server keeps by itself.

use std::path::Path;

use thruway_acme::{NameReport, Storage};
use thruway_sys::printable;

use super::checks::Check;
use crate::verbs::certificates::{date, now_s, storage_root};

const NAME: &str = "certificates";
const READ: &str = "run thruway doctor as the server's user";
const LOG: &str =
    "thruway certificates shows the next attempt; docs/howto/certificates.md explains the errors";

/// Checks the certificates in the storage of a server that is started in this folder. Without a storage, there is no
/// check.
pub(super) fn checks() -> Option<Check> {
    let root = storage_root(None).ok().filter(|root| root.is_dir())?;
    let storages = match Storage::list(&root) {
        Ok(storages) => storages,
        Err(error) => return Some(Check::limited(NAME, error.to_string(), READ)),
    };
    let now_s = now_s();
    let reports: Vec<_> = storages.iter().flat_map(|storage| storage.reports(now_s)).collect();
    (!reports.is_empty()).then(|| check(&root, &reports, now_s))
}

/// Checks the worst certificate: one that is missing or has expired, or one that was not renewed.
fn check(root: &Path, reports: &[NameReport], now_s: u64) -> Check {
    let error = |report: &NameReport| {
        let error = report.state.last_error.as_deref();
        error.map(|error| format!(": {error}")).unwrap_or_default()
    };
    let is_valid = |report: &NameReport| report.not_after_s.is_some_and(|end_s| end_s > now_s);
    if let Some(report) = reports.iter().find(|report| !is_valid(report)) {
        let name = &report.name;
        let told = match report.not_after_s {
            Some(end_s) => format!("{name}: expired on {}{}", date(end_s), error(report)),
            None => format!("{name}: no certificate{}", error(report)),
        };
        return Check::broken(NAME, told, LOG);
    }
    if let Some(report) = reports.iter().find(|report| report.state.failures > 0) {
        let (name, failures) = (&report.name, report.state.failures);
        let told = format!("{name}: {failures} failed attempts to renew{}", error(report));
        return Check::limited(NAME, told, LOG);
    }
    let first_s = reports.iter().filter_map(|report| report.not_after_s).min().unwrap_or(0);
    let told =
        format!("{} in {}, valid until {}", reports.len(), printable::path(&root), date(first_s));
    Check::works(NAME, told)
}

#[cfg(test)]
mod tests {
    use thruway_acme::NameState;

    use super::super::checks::State;
    use super::*;

    fn report(name: &str, not_after_s: Option<u64>, failures: u32) -> NameReport {
        let last_error = (failures > 0).then(|| "refused".to_owned());
        let state = NameState { failures, last_error, ..NameState::default() };
        NameReport { name: name.to_owned(), not_after_s, due_s: 0, state }
    }

    #[test]
    fn the_worst_certificate_is_told() {
        let check = |reports: &[NameReport]| {
            let check = check(Path::new("/s"), reports, 1000);
            (check.state, check.told)
        };
        let good = || report("a.example", Some(2000), 0);
        let (state, told) = check(&[good(), report("b.example", Some(1500), 0)]);
        assert_eq!((state, &*told), (State::Works, "2 in /s, valid until 1970-01-01 00:25 UTC"));
        let (state, told) = check(&[good(), report("b.example", Some(1500), 2)]);
        assert_eq!(state, State::Limited);
        assert_eq!(told, "b.example: 2 failed attempts to renew: refused");
        let late = || report("c.example", Some(1000), 0);
        let (state, told) = check(&[report("b.example", Some(1500), 2), late()]);
        assert_eq!((state, &*told), (State::Broken, "c.example: expired on 1970-01-01 00:16 UTC"));
        let (_, told) = check(&[good(), report("d.example", None, 1), late()]);
        assert_eq!(told, "d.example: no certificate: refused");
    }
}
