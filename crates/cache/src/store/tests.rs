//! Random sequences of responses, edits, purges and time, against a model that keeps everything.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use thruway_testing::{Random, setting};

use super::*;
use crate::directives::RequestDirectives;
use crate::reuse::Reuse;

const URLS: [&str; 6] = ["/", "/a", "/a/b", "/a/c?q=1", "/b", "/longer/path"];
const LANGUAGES: [&str; 3] = ["de", "en", "fr"];

type Field = (&'static [u8], &'static [u8]);

fn key(url: &str) -> Key {
    Key::new(false, b"site.example", url.as_bytes(), None, std::iter::empty())
}

fn request_fields(language: &'static str) -> impl Iterator<Item = Field> + Clone {
    std::iter::once((&b"accept-language"[..], language.as_bytes()))
}

fn store_of(bytes_max: usize) -> Store {
    Store::new(Limits { bytes_max, item_bytes_max: 64 << 10 }).unwrap()
}

fn put(store: &Store, url: &str, moment: Moment, body: &[u8]) -> bool {
    let freshness = Freshness { lifetime_s: 60, ..Freshness::default() };
    let response =
        NewResponse { moment, status: 200, lines: b"X-A: b\r\n", body, freshness, now_ms: 0 };
    store.put(&key(url), request_fields("en"), response)
}

fn body(store: &Store, url: &str) -> Option<Vec<u8>> {
    let found = store.find(&key(url), request_fields("en"), &mut Vec::new())?;
    Some(found.body().to_vec())
}

#[test]
fn a_response_that_was_on_its_way_during_a_purge_is_not_used() {
    let purges = [
        Purge::All,
        Purge::Url(b"http://site.example/a"),
        Purge::Prefix(b"http://site.example/"),
        Purge::Path(b"/a"),
        Purge::PathPrefix(b"/"),
    ];
    for purge in purges {
        let store = store_of(BYTES_MIN);
        assert!(put(&store, "/a", store.moment(), b"old"));
        assert_eq!(body(&store, "/a").as_deref(), Some(&b"old"[..]));
        let moment = store.moment();
        assert_eq!(store.purge(purge), 1, "{purge:?}");
        assert_eq!(body(&store, "/a"), None, "{purge:?}");
        put(&store, "/a", moment, b"late");
        assert_eq!(body(&store, "/a"), None, "{purge:?}");
        put(&store, "/a", store.moment(), b"new");
        assert_eq!(body(&store, "/a").as_deref(), Some(&b"new"[..]), "{purge:?}");
    }
}

#[test]
fn a_purge_spares_what_it_does_not_name() {
    let store = store_of(BYTES_MIN);
    for url in URLS {
        put(&store, url, store.moment(), url.as_bytes());
    }
    assert_eq!(store.purge(Purge::Prefix(b"http://site.example/a/")), 2);
    assert_eq!(store.purge(Purge::Path(b"/b")), 1);
    assert_eq!(store.purge(Purge::Url(b"http://other.example/")), 0);
    for (url, is_left) in URLS.iter().zip([true, true, false, false, false, true]) {
        assert_eq!(body(&store, url).is_some(), is_left, "{url}");
    }
    assert_eq!(store.totals().items, 3);
}

#[test]
fn the_oldest_responses_make_room_and_those_in_use_stay() {
    let store = store_of(BYTES_MIN);
    let filling = vec![7; 10 << 10];
    put(&store, "/used", store.moment(), b"used");
    for number in 0..500 {
        put(&store, &format!("/{number}"), store.moment(), &filling);
        assert!(body(&store, "/used").is_some(), "{number}");
    }
    assert_eq!(body(&store, "/0"), None);
    let totals = store.totals();
    assert!(totals.items < 110 && totals.bytes <= totals.bytes_max, "{totals:?}");
    assert!(totals.bytes_max <= BYTES_MIN as u64);
    assert_eq!(totals.count(Counter::Stored), 501);
    assert_eq!(totals.count(Counter::Evicted), 501 - totals.items);
    assert!(!put(&store, "/large", store.moment(), &vec![0; 65 << 10]), "it is too long");
}

/// A response that the model expects in the store.
#[derive(Debug, Clone)]
struct StoredResponse {
    body: Vec<u8>,
    freshness: Freshness,
    stored_ms: u64,
    /// The step at which its request began.
    begun: u64,
}

/// A request that is on its way.
struct Pending {
    url: usize,
    language: &'static str,
    moment: Moment,
    begun: u64,
    version: u64,
}

/// An application, the cache before it, and the model of both.
struct Simulation {
    store: Store,
    random: Random,
    step: u64,
    now_ms: u64,
    versions: [u64; URLS.len()],
    /// The step of each page's last invalidation.
    invalidated: [u64; URLS.len()],
    /// The step of the last purge by prefix: responses that were on their way may be lost.
    swept: u64,
    pending: Vec<Pending>,
    known: HashMap<(usize, &'static str), StoredResponse>,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        Self {
            store: store_of(BYTES_MIN),
            random: Random::new(seed),
            step: 1,
            now_ms: 1_000_000,
            versions: [0; URLS.len()],
            invalidated: [0; URLS.len()],
            swept: 0,
            pending: Vec::new(),
            known: HashMap::new(),
        }
    }

    /// Pages at odd places differ by language.
    fn varies(url: usize) -> bool {
        url % 2 == 1
    }

    fn advance(&mut self) {
        self.step += 1;
        let url = self.random.below(URLS.len());
        match self.random.below(16) {
            0..=7 => self.ask(url),
            8..=10 => self.answer(),
            11 => self.versions[url] += 1,
            12 | 13 => {
                self.versions[url] += 1;
                self.store.invalidate(key(URLS[url]).url());
                self.invalidated[url] = self.step;
            }
            14 => self.purge(url),
            _ => self.now_ms += self.random.below(8_000) as u64,
        }
    }

    fn ask(&mut self, url: usize) {
        let language = LANGUAGES[self.random.below(LANGUAGES.len())];
        let slot = if Self::varies(url) { language } else { "" };
        let found = self.store.find(&key(URLS[url]), request_fields(language), &mut Vec::new());
        let known = self.known.get(&(url, slot));
        let valid = known.filter(|known| known.begun >= self.invalidated[url]);
        let Some(found) = found else {
            let is_lost = |known: &StoredResponse| {
                self.swept >= known.begun
                    || self.store.counters.read().count(Counter::Evicted) > 0
                    || self.shares_word(url)
            };
            assert!(valid.is_none_or(is_lost), "step {}: {valid:?} is lost", self.step);
            return self.begin(url, language);
        };
        let known = valid.unwrap_or_else(|| panic!("step {}: {url} was invalidated", self.step));
        assert_eq!(found.body(), known.body, "step {}", self.step);
        let age_s = (self.now_ms - known.stored_ms) / 1000;
        let reuse =
            found.freshness().reuse(RequestDirectives::default(), found.resident_s(self.now_ms));
        let is_fresh = age_s < u64::from(known.freshness.lifetime_s);
        assert_eq!(matches!(reuse, Reuse::Fresh { .. }), is_fresh, "step {}", self.step);
        if !is_fresh {
            self.begin(url, language);
        }
    }

    /// Whether the invalidation of the page also invalidates another page.
    fn shares_word(&self, url: usize) -> bool {
        let word = |url: &str| self.store.tag(key(url).url()) % INVALIDATIONS as u64;
        (0..URLS.len()).any(|other| other != url && word(URLS[other]) == word(URLS[url]))
    }

    fn begin(&mut self, url: usize, language: &'static str) {
        let (moment, begun, version) = (self.store.moment(), self.step, self.versions[url]);
        self.pending.push(Pending { url, language, moment, begun, version });
    }

    fn answer(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let at = self.random.below(self.pending.len());
        let Pending { url, language, moment, begun, version } = self.pending.swap_remove(at);
        let varies = Self::varies(url);
        let slot = if varies { language } else { "" };
        let length = self.random.below(300);
        let body = format!("{} {slot} {version} {}", URLS[url], "x".repeat(length)).into_bytes();
        let lifetime_s = u32::try_from(self.random.below(10)).unwrap();
        let freshness = Freshness { lifetime_s, ..Freshness::default() };
        let lines: &[u8] = if varies { b"Vary: Accept-Language\r\n" } else { b"X-A: b\r\n" };
        let now_ms = self.now_ms;
        let response = NewResponse { moment, status: 200, lines, body: &body, freshness, now_ms };
        assert!(self.store.put(&key(URLS[url]), request_fields(language), response));
        // An older response of the same page takes the place of a younger one: each is right in its own time.
        self.known
            .insert((url, slot), StoredResponse { body, freshness, stored_ms: now_ms, begun });
    }

    fn purge(&mut self, url: usize) {
        let whole = [b"http://site.example", URLS[url].as_bytes()].concat();
        let (purge, matches): (_, fn(&str, &str) -> bool) = match self.random.below(5) {
            0 => (Purge::All, |_, _| true),
            1 => (Purge::Url(&whole), |other, own| other == own),
            2 => (Purge::Path(URLS[url].as_bytes()), |other, own| other == own),
            3 => (Purge::PathPrefix(URLS[url].as_bytes()), |other, own| other.starts_with(own)),
            _ => (Purge::Prefix(&whole), |other, own| other.starts_with(own)),
        };
        self.store.purge(purge);
        if !matches!(purge, Purge::All | Purge::Url(_)) {
            self.swept = self.step;
        }
        for (other, step) in self.invalidated.iter_mut().enumerate() {
            if matches(URLS[other], URLS[url]) {
                *step = self.step;
                // The stored response is gone, and one that is on its way must not come back.
                self.known.retain(|(url, _), _| *url != other);
            }
        }
    }
}

#[test]
fn no_sequence_of_edits_and_purges_serves_a_foreign_or_removed_page() {
    let cases = setting("THRUWAY_CASES", 300);
    let first = setting("THRUWAY_SEED", 1);
    for seed in first..first + cases {
        let mut simulation = Simulation::new(seed);
        for _ in 0..200 {
            simulation.advance();
        }
    }
}

#[test]
fn writers_that_overtake_each_other_never_show_a_torn_or_foreign_body() {
    // The ring is overwritten again and again, so that readers and slow writers meet all kinds of remains.
    let store = store_of(BYTES_MIN);
    let is_over = AtomicBool::new(false);
    let content = |url: usize, round: usize| {
        let length = (url * 7919 + round * 131) % (40 << 10);
        format!("{url} {length} ").repeat(length / 8 + 1).into_bytes()
    };
    thread::scope(|scope| {
        let is_over = &is_over;
        let store = &store;
        for writer in 0..3 {
            scope.spawn(move || {
                for round in 0..400 {
                    let url = (writer + round * 3) % 40;
                    put(store, &format!("/{url}"), store.moment(), &content(url, round));
                }
                is_over.store(true, Ordering::Relaxed);
            });
        }
        scope.spawn(move || {
            let mut url = 0;
            while !is_over.load(Ordering::Relaxed) {
                url = (url + 1) % 40;
                let Some(body) = body(store, &format!("/{url}")) else { continue };
                let text = String::from_utf8(body).unwrap();
                let mut words = text.split(' ');
                let unit = format!("{} {} ", words.next().unwrap(), words.next().unwrap());
                assert!(unit.starts_with(&format!("{url} ")), "a foreign body");
                assert_eq!(text, unit.repeat(text.len() / unit.len()), "a torn body");
            }
        });
    });
}
