//! Keeps the certificates of a server: decides which name is due, and obtains a certificate for it.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::rand::{SecureRandom, SystemRandom};

use crate::authority::Authority;
use crate::domain_name::DomainName;
use crate::error::Error;
use crate::schedule::NameState;
use crate::settings::Settings;
use crate::storage::Storage;

/// The maximum time without a look at the storage and the clock: another server may have written, the machine may have
/// slept, and the clock may have been set.
const LOOK_MAX: Duration = Duration::from_secs(60);

/// The pause while another server works with the storage.
const LOCKED_PAUSE: Duration = Duration::from_secs(2);

/// Something that the user should know.
#[derive(Debug)]
pub enum Event<'a> {
    /// A certificate was obtained; it ends at this time in seconds since 1970.
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

/// Keeps the certificates of some names.
pub struct Agent<'a> {
    settings: Settings,
    storage: Storage,
    random: SystemRandom,
    report: Box<dyn FnMut(Event<'_>) + 'a>,
    /// The states that could not be written, since the disk is full, for example.
    unwritten: HashMap<DomainName, NameState>,
}

impl<'a> Agent<'a> {
    /// Creates an agent, which reports by `report`.
    pub fn new(settings: Settings, storage: Storage, report: impl FnMut(Event<'_>) + 'a) -> Self {
        let report = Box::new(report);
        Self { settings, storage, random: SystemRandom::new(), report, unwritten: HashMap::new() }
    }

    /// Does what is due, at most one attempt for one name. Returns the time until the next call.
    pub fn step(&mut self) -> Duration {
        let now_s = now_s();
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

    /// Returns the time at which something is to be done for a name: a renewal, or a question about it.
    fn due_s(&mut self, name: &DomainName, now_s: u64) -> u64 {
        let state = self.state(name);
        let validity = self.storage.validity(name).unwrap_or_default();
        let due_s = state.due_s(validity.as_ref(), now_s);
        let Some(validity) = validity else { return due_s };
        let serial = crate::schedule::serial_text(&validity.serial);
        let known = state.suggestion.filter(|suggestion| suggestion.serial == serial);
        // The first question comes some time after the certificate: it was just issued.
        let ask_s = known.map_or(validity.not_before_s + 2 * 3600, |known| known.ask_again_s);
        due_s.min(ask_s.max(if state.failures > 0 { state.next_attempt_s } else { 0 }))
    }

    fn state(&self, name: &DomainName) -> NameState {
        self.unwritten.get(name).cloned().unwrap_or_else(|| self.storage.state(name))
    }

    /// Takes the lock and obtains a certificate, if that is still due under the lock. Returns a pause if it may not be
    /// tried at once again.
    fn attempt_if_due(&mut self, name: &DomainName) -> Option<Duration> {
        let lock = match self.storage.try_lock() {
            Ok(Some(lock)) => lock,
            Ok(None) => return Some(LOCKED_PAUSE + Duration::from_millis(self.dice() % 1000)),
            Err(error) => {
                self.note_failure(name, &error);
                return None;
            }
        };
        let now_s = now_s();
        if self.due_s(name, now_s) > now_s {
            // Another server has done it meanwhile.
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
            let authority = Authority::open(&self.settings, &self.storage).ok();
            state.suggestion = Some(Authority::suggestion(authority.as_ref(), validity, now_s));
            self.write_state(name, state);
            return Ok(());
        }
        let reservation = self.storage.reserve(name)?;
        let challenges = &self.settings.challenges;
        let challenge = challenges[state.failures as usize % challenges.len()];
        let obtain = || {
            let authority = Authority::open(&self.settings, &self.storage)?;
            authority.obtain(name, challenge, &self.storage)
        };
        let pem = obtain().or_else(|error| {
            if !error.is_account_lost() {
                return Err(error);
            }
            self.storage.forget_account();
            obtain()
        })?;
        reservation.fill(pem.as_bytes())?;
        let validity = self.storage.validity(name)?;
        let not_after_s = validity.map_or(0, |validity| validity.not_after_s);
        state.note_success(now_s);
        self.write_state(name, state);
        (self.report)(Event::Obtained { name, not_after_s });
        Ok(())
    }

    fn note_failure(&mut self, name: &DomainName, error: &Error) {
        let now_s = now_s();
        let mut state = self.state(name);
        let pauses = (self.settings.retry_s, error.retry_after_s());
        state.note_failure(now_s, error.to_string(), pauses, self.dice());
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

    fn dice(&self) -> u64 {
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
