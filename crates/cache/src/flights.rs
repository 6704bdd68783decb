//! Flights: requests that were passed to the application, for whose responses other requests for the same page wait.
//!
//! A flight is an entry in shared memory. The flight ends when its guard is dropped, when its worker is dead, or when
//! the flight is too old. No request depends on a flight: a request waits for a limited time, and then asks the
//! application itself.
//!
//! Workers begin flights (they depart) without a lock. A worker reads the set's count of departures, looks for a
//! flight, takes an entry, and departs only if the count is still the one that it read, in which case it raises the
//! count. So of several workers that look at once, one departs; the others look again, and then see its entry.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use thruway_sys::shared_memory::Anonymous;

/// The maximum number of flights under one hash.
const WAYS: usize = 8;

/// The number of sets of entries.
const SETS: usize = 128;

/// Words of an entry: the tag, and the claim, which is zero while the entry is free.
const WORDS: usize = 2;

/// The bits of a claim: a number, the worker, and the time in the remaining bits.
const NUMBER_BITS: u32 = 12;
const WORKER_BITS: u32 = 12;
const WORKER_MASK: u64 = (1 << WORKER_BITS) - 1;
const TIME_SHIFT: u32 = NUMBER_BITS + WORKER_BITS;

/// How often a request looks for a flight before it asks the application alone. Each look after the first follows a
/// departure of another request from the same set.
const LOOKS_MAX: usize = 64;

/// The age of a flight beyond which no request waits for it.
const FLIGHT_MS_MAX: u64 = 30_000;

/// The number of words that record pages whose responses cannot be shared.
const UNSHARED: usize = 1 << 13;

/// The time in seconds for which requests for such a page do not wait for each other.
const UNSHARED_S: u64 = 120;

/// The flights of all workers.
#[derive(Debug)]
pub(crate) struct Flights {
    entries: Anonymous,
    /// The number of departures from each set.
    departures: Anonymous,
    /// Pages whose responses cannot be shared, a word each: the upper half of the page's tag, and in the lower half the
    /// time, in seconds, until which the word is valid.
    unshared: Anonymous,
    next: AtomicU64,
}

/// The outcome for a request that wants to ask the application.
#[derive(Debug)]
pub enum Departure {
    /// The request asks the application, and others wait for it.
    Lead(Flight),
    /// Another request is already asking the application.
    Wait,
    /// The request asks the application, and no other request waits for it.
    Alone,
}

/// The right to ask the application for a page. Other requests wait until the flight is dropped.
#[derive(Debug)]
pub struct Flight {
    flights: Arc<Flights>,
    at: usize,
    claim: u64,
}

impl Flights {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            entries: Anonymous::new(SETS * WAYS * WORDS)?,
            departures: Anonymous::new(SETS)?,
            unshared: Anonymous::new(UNSHARED)?,
            next: AtomicU64::new(1),
        })
    }

    /// Whether another request is asking for the page with the tag.
    pub(crate) fn is_flying(&self, tag: u64, now_ms: u64) -> bool {
        ways(tag).any(|at| self.is_at(at, tag, now_ms))
    }

    fn is_at(&self, at: usize, tag: u64, now_ms: u64) -> bool {
        self.entries[at].load(Acquire) == tag
            && is_valid(self.entries[at + 1].load(Acquire), now_ms)
    }

    /// Departs for the page with the tag, on behalf of `worker`.
    pub(crate) fn depart(self: &Arc<Self>, tag: u64, worker: usize, now_ms: u64) -> Departure {
        if self.is_unshared(tag, now_ms) {
            return Departure::Alone;
        }
        self.reserve(tag, worker, now_ms)
    }

    /// Departs like [`depart`](Self::depart), even if earlier responses to the name could not be shared.
    pub(crate) fn reserve(self: &Arc<Self>, tag: u64, worker: usize, now_ms: u64) -> Departure {
        let departures = &self.departures[set(tag)];
        for _ in 0..LOOKS_MAX {
            let before = departures.load(Acquire);
            if self.is_flying(tag, now_ms) {
                return Departure::Wait;
            }
            let Some(flight) = self.take_entry(tag, worker, now_ms) else { break };
            let after = before.wrapping_add(1);
            if departures.compare_exchange(before, after, AcqRel, Acquire).is_ok() {
                return Departure::Lead(flight);
            }
        }
        Departure::Alone
    }

    /// Takes an entry of the tag's set that is free or too old.
    fn take_entry(self: &Arc<Self>, tag: u64, worker: usize, now_ms: u64) -> Option<Flight> {
        let claim = claim(now_ms, worker, self.next.fetch_add(1, Relaxed));
        for at in ways(tag) {
            let current = self.entries[at + 1].load(Acquire);
            if is_valid(current, now_ms) {
                continue;
            }
            let taken = self.entries[at + 1].compare_exchange(current, claim, AcqRel, Acquire);
            if taken.is_ok() {
                self.entries[at].store(tag, Release);
                return Some(Flight { flights: Arc::clone(self), at, claim });
            }
        }
        None
    }

    /// Ends the flights of a dead worker.
    pub(crate) fn release_worker(&self, worker: usize) {
        for at in (0..SETS * WAYS).map(|entry| entry * WORDS) {
            let claim = self.entries[at + 1].load(Acquire);
            if claim != 0 && claim >> NUMBER_BITS & WORKER_MASK == worker as u64 {
                let _ = self.entries[at + 1].compare_exchange(claim, 0, AcqRel, Acquire);
            }
        }
    }

    /// Records that responses to the name cannot be shared: for some time, requests for it do not wait.
    pub(crate) fn note_unshared(&self, tag: u64, now_ms: u64) {
        let until_s = (now_ms / 1000 + UNSHARED_S) & 0xffff_ffff;
        self.unshared[bucket(tag)].store(tag & !0xffff_ffff | until_s, Relaxed);
    }

    fn is_unshared(&self, tag: u64, now_ms: u64) -> bool {
        let word = self.unshared[bucket(tag)].load(Relaxed);
        word >> 32 == tag >> 32 && now_ms / 1000 < word & 0xffff_ffff
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        // If the flight was too old and another worker has taken the entry, the claim differs, and stays.
        let claim = &self.flights.entries[self.at + 1];
        let _ = claim.compare_exchange(self.claim, 0, AcqRel, Acquire);
    }
}

/// Packs the time of departure in milliseconds, the worker and a number into one word.
fn claim(now_ms: u64, worker: usize, number: u64) -> u64 {
    let numbers = (worker as u64 & WORKER_MASK) << NUMBER_BITS | number & ((1 << NUMBER_BITS) - 1);
    now_ms << TIME_SHIFT | numbers
}

/// Whether requests still wait for the flight of a claim.
fn is_valid(claim: u64, now_ms: u64) -> bool {
    claim != 0 && now_ms < (claim >> TIME_SHIFT) + FLIGHT_MS_MAX
}

/// The positions of the entries for a tag.
fn ways(tag: u64) -> impl Iterator<Item = usize> {
    (0..WAYS).map(move |way| (set(tag) * WAYS + way) * WORDS)
}

fn set(tag: u64) -> usize {
    usize::try_from(tag % SETS as u64).unwrap_or(0)
}

fn bucket(tag: u64) -> usize {
    usize::try_from(tag % UNSHARED as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_leads_until_it_is_dropped() {
        let flights = Arc::new(Flights::new().unwrap());
        let Departure::Lead(first) = flights.depart(7, 0, 10) else { panic!("it is the first") };
        assert!(matches!(flights.depart(7, 1, 11), Departure::Wait));
        let Departure::Lead(_other) = flights.depart(8, 1, 11) else {
            panic!("it is another page")
        };
        drop(first);
        assert!(!flights.is_flying(7, 12) && flights.is_flying(8, 12));
        assert!(matches!(flights.depart(7, 1, 12), Departure::Lead(_)));
    }

    #[test]
    fn one_of_those_that_depart_at_once_leads() {
        const RIVALS: u64 = 2;
        const ROUNDS: u64 = 100_000;
        let flights = Arc::new(Flights::new().unwrap());
        let arrivals = AtomicU64::new(0);
        // Spins instead of sleeping, so that both depart within nanoseconds of each other.
        let meet = |meeting: u64| {
            arrivals.fetch_add(1, AcqRel);
            while arrivals.load(Acquire) < meeting * RIVALS {
                std::thread::yield_now();
            }
        };
        let count_leads = |worker: usize| {
            let mut leads = 0;
            for round in 0..ROUNDS {
                meet(2 * round + 1);
                let departure = flights.depart(round * SETS as u64, worker, 10);
                meet(2 * round + 2);
                leads += u64::from(!matches!(departure, Departure::Wait));
            }
            leads
        };
        let leads = std::thread::scope(|scope| {
            let rival = scope.spawn(|| count_leads(1));
            count_leads(0) + rival.join().unwrap()
        });
        assert_eq!(leads, ROUNDS);
    }

    #[test]
    fn the_flights_of_a_dead_worker_and_old_ones_end() {
        let flights = Arc::new(Flights::new().unwrap());
        let Departure::Lead(lost) = flights.depart(7, 3, 10) else { panic!("it is the first") };
        std::mem::forget(lost);
        flights.release_worker(2);
        assert!(flights.is_flying(7, 10));
        flights.release_worker(3);
        assert!(!flights.is_flying(7, 10));
        let Departure::Lead(old) = flights.depart(7, 3, 10) else { panic!("it is free") };
        let late_ms = 10 + FLIGHT_MS_MAX;
        let Departure::Lead(_new) = flights.depart(7, 1, late_ms) else { panic!("it is free") };
        drop(old);
        assert!(flights.is_flying(7, late_ms), "an old flight does not end its successor");
    }

    #[test]
    fn too_many_flights_are_not_waited_for() {
        let flights = Arc::new(Flights::new().unwrap());
        let tags = (1..=WAYS as u64 + 1).map(|number| number * SETS as u64);
        let departures: Vec<_> = tags.map(|tag| flights.depart(tag, 0, 1)).collect();
        assert!(departures[..WAYS].iter().all(|one| matches!(one, Departure::Lead(_))));
        assert!(matches!(departures[WAYS], Departure::Alone));
    }

    #[test]
    fn a_page_that_cannot_be_shared_is_not_waited_for() {
        let flights = Arc::new(Flights::new().unwrap());
        let tag = 0x1234_5678_9abc_def0;
        flights.note_unshared(tag, 5_000);
        assert!(matches!(flights.depart(tag, 0, 6_000), Departure::Alone));
        let later_ms = 5_000 + UNSHARED_S * 1000;
        assert!(matches!(flights.depart(tag, 0, later_ms), Departure::Lead(_)));
    }
}
