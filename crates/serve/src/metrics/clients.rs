//! The recent service of each client, in two windows of half a minute: the current one and the last.
//!
//! A window has room for some clients. If more appear, a rarely served client gives way, so that the busiest clients
//! stay. The totals of all clients are counted separately, so that shares stay correct.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::adding::AddMode;

/// The length of a window in microseconds.
pub(super) const WINDOW_US: u64 = 30_000_000;

/// The number of places in a window, and the number of places among which a client's hash leaves a choice.
const PLACES: usize = 128;
const WAYS: usize = 4;

/// The number of bytes kept of a client's name.
pub(super) const NAME_BYTES: usize = 48;

/// Words of one client: its hash, its requests, its times in microseconds, and its name.
const CLIENT_WORDS: usize = 4 + NAME_BYTES / 8;
const HASH: usize = 0;
const REQUESTS: usize = 1;
const SERVED_US: usize = 2;
const WAITED_US: usize = 3;
const NAME: usize = 4;

/// Words before the clients: the number of the window, and the totals.
const HEAD_WORDS: usize = 4;
const EPOCH: usize = 0;

const WINDOW_WORDS: usize = HEAD_WORDS + PLACES * CLIENT_WORDS;
const WINDOWS: usize = 2;

/// Words of a row's clients.
pub(super) const WORDS: usize = WINDOWS * WINDOW_WORDS;

/// The mean wait above which a client competes with others.
const COMPETES_US: u64 = 500;

/// A finished request of a client.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServedRequest<'a> {
    pub(super) hash: u64,
    pub(super) name: &'a [u8],
    pub(super) served_us: u64,
    pub(super) waited_us: u64,
}

/// The service of one client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ClientFigures {
    pub(super) name: String,
    pub(super) requests: u64,
    pub(super) served_us: u64,
    pub(super) waited_us: u64,
}

/// Counts a request for its client.
pub(super) fn note(words: &[AtomicU64], now_us: u64, served: ServedRequest<'_>, adding: AddMode) {
    let epoch = now_us / WINDOW_US + 1;
    let window = window(words, epoch);
    if window[EPOCH].load(Ordering::Relaxed) != epoch {
        window.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        window[EPOCH].store(epoch, Ordering::Relaxed);
    }
    add(&window[..HEAD_WORDS], served, adding);
    // Zero marks a place without a client.
    let hash = served.hash | 1;
    let ways = ways(window, hash);
    let place = (0..WAYS).map(|way| &ways[way * CLIENT_WORDS..(way + 1) * CLIENT_WORDS]);
    let count = |place: &&[AtomicU64]| place[REQUESTS].load(Ordering::Relaxed);
    let found = place.clone().find(|place| place[HASH].load(Ordering::Relaxed) == hash);
    let Some(place) = found.or_else(|| place.min_by_key(count)) else { return };
    if found.is_none() {
        place.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        write_text(&place[NAME..], served.name);
        place[HASH].store(hash, Ordering::Release);
    }
    add(place, served, adding);
}

fn window(words: &[AtomicU64], epoch: u64) -> &[AtomicU64] {
    let at = usize::try_from(epoch % WINDOWS as u64).unwrap_or(0) * WINDOW_WORDS;
    &words[at..at + WINDOW_WORDS]
}

fn ways(window: &[AtomicU64], hash: u64) -> &[AtomicU64] {
    let sets = (PLACES / WAYS) as u64;
    let set = usize::try_from((hash >> 8) % sets).unwrap_or(0);
    let at = HEAD_WORDS + set * WAYS * CLIENT_WORDS;
    &window[at..at + WAYS * CLIENT_WORDS]
}

fn add(words: &[AtomicU64], served: ServedRequest<'_>, adding: AddMode) {
    adding.add(&words[REQUESTS], 1);
    adding.add(&words[SERVED_US], served.served_us);
    adding.add(&words[WAITED_US], served.waited_us);
}

/// Writes text into words, eight bytes each, and leaves out the bytes that do not fit.
pub(super) fn write_text(words: &[AtomicU64], text: &[u8]) {
    for (word, bytes) in words.iter().zip(text.chunks(8)) {
        let mut eight = [0; 8];
        eight[..bytes.len()].copy_from_slice(bytes);
        word.store(u64::from_le_bytes(eight), Ordering::Relaxed);
    }
}

/// Reads text from words, up to the first NUL.
pub(super) fn read_text(words: &[AtomicU64]) -> String {
    let bytes = words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes());
    let text: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&text).into_owned()
}

/// The service of clients in the last window and in the current one, by all workers together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clients {
    by_hash: HashMap<u64, ClientFigures>,
    pub(super) all: ClientFigures,
}

impl Clients {
    /// Adds the counts of one worker.
    pub(super) fn add(&mut self, words: &[AtomicU64], now_us: u64) {
        let epoch = now_us / WINDOW_US + 1;
        for window in words.chunks(WINDOW_WORDS) {
            let its_epoch = window[EPOCH].load(Ordering::Relaxed);
            if its_epoch == epoch || its_epoch + 1 == epoch {
                self.all.add(window);
                self.add_window(window);
            }
        }
    }

    fn add_window(&mut self, window: &[AtomicU64]) {
        for place in window[HEAD_WORDS..].chunks(CLIENT_WORDS) {
            let hash = place[HASH].load(Ordering::Acquire);
            if hash != 0 {
                let client = self.by_hash.entry(hash).or_default();
                client.name = read_text(&place[NAME..]);
                client.add(place);
            }
        }
    }

    /// The clients with the largest shares of the application's time.
    pub(super) fn busiest(&self, most: usize) -> Vec<&ClientFigures> {
        let mut clients: Vec<_> = self.by_hash.values().collect();
        clients.sort_by_key(|client| (std::cmp::Reverse(client.served_us), &client.name));
        clients.truncate(most);
        clients
    }

    pub(super) fn count(&self) -> usize {
        self.by_hash.len()
    }

    /// The busiest client's share of the application's time.
    pub(super) fn busiest_share(&self) -> f64 {
        let busiest = self.by_hash.values().map(|client| client.served_us).max().unwrap_or(0);
        busiest as f64 / self.all.served_us.max(1) as f64
    }

    /// Jain's index of the requests of the clients that compete with each other; 1 if there are fewer than two.
    pub(super) fn fairness(&self) -> f64 {
        let competes = |client: &&ClientFigures| client.waited_us >= client.requests * COMPETES_US;
        let requests: Vec<f64> =
            self.by_hash.values().filter(competes).map(|client| client.requests as f64).collect();
        let (sum, squares) = requests
            .iter()
            .fold((0.0, 0.0), |(sum, squares), got| (sum + got, squares + got * got));
        if requests.len() < 2 { 1.0 } else { sum * sum / (requests.len() as f64 * squares) }
    }
}

impl ClientFigures {
    fn add(&mut self, words: &[AtomicU64]) {
        self.requests += words[REQUESTS].load(Ordering::Relaxed);
        self.served_us += words[SERVED_US].load(Ordering::Relaxed);
        self.waited_us += words[WAITED_US].load(Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{BuildHasher, RandomState};

    fn words() -> Vec<AtomicU64> {
        (0..WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    fn note_of(words: &[AtomicU64], now_us: u64, hash: u64, name: &str, times: [u64; 2]) {
        let [served_us, waited_us] = times;
        let served = ServedRequest { hash, name: name.as_bytes(), served_us, waited_us };
        note(words, now_us, served, AddMode::Alone);
    }

    fn read(words: &[AtomicU64], now_us: u64) -> Clients {
        let mut clients = Clients::default();
        clients.add(words, now_us);
        clients
    }

    #[test]
    fn a_client_is_counted_for_a_window_and_then_forgotten() {
        let words = words();
        note_of(&words, 1, 8, "192.0.2.1", [30, 5]);
        note_of(&words, WINDOW_US, 8, "192.0.2.1", [10, 0]);
        note_of(&words, WINDOW_US, 9_999, "192.0.2.2", [60, 0]);
        let clients = read(&words, WINDOW_US);
        assert_eq!(clients.all.requests, 3);
        let busiest = clients.busiest(9);
        assert_eq!((busiest[0].name.as_str(), busiest[0].served_us), ("192.0.2.2", 60));
        assert_eq!((busiest[1].requests, busiest[1].waited_us), (2, 5));
        assert!((clients.busiest_share() - 0.6).abs() < 1e-9);
        assert_eq!(read(&words, 2 * WINDOW_US).all.requests, 2, "the first window is over");
        assert_eq!(read(&words, 4 * WINDOW_US).count(), 0);
        note_of(&words, 4 * WINDOW_US, 8, "192.0.2.1", [1, 1]);
        assert_eq!(read(&words, 4 * WINDOW_US).all.requests, 1, "a window begins empty");
    }

    #[test]
    fn a_busy_client_keeps_its_place_among_thousands() {
        let (words, hasher) = (words(), RandomState::new());
        for number in 0..5_000_u64 {
            note_of(&words, 1, hasher.hash_one(number), "seldom", [10, 0]);
            note_of(&words, 1, hasher.hash_one("busy"), "busy", [10, 0]);
        }
        let clients = read(&words, 1);
        let busiest = clients.busiest(1)[0];
        assert_eq!((busiest.name.as_str(), busiest.requests), ("busy", 5_000));
        assert_eq!(clients.all.requests, 10_000);
        assert!((clients.busiest_share() - 0.5).abs() < 1e-9);
    }

    #[test]
    fn fairness_is_that_of_the_clients_that_wait() {
        let words = words();
        assert!((read(&words, 1).fairness() - 1.0).abs() < 1e-9, "without any");
        note_of(&words, 1, 1_000, "idle", [1, 0]);
        for _ in 0..3 {
            note_of(&words, 1, 2_000, "one", [1, 900]);
        }
        assert!((read(&words, 1).fairness() - 1.0).abs() < 1e-9, "one waits for no other");
        note_of(&words, 1, 3_000, "two", [1, 900]);
        assert!((read(&words, 1).fairness() - 0.8).abs() < 1e-9);
    }

    #[test]
    fn a_long_name_is_cut() {
        let words = words();
        note_of(&words, 1, 1, &"x".repeat(99), [1, 1]);
        assert_eq!(read(&words, 1).busiest(1)[0].name, "x".repeat(NAME_BYTES));
    }
}
