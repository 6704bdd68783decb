//! Upgraded connections: their events and their ends.

use super::*;
use crate::{SocketEvent, UpgradeTo};
use thruway_websocket::{CloseCode, Message};

/// Upgrades every request, and records the events.
#[derive(Default)]
struct Sockets {
    told: Vec<(Ticket, SocketEvent)>,
}

impl Handler for Sockets {
    fn handle(&mut self, _request: &Request<'_>, exchange: &mut Exchange<'_>) {
        let ticket = exchange.defer();
        let to = UpgradeTo::WebSocket { is_compressed: false };
        assert!(ResponseWriter::new(exchange.writer.store, ticket).upgrade(HEAD, to, false));
    }

    fn socket_event(&mut self, ticket: Ticket, event: SocketEvent) {
        self.told.push((ticket, event));
    }
}

const HEAD: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\n\r\n";

/// Encodes a client's frame with a mask of zeros.
fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = 0x80 | u8::try_from(payload.len()).unwrap();
    [&[first, length, 0, 0, 0, 0], payload].concat()
}

fn text(text: &str) -> SocketEvent {
    SocketEvent::Message(Message { is_text: true, bytes: text.into() })
}

/// An engine with clients whose connections are upgraded.
struct SocketRig {
    rig: Rig,
    sockets: Sockets,
    clients: Vec<TcpStream>,
    tickets: Vec<Ticket>,
}

impl SocketRig {
    fn new(count: usize, settings: Settings) -> Self {
        let rig = Rig::with(hello, settings);
        let mut all = Self { rig, sockets: Sockets::default(), clients: vec![], tickets: vec![] };
        for _ in 0..count {
            let mut client = all.rig.connect();
            client.write_all(GET).unwrap();
            all.run_until(|all| !all.sockets.told.is_empty());
            let (ticket, event) = all.sockets.told.remove(0);
            assert_eq!(event, SocketEvent::Opened);
            let mut head = [0; HEAD.len()];
            client.read_exact(&mut head).unwrap();
            all.rig.engine.socket(ticket).done();
            all.tickets.push(ticket);
            all.clients.push(client);
        }
        all
    }

    fn run_until(&mut self, mut is_done: impl FnMut(&Self) -> bool) {
        let mut events = Events::new();
        let begun = std::time::Instant::now();
        while !is_done(self) {
            assert!(begun.elapsed() < PATIENCE, "it never was done");
            self.rig.engine.poll(&mut events, Some(10));
            while self.rig.engine.turn(&mut self.sockets) {}
        }
    }

    /// Returns the next event of the only client.
    fn event(&mut self) -> SocketEvent {
        self.run_until(|all| !all.sockets.told.is_empty());
        self.sockets.told.remove(0).1
    }

    /// Returns the next event of the only client, and reports the event as done.
    fn event_done(&mut self) -> SocketEvent {
        let event = self.event();
        self.rig.engine.socket(self.tickets[0]).done();
        event
    }
}

#[test]
fn the_next_event_waits_until_the_one_before_is_done() {
    let mut all = SocketRig::new(1, Settings::default());
    let frames = [masked(0x81, b"one"), masked(0x81, b"two"), masked(0x88, &[3, 232])].concat();
    all.clients[0].write_all(&frames).unwrap();
    assert_eq!(all.event(), text("one"));
    let mut events = Events::new();
    for _ in 0..5 {
        all.rig.engine.poll(&mut events, Some(1));
        while all.rig.engine.turn(&mut all.sockets) {}
    }
    assert!(all.sockets.told.is_empty(), "{:?}", all.sockets.told);
    assert!(all.rig.engine.socket(all.tickets[0]).done(), "there is something to do");
    assert_eq!(all.event_done(), text("two"));
    assert_eq!(all.event_done(), SocketEvent::Ended(CloseCode::NORMAL));
    assert_eq!(all.rig.engine.connection_count(), 0);
}

#[test]
fn without_a_handler_one_message_is_read_and_waits_for_it() {
    let mut all = SocketRig::new(1, Settings::default());
    let frames = [masked(0x89, b"p"), masked(0x81, b"one"), masked(0x81, b"two")].concat();
    all.clients[0].write_all(&frames).unwrap();
    let mut events = Events::new();
    let mut attention = all.rig.engine.attend(&mut events);
    for _ in 0..200 {
        if attention.waiting > 0 && attention.rest != Some(Duration::ZERO) {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
        all.rig.engine.handle().waiter.wait(&mut events, Some(0));
        attention = all.rig.engine.attend(&mut events);
    }
    assert_eq!(
        attention.waiting, 1,
        "the standby leaves it to a handler, and does not turn in vain"
    );
    let mut pong = [0; 3];
    all.clients[0].read_exact(&mut pong).unwrap();
    assert_eq!(pong, [0x8a, 1, b'p'], "what needs no handler is done");
    assert_eq!(all.event_done(), text("one"));
    assert_eq!(all.event_done(), text("two"));
}

#[test]
fn a_frame_may_come_in_any_pieces() {
    let mut all = SocketRig::new(1, Settings::default());
    let frames = [masked(0x01, b"gr"), masked(0x89, b""), masked(0x80, "üße".as_bytes())].concat();
    for byte in frames {
        all.clients[0].write_all(&[byte]).unwrap();
        all.rig.engine.poll(&mut Events::new(), Some(1));
        while all.rig.engine.turn(&mut all.sockets) {}
    }
    assert_eq!(all.event_done(), text("grüße"));
}

#[test]
fn a_client_that_breaks_a_rule_reads_the_code_and_the_end() {
    let mut all = SocketRig::new(1, Settings::default());
    all.clients[0].write_all(&[0x81, 0]).unwrap();
    all.clients[0].write_all(&vec![b'x'; 100_000]).unwrap();
    let mut client = all.clients[0].try_clone().unwrap();
    let got = std::thread::spawn(move || {
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        got
    });
    assert_eq!(all.event_done(), SocketEvent::Ended(CloseCode::PROTOCOL));
    let got = got.join().unwrap();
    assert_eq!((got[0], &got[2..4]), (0x88, &1002_u16.to_be_bytes()[..]));
}

#[test]
fn a_client_that_takes_nothing_does_not_keep_the_server_from_reading_others() {
    let settings = Settings { response_memory_bytes_max: 1 << 20, ..Settings::default() };
    let mut all = SocketRig::new(2, settings);
    let message = vec![0; 256 << 10];
    let ticket = all.tickets[0];
    let sent = (0..1000).take_while(|_| all.rig.engine.socket(ticket).send(&message)).count();
    assert!((4..1000).contains(&sent), "{sent} messages were kept");
    assert_eq!(all.event(), SocketEvent::Ended(CloseCode::ABNORMAL));
    assert!(all.rig.engine.warning().unwrap().to_string().contains("bytes wait"));
    all.clients[1].write_all(&masked(0x81, b"here")).unwrap();
    assert_eq!(all.event(), text("here"));
}

#[test]
fn a_retiring_server_closes_all_one_after_the_other() {
    let mut all = SocketRig::new(20, Settings::default());
    all.rig.engine.shut_down(ShutdownMode::HandOver);
    let mut at_once = 0;
    for left in (0..20).rev() {
        all.run_until(|all| !all.sockets.told.is_empty());
        at_once = at_once.max(all.sockets.told.len());
        let (ticket, event) = all.sockets.told.remove(0);
        assert_eq!(event, SocketEvent::Shutdown, "{left} are left");
        all.rig.engine.socket(ticket).done();
    }
    assert!(at_once < 20, "they were told at once");
    for client in &mut all.clients {
        let mut close = [0; 4];
        client.read_exact(&mut close).unwrap();
        assert_eq!(close, [0x88, 2, 0x03, 0xf4], "it is 1012");
        client.write_all(&masked(0x88, &close[2..])).unwrap();
    }
    all.run_until(|all| all.sockets.told.len() == 20);
    let ended = SocketEvent::Ended(CloseCode::RESTART);
    assert!(all.sockets.told.iter().all(|(_, event)| *event == ended));
    assert!(all.rig.engine.is_done());
}

#[test]
fn idle_sockets_wake_nothing_but_for_their_pings() {
    let _clock = StoppedClock::new();
    let settings = Settings { socket_ping_ms: 60_000, ..Settings::default() };
    let mut all = SocketRig::new(3, settings);
    while all.rig.engine.turn(&mut all.sockets) {}
    let wait_ms = all.rig.engine.begin_wait(None).unwrap();
    assert!((30_000..=61_000).contains(&wait_ms), "it would wait for {wait_ms} ms");
}

/// Returns a head that opens a WebSocket on a stream (RFC 8441).
fn extended_connect(stream: u32) -> Vec<u8> {
    let lines = [(":protocol", "websocket"), ("sec-websocket-version", "13")];
    let lines = lines.map(|(name, value)| http2::field(name, value)).concat();
    http2::frame(http2::HEADERS, 4, stream, &[http2::head("CONNECT", "/room"), lines].concat())
}

/// Returns the bytes received on a stream so far, and whether the stream has ended.
fn bytes_of(client: &http2::Client, stream: u32) -> (Vec<u8>, bool) {
    let data = |frame: &&http2::Frame| frame.kind == http2::DATA && frame.stream == stream;
    let frames: Vec<_> = client.frames.iter().filter(data).collect();
    let bytes: Vec<_> = frames.iter().map(|frame| &frame.payload[..]).collect();
    (bytes.concat(), frames.iter().any(|frame| frame.flags & http2::END_STREAM != 0))
}

#[test]
fn a_stream_of_http_2_is_a_socket_beside_others() {
    let mut all = SocketRig::new(0, Settings { has_http2_sockets: true, ..Settings::default() });
    let mut client = http2::Client::new(&all.rig, &[]);
    for stream in [1, 3] {
        client.send(&extended_connect(stream));
        all.run_until(|all| !all.sockets.told.is_empty());
        let (ticket, event) = all.sockets.told.remove(0);
        assert_eq!(event, SocketEvent::Opened);
        all.tickets.push(ticket);
    }
    let tickets = all.tickets.clone();
    let finish = |all: &mut SocketRig, ticket| all.rig.engine.socket(ticket).done();
    for ticket in &tickets {
        finish(&mut all, *ticket);
    }
    let message = masked(0x81, b"hello");
    for part in [&message[..4], &message[4..]] {
        client.send(&http2::frame(http2::DATA, 0, 3, part));
    }
    assert_eq!(all.event(), text("hello"));
    assert!(all.rig.engine.socket(tickets[1]).send(b"frames"));
    finish(&mut all, tickets[1]);
    client.send(&http2::frame(http2::DATA, http2::END_STREAM, 1, &masked(0x88, &[3, 232])));
    assert_eq!(all.event(), SocketEvent::Ended(CloseCode::NORMAL));
    client.send(&http2::frame(http2::RESET, 0, 3, &[0, 0, 0, 8]));
    assert_eq!(all.event(), SocketEvent::Ended(CloseCode::ABNORMAL));
    assert_eq!(all.rig.engine.store.slab.len(), 1, "the connection is there for others");
    let mut events = Events::new();
    all.rig.engine.poll(&mut events, Some(1));
    while all.rig.engine.turn(&mut all.sockets) {}
    client.receive();
    let heads = client.frames.iter().filter(|frame| frame.kind == http2::HEADERS);
    let statuses: Vec<_> = heads.map(|frame| (frame.stream, frame.payload[0])).collect();
    assert_eq!(statuses, [(1, http2::STATUS_200), (3, http2::STATUS_200)]);
    assert_eq!(bytes_of(&client, 1), (vec![0x88, 2, 3, 232], true));
    assert_eq!(bytes_of(&client, 3), (b"frames".to_vec(), false));
}

#[test]
fn sockets_by_http_2_are_closed_with_the_server_and_gone_with_their_connection() {
    let mut all = SocketRig::new(0, Settings { has_http2_sockets: true, ..Settings::default() });
    let mut clients = [(); 2].map(|()| http2::Client::new(&all.rig, &[]));
    for client in &mut clients {
        client.send(&extended_connect(1));
        all.run_until(|all| !all.sockets.told.is_empty());
        let (ticket, _) = all.sockets.told.remove(0);
        all.rig.engine.socket(ticket).done();
        all.tickets.push(ticket);
    }
    let [stays, goes] = clients;
    drop(goes);
    assert_eq!(all.event(), SocketEvent::Ended(CloseCode::ABNORMAL));
    all.rig.engine.shut_down(ShutdownMode::Drain { closes_for_all: true });
    assert_eq!(all.event_done(), SocketEvent::Shutdown);
    let mut client = stays;
    all.run_until(|_| {
        client.receive();
        !bytes_of(&client, 1).0.is_empty()
    });
    assert_eq!(bytes_of(&client, 1).0, [0x88, 2, 3, 233], "going away");
    let bye = http2::frame(http2::DATA, http2::END_STREAM, 1, &masked(0x88, &[3, 233]));
    client.send(&bye);
    assert_eq!(all.event(), SocketEvent::Ended(CloseCode::GOING_AWAY));
    drop(client);
    all.run_until(|all| all.rig.engine.is_done());
}

/// curl closes its connection as soon as the only stream ends, while the owner may be busy.
#[test]
fn the_owner_hears_of_a_stream_that_ended_before_its_connection_did() {
    let mut all = SocketRig::new(0, Settings { has_http2_sockets: true, ..Settings::default() });
    let mut client = http2::Client::new(&all.rig, &[]);
    client.send(&extended_connect(1));
    all.run_until(|all| !all.sockets.told.is_empty());
    let (ticket, _) = all.sockets.told.remove(0);
    client.send(&http2::frame(http2::RESET, 0, 1, &[0, 0, 0, 8]));
    client.send(&http2::frame(http2::GOAWAY, 0, 0, &[0; 8]));
    all.run_until(|all| all.rig.engine.store.slab.len() == 1);
    assert!(all.rig.engine.socket(ticket).done(), "the end is next");
    assert_eq!(all.event(), SocketEvent::Ended(CloseCode::ABNORMAL));
    assert_eq!(all.rig.engine.store.slab.len(), 0);
}

#[test]
fn a_stream_becomes_a_socket_only_where_that_is_wanted() {
    let mut rig = Rig::with(hello, Settings::default());
    let mut client = http2::Client::new(&rig, &[]);
    client.send(&extended_connect(1));
    rig.run_client(&mut client, |client| client.code(http2::RESET).is_some() || client.is_over);
    let mut all = SocketRig::new(0, Settings { has_http2_sockets: true, ..Settings::default() });
    let mut client = http2::Client::new(&all.rig, &[]);
    client.send(&http2::get(1, "/"));
    let mut refused = RefusingHandler::default();
    let mut events = Events::new();
    let begun = std::time::Instant::now();
    while refused.count == 0 && begun.elapsed() < PATIENCE {
        all.rig.engine.poll(&mut events, Some(10));
        while all.rig.engine.turn(&mut refused) {}
    }
    assert_eq!(refused.count, 1, "a GET opens no WebSocket");
}

/// Tries to upgrade every request to a WebSocket, and counts the refusals.
#[derive(Default)]
struct RefusingHandler {
    count: usize,
}

impl Handler for RefusingHandler {
    fn handle(&mut self, _request: &Request<'_>, exchange: &mut Exchange<'_>) {
        let ticket = exchange.defer();
        let to = UpgradeTo::WebSocket { is_compressed: false };
        let mut writer = ResponseWriter::new(exchange.writer.store, ticket);
        self.count += usize::from(!writer.upgrade(HEAD, to, false));
    }
}
