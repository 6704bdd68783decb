//! The time of each client's last turn in any worker.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::Ordering;

use thruway_sys::shared_memory::Anonymous;

/// The number of entries. Clients whose hashes share an entry share their turns.
const ENTRIES: usize = 1 << 15;

/// A client, by the hash of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Client(u64);

/// The table that workers share, created before they fork or start.
///
/// The hash has a secret seed, so that no client can choose a name that shares another client's
/// turns.
#[derive(Debug)]
pub(crate) struct ClientTurns {
    seed: RandomState,
    /// Microseconds of the monotonic clock; zero before the first turn.
    turns_us: Anonymous,
}

impl ClientTurns {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { seed: RandomState::new(), turns_us: Anonymous::new(ENTRIES)? })
    }

    pub(crate) fn client(&self, name: &[u8]) -> Client {
        Client(self.seed.hash_one(name))
    }

    /// Returns `count` clients, of which no two share an entry.
    #[cfg(test)]
    pub(crate) fn clients_apart(&self, count: usize) -> Vec<Client> {
        let mut clients: Vec<Client> = Vec::new();
        for number in 0_u32.. {
            let next = self.client(&number.to_le_bytes());
            if clients.len() == count {
                break;
            }
            if clients.iter().all(|client| entry(*client) != entry(next)) {
                clients.push(next);
            }
        }
        clients
    }

    /// The time of the client's last turn.
    pub(crate) fn last_us(&self, client: Client) -> u64 {
        self.turns_us[entry(client)].load(Ordering::Relaxed)
    }

    /// Records a turn of the client, and returns the time of the previous one.
    pub(crate) fn note(&self, client: Client, now_us: u64) -> u64 {
        self.turns_us[entry(client)].fetch_max(now_us, Ordering::Relaxed)
    }
}

fn entry(client: Client) -> usize {
    usize::try_from(client.0 % ENTRIES as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_turn_of_a_client_is_known_by_its_name() {
        let turns = ClientTurns::new().unwrap();
        let [one, other] = [turns.client(b"10.0.0.1"), turns.client(b"10.0.0.2")];
        assert_eq!(one, turns.client(b"10.0.0.1"));
        assert_ne!(one, other);
        assert_eq!((turns.note(one, 7), turns.note(one, 9), turns.last_us(one)), (0, 7, 9));
        assert_eq!(turns.note(one, 8), 9, "a worker that noted earlier turns nothing back");
        assert_eq!(turns.last_us(one), 9);
    }

    #[test]
    fn names_that_look_alike_have_entries_of_their_own() {
        let turns = ClientTurns::new().unwrap();
        let names = (0..1000).map(|number| format!("192.168.{}.{}", number / 256, number % 256));
        let mut entries: Vec<_> = names.map(|name| entry(turns.client(name.as_bytes()))).collect();
        entries.sort_unstable();
        entries.dedup();
        assert!(entries.len() > 950, "{}", entries.len());
    }
}
