//! Clients that cause more work than they need: each connection ends with GOAWAY and a line in the log.

use super::*;

/// Sends the frames that `attack` returns for each number, until the connection ends. Returns the code of the GOAWAY
/// frame and the line in the log.
///
/// Time passes only while the client sends nothing, so that a flood is fast enough even on a slow machine.
fn attacked(
    mut rig: Rig,
    settings: &[(u16, u32)],
    attack: impl Fn(u32) -> Vec<u8>,
) -> (u32, String) {
    let clock = StoppedClock::new();
    let mut client = Client::new(&rig, settings);
    let mut other = Client::new(&rig, &[]);
    let mut number = 0;
    // The frames must fit into the socket's buffers, since the server runs only after they have been sent.
    let at_once = (10_000 / (attack(1).len() + 100)).max(1);
    rig.run_until(|_| {
        for _ in 0..at_once {
            let bytes = attack(number);
            client.send(&bytes);
            number += 1;
            if bytes.is_empty() {
                clock.advance_ms(1);
            }
        }
        client.receive();
        client.code(GOAWAY).is_some() || number > 100_000
    });
    let code = client.code(GOAWAY).expect("the connection ends");
    rig.run_client(&mut client, |client| client.is_over);
    other.send(&get(1, "/"));
    rig.run_client(&mut other, |other| other.body(1).is_some());
    let line = rig.engine.warning().expect("there is a line in the log").to_string();
    assert!(rig.engine.warning().is_none(), "there is one line");
    let peers = &rig.engine.store.faulty_peers;
    assert_eq!(
        peers.begin_ms(rig.local_peer(), 0),
        None,
        "its next connections would have waited then"
    );
    let text = line.strip_prefix("cannot continue an HTTP/2 connection: ").expect(&line);
    (code, text.to_owned())
}

fn calm(text: &str) -> (u32, String) {
    (ENHANCE_YOUR_CALM, text.to_owned())
}

#[test]
fn rapid_resets() {
    let attack = |number| {
        let stream = 2 * number + 1;
        [get(stream, "/"), frame(RESET, 0, stream, &8_u32.to_be_bytes())].concat()
    };
    let (code, text) = attacked(Rig::new(hello), &[], attack);
    assert_eq!(code, ENHANCE_YOUR_CALM);
    assert!(text.contains("reset"), "{text}");
}

#[test]
fn resets_that_the_server_is_made_to_send() {
    // A stream's window may not exceed the maximum size, so the server resets the stream.
    let attack = |number| {
        let stream = 2 * number + 1;
        let open = frame(HEADERS, END_HEADERS, stream, &head("POST", "/"));
        [open, frame(WINDOW_UPDATE, 0, stream, &0x7fff_ffff_u32.to_be_bytes())].concat()
    };
    let (code, text) = attacked(Rig::new(hello), &[], attack);
    assert_eq!(code, ENHANCE_YOUR_CALM);
    assert!(text.contains("reset"), "{text}");
}

#[test]
fn a_head_that_never_ends() {
    let begun = frame(HEADERS, 0, 1, &head("GET", "/"));
    let more = frame(CONTINUATION, 0, 1, &field("a", "b"));
    let attack = |number| if number == 0 { begun.clone() } else { more.clone() };
    let (code, text) = attacked(Rig::new(hello), &[], attack);
    assert_eq!(code, ENHANCE_YOUR_CALM);
    assert!(text.contains("continuation"), "{text}");
}

#[test]
fn a_head_that_comes_slowly() {
    let mut settings = Settings::default();
    settings.timeouts.head_ms = 100;
    let begun = frame(HEADERS, 0, 1, &head("GET", "/"));
    let attack = |number| if number == 0 { begun.clone() } else { Vec::new() };
    assert_eq!(attacked(Rig::with(hello, settings), &[], attack), calm("a head takes too long"));
}

#[test]
fn a_small_head_that_becomes_large() {
    // One line enters the connection's table, and each following byte repeats the line.
    let value = "x".repeat(120);
    let line = [&[0x40, 1, b'a', 120], value.as_bytes()].concat();
    let many = [head("GET", "/"), line, vec![0x80 | 62; 3_000]].concat();
    let bomb = |number| frame(HEADERS, END_STREAM | END_HEADERS, 2 * number + 1, &many);
    let (code, text) = attacked(Rig::new(hello), &[], bomb);
    assert_eq!(code, ENHANCE_YOUR_CALM, "{text}");
}

#[test]
fn floods_of_frames_that_ask_for_nothing() {
    let cases = [
        (frame(PING, 0, 0, &[0; 8]), "it sends too many PING frames"),
        (frame(SETTINGS, 0, 0, &[]), "it sends too many SETTINGS frames"),
        (frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 1]), "it sends too many PRIORITY or unknown frames"),
        (frame(0xfa, 0, 1, &[0; 5]), "it sends too many PRIORITY or unknown frames"),
    ];
    for (flood, text) in cases {
        assert_eq!(attacked(Rig::new(hello), &[], |_| flood.clone()), calm(text));
    }
}

#[test]
fn bodies_without_bytes() {
    let begun = frame(HEADERS, END_HEADERS, 1, &head("POST", "/"));
    let empty = frame(DATA, 0, 1, &[]);
    let attack = |number| if number == 0 { begun.clone() } else { empty.clone() };
    let said = attacked(Rig::new(hello), &[], attack);
    assert_eq!(said, calm("it sends too many empty DATA frames"));
}

#[test]
fn a_window_that_stays_shut() {
    let mut settings = Settings::default();
    settings.timeouts.write_ms = 200;
    let attack = |number| if number < 3 { get(2 * number + 1, "/") } else { Vec::new() };
    // SETTINGS_INITIAL_WINDOW_SIZE is 4.
    let said = attacked(Rig::with(hello, settings), &[(4, 0)], attack);
    assert_eq!(said, calm("it takes too little of a response"));
}
