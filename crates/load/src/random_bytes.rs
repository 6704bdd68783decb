//! Feeds randomly changed server bytes to clients, over each protocol. A client must count responses or end
//! the connection.
//!
//! `THRUWAY_CASES` sets the number of cases (`cargo x fuzz` sets a million), `THRUWAY_SEED` the seed.

use thruway_testing::{Random, setting};

use crate::broadcast::Marker;
use crate::conversation::Conversation;
use crate::exchange::Event;
use crate::pending::PendingRequest;
use crate::plan::{Class, ClientKind, Messages, Plan, Protocol, WeightedRequest};
use crate::run_context::PreparedRequest;
use crate::{Address, Request, Url};

/// The number of cases in CI, for each protocol.
const CASES: u64 = 2_000;
/// The number of pending requests.
const REQUESTS: usize = 4;

const HTTP1: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbodyHTTP/1.1 103 x\r\n\r\n\
    HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
const HTTP2: &[u8] = b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64\0\0\0\x04\x01\0\0\0\0\
    \0\0\x04\x01\x04\0\0\0\x01\x88\x5c\x014\0\0\x04\0\x01\0\0\0\x01body\
    \0\0\x01\x01\0\0\0\0\x03\x88\0\0\x03\x09\x04\0\0\0\x03\x5c\x013\0\0\x05\0\x09\0\0\0\x03\x01abc\0\
    \0\0\x08\x06\0\0\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08\0\0\x04\x08\0\0\0\0\0\0\0\x10\0\
    \0\0\x04\x03\0\0\0\0\x05\0\0\0\x07\0\0\x08\x07\0\0\0\0\0\0\0\0\x07\0\0\0\0";
/// The first frame after the handshake is longer than any piece. So the client gets a turn between the handshake and
/// the echoed messages, and has sent its messages by then.
const WEBSOCKET: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n\
    \x8a\x29a pong of 41 bytes, longer than any piece\x81\x04said\x89\x01p\x01\x02sa\x80\x02id\
    \x82\x02no\x8a\0\x81\x04said\x88\x02\x03\xe8";

fn plan(protocol: Protocol) -> Plan {
    let url = Url::parse("ws://127.0.0.1:1/").expect("it is a URL");
    let request = Request::new(&url, "GET", &[], None, true).expect("it is a request");
    Plan {
        warm_up: std::time::Duration::ZERO,
        ramp: std::time::Duration::ZERO,
        threads: 1,
        address: Address::Unix("/none".into()),
        tls: None,
        protocol,
        urls: vec![WeightedRequest { request, others: Vec::new(), weight: 1 }],
        classes: vec![Class { depth: 4, ..Class::new(ClientKind::Greedy, 1) }],
        duration: None,
        requests: None,
        timeout: std::time::Duration::from_secs(1),
    }
}

/// Feeds bytes to a client in random pieces. Returns the number of answered requests, and whether the
/// connection ended.
fn read(plan: &Plan, bytes: &[u8], random: &mut Random) -> (usize, bool) {
    let requests = PreparedRequest::of(plan);
    let mut conversation = Conversation::new(plan, REQUESTS, &Marker::new(1));
    for number in 0..REQUESTS as u64 {
        conversation.push(PendingRequest { due_ns: 0, url: 0, request: 0, number });
    }
    conversation.restart(&requests);
    let (mut responses, mut rest) = (0, bytes);
    while !rest.is_empty() {
        conversation.prepare(&requests, 0);
        conversation.count_sent(conversation.unsent(&requests).len(), &requests);
        let (piece, after) = rest.split_at((1 + random.below(40)).min(rest.len()));
        rest = after;
        let mut left = piece;
        while !left.is_empty() {
            match conversation.read(&mut left, &requests).map(|step| step.event) {
                Ok(Event::Response(answer)) => {
                    responses += 1;
                    if answer.is_last {
                        return (responses, true);
                    }
                }
                Ok(Event::Farewell) | Err(_) => return (responses, true),
                Ok(_) => {}
            }
        }
        assert!(conversation.len() <= REQUESTS, "nothing is asked that was not");
    }
    (responses, conversation.close().is_err())
}

#[test]
fn whatever_a_server_sends_is_responses_or_the_end() {
    let message = b"said".to_vec();
    let messages = Messages { message, subscribe: None, confirmed: None, is_broadcast: false };
    let mut random = Random::from_environment();
    for (protocol, bytes, whole) in [
        (Protocol::Http1, HTTP1, 2),
        (Protocol::Http2, HTTP2, 2),
        (Protocol::WebSocket(messages), WEBSOCKET, 3),
    ] {
        let plan = plan(protocol);
        assert_eq!(read(&plan, bytes, &mut random).0, whole, "{:?}", plan.protocol);
        let (mut responses, mut ends) = (0, 0);
        for _ in 0..setting("THRUWAY_CASES", CASES) {
            let mut bytes = bytes.to_vec();
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len());
                let end = (at + random.below(4)).min(bytes.len());
                let piece = random.number().to_le_bytes();
                bytes.splice(at..end, piece[..random.below(4)].iter().copied());
            }
            let (count, has_ended) = read(&plan, &bytes, &mut random);
            assert!(count <= REQUESTS, "{:?}", plan.protocol);
            responses += count;
            ends += usize::from(has_ended);
        }
        assert!(responses > 0 && ends > 0, "{:?}: {responses}, {ends}", plan.protocol);
    }
}
