//! Obtains and renews the certificates of a server, each at the time when it is due.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::rand::{SecureRandom, SystemRandom};

use thruway_tls::CertificateReport;

use crate::authority::Authority;
use crate::domain_name::DomainName;
use crate::error::Error;
use crate::issuer::{AcmeIssuer, Issuer};
use crate::schedule::NameState;
use crate::settings::Settings;
use crate::storage::Storage;

/// The maximum time between two looks at the storage and the clock: another server may have written to the storage, the
/// machine may have slept, and the clock may have been set.
const LOOK_MAX: Duration = Duration::from_secs(60);

/// The maximum time between two questions for an authority's suggestion, in seconds.
const ASK_AGAIN_MAX_S: u64 = 24 * 3600;

/// The pause while another server works with the storage.
const LOCKED_PAUSE: Duration = Duration::from_secs(2);

/// An event that the server logs.
#[derive(Debug)]
pub enum Event<'a> {
    /// A certificate was obtained.
    Obtained {
        /// The name.
        name: &'a DomainName,
        /// The end of its validity.
        not_after_s: u64,
    },
    /// A certificate could not be obtained.
    Failed {
        /// The name.
        name: &'a DomainName,
        /// The reason.
        error: &'a Error,
        /// The seconds until the next attempt.
        pause_s: u64,
    },
    /// A file in the storage cannot be used, and will be replaced.
    Damaged {
        /// The reason.
        error: &'a Error,
    },
}

/// Obtains and renews the certificates of a server's names.
pub struct Agent<'a> {
    settings: Settings,
    storage: Storage,
    random: SystemRandom,
    report: Box<dyn FnMut(Event<'_>) + 'a>,
    issuer: Box<dyn Issuer + 'a>,
    /// Returns the time in seconds since 1970.
    clock: Box<dyn Fn() -> u64 + 'a>,
    /// The states that could not be written, since the disk is full, for example.
    unwritten: HashMap<DomainName, NameState>,
    /// The reports for the workers, as they were last written.
    written_reports: HashMap<DomainName, CertificateReport>,
}

impl<'a> Agent<'a> {
    /// Creates an agent, which passes events to `report`.
    pub fn new(settings: Settings, storage: Storage, report: impl FnMut(Event<'_>) + 'a) -> Self {
        let issuer = AcmeIssuer(settings.clone());
        Self::with(settings, storage, issuer, now_s, report)
    }

    fn with(
        settings: Settings,
        storage: Storage,
        issuer: impl Issuer + 'a,
        clock: impl Fn() -> u64 + 'a,
        report: impl FnMut(Event<'_>) + 'a,
    ) -> Self {
        Self {
            settings,
            storage,
            random: SystemRandom::new(),
            report: Box::new(report),
            issuer: Box::new(issuer),
            clock: Box::new(clock),
            unwritten: HashMap::new(),
            written_reports: HashMap::new(),
        }
    }

    /// Writes a report on the certificate of each name to the storage, from which the workers read it. A report that
    /// has not changed is not written again.
    pub fn write_reports(&mut self) {
        for name in &self.settings.names.clone() {
            let state = self.state(name);
            let report = self.storage.report_with(name, state, (self.clock)());
            let report = CertificateReport {
                name: report.name,
                not_after_s: report.not_after_s,
                due_s: report.due_s,
                failures: report.state.failures,
                last_error: report.state.last_error,
            };
            if self.written_reports.get(name) == Some(&report) {
                continue;
            }
            // A report that cannot be written is tried again at the next step.
            if self.storage.folder().write_report(&report).is_ok() {
                self.written_reports.insert(name.clone(), report);
            }
        }
    }

    /// Performs the due work, at most one attempt for one name. Returns the time until the next call.
    pub fn step(&mut self) -> Duration {
        self.write_reports();
        let now_s = (self.clock)();
        let mut next_s = u64::MAX;
        let names = self.settings.names.clone();
        for name in &names {
            let due_s = self.due_s(name, now_s);
            if due_s <= now_s {
                return match self.attempt_if_due(name) {
                    Some(pause) => pause,
                    None => Duration::ZERO,
                };
            }
            next_s = next_s.min(due_s);
        }
        Duration::from_secs(next_s - now_s).min(LOOK_MAX)
    }

    /// Returns the time of a name's next step: a renewal, or a question to the authority.
    fn due_s(&mut self, name: &DomainName, now_s: u64) -> u64 {
        let state = self.state(name);
        let validity = self.storage.validity(name).unwrap_or_default();
        let due_s = state.due_s(validity.as_ref(), now_s);
        let Some(validity) = validity else { return due_s };
        let serial = crate::schedule::serial_text(&validity.serial);
        let known = state.suggestion.filter(|suggestion| suggestion.serial == serial);
        // The first question follows some time after the certificate, which is recent. A time that is too far away was
        // computed with a wrong clock.
        let ask_s = known.map_or(validity.not_before_s + 2 * 3600, |known| known.ask_again_s);
        let ask_s = if ask_s > now_s + ASK_AGAIN_MAX_S { now_s } else { ask_s };
        due_s.min(ask_s.max(if state.failures > 0 { state.next_attempt_s } else { 0 }))
    }

    /// Returns the state of a name: the one in memory if it could not be written, otherwise the one in the storage.
    fn state(&self, name: &DomainName) -> NameState {
        self.unwritten.get(name).cloned().unwrap_or_else(|| self.storage.state(name))
    }

    /// Takes the lock and obtains a certificate, if one is still due under the lock. Returns a pause if another attempt
    /// may not follow at once.
    fn attempt_if_due(&mut self, name: &DomainName) -> Option<Duration> {
        let lock = match self.storage.try_lock() {
            Ok(Some(lock)) => lock,
            Ok(None) => {
                return Some(LOCKED_PAUSE + Duration::from_millis(self.random_number() % 1000));
            }
            Err(error) => {
                self.note_failure(name, &error.local());
                return None;
            }
        };
        let now_s = (self.clock)();
        if self.due_s(name, now_s) > now_s {
            // Another server has obtained the certificate in the meantime.
            return None;
        }
        self.storage.sweep();
        let certificate = self.storage.validity(name).err();
        for error in certificate.into_iter().chain(Authority::damaged_account(&self.storage)) {
            (self.report)(Event::Damaged { error: &error });
        }
        if let Err(error) = self.renew_or_ask(name, now_s) {
            self.note_failure(name, &error);
        }
        drop(lock);
        None
    }

    fn renew_or_ask(&mut self, name: &DomainName, now_s: u64) -> Result<(), Error> {
        let mut state = self.state(name);
        let validity = self.storage.validity(name).unwrap_or_default();
        if let Some(validity) = &validity
            && state.due_s(Some(validity), now_s) > now_s
        {
            state.suggestion = Some(self.issuer.suggestion(validity, &self.storage, now_s));
            self.write_state(name, state);
            return Ok(());
        }
        let file = self.storage.allocate_certificate(name).map_err(Error::local)?;
        let challenges = &self.settings.challenges;
        let challenge = challenges[state.failures as usize % challenges.len()];
        let pem = self.issuer.obtain(name, challenge, &self.storage)?;
        file.write(pem.as_bytes())?;
        let validity = self.storage.validity(name)?;
        let not_after_s = validity.map_or(0, |validity| validity.not_after_s);
        state.note_success(now_s);
        self.write_state(name, state);
        (self.report)(Event::Obtained { name, not_after_s });
        Ok(())
    }

    fn note_failure(&mut self, name: &DomainName, error: &Error) {
        let now_s = (self.clock)();
        let mut state = self.state(name);
        let pauses = (self.settings.retry_s, error.retry_after_s());
        state.note_failure(now_s, error.to_string(), pauses, self.random_number());
        if error.is_local() {
            // The failure costs the authority nothing, so the next attempt may come soon, to see whether it is cured.
            state.next_attempt_s = state.next_attempt_s.min(now_s + self.settings.retry_s);
        }
        let pause_s = state.next_attempt_s - now_s;
        self.write_state(name, state);
        (self.report)(Event::Failed { name, error, pause_s });
    }

    /// Writes a state, or keeps it in memory until it can be written.
    fn write_state(&mut self, name: &DomainName, state: NameState) {
        match self.storage.write_state(name, &state) {
            Ok(()) => self.unwritten.remove(name),
            Err(_) => self.unwritten.insert(name.clone(), state),
        };
    }

    fn random_number(&self) -> u64 {
        let mut bytes = [0; 8];
        // Without random numbers, all servers wait equally long.
        let _ = self.random.fill(&mut bytes);
        u64::from_ne_bytes(bytes)
    }
}

impl std::fmt::Debug for Agent<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Agent").field("storage", &self.storage).finish_non_exhaustive()
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use rcgen::{CertificateParams, KeyPair, SerialNumber};

    use super::*;
    use crate::schedule::{Suggestion, serial_text};
    use crate::settings::Challenge;
    use crate::validity::Validity;

    const NOW_S: u64 = 1_800_000_000;
    const DAY_S: u64 = 24 * 3600;

    /// An authority in this process, whose certificates are valid for 90 days.
    #[derive(Default)]
    struct World {
        now_s: Cell<u64>,
        /// The answer to each order; `None` for a certificate.
        refusal: RefCell<Option<String>>,
        revoked: RefCell<Option<String>>,
        orders: RefCell<Vec<Challenge>>,
    }

    struct InProcess<'a>(&'a World);

    impl Issuer for InProcess<'_> {
        fn obtain(
            &self,
            name: &DomainName,
            challenge: Challenge,
            _: &Storage,
        ) -> Result<String, Error> {
            let World { now_s, refusal, orders, .. } = self.0;
            orders.borrow_mut().push(challenge);
            if let Some(refusal) = &*refusal.borrow() {
                return Err(Error::new(refusal));
            }
            let time = |seconds: u64| {
                time::OffsetDateTime::from_unix_timestamp(seconds.try_into().unwrap()).unwrap()
            };
            let mut params = CertificateParams::new([name.to_string()]).unwrap();
            params.not_before = time(now_s.get());
            params.not_after = time(now_s.get() + 90 * DAY_S);
            let serial = u8::try_from(orders.borrow().len()).unwrap();
            params.serial_number = Some(SerialNumber::from_slice(&[serial]));
            let key = KeyPair::generate().unwrap();
            Ok(format!("{}{}", key.serialize_pem(), params.self_signed(&key).unwrap().pem()))
        }

        fn suggestion(&self, validity: &Validity, _: &Storage, now_s: u64) -> Suggestion {
            let serial = serial_text(&validity.serial);
            let is_revoked = self.0.revoked.borrow().as_ref() == Some(&serial);
            let end_s = if is_revoked { 1 } else { 0 };
            Suggestion { serial, start_s: 0, end_s, ask_again_s: now_s + 6 * 3600 }
        }
    }

    /// An agent for one name in a folder of its own.
    fn with_agent(test: impl FnOnce(&World, &mut Agent<'_>, &Storage)) {
        let world = World::default();
        world.now_s.set(NOW_S);
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("storage");
        let open = || Storage::open(&root, "https://ca.example/dir").unwrap();
        let settings = Settings {
            names: vec!["a.example".parse().unwrap()],
            directory: "https://ca.example/dir".to_owned(),
            ca: None,
            contacts: Vec::new(),
            external_account: None,
            challenges: vec![Challenge::Http01, Challenge::TlsAlpn01],
            retry_s: 60,
        };
        let clock = || world.now_s.get();
        let mut agent = Agent::with(settings, open(), InProcess(&world), clock, |_| {});
        test(&world, &mut agent, &open());
    }

    /// Lets the agent work until no step is due.
    fn settle(agent: &mut Agent<'_>) {
        for _ in 0..100 {
            if agent.step() > Duration::ZERO {
                return;
            }
        }
        panic!("the agent never rests");
    }

    #[test]
    fn a_certificate_is_obtained_once_renewed_in_time_and_reported() {
        with_agent(|world, agent, storage| {
            settle(agent);
            let report = storage.folder().report("a.example");
            assert_eq!(report.not_after_s, Some(NOW_S + 90 * DAY_S));
            assert!((NOW_S + 57 * DAY_S..=NOW_S + 60 * DAY_S).contains(&report.due_s));
            assert_eq!((report.failures, report.last_error), (0, None));
            for day in 1..57 {
                world.now_s.set(NOW_S + day * DAY_S);
                settle(agent);
            }
            assert_eq!(world.orders.borrow().len(), 1);
            world.now_s.set(NOW_S + 60 * DAY_S);
            settle(agent);
            assert_eq!(world.orders.borrow().len(), 2);
        });
    }

    #[test]
    fn a_revoked_certificate_is_replaced_as_soon_as_the_authority_says_so() {
        with_agent(|world, agent, _| {
            settle(agent);
            world.now_s.set(NOW_S + DAY_S);
            settle(agent);
            world.revoked.replace(Some("01".to_owned()));
            settle(agent);
            assert_eq!(world.orders.borrow().len(), 1, "it is asked again in six hours");
            world.now_s.set(NOW_S + 2 * DAY_S);
            settle(agent);
            assert_eq!(world.orders.borrow().len(), 2);
        });
    }

    #[test]
    fn a_refused_order_is_reported_and_tried_again_after_a_pause_by_the_other_challenge() {
        with_agent(|world, agent, storage| {
            world.refusal.replace(Some("the order is invalid".to_owned()));
            settle(agent);
            let report = storage.folder().report("a.example");
            assert_eq!((report.failures, report.not_after_s), (1, None));
            assert_eq!(report.last_error.as_deref(), Some("the order is invalid"));
            assert!((NOW_S + 60..=NOW_S + 75).contains(&report.due_s));
            settle(agent);
            assert_eq!(*world.orders.borrow(), [Challenge::Http01], "the pause is kept");
            world.refusal.replace(None);
            world.now_s.set(report.due_s);
            settle(agent);
            assert_eq!(*world.orders.borrow(), [Challenge::Http01, Challenge::TlsAlpn01]);
            let report = storage.folder().report("a.example");
            assert_eq!((report.failures, report.last_error), (0, None));
        });
    }

    #[test]
    fn a_clock_that_jumps_costs_one_certificate_at_most_and_no_pause() {
        with_agent(|world, agent, _| {
            settle(agent);
            // Ten years ahead, everything has expired. No certificate is ordered again when the clock is right once
            // more.
            world.now_s.set(NOW_S + 3650 * DAY_S);
            settle(agent);
            assert_eq!(world.orders.borrow().len(), 2);
            world.now_s.set(NOW_S + 60);
            settle(agent);
            assert_eq!(world.orders.borrow().len(), 2);
        });
        with_agent(|world, agent, _| {
            // A failure before the clock was set does not delay the next attempt.
            world.refusal.replace(Some("the certificate is not valid yet".to_owned()));
            world.now_s.set(NOW_S + 3650 * DAY_S);
            settle(agent);
            world.refusal.replace(None);
            world.now_s.set(NOW_S);
            settle(agent);
            assert_eq!(world.orders.borrow().len(), 2);
        });
    }

    #[test]
    fn a_suggestion_that_was_asked_for_when_the_clock_was_wrong_is_asked_for_again() {
        with_agent(|world, agent, _| {
            settle(agent);
            world.now_s.set(NOW_S + 50 * DAY_S);
            settle(agent);
            world.now_s.set(NOW_S + DAY_S);
            world.revoked.replace(Some("01".to_owned()));
            settle(agent);
            assert_eq!(world.orders.borrow().len(), 2);
        });
    }

    #[test]
    fn a_storage_without_room_is_tried_again_soon_and_costs_no_order() {
        with_agent(|world, agent, storage| {
            let certificates = storage.folder().certificates();
            std::fs::remove_dir(&certificates).unwrap();
            for _ in 0..20 {
                settle(agent);
                let report = storage.folder().report("a.example");
                assert_eq!(report.due_s, world.now_s.get() + 60);
                world.now_s.set(report.due_s);
            }
            assert_eq!(storage.folder().report("a.example").failures, 20);
            std::fs::create_dir(&certificates).unwrap();
            settle(agent);
            assert_eq!(world.orders.borrow().len(), 1);
        });
    }

    #[test]
    fn a_state_that_cannot_be_written_keeps_its_pause() {
        with_agent(|world, agent, storage| {
            let states = storage.folder().path().join("state");
            std::fs::remove_dir_all(&states).unwrap();
            std::fs::write(&states, "").unwrap();
            world.refusal.replace(Some("refused".to_owned()));
            settle(agent);
            settle(agent);
            assert_eq!(world.orders.borrow().len(), 1);
            assert_eq!(storage.folder().report("a.example").failures, 1);
            world.now_s.set(NOW_S + 80);
            world.refusal.replace(None);
            settle(agent);
            assert_eq!(
                storage.folder().report("a.example").not_after_s,
                Some(NOW_S + 80 + 90 * DAY_S)
            );
        });
    }
}
