//! Cases of Autobahn's test suite for servers, by their numbers, applied to frames only.
//!
//! Tests in `crates/serve` and in the gem cover the cases about opening and closing handshakes and about times.

use thruway_websocket::{CloseCode, Decoder, Deflater, Input, Limits, Message};

const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// Returns a client's frame with this first byte.
fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![first];
    match payload.len() {
        short @ ..126 => out.push(0x80 | u8::try_from(short).expect("it is short")),
        length @ ..65_536 => {
            out.push(0xfe);
            out.extend(u16::try_from(length).expect("it is below 64 KiB").to_be_bytes());
        }
        length => {
            out.push(0xff);
            out.extend((length as u64).to_be_bytes());
        }
    }
    out.extend(MASK);
    out.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    out
}

/// Decodes a client's bytes, `step` bytes at a time. Returns the results, and the code with which the socket ends after
/// a violation.
fn decode(bytes: &[u8], step: usize, deflates: bool) -> (Vec<Input>, Option<u16>) {
    let (mut decoder, limits) =
        (Decoder::default(), Limits { message_bytes_max: 32 << 20, ..Limits::default() });
    let mut deflater = deflates.then(Deflater::default);
    let (mut kept, mut inputs) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(step) {
        kept.extend_from_slice(piece);
        loop {
            match decoder.next(&kept, &limits, deflater.as_mut()) {
                Err(fault) => return (inputs, Some(fault.code.number())),
                Ok((used, input)) => {
                    kept.drain(..used);
                    let is_more = input == Input::More;
                    if !is_more {
                        inputs.push(input);
                    }
                    if is_more && (used == 0 || kept.is_empty()) {
                        break;
                    }
                }
            }
        }
    }
    (inputs, None)
}

fn text(text: &str) -> Input {
    Input::Message(Message { is_text: true, bytes: text.into() })
}

fn binary(bytes: &[u8]) -> Input {
    Input::Message(Message { is_text: false, bytes: bytes.into() })
}

/// Checks that the result is the same if the bytes arrive at once, in pieces, or individually.
fn brings(bytes: &[u8], inputs: &[Input]) {
    for step in [bytes.len().max(1), 997, 3, 1] {
        assert_eq!(decode(bytes, step, false), (inputs.to_vec(), None), "in steps of {step}");
    }
}

fn fails(bytes: &[u8], inputs: &[Input], code: u16) {
    for step in [bytes.len().max(1), 3, 1] {
        assert_eq!(decode(bytes, step, false), (inputs.to_vec(), Some(code)), "in steps of {step}");
    }
}

#[test]
fn case_1_texts_and_bytes_of_any_length() {
    for length in [0, 125, 126, 127, 128, 65_535, 65_536] {
        let payload = vec![b'*'; length];
        brings(&masked(0x81, &payload), &[text(&"*".repeat(length))]);
        brings(&masked(0x82, &vec![0xfe; length]), &[binary(&vec![0xfe; length])]);
    }
}

#[test]
fn case_2_pings_and_pongs() {
    for payload in [&b""[..], b"Hello, world!", b"\x00\xff\xfe\xfd", &[0xfe; 125]] {
        brings(&masked(0x89, payload), &[Input::Ping(payload.to_vec())]);
        brings(&masked(0x8a, payload), &[Input::Pong]);
    }
    fails(&[&[0x89, 0xfe, 0, 126][..], &MASK, &[0; 126]].concat(), &[], 1002);
    let ten: Vec<u8> = (0..10).flat_map(|number| masked(0x89, &[number])).collect();
    brings(&ten, &(0..10).map(|number| Input::Ping(vec![number])).collect::<Vec<_>>());
}

#[test]
fn case_3_reserved_bits() {
    for bits in 1..8 {
        let hello = masked(0x81, b"Hello");
        let bad = masked(0x81 | bits << 4, b"bad");
        fails(&[hello, bad].concat(), &[text("Hello")], 1002);
        fails(&masked(0x89 | bits << 4, b""), &[], 1002);
        fails(&masked(0x88 | bits << 4, b""), &[], 1002);
    }
}

#[test]
fn case_4_reserved_opcodes() {
    for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
        let hello = masked(0x81, b"Hello");
        fails(&[hello, masked(0x80 | opcode, b"x")].concat(), &[text("Hello")], 1002);
    }
}

#[test]
fn case_5_fragments() {
    // 5.1, 5.2: control frames cannot be fragmented.
    fails(&[masked(0x09, b"frag"), masked(0x80, b"mented")].concat(), &[], 1002);
    fails(&[masked(0x0a, b"frag"), masked(0x80, b"mented")].concat(), &[], 1002);
    let two = [masked(0x01, b"frag"), masked(0x80, b"mented")].concat();
    brings(&two, &[text("fragmented")]);
    // 5.6, 5.7, 5.8: a ping between the fragments.
    let ping = Input::Ping(b"ping".to_vec());
    let between = [masked(0x01, b"frag"), masked(0x89, b"ping"), masked(0x80, b"mented")].concat();
    brings(&between, &[ping, text("fragmented")]);
    // 5.9 to 5.14: a continuation without a first frame.
    for first in [0x80, 0x00] {
        fails(&[masked(first, b"non"), masked(0x81, b"Hello")].concat(), &[], 1002);
    }
    // 5.15: a continuation after a whole message.
    let late = [masked(0x01, b"a"), masked(0x80, b"b"), masked(0x00, b"c")].concat();
    fails(&late, &[text("ab")], 1002);
    // 5.18: a second first frame.
    fails(&[masked(0x01, b"a"), masked(0x81, b"b")].concat(), &[], 1002);
    // 5.19, 5.20: five fragments and pings.
    let many = [
        masked(0x01, b"1"),
        masked(0x00, b"2"),
        masked(0x89, b"p"),
        masked(0x00, b"3"),
        masked(0x00, b"4"),
        masked(0x89, b"q"),
        masked(0x80, b"5"),
    ];
    let pings = [Input::Ping(b"p".to_vec()), Input::Ping(b"q".to_vec())];
    brings(&many.concat(), &[&pings[..], &[text("12345")]].concat());
}

#[test]
fn case_6_utf_8() {
    // 6.1, 6.2: empty and cut texts.
    brings(&[masked(0x01, b""), masked(0x00, b""), masked(0x80, b"")].concat(), &[text("")]);
    let kosme = "κόσμε".as_bytes();
    for cut in 0..=kosme.len() {
        let (one, two) = kosme.split_at(cut);
        brings(&[masked(0x01, one), masked(0x80, two)].concat(), &[text("κόσμε")]);
    }
    let one_by_one: Vec<u8> = kosme.iter().flat_map(|byte| masked(0x00, &[*byte])).collect();
    let all = [masked(0x01, b""), one_by_one, masked(0x80, b"")].concat();
    brings(&all, &[text("κόσμε")]);
    // 6.3: wrong at once, and in fragments.
    let surrogate =
        b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80\x65\x64\x69\x74\x65\x64";
    fails(&masked(0x81, surrogate), &[], 1007);
    // 6.4: as soon as it cannot be right any more.
    let too_high = b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xf4\x90";
    fails(&masked(0x01, too_high), &[], 1007);
    let whole = masked(0x81, &[too_high, &b"\x80\x80\x65"[..]].concat());
    fails(&whole[..whole.len() - 3], &[], 1007);
    // 6.6 to 6.23: valid to the ends of the planes; truncated, overlong and impossible.
    for valid in ["\u{0}", "\u{7f}", "\u{80}", "\u{7ff}", "\u{800}", "\u{ffff}", "\u{10000}"] {
        brings(&masked(0x81, valid.as_bytes()), &[text(valid)]);
    }
    brings(
        &masked(0x81, "\u{10ffff}\u{d7ff}\u{e000}\u{fffd}".as_bytes()),
        &[text("\u{10ffff}\u{d7ff}\u{e000}\u{fffd}")],
    );
    let invalid: [&[u8]; 14] = [
        b"\xce",
        b"\xce\xba\xe1",
        b"\xf8\x88\x80\x80\x80",
        b"\xfc\x84\x80\x80\x80\x80",
        b"\xf7\xbf\xbf\xbf",
        b"\x80",
        b"\xbf",
        b"\x80\xbf",
        b"\xfe",
        b"\xff",
        b"\xc0\xaf",
        b"\xe0\x80\xaf",
        b"\xed\xb0\x80",
        b"\xf0\x80\x80\xaf",
    ];
    for bytes in invalid {
        fails(&masked(0x81, bytes), &[], 1007);
        // Bytes are no texts.
        brings(&masked(0x82, bytes), &[binary(bytes)]);
    }
}

#[test]
fn case_7_close_frames() {
    let close = |code: u16, reason: &[u8]| masked(0x88, &[&code.to_be_bytes(), reason].concat());
    // 7.3: no code, half a code, the longest reason, one more.
    brings(&masked(0x88, b""), &[Input::Close(CloseCode::NONE)]);
    fails(&masked(0x88, b"a"), &[], 1002);
    brings(&close(1000, &[b'*'; 123]), &[Input::Close(CloseCode::NORMAL)]);
    fails(&close(1000, &[b'*'; 124]), &[], 1002);
    // 7.5: a reason that is not UTF-8.
    fails(&close(1000, b"\xce\xba\xed\xa0\x80"), &[], 1007);
    // 7.7, 7.9, 7.13: codes that may be sent, and those that must not.
    for code in [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999] {
        brings(&close(code, b""), &[Input::Close(CloseCode::new(code))]);
    }
    for code in [0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999, 5000, 65535] {
        fails(&close(code, b""), &[], 1002);
    }
    // It may stand between the fragments of a message (7.1.4).
    let within = [masked(0x01, b"frag"), masked(0x88, b"")].concat();
    brings(&within, &[Input::Close(CloseCode::NONE)]);
}

#[test]
fn case_9_long_messages_in_frames_of_many_sizes() {
    let bytes: Vec<u8> = (0..4_u32 << 18).map(|at| u8::try_from(at % 251).unwrap()).collect();
    for size in [64, 1_024, 65_536, 1 << 20] {
        let last = bytes.len().div_ceil(size) - 1;
        let frame = |(at, chunk)| {
            let first = if at == 0 { 2 } else { 0 } | if at == last { 0x80 } else { 0 };
            masked(first, chunk)
        };
        let all: Vec<u8> = bytes.chunks(size).enumerate().flat_map(frame).collect();
        let (inputs, fault) = decode(&all, 64 << 10, false);
        assert!(inputs == [binary(&bytes)] && fault.is_none(), "frames of {size}");
    }
}

#[test]
fn case_10_limits_end_a_socket_before_the_bytes_come() {
    let limits = Limits { message_bytes_max: 100, empty_frames_max: 3 };
    let mut decoder = Decoder::default();
    let head = &masked(0x81, &[b'*'; 101])[..6];
    assert_eq!(decoder.next(head, &limits, None).unwrap_err().code, CloseCode::TOO_BIG);
    // In two frames.
    let mut decoder = Decoder::default();
    let first = masked(0x01, &[b'*'; 60]);
    assert_eq!(decoder.next(&first, &limits, None), Ok((first.len(), Input::More)));
    let second = &masked(0x80, &[b'*'; 41])[..6];
    assert_eq!(decoder.next(second, &limits, None).unwrap_err().code, CloseCode::TOO_BIG);
    // Frames without an end that cost nothing to send.
    let mut decoder = Decoder::default();
    let mut faults = (0..10)
        .map(|at| masked(u8::from(at == 0), b""))
        .filter_map(|frame| decoder.next(&frame, &limits, None).err());
    assert_eq!(faults.next().unwrap().code, CloseCode::PROTOCOL);
}

#[test]
fn case_12_compressed_messages() {
    // RFC 7692, 7.2.3: whole, in two fragments, and with the bit in the second fragment.
    let hello = [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
    let (one, two) = hello.split_at(3);
    for bytes in [masked(0xc1, &hello), [masked(0x41, one), masked(0x80, two)].concat()] {
        for step in [100, 1] {
            assert_eq!(decode(&bytes, step, true), (vec![text("Hello")], None));
        }
    }
    let second = [masked(0x41, one), masked(0xc0, two)].concat();
    assert_eq!(decode(&second, 100, true), (vec![], Some(1002)));
    // Without compression.
    assert_eq!(decode(&masked(0xc1, &hello), 100, false), (vec![], Some(1002)));
    // Plain messages stay welcome.
    assert_eq!(decode(&masked(0x81, b"plain"), 100, true), (vec![text("plain")], None));
    // Broken, and no UTF-8 inside.
    assert_eq!(decode(&masked(0xc2, &[0xff; 20]), 100, true).1, Some(1007));
    let mut deflater = Deflater::default();
    let sent = thruway_websocket::message(true, &[b'a'; 1000], Some(&mut deflater));
    assert_eq!(sent[0], 0xc1);
    let back = masked(0xc1, &sent[2..]);
    assert_eq!(decode(&back, 7, true), (vec![text(&"a".repeat(1000))], None));
    let bad = thruway_websocket::message(false, &[0xff; 1000], Some(&mut deflater));
    assert_eq!(decode(&masked(0xc1, &bad[2..]), 7, true), (vec![], Some(1007)));
}

#[test]
fn a_frame_without_a_mask_is_refused() {
    fails(&[0x81, 2, b'h', b'i'], &[], 1002);
    // Lengths in a longer form than they need.
    fails(&[&[0x81, 0xfe, 0, 125][..], &MASK, &[0; 125]].concat(), &[], 1002);
    let long = [&[0x82, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff][..], &MASK].concat();
    fails(&long, &[], 1002);
    let negative = [&[0x82, 0xff, 0x80, 0, 0, 0, 0, 1, 0, 0][..], &MASK].concat();
    fails(&negative, &[], 1002);
}
