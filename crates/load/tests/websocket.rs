//! Messages over WebSocket, to servers with known behaviour that decode them with another crate.
#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use thruway_load::{
    Arrivals, Class, ClientKind, Messages, Plan, Protocol, Report, Request, Url, WeightedRequest,
    run,
};
use thruway_websocket::{CloseCode, Decoder, Input, Limits, Opcode, close, frame, message};

/// The valid response to the handshake of RFC 6455, section 1.3.
const ACCEPTED: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                        Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// The reaction of a server to a message, given all connections so far and the index of the message's connection.
type Behaviour = dyn Fn(&[TcpStream], usize, &[u8]) + Send + Sync;

/// Starts a server that greets with `head`. Returns its address. Its threads end with the connections.
fn server(head: &'static str, behaviour: Arc<Behaviour>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        let all = Arc::new(Mutex::new(Vec::new()));
        for stream in listener.incoming().map_while(Result::ok) {
            let (all, behaviour) = (Arc::clone(&all), Arc::clone(&behaviour));
            thread::spawn(move || converse(stream, head, &all, &*behaviour));
        }
    });
    address
}

fn converse(mut stream: TcpStream, head: &str, all: &Mutex<Vec<TcpStream>>, behaviour: &Behaviour) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).unwrap_or(0) == 0 {
            return;
        }
        request.push(byte[0]);
    }
    let place = {
        let mut all = all.lock().expect("no thread panicked");
        all.push(stream.try_clone().expect("a descriptor is left"));
        all.len() - 1
    };
    let _ = stream.write_all(head.as_bytes());
    let (mut decoder, mut unread, mut buffer) = (Decoder::default(), Vec::new(), [0; 4096]);
    while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
        unread.extend_from_slice(&buffer[..bytes]);
        loop {
            let next = decoder.next(&unread, &Limits::default(), None);
            let (taken, input) = next.expect("the frames are right");
            unread.drain(..taken);
            match input {
                Input::More => break,
                Input::Message(message) => {
                    behaviour(&all.lock().expect("no thread panicked"), place, &message.bytes);
                }
                _ => {}
            }
        }
    }
}

fn say(mut stream: &TcpStream, bytes: &[u8]) {
    // The client may have gone.
    let _ = stream.write_all(bytes);
}

/// Sends each message back after a ping. Without an answer to the ping, the next message would be
/// misunderstood.
fn echo() -> SocketAddr {
    server(
        ACCEPTED,
        Arc::new(|all, place, bytes| {
            say(&all[place], &frame(Opcode::Ping, b"there?"));
            say(&all[place], &message(true, b"another message", None));
            say(&all[place], &message(true, bytes, None));
        }),
    )
}

/// Sends each message to all connections but one.
fn hub(deaf: Option<usize>) -> SocketAddr {
    server(
        ACCEPTED,
        Arc::new(move |all, place, bytes| {
            if bytes == b"subscribe" {
                return say(&all[place], &message(true, b"you are subscribed", None));
            }
            let hears = |at: &usize| deaf != Some(*at);
            (0..all.len()).filter(hears).for_each(|at| say(&all[at], &message(true, bytes, None)));
        }),
    )
}

fn plan(address: SocketAddr, connections: u32, requests: u64) -> Plan {
    let url = Url::parse(&format!("ws://{address}/")).expect("it is a URL");
    let request = Request::websocket(&url, &[]).expect("it is a request");
    let messages = Messages {
        message: "é".repeat(500).into_bytes(),
        subscribe: None,
        confirmed: None,
        is_broadcast: false,
    };
    Plan {
        address: url.address(false).expect("it is loopback"),
        tls: None,
        protocol: Protocol::WebSocket(messages),
        urls: vec![WeightedRequest { request, others: Vec::new(), weight: 1 }],
        classes: vec![Class::new(ClientKind::Greedy, connections)],
        duration: None,
        requests: Some(requests),
        timeout: Duration::from_secs(30),
        warm_up: Duration::ZERO,
        ramp: Duration::ZERO,
        threads: 1,
    }
}

fn broadcasts(address: SocketAddr, connections: u32, requests: u64) -> Plan {
    let messages = Messages {
        message: b"said: {id}.".to_vec(),
        subscribe: Some(b"subscribe".to_vec()),
        confirmed: Some(b"subscribed".to_vec()),
        is_broadcast: true,
    };
    Plan { protocol: Protocol::WebSocket(messages), ..plan(address, connections, requests) }
}

fn ran(plan: &Plan) -> Report {
    run(plan, None, &mut |_| {}).expect("it runs")
}

fn errors(report: &Report) -> Vec<(&str, u64)> {
    report.total.errors.iter().map(|(name, count)| (*name, *count)).collect()
}

#[test]
fn each_message_comes_back_to_its_connection() {
    for depth in [1, 3] {
        let deep = Class { depth, ..Class::new(ClientKind::Greedy, 3) };
        let report = ran(&Plan { classes: vec![deep], ..plan(echo(), 3, 300) });
        let total = &report.total;
        assert_eq!((total.requests, total.failed, total.connects), (300, 0, 3), "{report:?}");
        assert_eq!((total.status.len(), total.fairness.pending), (0, 0));
        assert!(total.latency.p50_ns > 0);
    }
}

#[test]
fn a_message_that_comes_back_altered_is_no_answer() {
    let altering = server(
        ACCEPTED,
        Arc::new(|all, place, bytes| say(&all[place], &message(true, &bytes[2..], None))),
    );
    let report = ran(&Plan { timeout: Duration::from_millis(200), ..plan(altering, 1, 1) });
    assert_eq!((report.total.requests, errors(&report)), (0, vec![("timed_out", 1)]));
}

#[test]
fn a_server_that_does_not_switch_or_breaks_the_protocol_is_a_failure() {
    let cases: [(&str, &str); 4] = [
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "handshake"),
        ("HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: x\r\n\r\n", "handshake"),
        (
            "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\
             Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
            "handshake",
        ),
        (
            "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n\u{3}\u{0}",
            "malformed",
        ),
    ];
    for (head, expected) in cases {
        let report = ran(&plan(server(head, Arc::new(|_, _, _| {})), 1, 1));
        assert_eq!(errors(&report), [(expected, 1)], "{head:?}");
    }
    let closing = |all: &[TcpStream], place: usize, _: &[u8]| {
        say(&all[place], &close(CloseCode::NORMAL, ""));
    };
    let report = ran(&plan(server(ACCEPTED, Arc::new(closing)), 1, 1));
    assert_eq!(errors(&report), [("unanswered", 1)]);
}

#[test]
fn a_broadcast_reaches_every_connection() {
    let report = ran(&broadcasts(hub(None), 5, 20));
    let all = report.broadcasts.as_ref().expect("there were broadcasts");
    assert_eq!((report.total.requests, report.total.failed), (100, 0), "{report:?}");
    assert_eq!((all.sent, all.whole, report.total.fairness.index), (20, 20, Some(1.0)));
    assert!(all.latency.p50_ns >= report.total.latency.p50_ns);
}

#[test]
fn a_connection_that_misses_a_broadcast_is_seen() {
    let timeout = Duration::from_secs(3);
    let report = ran(&Plan { timeout, ..broadcasts(hub(Some(2)), 4, 1) });
    let all = report.broadcasts.as_ref().expect("there was a broadcast");
    assert_eq!(
        (report.total.requests, report.total.failed, errors(&report)),
        (3, 1, vec![("timed_out", 1)])
    );
    assert_eq!((all.sent, all.whole, report.total.fairness.starved), (1, 0, 1));
}

#[test]
fn broadcasts_leave_at_a_rate() {
    let kind = ClientKind::Scheduled { rate: 100.0, arrivals: Arrivals::Even };
    let report = ran(&Plan { classes: vec![Class::new(kind, 3)], ..broadcasts(hub(None), 3, 10) });
    assert_eq!(report.broadcasts.map(|all| (all.sent, all.whole)), Some((10, 10)));
}
