//! Session tickets that every worker of a server accepts.
//!
//! A ticket is encrypted with a key that all workers share, in memory that they inherit. A server that takes over in a
//! hot restart receives a descriptor of that memory, so its clients need no full handshake. The keys are random. After
//! some hours a worker creates a new key, which overwrites the key before last. So an attacker who reads the memory
//! later cannot decrypt earlier tickets.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::fence;
use std::time::{SystemTime, UNIX_EPOCH};

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::server::ProducesTickets;
use thruway_sys::shared_memory::Memfd;

/// The time in seconds for which a key encrypts tickets. The key decrypts tickets for as long again.
const PERIOD_S: u64 = 6 * 3600;

/// The time in seconds after which another worker takes the lock of a worker that died while it created a key.
const LOCK_MAX_S: u64 = 5;

/// The number of attempts to read keys while they change. Without keys, a ticket is merely not accepted.
const READS_MAX: u32 = 1000;

/// The size of a key in bytes, and in words.
const KEY_BYTES: usize = 32;
const KEY_WORDS: usize = KEY_BYTES / 8;

/// The number of words of a key: the time of creation, the name, and the secret.
const SLOT_WORDS: usize = 2 + KEY_WORDS;

/// The place of the lock: the time in seconds at which a worker started to create a key, or zero if no worker does.
const LOCK: usize = 0;
/// The place of the version, which a worker increments before and after it changes the keys: an odd version means that
/// they are being changed.
const VERSION: usize = 1;
const CURRENT: usize = 2;
const PREVIOUS: usize = CURRENT + SLOT_WORDS;
const WORDS: usize = PREVIOUS + SLOT_WORDS;

/// The size of a key's name in a ticket.
const NAME_BYTES: usize = 8;

/// The keys of a server's session tickets, created before the workers are forked or started.
#[derive(Debug)]
pub struct TicketKeys {
    words: Memfd,
    random: SystemRandom,
}

/// A key.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    made_s: u64,
    /// A random name, by which a ticket refers to its key; zero in an empty slot.
    name: u64,
    secret: [u64; KEY_WORDS],
}

impl TicketKeys {
    /// Creates the keys, with a first key.
    ///
    /// # Errors
    /// The system has no memory left, or no random numbers.
    pub fn new() -> io::Result<Self> {
        let words = Memfd::new(c"thruway-tickets", WORDS)?;
        let keys = Self { words, random: SystemRandom::new() };
        let first = keys.make(now_s()).ok_or_else(|| io::Error::other("no random numbers"))?;
        keys.store(CURRENT, first);
        Ok(keys)
    }

    /// Maps the keys of an older process from a copy of its descriptor ([`AsFd`]). From now on both processes use them.
    ///
    /// # Errors
    /// The file does not contain keys.
    pub fn from_file(file: OwnedFd) -> io::Result<Self> {
        let words = Memfd::from_file(file)?;
        let keys = (words.len() == WORDS).then(|| Self { words, random: SystemRandom::new() });
        let has_some = |keys: &Self| keys.load(CURRENT).name != Key::NONE.name;
        keys.filter(has_some).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Creates a random key, without storing it.
    fn make(&self, made_s: u64) -> Option<Key> {
        let mut bytes = [0; NAME_BYTES + KEY_BYTES];
        self.random.fill(&mut bytes).ok()?;
        let (chunks, _) = bytes.as_chunks::<8>();
        let word = |at: usize| u64::from_ne_bytes(chunks[at]);
        Some(Key { made_s, name: word(0) | 1, secret: std::array::from_fn(|at| word(at + 1)) })
    }

    /// Returns the current keys; the first one encrypts. Returns `None` if the keys do not become stable.
    fn read(&self) -> Option<[Key; 2]> {
        for _ in 0..READS_MAX {
            let before = self.words[VERSION].load(Acquire);
            let keys = [self.load(CURRENT), self.load(PREVIOUS)];
            fence(Acquire);
            if before.is_multiple_of(2) && self.words[VERSION].load(Relaxed) == before {
                return Some(keys);
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Returns the keys, after creating a new one if that is due.
    fn read_at(&self, now_s: u64) -> Option<[Key; 2]> {
        let keys = self.read();
        let is_due = keys.is_none_or(|[current, _]| now_s >= current.made_s + PERIOD_S);
        if !is_due || !self.rotate(now_s) {
            return keys;
        }
        self.read()
    }

    /// Creates a new key, which replaces the key before last. Returns `false` if another worker does so, or has done
    /// so.
    fn rotate(&self, now_s: u64) -> bool {
        let Some(next) = self.make(now_s) else { return false };
        let lock = self.words[LOCK].load(Relaxed);
        let is_free = lock == 0 || now_s >= lock + LOCK_MAX_S;
        if !is_free || self.words[LOCK].compare_exchange(lock, now_s, AcqRel, Relaxed).is_err() {
            return false;
        }
        let current = self.load(CURRENT);
        let is_due = now_s >= current.made_s + PERIOD_S;
        if is_due || !self.words[VERSION].load(Relaxed).is_multiple_of(2) {
            // A key that has not encrypted for two periods must not decrypt either.
            let is_recent = now_s < current.made_s + 2 * PERIOD_S;
            let previous = if is_recent { current } else { Key::NONE };
            let version = self.words[VERSION].load(Relaxed) | 1;
            self.words[VERSION].store(version, Relaxed);
            fence(Release);
            self.store(PREVIOUS, previous);
            self.store(CURRENT, next);
            self.words[VERSION].store(version + 1, Release);
        }
        self.words[LOCK].store(0, Release);
        is_due
    }

    fn load(&self, at: usize) -> Key {
        let word = |offset: usize| self.words[at + offset].load(Relaxed);
        Key { made_s: word(0), name: word(1), secret: std::array::from_fn(|index| word(index + 2)) }
    }

    fn store(&self, at: usize, key: Key) {
        let words = [key.made_s, key.name].into_iter().chain(key.secret);
        self.words[at..].iter().zip(words).for_each(|(to, word)| to.store(word, Relaxed));
    }
}

/// The descriptor of the keys, for the process that takes over.
impl AsFd for TicketKeys {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.words.as_fd()
    }
}

impl Key {
    const NONE: Self = Self { made_s: 0, name: 0, secret: [0; KEY_WORDS] };

    fn aead(&self) -> Option<LessSafeKey> {
        let secret = self.secret.map(u64::to_ne_bytes);
        UnboundKey::new(&AES_256_GCM, secret.as_flattened()).ok().map(LessSafeKey::new)
    }
}

/// Encrypts and decrypts the tickets of a listener. Tickets of a listener with other requirements on clients are not
/// accepted, since they would bypass the requirements.
#[derive(Debug)]
pub(crate) struct Tickets {
    keys: Arc<TicketKeys>,
    /// The listener's requirements on clients.
    rules: Vec<u8>,
}

impl Tickets {
    pub(crate) fn new(keys: Arc<TicketKeys>, rules: Vec<u8>) -> Self {
        Self { keys, rules }
    }

    fn seal(&self, plain: &[u8], now_s: u64) -> Option<Vec<u8>> {
        let [key, _] = self.keys.read_at(now_s)?;
        let mut nonce = [0; NONCE_LEN];
        self.keys.random.fill(&mut nonce).ok()?;
        let mut body = plain.to_vec();
        let rules = Aad::from(&self.rules);
        let nonce_used = Nonce::assume_unique_for_key(nonce);
        key.aead()?.seal_in_place_append_tag(nonce_used, rules, &mut body).ok()?;
        Some([&key.name.to_ne_bytes()[..], &nonce, &body].concat())
    }

    fn open(&self, ticket: &[u8], now_s: u64) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<NAME_BYTES>()?;
        let (nonce, body) = rest.split_first_chunk::<NONCE_LEN>()?;
        let name = u64::from_ne_bytes(*name);
        let keys = self.keys.read_at(now_s)?;
        let key = keys.iter().find(|key| key.name != 0 && key.name == name)?;
        let mut body = body.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let plain = key.aead()?.open_in_place(nonce, Aad::from(&self.rules), &mut body).ok()?;
        Some(plain.to_vec())
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        u32::try_from(PERIOD_S).unwrap_or(u32::MAX)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal(plain, now_s())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.open(ticket, now_s())
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tickets(keys: &Arc<TicketKeys>, rules: &[u8]) -> Tickets {
        Tickets::new(Arc::clone(keys), rules.to_vec())
    }

    #[test]
    fn a_ticket_of_one_worker_is_accepted_by_another_one_with_the_same_rules() {
        let keys = Arc::new(TicketKeys::new().unwrap());
        let [one, other] = [tickets(&keys, b"rules"), tickets(&keys, b"rules")];
        let ticket = one.encrypt(b"a session").unwrap();
        assert_eq!(other.decrypt(&ticket).as_deref(), Some(&b"a session"[..]));
        assert_eq!(tickets(&keys, b"clients show certificates").decrypt(&ticket), None);
        let stranger = Arc::new(TicketKeys::new().unwrap());
        assert_eq!(tickets(&stranger, b"rules").decrypt(&ticket), None);
    }

    #[test]
    fn a_ticket_is_accepted_by_the_server_that_takes_the_keys_over() {
        let keys = Arc::new(TicketKeys::new().unwrap());
        let file = keys.as_fd().try_clone_to_owned().unwrap();
        let later = Arc::new(TicketKeys::from_file(file).unwrap());
        let ticket = tickets(&keys, b"").seal(b"session", 0).unwrap();
        assert_eq!(tickets(&later, b"").open(&ticket, 0).unwrap(), b"session");
        let other = Memfd::new(c"other", 1).unwrap();
        let other = other.as_fd().try_clone_to_owned().unwrap();
        assert!(TicketKeys::from_file(other).is_err());
        let empty = Memfd::new(c"empty", WORDS).unwrap();
        let empty = empty.as_fd().try_clone_to_owned().unwrap();
        assert!(TicketKeys::from_file(empty).is_err(), "a key of zeros is none");
    }

    #[test]
    fn a_ticket_that_was_changed_or_cut_is_not_accepted() {
        let tickets = tickets(&Arc::new(TicketKeys::new().unwrap()), b"");
        let ticket = tickets.encrypt(b"a session").unwrap();
        for at in 0..ticket.len() {
            let mut wrong = ticket.clone();
            wrong[at] ^= 1;
            assert_eq!(tickets.decrypt(&wrong), None, "byte {at}");
            assert_eq!(tickets.decrypt(&ticket[..at]), None, "{at} bytes");
        }
    }

    #[test]
    fn a_key_opens_for_two_periods_and_is_overwritten_then() {
        let keys = Arc::new(TicketKeys::new().unwrap());
        let tickets = tickets(&keys, b"");
        let begun_s = keys.load(CURRENT).made_s;
        let first = keys.load(CURRENT);
        let ticket = tickets.seal(b"a session", begun_s).unwrap();
        let opens = |after_s| tickets.open(&ticket, begun_s + after_s).is_some();
        assert!(opens(PERIOD_S - 1));
        assert!(keys.load(CURRENT) == first);
        assert!(opens(PERIOD_S) && opens(2 * PERIOD_S - 1));
        assert!(keys.load(PREVIOUS) == first && keys.load(CURRENT) != first);
        assert!(!opens(2 * PERIOD_S));
        assert!(keys.load(PREVIOUS) != first, "the old key is in memory no more");
    }

    #[test]
    fn after_a_long_pause_no_old_key_opens() {
        let keys = Arc::new(TicketKeys::new().unwrap());
        let tickets = tickets(&keys, b"");
        let begun_s = keys.load(CURRENT).made_s;
        let ticket = tickets.seal(b"a session", begun_s).unwrap();
        assert_eq!(tickets.open(&ticket, begun_s + 2 * PERIOD_S), None);
    }

    #[test]
    fn a_worker_that_died_while_it_made_a_key_stops_no_other() {
        let keys = Arc::new(TicketKeys::new().unwrap());
        let tickets = tickets(&keys, b"");
        let now_s = keys.load(CURRENT).made_s;
        keys.words[LOCK].store(now_s, Relaxed);
        keys.words[VERSION].store(1, Relaxed);
        assert_eq!(tickets.seal(b"a session", now_s), None, "the handshake goes on without one");
        let late_s = now_s + LOCK_MAX_S;
        let ticket =
            tickets.seal(b"a session", late_s).or_else(|| tickets.seal(b"a session", late_s));
        assert!(tickets.open(&ticket.unwrap(), late_s).is_some());
    }

    #[test]
    fn threads_that_read_while_keys_change_see_whole_keys() {
        let keys = Arc::new(TicketKeys::new().unwrap());
        let begun_s = keys.load(CURRENT).made_s;
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                (1..500).for_each(|turn| {
                    keys.rotate(begun_s + turn * PERIOD_S);
                });
            });
            let tickets = tickets(&keys, b"");
            while !writer.is_finished() {
                if let Some(ticket) = tickets.seal(b"a session", begun_s) {
                    let opened = tickets.open(&ticket, begun_s);
                    assert!(opened.is_none_or(|plain| plain == b"a session"));
                }
            }
        });
        assert!(keys.read().is_some());
    }
}
