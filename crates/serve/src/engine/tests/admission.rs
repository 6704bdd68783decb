//! Admission of connections and requests, and the responses to the rejected ones.

use super::*;
use crate::FairBy;
use crate::exchange::admission;
use crate::exchange::handler::Absent;

#[test]
fn connections_beyond_the_limit_wait_their_time() {
    let mut rig = Rig::with(hello, Settings { connections_max: 2, ..Settings::default() });
    let mut clients: Vec<_> = (0..4).map(|_| rig.connect()).collect();
    clients.iter_mut().for_each(|client| client.write_all(GET).unwrap());
    let mut last = clients.pop().unwrap();
    rig.run_until(|rig| rig.engine.connection_count() == 2);
    let said = rig.engine.warning().map(|trouble| trouble.to_string());
    let expected =
        "cannot accept a connection: 2 are open, as many as may be, and the next ones wait";
    assert_eq!(said.as_deref(), Some(expected));
    drop(clients);
    assert!(rig.receive(&mut last, 100).contains("hello"));
}

#[test]
fn room_that_is_made_without_a_handler_is_for_a_connection_that_waits() {
    let mut rig = Rig::with(hello, Settings { connections_max: 1, ..Settings::default() });
    let first = rig.connect();
    rig.run_until(|rig| rig.engine.connection_count() == 1);
    let _second = rig.connect();
    let mut events = Events::new();
    let wait = |rig: &Rig, events: &mut Events, ms| rig.engine.handle().waiter.wait(events, ms);
    // The engine notices that there is no room.
    wait(&rig, &mut events, Some(5_000));
    rig.engine.attend(&mut events);
    drop(first);
    while rig.engine.connection_count() > 0 {
        wait(&rig, &mut events, Some(10));
        rig.engine.attend(&mut events);
    }
    wait(&rig, &mut events, Some(5_000));
    assert_eq!(events.drain().count(), 1, "the listener is watched again");
}

#[test]
fn the_server_itself_responds_to_health_checks() {
    let health_path = Some(b"/up".to_vec());
    let mut rig = Rig::with(
        |_, _, _| panic!("it is for the server"),
        Settings { health_path, ..Settings::default() },
    );
    let mut client = rig.connect();
    client
        .write_all(b"GET /up HTTP/1.1\r\nHost: a\r\n\r\nHEAD /up HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .unwrap();
    let text = rig.receive(&mut client, usize::MAX);
    assert_eq!(text.matches("HTTP/1.1 200").count(), 2, "{text}");
    assert_eq!(text.matches("the server responds").count(), 1, "{text}");
}

#[test]
fn a_health_check_passes_requests_that_wait_for_a_handler() {
    let settings = Settings { health_path: Some(b"/up".to_vec()), ..Settings::default() };
    let mut rig = Rig::with(|_, _, _| panic!("nothing is handled"), settings);
    let (mut waits, mut checks) = (rig.connect(), rig.connect());
    waits.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    checks.write_all(b"GET /up HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert!(attend(&mut rig, &mut checks).starts_with("HTTP/1.1 200"));
}

/// Runs the engine without a handler until `client` gets a response.
fn attend(rig: &mut Rig, client: &mut TcpStream) -> String {
    client.set_nonblocking(true).unwrap();
    let (mut events, mut bytes) = (Events::new(), [0; 4096]);
    let begun = std::time::Instant::now();
    while begun.elapsed() < PATIENCE {
        let timeout = rig.engine.attend(&mut events).rest.unwrap_or(Duration::from_millis(10));
        if let Ok(length) = client.read(&mut bytes) {
            return String::from_utf8_lossy(&bytes[..length]).into_owned();
        }
        rig.engine
            .handle()
            .waiter
            .wait_for(&mut events, Some(timeout.min(Duration::from_millis(10))));
    }
    panic!("there is no response");
}

#[test]
fn a_request_that_has_waited_too_long_gets_503_while_no_thread_can_serve_it() {
    let settings = Settings { queue_ms: Some(20), ..Settings::default() };
    let mut rig = Rig::with(|_, _, _| panic!("nothing is handled"), settings);
    let mut clients = [rig.connect(), rig.connect()];
    clients[0].write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    clients[1].write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab").unwrap();
    for client in &mut clients {
        let text = attend(&mut rig, client);
        assert!(text.starts_with("HTTP/1.1 503") && text.contains("retry-after: 1\r\n"), "{text}");
    }
    assert_eq!(rig.engine.connection_count(), 2, "they may ask again");
}

#[test]
fn a_client_that_sends_slowly_is_not_late() {
    let clock = StoppedClock::new();
    let settings = Settings { queue_ms: Some(50), ..Settings::default() };
    let mut rig = Rig::with(|_, exchange, _| exchange.respond_text(200, "served"), settings);
    for (first, rest) in [
        ("GET / HTTP/1.1\r\nHo", "st: a\r\n\r\n"),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab", "cd"),
    ] {
        let mut client = rig.connect();
        client.write_all(first.as_bytes()).unwrap();
        rig.run_until_entry(|entry| {
            !entry.input.bytes.is_empty() || matches!(entry.state, State::Receiving(_))
        });
        clock.advance_ms(200);
        client.write_all(rest.as_bytes()).unwrap();
        assert!(rig.receive(&mut client, 1).starts_with("HTTP/1.1 200"), "{first}");
    }
}

#[test]
fn the_wait_at_a_proxy_counts() {
    let settings = Settings { queue_ms: Some(60_000), ..Settings::default() };
    let mut rig = Rig::with(|_, exchange, _| exchange.respond_text(200, "served"), settings);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    for (ago_ms, status) in [(59_000, 200), (61_000, 503), (u128::MAX, 200)] {
        let mut client = rig.connect();
        let start = now.as_millis().checked_sub(ago_ms).unwrap_or(1_700_000_000_000);
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Request-Start: t={start}\r\n\r\n");
        client.write_all(text.as_bytes()).unwrap();
        let text = rig.receive(&mut client, 1);
        assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{ago_ms}: {text}");
    }
}

#[test]
fn the_wait_at_a_proxy_counts_while_no_thread_can_serve_it() {
    let settings = Settings {
        queue_ms: Some(60_000),
        health_path: Some(b"/up".to_vec()),
        ..Settings::default()
    };
    let mut rig = Rig::with(|_, _, _| panic!("nothing is handled"), settings);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let start = now.as_millis() - 61_000;
    let mut clients = [rig.connect(), rig.connect(), rig.connect()];
    for (client, request) in clients.iter_mut().zip([
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        format!("GET / HTTP/1.1\r\nHost: a\r\nX-Request-Start: {start}\r\n\r\n"),
        format!(
            "POST / HTTP/1.1\r\nHost: a\r\nX-Request-Start: {start}\r\nContent-Length: 2\r\n\r\nab"
        ),
    ]) {
        client.write_all(request.as_bytes()).unwrap();
    }
    for client in &mut clients[1..] {
        let text = attend(&mut rig, client);
        assert!(text.starts_with("HTTP/1.1 503") && text.contains("retry-after: 1\r\n"), "{text}");
    }
    assert_eq!(rig.engine.store.turns.len(), 1, "the first one waits on");
}

#[test]
fn a_request_start_sent_by_a_client_fails_no_health_check() {
    let mut rig = Rig::with(
        |_, _, _| panic!("nothing is handled"),
        Settings { queue_ms: Some(60_000), ..Settings::default() },
    );
    let mut client = rig.connect();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let start = now.as_millis() - 61_000;
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Request-Start: {start}\r\n\r\n");
    client.write_all(request.as_bytes()).unwrap();
    let mut events = Events::new();
    while rig.engine.store.turns.is_empty() {
        rig.engine.handle().waiter.wait(&mut events, Some(10));
        rig.engine.take(&mut events);
    }
    let slot = rig.engine.store.turns.next().unwrap();
    let (id, _) = rig.engine.store.begin_turn(slot).unwrap();
    rig.engine.serve(id, &mut Absent);
    rig.engine.store.turns.requeue(slot, 0);
    assert_eq!(admission::find_late(&mut rig.engine.store), Some(slot));
    assert_eq!(admission::health(&mut rig.engine.store).0, 200);
}

#[test]
fn the_longest_wait_is_late_first_whatever_client_has_the_next_turn() {
    let settings = Settings {
        queue_ms: Some(60_000),
        fair_by: FairBy::Header("client".into()),
        ..Settings::default()
    };
    let mut rig = Rig::with(later, settings);
    let mut clients = [(); 4].map(|()| rig.connect());
    rig.run_until(|rig| rig.engine.connection_count() == 4);
    let mut events = Events::new();
    let mut ask = |rig: &mut Rig, number: usize, name: &str| {
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nClient: {name}\r\n\r\n");
        clients[number].write_all(request.as_bytes()).unwrap();
        let waiting = rig.engine.store.turns.len() + 1;
        while rig.engine.store.turns.len() < waiting {
            rig.engine.handle().waiter.wait(&mut events, Some(10));
            rig.engine.take(&mut events);
        }
    };
    (0..3).for_each(|number| ask(&mut rig, number, "busy"));
    // One request has its turn, the next waits for the client's next turn, and the last is parked behind the second.
    (0..3).for_each(|_| assert!(rig.engine.turn(&mut rig.handler)));
    assert_eq!(rig.handler.tickets.len(), 1);
    let late = |rig: &mut Rig| admission::oldest(&mut rig.engine.store).map(|wait| wait.slot);
    assert_eq!(late(&mut rig), Some(1));
    ask(&mut rig, 3, "other");
    rig.engine.turn(&mut rig.handler);
    let next = rig.engine.store.turns.find_oldest(|_| true).map(|(slot, _)| slot);
    assert_eq!((next, late(&mut rig)), (Some(3), Some(2)), "the next turn is the other client's");
    rig.engine.store.withdraw(2);
    rig.engine.attend(&mut Events::new());
    assert_eq!(late(&mut rig), Some(3));
}
