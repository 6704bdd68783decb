//! Peers whose input has ended a connection: their next connections begin one after the other.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use thruway_sys::shared_memory::Anonymous;

use crate::listen::listener::Peer;
use crate::settings::fair_by::network_of;

const RELAXED: Ordering = Ordering::Relaxed;

/// The number of entries. Peers whose hashes share an entry wait together.
const ENTRIES: usize = 1 << 12;

/// The gap between the beginnings of two connections. To begin and end a connection may take a fifth of a millisecond
/// of processor time, so a peer costs the others a twentieth of a processor at most.
const GAP_MS: u64 = 5;

/// How long one fault holds the peer's connections to the gap. All clients behind a proxy are held together, so a few
/// faults must cost no more than that. A hundred faults a second hold the peer's connections all the time.
const HOLD_MS: u64 = 10;

/// The longest time that a connection waits to begin.
pub(crate) const WAIT_MAX_MS: u64 = 1000;

/// The table that workers share, created before they fork or start. A peer is an address as [`network_of`] masks it;
/// processes on this machine that connect to a unix socket have no entry.
#[derive(Debug)]
pub(crate) struct FaultyPeers {
    /// The seed of the hash: no client can choose an address that shares another client's entry.
    seed: RandomState,
    /// When the next connection may begin, in milliseconds of the monotonic clock.
    next_ms: Anonymous,
    /// Until when connections are held to the gap. Later connections begin at once.
    held_until_ms: Anonymous,
}

impl FaultyPeers {
    pub(crate) fn new() -> io::Result<Self> {
        let seed = RandomState::new();
        Ok(Self {
            seed,
            next_ms: Anonymous::new(ENTRIES)?,
            held_until_ms: Anonymous::new(ENTRIES)?,
        })
    }

    /// Records that input of the peer ends a connection.
    pub(crate) fn note(&self, peer: Peer, now_ms: u64) {
        let Some((next_ms, held_until_ms)) = self.entry(peer) else { return };
        next_ms.fetch_max(now_ms + GAP_MS, RELAXED);
        // An update fails only if its function declines.
        let _ = held_until_ms.fetch_update(RELAXED, RELAXED, |at_ms| {
            Some((at_ms.max(now_ms) + HOLD_MS).min(now_ms + WAIT_MAX_MS))
        });
    }

    /// When a connection of the peer may begin; none if too many already wait.
    pub(crate) fn begin_ms(&self, peer: Peer, now_ms: u64) -> Option<u64> {
        let Some((next_ms, held_until_ms)) = self.entry(peer) else { return Some(now_ms) };
        if held_until_ms.load(RELAXED) <= now_ms {
            return Some(now_ms);
        }
        let latest_ms = now_ms + WAIT_MAX_MS;
        let begin_ms = next_ms.fetch_update(RELAXED, RELAXED, |at_ms| {
            (at_ms <= latest_ms).then_some(at_ms.max(now_ms) + GAP_MS)
        });
        begin_ms.ok().map(|at_ms| at_ms.max(now_ms))
    }

    fn entry(&self, peer: Peer) -> Option<(&AtomicU64, &AtomicU64)> {
        let Peer::Tcp(address) = peer else { return None };
        let hash = self.seed.hash_one(network_of(address.ip()));
        let index = usize::try_from(hash % ENTRIES as u64).ok()?;
        Some((self.next_ms.get(index)?, self.held_until_ms.get(index)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> Peer {
        Peer::Tcp(text.parse().unwrap())
    }

    #[test]
    fn a_peer_without_a_fault_never_waits() {
        let peers = FaultyPeers::new().unwrap();
        for _ in 0..1000 {
            assert_eq!(peers.begin_ms(peer("192.0.2.1:80"), 50), Some(50));
        }
    }

    #[test]
    fn after_a_fault_connections_begin_one_after_the_other() {
        let peers = FaultyPeers::new().unwrap();
        let [one, same] = [peer("192.0.2.1:80"), peer("192.0.2.1:81")];
        peers.note(one, 50);
        assert_eq!(peers.begin_ms(same, 50), Some(55));
        assert_eq!(peers.begin_ms(one, 51), Some(60));
        peers.note(one, 52);
        assert_eq!(peers.begin_ms(one, 60), Some(65), "many faults at once make no longer gap");
        assert_eq!(peers.begin_ms(one, 70), Some(70));
        assert_eq!(peers.begin_ms(one, 70), Some(70));
    }

    /// The numbers of connections that wait and that are closed, if one arrives in each millisecond of a second.
    fn held(faults_ms: impl Iterator<Item = u64>) -> (usize, usize) {
        let peers = FaultyPeers::new().unwrap();
        let proxy = peer("192.0.2.1:80");
        let faults_ms: Vec<_> = faults_ms.collect();
        let begun: Vec<_> = (0..1000)
            .map(|now_ms| {
                faults_ms.iter().filter(|at_ms| **at_ms == now_ms).for_each(|_| {
                    peers.note(proxy, now_ms);
                });
                (peers.begin_ms(proxy, now_ms), now_ms)
            })
            .collect();
        let waiting = begun.iter().filter(|(at_ms, now_ms)| at_ms.is_some_and(|at| at > *now_ms));
        (waiting.count(), begun.iter().filter(|(at_ms, _)| at_ms.is_none()).count())
    }

    #[test]
    fn a_fault_holds_as_many_connections_of_a_proxy_as_come_in_ten_milliseconds() {
        assert_eq!(held(std::iter::once(100)), (10, 0));
        assert_eq!(held([100, 100, 500].into_iter()), (30, 0));
        let (waiting, closed) = held((0..1000).step_by(10));
        assert_eq!(waiting + closed, 1000, "a hundred faults a second hold all of them");
        assert!(closed > 500, "{closed}");
    }

    #[test]
    fn any_number_of_faults_holds_for_a_second_at_most() {
        let peers = FaultyPeers::new().unwrap();
        let one = peer("192.0.2.1:80");
        (0..10_000).for_each(|_| peers.note(one, 0));
        let last_ms = WAIT_MAX_MS - 1;
        assert_eq!(peers.begin_ms(one, last_ms), Some(last_ms));
        assert_eq!(peers.begin_ms(one, last_ms), Some(last_ms + GAP_MS));
        assert_eq!(peers.begin_ms(one, WAIT_MAX_MS), Some(WAIT_MAX_MS));
    }

    #[test]
    fn no_connection_waits_for_more_than_a_second() {
        let peers = FaultyPeers::new().unwrap();
        let one = peer("[2001:db8::1]:80");
        peers.note(one, 0);
        let begun: Vec<_> = (0..1000).map_while(|_| peers.begin_ms(one, 0)).collect();
        assert_eq!((begun.len(), begun.last()), (200, Some(&WAIT_MAX_MS)));
        assert_eq!(peers.begin_ms(peer("[2001:db8::2]:80"), 0), None, "it is in the same network");
        assert_eq!(peers.begin_ms(one, 5), Some(1005));
    }

    #[test]
    fn others_do_not_wait() {
        let peers = FaultyPeers::new().unwrap();
        peers.note(peer("192.0.2.1:80"), 0);
        let others = (1..=100).map(|last| peer(&format!("198.51.100.{last}:80")));
        let waiting = others.filter(|other| peers.begin_ms(*other, 0) != Some(0)).count();
        assert!(waiting < 5, "{waiting}: one may share the entry");
        peers.note(Peer::Unix, 0);
        assert_eq!(peers.begin_ms(Peer::Unix, 0), Some(0));
    }
}
