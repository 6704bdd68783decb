//! Mutates a client's frames at random: the session ends or continues, and produces complete heads only.
//!
//! `THRUWAY_CASES` sets the number of cases (`cargo x fuzz` runs a million), and `THRUWAY_SEED` the random seed.
#![forbid(unsafe_code)]

use thruway_http2::{BodyPart, Limits, PREFACE, Progress, Session};
use thruway_testing::{Random, setting};

/// The number of cases in CI.
const CASES: u64 = 3_000;

/// The maximum number of requests in a case.
const REQUESTS_MAX: usize = 100;

/// Byte sequences that replace others.
const PIECES: [&[u8]; 10] = [
    b"\0",
    b"\xff",
    b"\r\n",
    b":",
    b"\x82",
    b"\0\0\0\x04\x01",
    b"\0\x40\0",
    b"\x01\x05",
    b"\x09",
    b"\x88",
];

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("it is short");
    [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
}

fn field(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).expect("it is short");
    [&[0, length(name)], name.as_bytes(), &[length(value)], value.as_bytes()].concat()
}

/// The bytes of a client: requests with bodies, without bodies, and for a WebSocket.
fn conversation() -> Vec<u8> {
    let start = [(":scheme", "http"), (":path", "/a?b"), (":authority", "a.test")];
    let start = start.map(|(name, value)| field(name, value)).concat();
    let head = |method| [field(":method", method), start.clone()].concat();
    let socket = [head("CONNECT"), field(":protocol", "websocket")].concat();
    let cookies = [field("cookie", "a=1"), field("x-a", "b"), field("cookie", "c=2")].concat();
    [
        PREFACE.to_vec(),
        frame(4, 0, 0, &[0, 4, 0, 1, 0, 0]),
        frame(1, 5, 1, &head("GET")),
        frame(1, 4, 3, &[head("POST"), cookies].concat()),
        frame(0, 1, 3, b"a body"),
        frame(1, 1, 5, &head("GET")),
        frame(9, 4, 5, &field("x-more", "c")),
        frame(8, 0, 0, &[0, 0, 1, 0]),
        frame(6, 0, 0, &[7; 8]),
        frame(1, 4, 7, &socket),
        frame(0, 0, 7, &[0x81, 0x80, 0, 0, 0, 0]),
        frame(3, 0, 7, &[0, 0, 0, 8]),
    ]
    .concat()
}

/// Checks that `head` is what `http1` accepts: lines, and an empty line only at the end.
fn assert_is_one_head(head: &[u8], case: u64) {
    let text = String::from_utf8_lossy(head);
    let lines = text.strip_suffix("\r\n\r\n").unwrap_or_else(|| panic!("case {case}: {text:?}"));
    let is_line = |line: &str| !line.is_empty() && !line.contains(['\r', '\n', '\0']);
    assert!(lines.split("\r\n").all(is_line), "case {case}: {text:?}");
}

#[test]
fn whatever_a_client_sends_is_heads_or_the_end() {
    let (mut random, limits) = (Random::from_environment(), Limits::default());
    let (mut requests, mut ends, mut streams) = (0, 0, Vec::new());
    for case in 0..setting("THRUWAY_CASES", CASES) {
        let mut bytes = conversation();
        for _ in 0..random.below(4) {
            let at = PREFACE.len() + random.below(bytes.len() - PREFACE.len());
            let end = (at + random.below(4)).min(bytes.len());
            let piece = PIECES[random.below(PIECES.len())];
            bytes.splice(at..end, piece.iter().copied());
        }
        let mut session = Session::new(&limits, case % 2 == 0, 0);
        let mut left = &bytes[..];
        while !left.is_empty() && !session.is_over() {
            let (piece, rest) = left.split_at(left.len().min(1 + random.below(60)));
            left = rest;
            if session.receive(piece, 0).is_err() {
                break;
            }
            while let Progress::Request(head, mut stream) = session.progress() {
                head.iter().for_each(|head| assert_is_one_head(head, case));
                while matches!(stream.receive(), BodyPart::Data(_)) {}
                streams.push(stream);
                assert!(streams.len() <= REQUESTS_MAX, "case {case}: requests without an end");
            }
            session.flush();
            let _ = session.take_unsent();
        }
        requests += streams.drain(..).len();
        ends += u64::from(session.is_over());
    }
    assert!(requests > 0 && ends > 0, "{requests} requests, {ends} ends");
}
