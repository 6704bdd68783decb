//! The slowest requests of the current window and of the previous one.

use std::sync::atomic::{AtomicU64, Ordering};

use super::clients::{WINDOW_US, read_text, write_text};

/// The number of requests kept per window.
const PLACES: usize = 8;

/// The number of bytes kept of a request's method and path.
pub(crate) const TARGET_BYTES: usize = 96;

/// The words of one request besides its time: its wait, its status, and its method and path.
const REQUEST_WORDS: usize = 2 + TARGET_BYTES / 8;
const WAITED_US: usize = 0;
const STATUS: usize = 1;
const TARGET: usize = 2;

/// The layout of a window: its number, the least of its requests' times, all times side by side, and the other words of
/// each request.
const EPOCH: usize = 0;
const LEAST: usize = 1;
const TIMES: usize = 2;
const REQUESTS: usize = TIMES + PLACES;
const WINDOW_WORDS: usize = REQUESTS + PLACES * REQUEST_WORDS;
const WINDOWS: usize = 2;

/// The words of a row's slowest requests.
pub(super) const WORDS: usize = WINDOWS * WINDOW_WORDS;

/// A slow request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SlowRequest {
    pub(super) took_us: u64,
    pub(super) waited_us: u64,
    pub(super) status: u64,
    pub(super) target: String,
}

/// Keeps a request if it is among the slowest; `target` is its method and path.
pub(super) fn note(
    words: &[AtomicU64],
    now_us: u64,
    [took_us, waited_us]: [u64; 2],
    status: u16,
    target: &[u8],
) {
    let epoch = now_us / WINDOW_US + 1;
    let at = usize::try_from(epoch % WINDOWS as u64).unwrap_or(0) * WINDOW_WORDS;
    let window = &words[at..at + WINDOW_WORDS];
    if window[EPOCH].load(Ordering::Relaxed) != epoch {
        window.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        window[EPOCH].store(epoch, Ordering::Relaxed);
    }
    if took_us <= window[LEAST].load(Ordering::Relaxed) {
        return;
    }
    let times = &window[TIMES..TIMES + PLACES];
    let of = |time: &AtomicU64| time.load(Ordering::Relaxed);
    let Some((place, time)) = times.iter().enumerate().min_by_key(|(_, time)| of(time)) else {
        return;
    };
    let request = &window[REQUESTS + place * REQUEST_WORDS..][..REQUEST_WORDS];
    request[WAITED_US].store(waited_us, Ordering::Relaxed);
    request[STATUS].store(status.into(), Ordering::Relaxed);
    request[TARGET..].iter().for_each(|word| word.store(0, Ordering::Relaxed));
    write_text(&request[TARGET..], target);
    time.store(took_us, Ordering::Relaxed);
    window[LEAST].store(times.iter().map(of).min().unwrap_or(0), Ordering::Relaxed);
}

/// Adds the requests that one worker has kept.
pub(super) fn read(words: &[AtomicU64], now_us: u64, into: &mut Vec<SlowRequest>) {
    let epoch = now_us / WINDOW_US + 1;
    for window in words.chunks(WINDOW_WORDS) {
        let its_epoch = window[EPOCH].load(Ordering::Relaxed);
        if its_epoch != epoch && its_epoch + 1 != epoch {
            continue;
        }
        let requests = window[REQUESTS..].chunks(REQUEST_WORDS);
        for (time, request) in window[TIMES..TIMES + PLACES].iter().zip(requests) {
            let took_us = time.load(Ordering::Relaxed);
            if took_us > 0 {
                into.push(SlowRequest {
                    took_us,
                    waited_us: request[WAITED_US].load(Ordering::Relaxed),
                    status: request[STATUS].load(Ordering::Relaxed),
                    target: read_text(&request[TARGET..]),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_of_the_last_windows_are_kept() {
        let words: Vec<_> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        for took_us in 1..=100 {
            let target = format!("GET /{took_us}");
            note(&words, 1, [took_us, 7], 200, target.as_bytes());
        }
        note(&words, WINDOW_US, [5, 0], 500, b"POST /later");
        let mut slow = Vec::new();
        read(&words, WINDOW_US, &mut slow);
        let mut times: Vec<_> = slow.iter().map(|request| request.took_us).collect();
        times.sort_unstable();
        assert_eq!(times, [5, 93, 94, 95, 96, 97, 98, 99, 100]);
        let slowest = slow.iter().find(|request| request.took_us == 100).unwrap();
        assert_eq!(
            (slowest.target.as_str(), slowest.status, slowest.waited_us),
            ("GET /100", 200, 7)
        );
        let mut later = Vec::new();
        read(&words, 2 * WINDOW_US, &mut later);
        assert_eq!(later.len(), 1);
        assert_eq!(later[0].target, "POST /later");
    }
}
