//! Mutates heads of the PROXY protocol at random: the result is the same however the bytes arrive.
//!
//! `THRUWAY_CASES` sets the number of cases (`cargo x fuzz` runs a million), and `THRUWAY_SEED` the random seed.
#![forbid(unsafe_code)]

use thruway_http1::proxy::{ProxyVersion, parse_proxy_head};
use thruway_testing::{Random, setting};

/// The number of cases in CI.
const CASES: u64 = 50_000;

const HEADS: [&[u8]; 6] = [
    b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\nGET / HTTP/1.1\r\n\r\n",
    b"PROXY TCP6 2001:db8::1 2001:db8::2 1 65535\r\n",
    b"PROXY UNKNOWN ffff::1 ffff::1 1 2\r\n",
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\xc6\x33\x64\x01\x1f\x90\x01\xbbGET",
    b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",
    b"\r\n\r\n\0\r\nQUIT\n\x21\x21\0\x24aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbccdd",
];

const PIECES: [&[u8]; 12] =
    [b"\r\n", b"\r", b"\n", b" ", b"0", b"99999", b"::", b".", b"TCP4", b"TCP6", b"\0", b"\xff"];

#[test]
fn a_head_is_read_the_same_however_it_comes_in() {
    let mut random = Random::from_environment();
    let mut taken = 0;
    for case in 0..setting("THRUWAY_CASES", CASES) {
        let mut bytes = HEADS[random.below(HEADS.len())].to_vec();
        for _ in 0..random.below(4) {
            let at = random.below(bytes.len() + 1);
            let end = (at + random.below(6)).min(bytes.len());
            let piece = PIECES[random.below(PIECES.len())];
            bytes.splice(at..end, piece.iter().copied());
        }
        let version = if random.below(2) == 0 { ProxyVersion::V1 } else { ProxyVersion::V2 };
        let whole = parse_proxy_head(&bytes, version);
        taken += u64::from(matches!(whole, Ok(Some(_))));
        let stepwise = (0..=bytes.len())
            .map(|end| parse_proxy_head(&bytes[..end], version))
            .find(|read| *read != Ok(None));
        assert_eq!(stepwise.unwrap_or(Ok(None)), whole, "case {case}: {bytes:?}");
        if let Ok(Some(head)) = whole {
            let alone = parse_proxy_head(&bytes[..head.length_bytes], version);
            assert_eq!(alone, whole, "case {case}: what follows is no part of it");
        }
    }
    assert!(taken > 0, "none was taken");
}
