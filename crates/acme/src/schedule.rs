//! Decides when a name needs a certificate. No function reads a clock: the time is an argument.

use serde::{Deserialize, Serialize};

use crate::validity::Validity;

/// The maximum pause between two attempts after failures, in seconds.
const PAUSE_MAX_S: u64 = 24 * 3600;

/// The maximum pause that an authority may ask for, in seconds.
const ASKED_PAUSE_MAX_S: u64 = 7 * 24 * 3600;

/// The number of doublings after which a pause no longer grows, so that the shift cannot overflow.
const DOUBLINGS_MAX: u32 = 20;

/// The attempts to obtain a certificate for a name, shared by all servers with the same storage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NameState {
    /// The number of failures since the last success.
    pub failures: u32,
    /// The last failure, if no attempt has succeeded since.
    pub last_error: Option<String>,
    /// The time of the last attempt, in seconds since 1970; 0 if there was no attempt.
    pub attempted_s: u64,
    /// The time before which no attempt happens after a failure, in seconds since 1970.
    pub next_attempt_s: u64,
    /// The period in which the authority suggests to renew the certificate with this serial number (RFC 9773).
    pub suggestion: Option<Suggestion>,
}

/// An authority's suggestion for the renewal of a certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suggestion {
    /// The certificate's serial number, in hexadecimal digits.
    pub serial: String,
    /// The period, in seconds since 1970; both are 0 if the authority suggests none.
    pub start_s: u64,
    /// The end of the period.
    pub end_s: u64,
    /// The time at which to ask again.
    pub ask_again_s: u64,
}

impl NameState {
    /// Records a failed attempt. `dice` is a random number, which spreads the attempts of many servers.
    pub(crate) fn note_failure(
        &mut self,
        now_s: u64,
        error: String,
        (retry_s, asked_s): (u64, Option<u64>),
        dice: u64,
    ) {
        self.failures = self.failures.saturating_add(1);
        let doublings = (self.failures - 1).min(DOUBLINGS_MAX);
        let pause_s = retry_s.saturating_mul(1 << doublings).min(PAUSE_MAX_S);
        let pause_s = pause_s + scatter(pause_s / 4, dice);
        // An authority's own pause is a lower limit.
        let asked_s = asked_s.map_or(0, |asked_s| asked_s.min(ASKED_PAUSE_MAX_S));
        let asked_s = asked_s + scatter(asked_s / 20, dice);
        self.last_error = Some(error);
        self.attempted_s = now_s;
        self.next_attempt_s = now_s + pause_s.max(asked_s);
    }

    /// Records a success.
    pub(crate) fn note_success(&mut self, now_s: u64) {
        *self = Self { attempted_s: now_s, ..Self::default() };
    }

    /// Returns the time of the next attempt, in seconds since 1970. A time that is not after `now_s` means at once.
    pub(crate) fn due_s(&self, certificate: Option<&Validity>, now_s: u64) -> u64 {
        let wanted_s = certificate.map_or(0, |validity| self.renewal_s(validity));
        // If the last attempt is in the future, the clock was wrong then, and so is the time of the next attempt.
        let pause_end_s = if self.attempted_s > now_s { 0 } else { self.next_attempt_s };
        if self.failures > 0 { wanted_s.max(pause_end_s) } else { wanted_s }
    }

    /// Returns the time at which a certificate is to be renewed: in the period that the authority suggests, or after
    /// two thirds of the certificate's lifetime. Each certificate has its own point in a period, so that certificates
    /// obtained together are not renewed together.
    fn renewal_s(&self, validity: &Validity) -> u64 {
        let Validity { not_before_s, not_after_s, .. } = *validity;
        let dice = validity
            .serial
            .iter()
            .fold(0, |dice: u64, byte| dice.wrapping_mul(31).wrapping_add(u64::from(*byte)));
        let suggestion = self.suggestion.as_ref().filter(|suggestion| {
            suggestion.serial == serial_text(&validity.serial) && suggestion.end_s > 0
        });
        if let Some(Suggestion { start_s, end_s, .. }) = suggestion {
            return start_s + scatter(end_s.saturating_sub(*start_s), dice);
        }
        let lifetime_s = not_after_s.saturating_sub(not_before_s);
        let latest_s = not_before_s + lifetime_s / 3 * 2;
        latest_s - scatter(lifetime_s / 30, dice)
    }
}

/// Returns the text of a serial number.
pub(crate) fn serial_text(serial: &[u8]) -> String {
    serial.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a number below `range`, which `dice` determines.
fn scatter(range: u64, dice: u64) -> u64 {
    dice.checked_rem(range).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_S: u64 = 24 * 3600;

    fn certificate(serial: u8) -> Validity {
        Validity {
            not_before_s: 1000 * DAY_S,
            not_after_s: 1090 * DAY_S,
            serial: vec![serial],
            authority_key: None,
        }
    }

    #[test]
    fn a_certificate_is_renewed_after_two_thirds_of_its_lifetime_and_not_all_at_once() {
        let state = NameState::default();
        let due_s: Vec<_> =
            (0..50).map(|serial| state.due_s(Some(&certificate(serial)), 0)).collect();
        assert!(due_s.iter().all(|due_s| (1057 * DAY_S..=1060 * DAY_S).contains(due_s)));
        assert!(due_s.iter().any(|one| *one != due_s[0]));
        assert_eq!(state.due_s(None, 5), 0, "a name without a certificate is due at once");
    }

    #[test]
    fn the_suggestion_of_the_authority_counts_for_its_own_certificate_alone() {
        let suggestion = Suggestion {
            serial: "07".into(),
            start_s: 1010 * DAY_S,
            end_s: 1012 * DAY_S,
            ask_again_s: 0,
        };
        let state = NameState { suggestion: Some(suggestion), ..NameState::default() };
        let due_s = state.due_s(Some(&certificate(7)), 0);
        assert!((1010 * DAY_S..1012 * DAY_S).contains(&due_s));
        assert!(state.due_s(Some(&certificate(8)), 0) >= 1057 * DAY_S);
    }

    #[test]
    fn the_pause_doubles_with_each_failure_up_to_a_day() {
        let mut state = NameState::default();
        let mut last_s = 0;
        for failure in 1..60_u64 {
            state.note_failure(1000, "it failed".into(), (60, None), failure * 7919);
            let pause_s = state.next_attempt_s - 1000;
            let least_s = 60_u64.saturating_mul(1 << (failure - 1).min(20)).min(PAUSE_MAX_S);
            assert!((least_s..=least_s + least_s / 4).contains(&pause_s), "{failure}: {pause_s}");
            assert!(pause_s * 5 >= last_s * 4);
            last_s = pause_s;
        }
        assert_eq!(state.due_s(None, 1001), state.next_attempt_s);
        state.note_success(2000);
        assert_eq!((state.due_s(None, 2000), &state.last_error), (0, &None));
    }

    #[test]
    fn an_authority_that_asks_for_a_pause_gets_it() {
        let mut state = NameState::default();
        state.note_failure(1000, "rate limited".into(), (60, Some(7200)), 12345);
        assert!((8200..=8560).contains(&state.next_attempt_s));
        state.note_failure(1000, "rate limited".into(), (60, Some(u64::MAX)), 0);
        assert_eq!(state.next_attempt_s, 1000 + ASKED_PAUSE_MAX_S);
    }

    #[test]
    fn a_clock_that_went_back_leaves_no_name_waiting() {
        let mut state = NameState::default();
        state.note_failure(5000 * DAY_S, "the clock was wrong".into(), (60, None), 0);
        assert_eq!(state.due_s(None, 1000 * DAY_S), 0);
        assert!(state.due_s(None, 5000 * DAY_S) > 5000 * DAY_S);
    }

    #[test]
    fn an_expired_certificate_is_due_whatever_the_clock_jumped_over() {
        let state = NameState::default();
        let now_s = 2000 * DAY_S;
        assert!(state.due_s(Some(&certificate(1)), now_s) <= now_s);
    }
}
