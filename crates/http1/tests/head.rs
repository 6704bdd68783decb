//! Mutates the request heads of the vectors at random: every head that is accepted has a single meaning.
//!
//! `THRUWAY_CASES` sets the number of cases (`cargo x fuzz` runs a million), and `THRUWAY_SEED` the random seed.
#![forbid(unsafe_code)]

use thruway_http1::{Head, Limits, Request, RequestFraming, Version};
use thruway_testing::table::{pairs, unescape};
use thruway_testing::{Random, setting};

/// The number of cases in CI.
const CASES: u64 = 50_000;

/// Bytes and words that concern rules, to insert into a head.
const PIECES: [&[u8]; 20] = [
    b"\r",
    b"\n",
    b"\0",
    b" ",
    b"\t",
    b":",
    b",",
    b"_",
    b"-",
    b"\r\n",
    b"\r\n\r\n",
    b"\r\n ",
    b"HTTP/1.1",
    b"Host: a\r\n",
    b"Content-Length: 5\r\n",
    b"content_length: 6\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer_Encoding: chunked\r\n",
    b"chunked",
    b"\xff",
];

/// Changes `head` in one to three places.
fn change(random: &mut Random, head: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..=random.below(3) {
        let at = random.below(head.len() + 1);
        let end = (at + random.below(12)).min(head.len());
        let piece = match random.below(4) {
            0 => b"",
            1 => &other[random.below(other.len())..],
            _ => PIECES[random.below(PIECES.len())],
        };
        head.splice(at..end, piece.iter().copied());
    }
}

#[test]
fn a_head_that_is_taken_has_one_meaning() {
    let vectors = pairs(include_str!("vectors/request_head.tsv"));
    let corpus: Vec<_> = vectors.iter().map(|(bytes, _)| unescape(bytes)).collect();
    let mut random = Random::from_environment();
    let mut taken = 0;
    for case in 0..setting("THRUWAY_CASES", CASES) {
        let mut input = corpus[random.below(corpus.len())].clone();
        let other = &corpus[random.below(corpus.len())];
        change(&mut random, &mut input, other);
        taken += u64::from(check(&input, &mut random, case));
    }
    assert!(taken > 0, "some are taken");
}

/// Checks an input. Returns `true` if it is a head that is accepted.
fn check(input: &[u8], random: &mut Random, case: u64) -> bool {
    let (mut head, mut again) = (Head::new(), Head::new());
    let limits = Limits::default();
    if head.parse(input, 0, &limits) != Ok(true) {
        return false;
    }
    let about = || format!("case {case}: {:?}", String::from_utf8_lossy(input));
    let request = head.request(input);
    assert_clean(request, &about());
    let cut = random.below(head.length_bytes());
    assert_eq!(again.parse(&input[..cut], 0, &limits), Ok(false), "{} cut at {cut}", about());
    assert_eq!(again.parse(input, cut, &limits), Ok(true), "{} after {cut}", about());
    assert_eq!(meaning(again.request(input)), meaning(request), "{}", about());
    let written = write(request);
    assert_eq!(again.parse(&written, 0, &limits), Ok(true), "{} written anew", about());
    assert_eq!(again.length_bytes(), written.len(), "{}", about());
    assert_eq!(meaning(again.request(&written)), meaning(request), "{}", about());
    true
}

/// Checks that no part contains a line end, and that the end of the body is marked only once.
fn assert_clean(request: Request<'_>, about: &str) {
    let breaks = |bytes: &[u8]| bytes.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
    let (mut lengths, mut hosts) = (0, 0);
    for (name, value) in request.fields() {
        assert!(!name.is_empty() && !breaks(name) && !breaks(value), "{about}");
        let name = String::from_utf8_lossy(name).to_lowercase().replace('_', "-");
        lengths += u32::from(name == "content-length" || name == "transfer-encoding");
        hosts += u32::from(name == "host");
    }
    assert!(!breaks(request.target()) && !request.target().contains(&b' '), "{about}");
    assert!(hosts <= 1 && lengths <= 1, "{about}");
    assert!((lengths == 1) == (request.framing() != RequestFraming::None), "{about}");
    assert!(hosts == 1 || request.version() == Version::Http10, "{about}");
}

/// Returns everything that a handler can observe.
fn meaning(request: Request<'_>) -> String {
    let fields: Vec<_> = request.fields().collect();
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {} {} {fields:?}",
        request.method(),
        request.target(),
        request.path(),
        request.query(),
        request.host(),
        request.framing(),
        request.is_persistent(),
        request.expects_continue(),
    )
}

/// Writes the head as a strict client does.
fn write(request: Request<'_>) -> Vec<u8> {
    let version: &[u8] = match request.version() {
        Version::Http10 => b" HTTP/1.0\r\n",
        Version::Http11 | Version::Http2 => b" HTTP/1.1\r\n",
    };
    let mut written = [request.method(), b" ", request.target(), version].concat();
    for (name, value) in request.fields() {
        written.extend([name, b": ", value, b"\r\n"].concat());
    }
    written.extend(b"\r\n");
    written
}
