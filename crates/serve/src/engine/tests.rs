mod admission;
mod cached;
mod draining;
mod fairness;
mod faulty_peers;
mod handshakes;
mod http2;
mod proxy_heads;
mod sockets;

use super::*;
use crate::entry::State;
use crate::events::clock::stopped::StoppedClock;
use crate::{
    Address, Body, Events, Exchange, Part, Payload, Peer, QUANTUM_BYTES, Response, ShutdownMode,
    Timeouts, WriteOutcome,
};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;
use thruway_http1::response::ResponseConstraints;
use thruway_http1::{BodyPlan, Request, ResponseHead};

/// The maximum wait for an expected event. Never a measure of speed.
const PATIENCE: Duration = Duration::from_secs(60);

/// The action of a handler for every request.
type Act = fn(&Request<'_>, &mut Exchange<'_>, &mut Vec<Ticket>);

/// A handler that runs an action, and keeps the tickets of the action.
struct ActingHandler {
    act: Act,
    tickets: Vec<Ticket>,
}

impl Handler for ActingHandler {
    fn handle(&mut self, request: &Request<'_>, exchange: &mut Exchange<'_>) {
        (self.act)(request, exchange, &mut self.tickets);
    }
}

/// An engine, its handler, and the port of its listener.
struct Rig {
    engine: Engine,
    handler: ActingHandler,
    port: u16,
}

impl Rig {
    fn new(act: Act) -> Self {
        Self::with(act, Settings::default())
    }

    fn with(act: Act, settings: Settings) -> Self {
        let address = Address::Tcp { host: "127.0.0.1".into(), port: 0 };
        let listener = Listener::new(&address.into()).unwrap();
        let Address::Tcp { port, .. } = *listener.address() else { panic!("it is TCP") };
        let engine = Engine::new(settings, vec![listener], None).unwrap();
        Self { engine, handler: ActingHandler { act, tickets: Vec::new() }, port }
    }

    /// Creates an engine that speaks TLS.
    fn with_tls(act: Act, settings: Settings) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pair = thruway_testing::certificate::localhost(folder.path());
        let bind = format!("ssl://127.0.0.1:0?{}", pair.parameters());
        let listener = Listener::new(&bind.parse().unwrap()).unwrap();
        let Address::Tcp { port, .. } = *listener.address() else { panic!("it is TCP") };
        let engine = Engine::new(settings, vec![listener], None).unwrap();
        Self { engine, handler: ActingHandler { act, tickets: Vec::new() }, port }
    }

    /// Returns the peer that all clients of the rig have in common; ports do not count.
    fn local_peer(&self) -> Peer {
        Peer::Tcp(([127, 0, 0, 1], self.port).into())
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Connects a client with a small receive buffer, so that the kernel reads little ahead and soon reports each read
    /// to the server.
    fn connect_with_small_buffer(&self) -> TcpStream {
        use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};
        let client = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        sockopt::set_socket_recv_buffer_size(&client, 16 << 10).unwrap();
        connect(&client, &std::net::SocketAddr::from(([127, 0, 0, 1], self.port))).unwrap();
        TcpStream::from(client)
    }

    /// Runs the engine until `is_done` returns true.
    fn run_until(&mut self, mut is_done: impl FnMut(&mut Self) -> bool) {
        let mut events = Events::new();
        let begun = std::time::Instant::now();
        while !is_done(self) {
            assert!(begun.elapsed() < PATIENCE, "it never was done");
            self.engine.poll(&mut events, Some(10));
            while self.engine.turn(&mut self.handler) {}
        }
    }

    /// Runs the engine until a connection satisfies `is_so`.
    fn run_until_entry(&mut self, is_so: fn(&Entry) -> bool) {
        self.run_until(|rig| {
            let slab = &rig.engine.store.slab;
            slab.ids().any(|id| slab.get(id).is_some_and(is_so))
        });
    }

    /// Processes events until the given number of connections wait for their turns.
    fn run_until_waiting(&mut self, connections: usize) {
        let mut events = Events::new();
        let begun = std::time::Instant::now();
        while self.engine.store.turns.len() != connections {
            let waiting = self.engine.store.turns.len();
            assert!(begun.elapsed() < PATIENCE, "{waiting} connections wait");
            self.engine.poll(&mut events, Some(10));
        }
    }

    /// Runs the engine until `client` has received the given number of bytes, or its connection has ended.
    fn receive(&mut self, client: &mut TcpStream, bytes: usize) -> String {
        client.set_nonblocking(true).unwrap();
        let mut got = Vec::new();
        self.run_until(|_| {
            // The read fails once all available bytes are read, and succeeds at the end of the connection.
            client.read_to_end(&mut got).is_ok() || got.len() >= bytes
        });
        client.set_nonblocking(false).unwrap();
        String::from_utf8_lossy(&got).into_owned()
    }
}

fn hello(_request: &Request<'_>, exchange: &mut Exchange<'_>, _tickets: &mut Vec<Ticket>) {
    exchange.respond_text(200, "hello");
}

fn later(_request: &Request<'_>, exchange: &mut Exchange<'_>, tickets: &mut Vec<Ticket>) {
    tickets.push(exchange.defer());
}

/// Responds with the request's body.
fn echo(_request: &Request<'_>, exchange: &mut Exchange<'_>, _tickets: &mut Vec<Ticket>) {
    let text = match exchange.take_body() {
        Body::Memory(bytes) => String::from_utf8(bytes).unwrap(),
        Body::File { mut file, length } => {
            let mut text = format!("(file of {length}) ");
            file.read_to_string(&mut text).unwrap();
            text
        }
    };
    exchange.respond_text(200, &text);
}

fn head_of(length: Option<u64>) -> (Vec<u8>, BodyPlan) {
    let mut head = Vec::new();
    let constraints = ResponseConstraints {
        version: thruway_http1::Version::Http11,
        is_head: false,
        is_persistent: true,
    };
    let plan = ResponseHead::new(&mut head, 200).finish(constraints, length, &[b'-'; 29]);
    (head, plan)
}

/// Returns the number of bytes that can be read now.
fn received(client: &mut TcpStream) -> usize {
    client.set_nonblocking(true).unwrap();
    let (mut count, mut buffer) = (0, vec![0; 1 << 20]);
    while let Ok(bytes) = client.read(&mut buffer) {
        count += bytes;
    }
    count
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn a_body_arrives_whole_by_length_and_in_chunks() {
    let mut rig = Rig::new(echo);
    let mut client = rig.connect();
    client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nthis").unwrap();
    rig.run_until(|rig| rig.engine.connection_count() == 1);
    client.write_all(b"!POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
    client.write_all(b"2\r\nch\r\n4\r\nunks\r\n0\r\nX: y\r\n\r\n").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let got = rig.receive(&mut client, usize::MAX);
    assert!(got.contains("200 OK: this!\n") && got.ends_with("200 OK: chunks\n"), "{got}");
}

#[test]
fn a_large_body_goes_to_a_file() {
    let settings = Settings { body_memory_bytes_max: 10, ..Settings::default() };
    let mut rig = Rig::with(echo, settings);
    let mut client = rig.connect();
    client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n").unwrap();
    client.write_all(b"twenty bytes of body").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let got = rig.receive(&mut client, usize::MAX);
    assert!(got.ends_with("(file of 20) twenty bytes of body\n"), "{got}");
}

#[test]
fn a_client_that_expects_100_continue_gets_it() {
    let mut rig = Rig::new(echo);
    let mut client = rig.connect();
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
    client.write_all(head).unwrap();
    assert_eq!(rig.receive(&mut client, 25), "HTTP/1.1 100 Continue\r\n\r\n");
    client.write_all(b"ok").unwrap();
    assert!(rig.receive(&mut client, 100).ends_with("200 OK: ok\n"));
}

#[test]
fn a_body_beyond_its_limit_is_refused_before_it_comes() {
    let limits = thruway_http1::Limits { body_bytes_max: 10, ..Default::default() };
    let mut rig = Rig::with(echo, Settings { limits, ..Settings::default() });
    let mut client = rig.connect();
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\nExpect: 100-continue\r\n\r\n";
    client.write_all(head).unwrap();
    let got = rig.receive(&mut client, usize::MAX);
    assert!(got.starts_with("HTTP/1.1 413 "), "{got}");
    assert!(got.contains("connection: close\r\n"), "{got}");
}

#[test]
fn connections_that_exceed_a_timeout_are_closed() {
    type Case = (&'static [u8], fn(&Entry) -> bool, &'static str);
    let timeouts = Timeouts {
        first_byte_ms: 50,
        head_ms: 60,
        body_ms: 50,
        keep_alive_ms: 50,
        request_ms: Some(50),
        ..Timeouts::default()
    };
    let settings = Settings { timeouts, ..Settings::default() };
    let clock = StoppedClock::new();
    let mut rig = Rig::with(later, settings);
    let is_idle = |entry: &Entry| entry.is_fresh && entry.input.bytes.is_empty();
    let has_head = |entry: &Entry| !entry.input.bytes.is_empty();
    let has_body = |entry: &Entry| matches!(entry.state, State::Receiving(_));
    let is_handled = |entry: &Entry| matches!(entry.state, State::Handling);
    let cases: [Case; 4] = [
        (b"", is_idle, ""),
        (b"GET / HT", has_head, "HTTP/1.1 408 "),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab", has_body, "HTTP/1.1 408 "),
        (GET, is_handled, "HTTP/1.1 503 "),
    ];
    for (bytes, is_so, expected) in cases {
        let mut client = rig.connect();
        client.write_all(bytes).unwrap();
        rig.run_until_entry(is_so);
        clock.advance_ms(200);
        let got = rig.receive(&mut client, usize::MAX);
        assert!(got.starts_with(expected) && got.is_empty() == expected.is_empty(), "{got}");
    }
    let late = rig.handler.tickets[0];
    let (head, plan) = head_of(Some(0));
    rig.engine.response(late).respond(Response { head: &head, plan, payload: Payload::Empty });
    rig.run_until(|rig| rig.engine.connection_count() == 0);
    rig.handler.act = hello;
    let mut kept = rig.connect();
    kept.write_all(GET).unwrap();
    let served = rig.receive(&mut kept, 50);
    clock.advance_ms(200);
    let got = served + &rig.receive(&mut kept, usize::MAX);
    assert!(got.contains("200 OK: hello\n"), "it was served, and closed when nothing followed");
}

/// The process or its machine may stall for longer than any limit.
#[test]
fn bytes_that_came_in_time_are_read_although_the_server_looks_late() {
    let clock = StoppedClock::new();
    let mut rig = Rig::new(mirror_body);
    let post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    // The cases: idle before the first request, between two requests, within a head, and within a body.
    for begun in [0, post.len(), 20, post.len() - 2] {
        let mut client = rig.connect();
        let mut served = String::new();
        if begun == 0 {
            rig.run_until_entry(|entry| entry.is_fresh);
        }
        client.write_all(&post[..begun]).unwrap();
        match begun {
            0 => {}
            20 => rig.run_until_entry(|entry| entry.input.bytes.len() == 20),
            _ if begun < post.len() => {
                rig.run_until_entry(|entry| matches!(entry.state, State::Receiving(_)));
            }
            _ => served = rig.receive(&mut client, 40),
        }
        let rest = if begun == post.len() { post } else { &post[begun..] };
        client.write_all(rest).unwrap();
        http2::wait_until_delivered(&client);
        clock.advance_ms(10_000_000);
        served += &rig.receive(&mut client, 40);
        let count = 1 + usize::from(begun == post.len());
        assert_eq!(served.matches("HTTP/1.1 200 OK").count(), count, "{begun}: {served}");
    }
}

/// Responds with the length of the request's body.
fn mirror_body(_request: &Request<'_>, exchange: &mut Exchange<'_>, _tickets: &mut Vec<Ticket>) {
    let length = exchange.take_body().length_bytes();
    exchange.respond_text(200, &length.to_string());
}

#[test]
fn a_handler_without_a_limit_is_not_ended_by_what_its_client_had_for_the_head() {
    let timeouts =
        Timeouts { first_byte_ms: 50, head_ms: 50, keep_alive_ms: 50, ..Timeouts::default() };
    let clock = StoppedClock::new();
    let mut rig = Rig::with(later, Settings { timeouts, ..Settings::default() });
    let mut client = rig.connect();
    client.write_all(GET).unwrap();
    rig.run_until(|rig| rig.handler.tickets.len() == 1);
    for _ in 0..5 {
        clock.advance_ms(100);
        rig.engine.poll(&mut Events::new(), Some(0));
    }
    let (head, plan) = head_of(Some(1));
    let response = Response { head: &head, plan, payload: Payload::Slices(&[b"1"]) };
    rig.engine.response(rig.handler.tickets[0]).respond(response);
    assert!(rig.receive(&mut client, head.len() + 1).ends_with("\r\n\r\n1"));
    clock.advance_ms(200);
    rig.run_until(|rig| rig.engine.connection_count() == 0);
}

#[test]
fn a_response_may_come_later_and_out_of_order() {
    let mut rig = Rig::new(later);
    let (mut first, mut second) = (rig.connect(), rig.connect());
    first.write_all(&[GET, GET].concat()).unwrap();
    rig.run_until(|rig| rig.handler.tickets.len() == 1);
    second.write_all(GET).unwrap();
    rig.run_until(|rig| rig.handler.tickets.len() == 2);
    let (head, plan) = head_of(Some(1));
    for (ticket, body) in rig.handler.tickets.clone().into_iter().zip([b"1", b"2"]).rev() {
        let payload = Payload::Slices(&[body]);
        rig.engine.response(ticket).respond(Response { head: &head, plan, payload });
    }
    assert!(rig.receive(&mut second, head.len() + 1).ends_with("\r\n\r\n2"));
    assert!(rig.receive(&mut first, head.len() + 1).ends_with("\r\n\r\n1"));
    rig.run_until(|rig| rig.handler.tickets.len() == 3);
}

#[test]
fn a_request_without_a_response_is_an_error() {
    let mut rig = Rig::new(|_, _, _| {});
    let mut client = rig.connect();
    client.write_all(GET).unwrap();
    assert!(rig.receive(&mut client, 100).starts_with("HTTP/1.1 500 "));
}

#[test]
fn pieces_become_chunks_and_end_with_the_last() {
    let mut rig = Rig::new(later);
    let mut client = rig.connect();
    client.write_all(GET).unwrap();
    rig.run_until(|rig| rig.handler.tickets.len() == 1);
    let ticket = rig.handler.tickets[0];
    let (head, plan) = head_of(None);
    assert_eq!(
        rig.engine.response(ticket).begin(&head, plan),
        WriteOutcome::Backlog(head.len() as u64)
    );
    for piece in ["one", "", "two!"] {
        assert_eq!(rig.engine.response(ticket).write(piece.as_bytes()), WriteOutcome::Backlog(0));
    }
    rig.engine.response(ticket).finish();
    let body = "3\r\none\r\n4\r\ntwo!\r\n0\r\n\r\n";
    let got = rig.receive(&mut client, head.len() + body.len());
    assert!(got.ends_with(body), "{got}");
    assert_eq!(rig.engine.response(ticket).write(b"late"), WriteOutcome::Gone);
    client.write_all(GET).unwrap();
    rig.run_until(|rig| rig.handler.tickets.len() == 2);
}

#[test]
fn a_promised_length_is_kept_or_the_connection_ends() {
    let mut rig = Rig::new(later);
    for (pieces, is_whole) in [
        (["he", "llo"], true),
        (["he", ""], false),
        (["hello", "!"], false),
        (["he", "llo!"], false),
    ] {
        let mut client = rig.connect();
        client.write_all(GET).unwrap();
        let count = rig.handler.tickets.len();
        rig.run_until(|rig| rig.handler.tickets.len() > count);
        let ticket = rig.handler.tickets[count];
        let (head, plan) = head_of(Some(5));
        rig.engine.response(ticket).begin(&head, plan);
        let written = pieces.map(|piece| rig.engine.response(ticket).write(piece.as_bytes()));
        let missing = rig.engine.response(ticket).finish();
        assert_eq!(written[1] == WriteOutcome::Excess, pieces[1].contains('!'));
        assert_eq!(missing, if pieces == ["he", ""] { 3 } else { 0 });
        rig.run_until(|rig| (rig.engine.connection_count() == 1) == is_whole);
        if is_whole {
            assert!(rig.receive(&mut client, head.len() + 5).ends_with("\r\n\r\nhello"));
        } else {
            let mut rest = Vec::new();
            assert!(client.read_to_end(&mut rest).is_err(), "it is reset");
            assert!(!String::from_utf8_lossy(&rest).contains('!'));
        }
        drop(client);
        rig.run_until(|rig| rig.engine.connection_count() == 0);
    }
}

#[test]
fn a_ticket_ends_with_its_request() {
    let mut rig = Rig::new(later);
    let mut client = rig.connect();
    client.write_all(&[GET, GET].concat()).unwrap();
    rig.run_until(|rig| rig.handler.tickets.len() == 1);
    let (head, plan) = head_of(Some(2));
    let (old, payload) = (rig.handler.tickets[0], Payload::Slices(&[b"1!"]));
    rig.engine.response(old).respond(Response { head: &head, plan, payload });
    rig.run_until(|rig| rig.handler.tickets.len() == 2);
    let new = rig.handler.tickets[1];
    assert_ne!(old, new);
    assert_eq!(Ticket::from_bytes(new.to_bytes()), new);
    let use_old = |engine: &mut Engine| {
        let payload = Payload::Slices(&[b"no"]);
        engine.response(old).respond(Response { head: &head, plan, payload });
        assert_eq!(engine.response(old).begin(&head, plan), WriteOutcome::Gone);
        assert_eq!(engine.response(old).write(b"no"), WriteOutcome::Gone);
        assert_eq!(engine.response(old).flush(), WriteOutcome::Gone);
        engine.response(old).finish();
        engine.response(old).abort();
        assert!(engine.response(old).socket().is_none());
        assert!(engine.response(old).detach().is_none());
    };
    use_old(&mut rig.engine);
    rig.engine.response(new).begin(&head, plan);
    use_old(&mut rig.engine);
    rig.engine.response(new).write(b"2");
    use_old(&mut rig.engine);
    rig.engine.response(new).write(b"!");
    rig.engine.response(new).finish();
    rig.engine.response(new).abort();
    let got = rig.receive(&mut client, 2 * head.len() + 4);
    let bodies: Vec<_> = got.split("\r\n\r\n").skip(1).collect();
    assert!(bodies.len() == 2 && bodies[0].starts_with("1!HTTP") && bodies[1] == "2!", "{got}");
}

#[test]
fn a_slow_reader_of_a_stream_shows_in_its_backlog() {
    let mut rig = Rig::new(later);
    let mut client = rig.connect();
    client.write_all(GET).unwrap();
    rig.run_until(|rig| rig.handler.tickets.len() == 1);
    let ticket = rig.handler.tickets[0];
    let (head, plan) = head_of(None);
    rig.engine.response(ticket).begin(&head, plan);
    let piece = vec![b'x'; 1 << 20];
    let mut backlog = 0;
    for _ in 0..32 {
        if let WriteOutcome::Backlog(bytes) = rig.engine.response(ticket).write(&piece) {
            backlog = bytes;
        }
    }
    assert!(backlog > 1 << 20, "{backlog}");
    rig.engine.response(ticket).finish();
    let total = head.len() + 32 * ("100000\r\n\r\n".len() + piece.len()) + "0\r\n\r\n".len();
    assert_eq!(rig.receive(&mut client, total).len(), total);
}

/// Begins a stream to a client that reads nothing.
fn begin_stream(rig: &mut Rig) -> (TcpStream, Ticket, usize) {
    let mut client = rig.connect_with_small_buffer();
    client.write_all(GET).unwrap();
    let count = rig.handler.tickets.len();
    rig.run_until(|rig| rig.handler.tickets.len() > count);
    let ticket = rig.handler.tickets[count];
    let (head, plan) = head_of(None);
    rig.engine.response(ticket).begin(&head, plan);
    (client, ticket, head.len())
}

#[test]
fn the_part_of_a_stream_that_a_client_does_not_receive_goes_to_a_file() {
    let settings = Settings { response_memory_bytes_max: 256 << 10, ..Settings::default() };
    let mut rig = Rig::with(later, settings);
    let (mut client, ticket, head_bytes) = begin_stream(&mut rig);
    for number in 0..1000_u32 {
        let piece = number.to_be_bytes().repeat(8 << 10);
        assert!(matches!(rig.engine.response(ticket).write(&piece), WriteOutcome::Backlog(_)));
        assert!(rig.engine.store.held_bytes <= 256 << 10, "{}", rig.engine.store.held_bytes);
    }
    rig.engine.response(ticket).finish();
    let chunk_bytes = "8000\r\n\r\n".len() + (32 << 10);
    let total = head_bytes + 1000 * chunk_bytes + "0\r\n\r\n".len();
    client.set_nonblocking(true).unwrap();
    let (mut got, mut buffer) = (Vec::new(), vec![0; 1 << 20]);
    rig.run_until(|_| {
        while let Ok(bytes) = client.read(&mut buffer) {
            got.extend_from_slice(&buffer[..bytes]);
        }
        got.len() >= total
    });
    assert_eq!(got.len(), total);
    for number in 0..1000_u32 {
        let chunk = &got[head_bytes + number as usize * chunk_bytes..][6..chunk_bytes - 2];
        assert!(chunk == number.to_be_bytes().repeat(8 << 10), "piece {number}");
    }
    assert_eq!(rig.engine.store.held_bytes, 0);
}

#[test]
fn responses_that_many_clients_do_not_receive_are_bounded_in_memory() {
    let settings = Settings { worker_memory_bytes_max: 8 << 20, ..Settings::default() };
    let mut rig = Rig::with(
        |_, exchange, _| {
            let parts = (0..2).map(|_| Part::Shared(Box::new(vec![b'x'; 4 << 20])));
            let (head, plan) = head_of(Some(8 << 20));
            let payload = Payload::Parts(parts.collect());
            exchange.respond(Response { head: &head, plan, payload });
        },
        settings,
    );
    let mut clients: Vec<_> = (0..20).map(|_| rig.connect()).collect();
    clients.iter_mut().for_each(|client| client.write_all(GET).unwrap());
    let is_held = |rig: &mut Rig| {
        let ids: Vec<_> = rig.engine.store.slab.ids().collect();
        let waits = |id: &EntryId| {
            let connection = rig.engine.store.slab.get(*id).unwrap();
            connection.output.is_some() && !connection.readiness.is_writable
        };
        ids.len() == 20 && ids.iter().all(waits)
    };
    let mut most = 0;
    let mut events = Events::new();
    while !is_held(&mut rig) {
        rig.engine.poll(&mut events, Some(10));
        // Memory is checked after each turn: the first connections have not had their second turn yet.
        while rig.engine.turn(&mut rig.handler) {
            most = most.max(rig.engine.store.held_bytes);
        }
    }
    assert!(most <= (16 << 20) + 20 * (64 << 10), "one response more than the limit: {most}");
    let held = rig.engine.store.held_bytes;
    assert!(0 < held && held <= (8 << 20) + 20 * (64 << 10), "{held}");
    for client in clients {
        client.set_nonblocking(true).unwrap();
        let (mut client, mut count) = (client, 0);
        rig.run_until(|_| {
            count += received(&mut client);
            count > 8 << 20
        });
    }
    assert_eq!(rig.engine.store.held_bytes, 0);
}

/// Creates an engine whose clients must read something every second.
fn impatient() -> Rig {
    let timeouts = Timeouts { write_ms: 1000, ..Timeouts::default() };
    Rig::with(later, Settings { timeouts, ..Settings::default() })
}

#[test]
fn a_client_that_takes_nothing_is_cut_off_however_much_is_written() {
    let mut rig = impatient();
    let (mut client, ticket, _) = begin_stream(&mut rig);
    while rig.engine.response(ticket).write(&[b'x'; 1 << 20]) < WriteOutcome::Backlog(1 << 20) {}
    rig.run_until(|rig| {
        std::thread::sleep(Duration::from_millis(5));
        rig.engine.response(ticket).write(b"and more") == WriteOutcome::Gone
    });
    let ended = client.read_to_end(&mut Vec::new());
    assert!(ended.is_err(), "it is reset");
}

#[test]
fn a_client_that_takes_some_each_time_is_not_cut_off() {
    let clock = StoppedClock::new();
    let mut rig = impatient();
    let (mut client, ticket, _) = begin_stream(&mut rig);
    while rig.engine.response(ticket).write(&[b'x'; 1 << 20]) < WriteOutcome::Backlog(1 << 20) {}
    // The client reads for two and a half times as long as a client may read nothing. All reads together are too small
    // for the kernel to report room to the server.
    let mut buffer = vec![0; 8 << 10];
    for _ in 0..250 {
        assert!(client.read(&mut buffer).unwrap() > 0);
        clock.advance_ms(10);
        rig.engine.poll(&mut Events::new(), Some(0));
        while rig.engine.turn(&mut rig.handler) {}
    }
    assert_eq!(rig.engine.connection_count(), 1);
}

#[test]
fn a_connection_can_be_taken_away_with_what_it_has_said() {
    let mut rig = Rig::new(later);
    let mut client = rig.connect();
    client.write_all(&[GET, b"more"].concat()).unwrap();
    rig.run_until(|rig| rig.handler.tickets.len() == 1);
    let ticket = rig.handler.tickets[0];
    let (socket, input) = rig.engine.response(ticket).detach().unwrap();
    assert_eq!((input.as_slice(), rig.engine.connection_count()), (&b"more"[..], 0));
    assert!(rig.engine.response(ticket).detach().is_none());
    let mut socket = TcpStream::from(socket);
    socket.write_all(b"mine").unwrap();
    drop(socket);
    assert_eq!(rig.receive(&mut client, usize::MAX), "mine");
}
