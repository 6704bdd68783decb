//! The routes whose requests compute for long, learned from the requests themselves.
//!
//! A request that computes holds up every fiber of its thread. So the server has to know beforehand which requests will
//! compute. Requests of one route resemble each other: a route is a method and a path, in which segments with a digit
//! count as identifiers. While fibers wait, the first request of a route is on trial: it counts as one that computes
//! until its first slice is over, that is until it waits or ends.
//!
//! The clock that does not count the time of other threads is a system call. So slices are measured for the first
//! requests of a route, and for routes under suspicion: those of which a slice has taken long by the wall clock.

use std::cell::Cell;

/// A slice of a request that computes for longer counts as long, in microseconds. Shorter ones hold up other requests
/// for no longer than a tenth of Ruby's quantum.
pub const LONG_SLICE_US: u64 = 10_000;

/// The number of routes remembered, a power of two. A new route replaces one that does not compute.
const ROUTES_MAX: usize = 1024;

/// The bytes of a path that are read: longer paths differ in their beginnings, too.
const PATH_BYTES_MAX: usize = 256;

/// The share of long requests, in thousandths, from which on a route computes. Two long requests in a row reach it, and
/// one among twenty does not: any request may meet a collection of garbage.
const COMPUTING_PERMILLE: u16 = 400;

/// The share below which a route is no longer under suspicion.
const CLEARED_PERMILLE: u16 = 20;

/// The requests after which a new one has no more weight in the share: long ones, and short ones.
const LONG_WEIGHT: u16 = 4;
const SHORT_WEIGHT: u16 = 16;

/// The requests of each route that are measured in any case.
const MEASURED: u16 = 8;

/// The time between two trials, in microseconds. An application may have a route for each of its requests, and a trial
/// costs a hand-off to another thread, some 50 µs.
const TRIAL_INTERVAL_US: u64 = 1_000;

/// A request's route: a digest of its method and its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route(u64);

#[derive(Debug, Clone, Copy, Default)]
struct Experience {
    /// The route's digest; zero in an entry of no route.
    route: u64,
    /// The number of requests measured, up to the highest weight.
    measured: u16,
    long_permille: u16,
    is_on_trial: bool,
    is_suspect: bool,
}

/// The memory of routes.
#[derive(Debug)]
pub struct Routes {
    entries: Vec<Cell<Experience>>,
    /// The time before which no trial begins.
    next_trial_us: Cell<u64>,
}

impl Default for Routes {
    fn default() -> Self {
        Self { entries: vec![Cell::default(); ROUTES_MAX], next_trial_us: Cell::new(0) }
    }
}

impl Route {
    /// The route of a request. The path ends before the query.
    #[must_use]
    pub fn of(method: &[u8], path: &[u8]) -> Self {
        let mut digest = method.iter().fold(FNV_BASIS, |digest, byte| add(digest, *byte));
        // The digest at the beginning of a segment; `None` in the rest of an identifier, which has no weight.
        let mut segment = Some(digest);
        for byte in &path[..path.len().min(PATH_BYTES_MAX)] {
            if *byte == b'/' {
                digest = add(digest, b'/');
                segment = Some(digest);
            } else if byte.is_ascii_digit() {
                digest = segment.take().map_or(digest, |before| add(before, b'0'));
            } else if segment.is_some() {
                digest = add(digest, *byte);
            }
        }
        Self(digest.max(1))
    }
}

const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// One step of an FNV-1a digest.
fn add(digest: u64, byte: u8) -> u64 {
    (digest ^ u64::from(byte)).wrapping_mul(FNV_PRIME)
}

impl Routes {
    /// Whether requests of the route are likely to compute for long.
    #[must_use]
    pub fn computes(&self, route: Route) -> bool {
        self.get(route).is_some_and(Experience::computes)
    }

    /// Begins a trial, if nothing is known of the route and a trial is due: until its end, the route computes.
    pub fn begin_trial(&self, route: Route, now_us: u64) -> bool {
        let begins = now_us >= self.next_trial_us.get()
            && self.get(route).is_none()
            && self.set(Experience {
                is_on_trial: true,
                long_permille: 1000,
                ..Experience::of(route)
            });
        if begins {
            self.next_trial_us.set(now_us + TRIAL_INTERVAL_US);
        }
        begins
    }

    /// Whether the next slice of the route is to be measured. From now on, the route is known.
    pub fn is_measured(&self, route: Route) -> bool {
        match self.get(route) {
            Some(known) => known.measured < MEASURED || known.is_suspect || known.is_on_trial,
            None => self.set(Experience::of(route)),
        }
    }

    /// Puts the route under suspicion.
    pub fn suspect(&self, route: Route) {
        let known = self.get(route).unwrap_or(Experience::of(route));
        self.set(Experience { is_suspect: true, ..known });
    }

    /// Records a measured slice that was not long, after which its request goes on. It ends a trial.
    pub fn note_short_slice(&self, route: Route) {
        if let Some(known) = self.get(route).filter(|known| known.is_on_trial) {
            self.set(Experience { is_on_trial: false, long_permille: 0, ..known });
        }
    }

    /// Records a request of the route that has computed for long.
    pub fn note_long(&self, route: Route) {
        let known = self.get(route).unwrap_or(Experience::of(route));
        let (measured, share) = (known.measured + 1, known.long_permille);
        let long_permille = share + (1000 - share) / measured.min(LONG_WEIGHT);
        self.note(Experience { measured, long_permille, is_suspect: true, ..known });
    }

    /// Records a measured request of the route that has not computed for long.
    pub fn note_short(&self, route: Route) {
        let Some(known) = self.get(route) else { return };
        let (measured, share) = (known.measured + 1, known.long_permille);
        let long_permille = share - share.div_ceil(measured.min(SHORT_WEIGHT));
        let is_suspect = known.is_suspect && long_permille >= CLEARED_PERMILLE;
        self.note(Experience { measured, long_permille, is_suspect, ..known });
    }

    fn note(&self, noted: Experience) {
        let measured = noted.measured.min(SHORT_WEIGHT);
        self.set(Experience { measured, is_on_trial: false, ..noted });
    }

    fn get(&self, route: Route) -> Option<Experience> {
        let known = self.entry(route.0).get();
        (known.route == route.0).then_some(known)
    }

    /// Stores the experience with a route, unless its entry belongs to another route that computes.
    fn set(&self, known: Experience) -> bool {
        let entry = self.entry(known.route);
        let before = entry.get();
        let is_free = before.route == known.route || !before.computes();
        if is_free {
            entry.set(known);
        }
        is_free
    }

    fn entry(&self, digest: u64) -> &Cell<Experience> {
        // The number of entries is a power of two, and the digest's upper bits depend on every byte.
        &self.entries[(digest >> 32) as usize % ROUTES_MAX]
    }
}

impl Experience {
    fn of(route: Route) -> Self {
        Self { route: route.0, ..Self::default() }
    }

    fn computes(self) -> bool {
        self.long_permille >= COMPUTING_PERMILLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(path: &str) -> Route {
        Route::of(b"GET", path.as_bytes())
    }

    #[test]
    fn segments_with_a_digit_are_identifiers() {
        assert_eq!(get("/posts/1/edit"), get("/posts/8f3e/edit"));
        for other in ["/posts/1", "/posts/1/edit/", "/posts/new/edit", "/post/1/edit", "/"] {
            assert_ne!(get("/posts/1/edit"), get(other), "{other}");
        }
        assert_ne!(get("/posts"), Route::of(b"POST", b"/posts"));
    }

    #[test]
    fn the_first_request_of_a_route_is_on_trial_until_its_first_slice_ends() {
        let (routes, report, page) = (Routes::default(), get("/report"), get("/page"));
        assert!(routes.begin_trial(report, 0) && routes.computes(report));
        assert!(!routes.begin_trial(page, TRIAL_INTERVAL_US - 1), "it is not due");
        assert!(routes.begin_trial(page, TRIAL_INTERVAL_US) && routes.computes(page));
        assert!(routes.is_measured(report) && routes.is_measured(page));
        routes.note_long(report);
        routes.note_short_slice(page);
        assert!(routes.computes(report) && !routes.computes(page));
        assert!(!routes.begin_trial(page, u64::MAX / 2), "it had its trial");
    }

    #[test]
    fn a_known_route_computes_after_two_long_requests() {
        let (routes, report) = (Routes::default(), get("/report"));
        while routes.is_measured(report) {
            routes.note_short(report);
        }
        routes.suspect(report);
        assert!(routes.is_measured(report) && !routes.computes(report));
        routes.note_long(report);
        assert!(!routes.computes(report), "it may have met a collection of garbage");
        routes.note_long(report);
        assert!(routes.computes(report));
        assert!(!routes.computes(get("/")));
    }

    #[test]
    fn rare_long_requests_do_not_make_a_route_compute() {
        let (routes, page) = (Routes::default(), get("/page"));
        for round in 1..1_000 {
            if round % 20 == 0 {
                routes.note_long(page);
            } else {
                routes.is_measured(page);
                routes.note_short(page);
            }
            assert!(!routes.computes(page), "round {round}");
        }
    }

    #[test]
    fn a_route_that_has_become_short_is_not_measured_for_ever() {
        let (routes, page) = (Routes::default(), get("/page"));
        (0..100).for_each(|_| routes.note_long(page));
        assert!(routes.computes(page));
        let shorts = (1..).find(|_| {
            routes.note_short(page);
            !routes.is_measured(page)
        });
        assert!(shorts.is_some_and(|shorts| shorts < 100), "{shorts:?}");
        assert!(!routes.computes(page));
    }

    #[test]
    fn a_new_route_does_not_replace_one_that_computes() {
        let routes = Routes::default();
        let (report, same) = (Route(5 << 32), Route((5 + ROUTES_MAX as u64) << 32));
        routes.note_long(report);
        assert!(!routes.is_measured(same) && !routes.begin_trial(same, 0));
        assert!(routes.computes(report));
        (0..100).for_each(|_| routes.note_short(report));
        assert!(routes.begin_trial(same, 0) && !routes.computes(report));
    }
}
