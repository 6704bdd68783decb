//! Peers that have sent what ended a connection: their next ones begin one after the other.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use thruway_sys::shared_memory::Anonymous;

use crate::fair_by::network_of;
use crate::listener::Peer;

/// Entries of the table. Peers whose hashes share one wait together.
const ENTRIES: usize = 1 << 12;

/// From one beginning to the next. To begin and to end a connection may take a fifth of a millisecond of processor
/// time. So a peer costs the others a twentieth of a processor at most.
const GAP_MS: u64 = 5;

/// No connection waits longer to begin.
pub(crate) const WAIT_MAX_MS: u64 = 1000;

/// A table that workers share. It is made before they are forked, or started. A peer is an address, as
/// [`network_of`] has it; processes of this machine that come by a unix socket are none.
#[derive(Debug)]
pub(crate) struct FaultyPeers {
    /// So that no client can choose an address that shares another one's entry.
    seed: RandomState,
    /// When the next connection may begin, in milliseconds of the monotonic clock.
    next_ms: Anonymous,
}

impl FaultyPeers {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { seed: RandomState::new(), next_ms: Anonymous::new(ENTRIES)? })
    }

    /// What the peer has sent ends a connection.
    pub(crate) fn note(&self, peer: Peer, now_ms: u64) {
        if let Some(next_ms) = self.next_ms(peer) {
            next_ms.fetch_max(now_ms + GAP_MS, Ordering::Relaxed);
        }
    }

    /// When a connection of the peer may begin; never, if too many wait already.
    pub(crate) fn begin_ms(&self, peer: Peer, now_ms: u64) -> Option<u64> {
        let Some(next_ms) = self.next_ms(peer) else { return Some(now_ms) };
        if next_ms.load(Ordering::Relaxed) <= now_ms {
            return Some(now_ms);
        }
        let latest_ms = now_ms + WAIT_MAX_MS;
        let relaxed = Ordering::Relaxed;
        next_ms
            .fetch_update(relaxed, relaxed, |at_ms| {
                (at_ms <= latest_ms).then_some(at_ms.max(now_ms) + GAP_MS)
            })
            .ok()
    }

    fn next_ms(&self, peer: Peer) -> Option<&AtomicU64> {
        let Peer::Tcp(address) = peer else { return None };
        let hash = self.seed.hash_one(network_of(address.ip()));
        self.next_ms.get(usize::try_from(hash % ENTRIES as u64).ok()?)
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
    fn after_a_fault_connections_begin_one_after_the_other_until_the_peer_has_been_quiet() {
        let peers = FaultyPeers::new().unwrap();
        let [one, same] = [peer("192.0.2.1:80"), peer("192.0.2.1:81")];
        peers.note(one, 50);
        assert_eq!(peers.begin_ms(same, 50), Some(55));
        assert_eq!(peers.begin_ms(one, 51), Some(60));
        peers.note(one, 52);
        assert_eq!(peers.begin_ms(one, 60), Some(65), "many faults at once are as one");
        assert_eq!(peers.begin_ms(one, 70), Some(70));
        assert_eq!(peers.begin_ms(one, 70), Some(70));
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
