//! HTTP/2, tested frame by frame.

use std::os::fd::AsFd;

use super::*;
use thruway_http2::PREFACE;

mod attacks;

/// The types of frames (RFC 9113, section 6).
pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
pub(super) const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The error codes (RFC 9113, section 7).
const NO_ERROR: u32 = 0;
const ENHANCE_YOUR_CALM: u32 = 11;

/// The first byte of a head whose status is 200: an index into HPACK's static table.
pub(super) const STATUS_200: u8 = 0x88;

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

impl Frame {
    fn to_bytes(&self) -> Vec<u8> {
        let length = u32::try_from(self.payload.len()).unwrap().to_be_bytes();
        let stream = self.stream.to_be_bytes();
        [&length[1..], &[self.kind, self.flags], &stream, &self.payload].concat()
    }
}

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    Frame { kind, flags, stream, payload: payload.to_vec() }.to_bytes()
}

/// Encodes a field line without compression. The name and the value must be shorter than 127 bytes.
pub(super) fn field(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).unwrap();
    [&[0, length(name)], name.as_bytes(), &[length(value)], value.as_bytes()].concat()
}

pub(super) fn head(method: &str, path: &str) -> Vec<u8> {
    let lines = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "a")];
    lines.map(|(name, value)| field(name, value)).concat()
}

pub(super) fn get(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &head("GET", path))
}

/// Waits until the server's kernel has received everything that was written.
pub(super) fn wait_until_delivered(socket: &TcpStream) {
    while thruway_sys::socket::queued_bytes(socket.as_fd()).unwrap() > 0 {
        std::thread::yield_now();
    }
}

/// A client that has sent its preface and its settings.
pub(super) struct Client {
    socket: TcpStream,
    bytes: Vec<u8>,
    pub(super) frames: Vec<Frame>,
    pub(super) is_over: bool,
}

impl Client {
    pub(super) fn new(rig: &Rig, settings: &[(u16, u32)]) -> Self {
        let socket = rig.connect();
        let mut client = Self { socket, bytes: Vec::new(), frames: Vec::new(), is_over: false };
        let pair =
            |(name, value): &(u16, u32)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat();
        let pairs: Vec<_> = settings.iter().map(pair).collect();
        client.send(&[PREFACE, &frame(SETTINGS, 0, 0, &pairs.concat())].concat());
        client
    }

    /// Sends bytes. Errors are ignored, because the server may have ended the connection in the middle.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        let _ = self.socket.write_all(bytes);
    }

    /// Reads the available bytes, and splits them into frames.
    pub(super) fn receive(&mut self) {
        self.socket.set_nonblocking(true).unwrap();
        let read = self.socket.read_to_end(&mut self.bytes);
        self.is_over = !matches!(&read, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        self.socket.set_nonblocking(false).unwrap();
        while self.bytes.len() >= 9 {
            let number =
                |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
            let length = number(&self.bytes[..3]) as usize;
            if self.bytes.len() < 9 + length {
                return;
            }
            let rest = self.bytes.split_off(9 + length);
            let bytes = std::mem::replace(&mut self.bytes, rest);
            let stream = number(&bytes[5..9]);
            let payload = bytes[9..].to_vec();
            self.frames.push(Frame { kind: bytes[3], flags: bytes[4], stream, payload });
        }
    }

    /// Returns the response's body, once the stream has ended.
    fn body(&self, stream: u32) -> Option<String> {
        let mine = || self.frames.iter().filter(|frame| frame.stream == stream);
        mine().find(|frame| frame.flags & END_STREAM != 0 && frame.kind <= HEADERS)?;
        let data = mine().filter(|frame| frame.kind == DATA).map(|frame| &frame.payload[..]);
        Some(String::from_utf8_lossy(&data.collect::<Vec<_>>().concat()).into_owned())
    }

    /// Returns the code of the last frame of this kind, which ends a stream or the connection.
    pub(super) fn code(&self, kind: u8) -> Option<u32> {
        let found = self.frames.iter().rfind(|frame| frame.kind == kind)?;
        let from = if kind == GOAWAY { 4 } else { 0 };
        Some(u32::from_be_bytes(found.payload[from..from + 4].try_into().unwrap()))
    }
}

impl Rig {
    /// Runs the engine until the client has received the expected frames.
    pub(super) fn run_client(
        &mut self,
        client: &mut Client,
        mut is_done: impl FnMut(&Client) -> bool,
    ) {
        self.run_until(|_| {
            client.receive();
            is_done(client)
        });
    }
}

/// Responds with a description of the request.
fn mirror(request: &Request<'_>, exchange: &mut Exchange<'_>, _tickets: &mut Vec<Ticket>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let fields = request.fields().map(|(name, value)| format!("{}={}", text(name), text(value)));
    let fields: Vec<_> = fields.collect();
    let length = exchange.take_body().length_bytes();
    let asked =
        [text(request.method()), text(request.target()), fields.join(","), length.to_string()];
    exchange.respond_text(200, &format!("{:?} {}", request.version(), asked.join(" ")));
}

#[test]
fn a_client_that_begins_with_http_2_is_served_by_it() {
    let mut rig = Rig::new(mirror);
    let mut client = Client::new(&rig, &[]);
    let cookies = [field("cookie", "a=1"), field("x-a", "1"), field("cookie", "b=2")].concat();
    let request = [head("GET", "/one?two"), cookies].concat();
    client.send(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &request));
    rig.run_client(&mut client, |client| client.body(1).is_some());
    let expected = "200 OK: Http2 GET /one?two host=a,cookie=a=1; b=2,x-a=1 0\n";
    assert_eq!(client.body(1).unwrap(), expected);
    let answer = client.frames.iter().find(|frame| frame.kind == HEADERS).unwrap();
    assert_eq!(answer.payload[0], STATUS_200);
    client.send(&get(3, "/again"));
    rig.run_client(&mut client, |client| client.body(3).is_some());
    assert_eq!(rig.engine.connection_count(), 1, "streams are no connections");
}

#[test]
fn a_request_that_came_in_time_is_served_although_the_server_looks_late() {
    let clock = StoppedClock::new();
    let mut rig = Rig::new(hello);
    let mut client = Client::new(&rig, &[]);
    for stream in [1, 3] {
        client.send(&get(stream, "/"));
        wait_until_delivered(&client.socket);
        clock.advance_ms(10_000_000);
        rig.run_client(&mut client, |client| client.body(stream).is_some() || client.is_over);
        assert!(client.body(stream).is_some(), "{stream}");
    }
}

#[test]
fn a_preface_may_come_in_pieces() {
    let mut rig = Rig::new(hello);
    let mut socket = rig.connect();
    let bytes = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &get(1, "/")].concat();
    for byte in bytes {
        socket.write_all(&[byte]).unwrap();
        rig.engine.poll(&mut Events::new(), Some(1));
        while rig.engine.turn(&mut rig.handler) {}
    }
    let mut client = Client { socket, bytes: Vec::new(), frames: Vec::new(), is_over: false };
    rig.run_client(&mut client, |client| client.body(1).is_some());
    assert_eq!(client.body(1).unwrap(), "200 OK: hello\n");
}

#[test]
fn a_wrong_preface_ends_its_connection_and_other_wrong_heads_have_a_response() {
    for (bytes, expected) in [
        ("INVALID CONNECTION PREFACE\r\n\r\n", ""),
        ("GET / PREFACE\r\n\r\n", "HTTP/1.1 400 "),
        ("GET\r\n\r\n", "HTTP/1.1 400 "),
        ("INVALID CONNECTION PREFACE\r\nHost: a\r\n\r\n", "HTTP/1.1 400 "),
    ] {
        let mut rig = Rig::new(hello);
        let mut socket = rig.connect();
        socket.write_all(bytes.as_bytes()).unwrap();
        let got = rig.receive(&mut socket, usize::MAX);
        assert!(got.starts_with(expected) && got.is_empty() == expected.is_empty(), "{got}");
    }
}

#[test]
fn http_2_can_be_refused() {
    let mut rig = Rig::with(hello, Settings { has_http2: false, ..Settings::default() });
    let mut socket = rig.connect();
    socket.write_all(PREFACE).unwrap();
    let got = rig.receive(&mut socket, usize::MAX);
    assert!(got.starts_with("HTTP/1.1 505 "), "{got}");
}

#[test]
fn a_body_is_whole_before_its_request_has_a_turn() {
    let mut rig = Rig::with(echo, Settings { body_memory_bytes_max: 100, ..Settings::default() });
    let mut client = Client::new(&rig, &[]);
    let post = head("POST", "/");
    for (stream, size) in [(1, 10), (3, 1000)] {
        client.send(&frame(HEADERS, END_HEADERS, stream, &post));
        client.send(&frame(DATA, 0, stream, &vec![b'x'; size]));
    }
    rig.run_until(|rig| rig.engine.store.slab.len() == 3);
    assert!(client.body(1).is_none());
    for stream in [1, 3] {
        client.send(&frame(DATA, END_STREAM, stream, b"end"));
    }
    rig.run_client(&mut client, |client| client.body(1).is_some() && client.body(3).is_some());
    assert_eq!(client.body(1).unwrap(), format!("200 OK: {}end\n", "x".repeat(10)));
    let large = format!("200 OK: (file of 1003) {}end\n", "x".repeat(1000));
    assert_eq!(client.body(3).unwrap(), large);
    assert_eq!(rig.engine.store.slab.len(), 1, "streams go with their responses");
}

#[test]
fn a_body_that_is_too_large_is_refused_and_the_connection_goes_on() {
    let mut settings = Settings::default();
    settings.limits.body_bytes_max = 10;
    let mut rig = Rig::with(echo, settings);
    let mut client = Client::new(&rig, &[]);
    client.send(&frame(HEADERS, END_HEADERS, 1, &head("POST", "/")));
    client.send(&frame(DATA, 0, 1, b"eleven bytes"));
    rig.run_client(&mut client, |client| client.code(RESET).is_some());
    assert_eq!(client.body(1).unwrap(), "413 Content Too Large: the body is too large\n");
    assert_eq!(client.code(RESET), Some(NO_ERROR));
    client.send(&get(3, "/"));
    rig.run_client(&mut client, |client| client.body(3).is_some());
}

#[test]
fn an_error_in_a_head_ends_its_stream_alone() {
    let mut rig = Rig::new(mirror);
    let mut client = Client::new(&rig, &[]);
    let bad = [head("GET", "/"), field("host", "b")].concat();
    client.send(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &bad));
    client.send(&get(3, "/a/%zz"));
    client.send(&get(5, "/"));
    rig.run_client(&mut client, |client| {
        [1, 3, 5].into_iter().all(|stream| client.body(stream).is_some())
    });
    assert!(client.body(1).unwrap().starts_with("400 Bad Request: the host"));
    assert!(client.body(3).unwrap().starts_with("400 Bad Request: the path"));
    assert!(client.body(5).unwrap().starts_with("200 OK"));
}

#[test]
fn a_large_response_follows_the_clients_windows() {
    let mut rig = Rig::new(|_, exchange, _| {
        let (head, plan) = head_of(Some(300_000));
        let body = vec![b'x'; 300_000];
        exchange.respond(Response { head: &head, plan, payload: Payload::Slices(&[&body]) });
    });
    let mut client = Client::new(&rig, &[]);
    client.send(&get(1, "/"));
    let got = |client: &Client| {
        let data = client.frames.iter().filter(|frame| frame.kind == DATA);
        data.map(|frame| frame.payload.len()).sum::<usize>()
    };
    rig.run_client(&mut client, |client| got(client) == 65_535);
    for sum in [165_535, 265_535, 300_000] {
        client.send(&frame(WINDOW_UPDATE, 0, 0, &100_000_u32.to_be_bytes()));
        client.send(&frame(WINDOW_UPDATE, 0, 1, &100_000_u32.to_be_bytes()));
        rig.run_client(&mut client, |client| got(client) == sum);
    }
    rig.run_client(&mut client, |client| client.body(1).is_some());
}

/// Responds with the given number of bytes, and lets the response wait for others.
fn respond_corked(rig: &mut Rig, ticket: Ticket, bytes: usize) {
    let (head, plan) = head_of(Some(bytes as u64));
    let body = vec![b'x'; bytes];
    let payload = Payload::Slices(&[&body]);
    rig.engine.response(ticket).corked().respond(Response { head: &head, plan, payload });
}

#[test]
fn short_responses_wait_for_others_of_their_connection() {
    let mut rig = Rig::new(later);
    let mut client = Client::new(&rig, &[]);
    client.send(&[1, 3, 5].map(|stream| get(stream, "/")).concat());
    rig.run_until(|rig| rig.handler.tickets.len() == 3);
    rig.run_client(&mut client, |client| client.frames.iter().any(|frame| frame.flags == 1));
    let known = client.frames.len();
    for ticket in rig.handler.tickets.split_off(1) {
        respond_corked(&mut rig, ticket, 9);
        client.receive();
        assert_eq!(client.frames.len(), known, "nothing has left");
    }
    rig.engine.poll(&mut Events::new(), Some(0));
    client.receive();
    assert!([3, 5].iter().all(|stream| client.body(*stream).unwrap().len() == 9));

    client.send(&get(7, "/"));
    rig.run_until(|rig| rig.handler.tickets.len() == 2);
    let [first, last] = [0, 1].map(|at| rig.handler.tickets[at]);
    respond_corked(&mut rig, first, 9);
    respond_corked(&mut rig, last, 20_000);
    client.receive();
    assert!(client.body(1).is_some() && client.body(7).is_some(), "a long one takes it along");
    assert_eq!(rig.engine.store.corked.len(), 1);
    assert!(rig.engine.begin_wait(Some(1)).is_some());
    assert_eq!(rig.engine.store.corked.len(), 0);
}

#[test]
fn the_most_urgent_response_of_a_connection_is_sent_first() {
    const BYTES: usize = 8 * QUANTUM_BYTES;
    let mut rig = Rig::new(|_, exchange, _| {
        let (head, plan) = head_of(Some(BYTES as u64));
        let body = vec![b'x'; BYTES];
        exchange.respond(Response { head: &head, plan, payload: Payload::Slices(&[&body]) });
    });
    let mut client = Client::new(&rig, &[(4, 1 << 30)]);
    let wanted = |(stream, priority)| {
        let head = [head("GET", "/"), field("priority", priority)].concat();
        frame(HEADERS, END_STREAM | END_HEADERS, stream, &head)
    };
    let requests = [(1, "u=6"), (3, "u=5, i"), (5, "u=1")].map(wanted).concat();
    client.send(&[frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes()), requests].concat());
    let streams = [1, 3, 5];
    rig.run_client(&mut client, |client| streams.iter().all(|it| client.body(*it).is_some()));
    let data = client.frames.iter().filter(|frame| frame.kind == DATA);
    let mut order: Vec<_> = data.map(|frame| frame.stream).collect();
    order.dedup();
    assert!(order.ends_with(&[5, 3, 1]), "{order:?}");
    assert_eq!(order.iter().filter(|stream| **stream == 5).count(), 1, "{order:?}");
}

#[test]
fn a_response_comes_in_pieces_as_its_handler_writes_them() {
    let mut rig = Rig::new(later);
    let mut client = Client::new(&rig, &[]);
    client.send(&get(1, "/"));
    rig.run_until(|rig| rig.handler.tickets.len() == 1);
    let ticket = rig.handler.tickets[0];
    let mut head = Vec::new();
    let constraints = ResponseConstraints {
        version: thruway_http1::Version::Http2,
        is_head: false,
        is_persistent: true,
    };
    rig.engine.response(ticket).inform(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n");
    let plan = ResponseHead::new(&mut head, 200).finish(constraints, None, &[b'-'; 29]);
    rig.engine.response(ticket).begin(&head, plan);
    rig.engine.response(ticket).write(b"one ");
    let data = |client: &Client| client.frames.iter().filter(|frame| frame.kind == DATA).count();
    rig.run_client(&mut client, |client| data(client) == 1);
    let heads = client.frames.iter().filter(|frame| frame.kind == HEADERS);
    assert_eq!(heads.count(), 2, "hints come before the response");
    rig.engine.response(ticket).write(b"two");
    assert_eq!(rig.engine.response(ticket).finish(), 0);
    rig.run_client(&mut client, |client| client.body(1).is_some());
    assert_eq!(client.body(1).unwrap(), "one two");
}

#[test]
fn a_response_that_breaks_off_is_reset() {
    let mut rig = Rig::new(later);
    let mut client = Client::new(&rig, &[]);
    client.send(&get(1, "/"));
    rig.run_until(|rig| rig.handler.tickets.len() == 1);
    let ticket = rig.handler.tickets[0];
    let (head, plan) = head_of(Some(10));
    rig.engine.response(ticket).begin(&head, plan);
    rig.engine.response(ticket).write(b"part");
    assert_eq!(rig.engine.response(ticket).finish(), 6);
    rig.run_client(&mut client, |client| client.code(RESET).is_some());
    assert_eq!(client.code(RESET), Some(2), "INTERNAL_ERROR");
    assert_eq!(client.body(1), None);
}

#[test]
fn a_request_that_is_reset_is_not_served() {
    let mut rig = Rig::new(later);
    let mut client = Client::new(&rig, &[]);
    client.send(&get(1, "/"));
    rig.run_until(|rig| rig.handler.tickets.len() == 1);
    client.send(&frame(HEADERS, END_HEADERS, 3, &head("POST", "/")));
    client.send(&frame(RESET, 0, 3, &8_u32.to_be_bytes()));
    client.send(&frame(RESET, 0, 1, &8_u32.to_be_bytes()));
    rig.run_until(|rig| rig.engine.store.slab.len() == 1);
    let ticket = rig.handler.tickets[0];
    assert!(rig.engine.response(ticket).socket().is_none(), "its ticket has ended");
    assert_eq!(rig.handler.tickets.len(), 1);
}

#[test]
fn a_connection_with_many_streams_hides_no_other_client() {
    // A client without a turn for half a second would count as idle.
    let clock = StoppedClock::new();
    let mut rig = Rig::new(hello);
    let mut events = Events::new();
    let mut client = Client::new(&rig, &[]);
    let mut other = rig.connect();
    client.send(&get(1, "/"));
    other.write_all(GET).unwrap();
    rig.receive(&mut other, 50);
    rig.run_client(&mut client, |client| client.body(1).is_some());
    let requests: Vec<_> = (1..60).map(|number| get(2 * number + 1, "/")).collect();
    client.send(&requests.concat());
    wait_until_delivered(&client.socket);
    rig.engine.poll(&mut events, Some(1000));
    // The first turn reads the client's frames, and the second turn serves the first stream.
    (0..2).for_each(|_| assert!(rig.engine.turn(&mut rig.handler)));
    clock.advance_ms(1);
    other.write_all(GET).unwrap();
    wait_until_delivered(&other);
    while received(&mut other) == 0 {
        rig.engine.poll_if_due(&mut events);
        assert!(rig.engine.turn(&mut rig.handler));
    }
    client.receive();
    let served = (1..60).filter(|number| client.body(2 * number + 1).is_some()).count();
    assert!(served <= 3, "{served} streams");
}

#[test]
fn streams_of_a_connection_take_turns_with_other_connections() {
    let mut rig = Rig::new(later);
    let mut client = Client::new(&rig, &[]);
    (0..10).for_each(|number| client.send(&get(2 * number + 1, "/")));
    rig.run_until(|rig| rig.handler.tickets.len() == 10);
    rig.handler.tickets.clear();
    let mut other = rig.connect();
    rig.run_until(|rig| rig.engine.connection_count() == 2);
    // All requests arrive at once. The connection with many streams goes first, the other connection is next.
    let requests: Vec<_> = (10..20).map(|number| get(2 * number + 1, "/")).collect();
    client.send(&requests.concat());
    other.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut events = Events::new();
    rig.engine.poll(&mut events, Some(0));
    let is_other = |rig: &Rig| {
        rig.handler.tickets.iter().position(|ticket| {
            let connection = rig.engine.store.slab.get(ticket.connection);
            connection.is_some_and(|connection| connection.carrier.stream().is_none())
        })
    };
    while rig.engine.turn(&mut rig.handler) {}
    assert_eq!(rig.handler.tickets.len(), 11);
    assert!(is_other(&rig).unwrap() <= 2, "{:?}", is_other(&rig));
}

/// An immediate close would reset the connection, and discard the frames that were sent to the client.
#[test]
fn frames_after_a_clients_goaway_do_not_reset_the_connection() {
    let mut rig = Rig::new(hello);
    let mut client = Client::new(&rig, &[]);
    client.send(&frame(GOAWAY, 0, 0, &[0; 8]));
    rig.run_until(|rig| {
        let mut parents = rig.engine.store.slab.ids();
        let connection = parents.next().and_then(|id| rig.engine.store.slab.get(id));
        connection.is_some_and(|it| matches!(it.state, State::Lingering { .. }))
    });
    client.send(&frame(PING, 0, 0, &[1; 8]));
    rig.run_client(&mut client, |client| client.is_over);
    assert_eq!(client.socket.read(&mut [0]).unwrap(), 0, "it is the end, and no reset");
    assert_eq!(client.code(GOAWAY), Some(NO_ERROR));
}

#[test]
fn a_drain_tells_the_client_and_serves_what_it_has_asked_for() {
    let mut rig = Rig::new(later);
    let mut client = Client::new(&rig, &[]);
    client.send(&get(1, "/"));
    rig.run_until(|rig| rig.handler.tickets.len() == 1);
    rig.engine.shut_down(ShutdownMode::Drain { closes_for_all: true });
    rig.run_client(&mut client, |client| client.code(GOAWAY).is_some());
    let ping = client.frames.iter().find(|frame| frame.kind == PING).unwrap();
    let pong = Frame { flags: 1, ..ping.clone() };
    client.send(&pong.to_bytes());
    let ticket = rig.handler.tickets[0];
    let (mut head, plan) = head_of(Some(4));
    head.extend_from_slice(b"body");
    rig.engine.response(ticket).respond(Response { head: &head, plan, payload: Payload::Empty });
    rig.run_client(&mut client, |client| client.is_over);
    assert_eq!((client.body(1).as_deref(), client.code(GOAWAY)), (Some("body"), Some(NO_ERROR)));
    assert!(rig.engine.is_done());
}

#[test]
fn an_idle_client_gets_goaway_before_the_close() {
    let mut settings = Settings::default();
    settings.timeouts.keep_alive_ms = 100;
    let mut rig = Rig::with(hello, settings);
    let mut client = Client::new(&rig, &[]);
    client.send(&get(1, "/"));
    rig.run_client(&mut client, |client| client.is_over);
    assert_eq!((client.body(1).is_some(), client.code(GOAWAY)), (true, Some(NO_ERROR)));
}
