//! Randomly changed frames of a client: the decoder returns the same messages however the bytes are split.
//!
//! `THRUWAY_CASES` says how many (`cargo x fuzz` asks for a million), `THRUWAY_SEED` which.
#![forbid(unsafe_code)]

use thruway_testing::{Random, setting};
use thruway_websocket::{CloseCode, Decoder, Deflater, Input, Limits};

/// Cases of a run in CI.
const CASES: u64 = 5_000;

/// Frames whose mask is zero: whole messages, parts of them, control frames, and a message that is compressed.
const FRAMES: [&[u8]; 9] = [
    b"\x81\x85\0\0\0\0hello",
    b"\x01\x82\0\0\0\0gr",
    b"\x00\x83\0\0\0\0\xc3\xbc\xc3",
    b"\x80\x81\0\0\0\0\x9f",
    b"\x82\xfe\0\x80\0\0\0\0",
    b"\x89\x81\0\0\0\0p",
    b"\x8a\x80\0\0\0\0",
    b"\xc1\x87\0\0\0\0\xf2\x48\xcd\xc9\xc9\x07\0",
    b"\x88\x82\0\0\0\0\x03\xe8",
];

const PIECES: [&[u8]; 8] =
    [b"\0", b"\xff", b"\x80", b"\x81", b"\x7f", b"\xfe\xff\xff", b"\xff\0\0\0\0\0\0\xff", b"\xc3"];

/// Decodes bytes that come in such pieces. Returns the messages, and the code if the bytes break a rule.
fn decode(pieces: &[&[u8]], deflates: bool) -> (Vec<Input>, Option<CloseCode>) {
    let limits = Limits { message_bytes_max: 1000, ..Limits::default() };
    let mut deflater = deflates.then(Deflater::default);
    let (mut decoder, mut kept, mut inputs) = (Decoder::default(), Vec::new(), Vec::new());
    for piece in pieces {
        kept.extend_from_slice(piece);
        loop {
            let (used, input) = match decoder.next(&kept, &limits, deflater.as_mut()) {
                Ok(next) => next,
                Err(fault) => return (inputs, Some(fault.code)),
            };
            kept.drain(..used);
            match input {
                Input::More if used == 0 || kept.is_empty() => break,
                Input::More => {}
                Input::Close(_) => {
                    inputs.push(input);
                    return (inputs, None);
                }
                input => inputs.push(input),
            }
        }
    }
    (inputs, None)
}

#[test]
fn messages_are_read_the_same_however_they_come_in() {
    let mut random = Random::from_environment();
    let (mut messages, mut faults) = (0, 0);
    for case in 0..setting("THRUWAY_CASES", CASES) {
        let mut bytes = Vec::new();
        for _ in 0..1 + random.below(6) {
            bytes.extend_from_slice(FRAMES[random.below(FRAMES.len())]);
        }
        for _ in 0..random.below(3) {
            let at = random.below(bytes.len() + 1);
            let end = (at + random.below(4)).min(bytes.len());
            let piece = PIECES[random.below(PIECES.len())];
            bytes.splice(at..end, piece.iter().copied());
        }
        let deflates = random.below(2) == 0;
        let whole = decode(&[&bytes], deflates);
        let single: Vec<_> = bytes.chunks(1).collect();
        assert_eq!(decode(&single, deflates), whole, "case {case}: {bytes:?}");
        let (start, end) = bytes.split_at(random.below(bytes.len() + 1));
        assert_eq!(decode(&[start, end], deflates), whole, "case {case}: {bytes:?}");
        messages += whole.0.iter().filter(|input| matches!(input, Input::Message(_))).count();
        faults += usize::from(whole.1.is_some());
    }
    assert!(messages > 0 && faults > 0, "{messages} messages, {faults} faults");
}
