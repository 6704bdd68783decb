//! Tests of a stopping server, which serves the pending requests and rejects the others.

use super::*;

#[test]
fn draining_serves_what_was_asked_and_hangs_up() {
    let mut rig = Rig::new(later);
    let (mut idle, mut busy) = (rig.connect(), rig.connect());
    busy.write_all(GET).unwrap();
    rig.run_until(|rig| rig.handler.tickets.len() == 1 && rig.engine.connection_count() == 2);
    rig.engine.shut_down(ShutdownMode::Drain { closes_for_all: true });
    // The new connection still has a moment for its first request.
    assert_eq!(rig.engine.connection_count(), 2);
    rig.run_until(|rig| rig.engine.connection_count() == 1);
    assert_eq!(idle.read(&mut [0; 1]).unwrap(), 0);
    let (head, plan) = head_of(Some(0));
    let ticket = rig.handler.tickets[0];
    rig.engine.response(ticket).respond(Response { head: &head, plan, payload: Payload::Empty });
    rig.run_until(|rig| rig.engine.connection_count() == 0);
    let mut got = Vec::new();
    busy.read_to_end(&mut got).unwrap();
    assert_eq!(got, head);
    drop(rig);
}

/// The client takes the last bytes in a turn, after which the engine would wait for the client's next request.
#[test]
fn a_response_that_is_being_sent_when_a_drain_begins_ends_its_connection() {
    let mut rig = Rig::new(|_, exchange, _| {
        exchange.respond_text(200, &"x".repeat(16 * QUANTUM_BYTES));
    });
    let mut client = rig.connect_with_small_buffer();
    client.write_all(GET).unwrap();
    rig.run_until_entry(|entry| entry.output.is_some());
    rig.engine.shut_down(ShutdownMode::Drain { closes_for_all: true });
    client.set_nonblocking(true).unwrap();
    let mut got = Vec::new();
    rig.run_until(|rig| {
        let is_at_end = client.read_to_end(&mut got).is_ok();
        let slab = &rig.engine.store.slab;
        let idle = slab.ids().find(|id| slab.get(*id).is_some_and(Entry::awaits_event));
        assert_eq!(idle, None, "no turn leaves an idle connection to the next event");
        is_at_end
    });
    assert!(got.len() > 16 * QUANTUM_BYTES, "{} bytes", got.len());
    assert_eq!(rig.engine.connection_count(), 0);
}

/// The leader may begin to wait just before the standby sees the last connection close. No event is left for the leader
/// then.
#[test]
fn a_drain_that_ends_while_no_thread_can_serve_wakes_the_one_that_waits() {
    let mut rig = Rig::new(hello);
    let _idle = rig.connect();
    rig.run_until(|rig| rig.engine.connection_count() == 1);
    rig.engine.shut_down(ShutdownMode::Drain { closes_for_all: true });
    let mut events = Events::new();
    let mut attention = rig.engine.attend(&mut events);
    assert!(!attention.is_woken, "it has a moment for its request");
    while rig.engine.connection_count() > 0 {
        rig.engine.handle().waiter.wait_for(&mut events, attention.rest);
        attention = rig.engine.attend(&mut events);
    }
    assert!(attention.is_woken);
}

#[test]
fn a_drain_serves_waiting_clients_and_lets_the_system_refuse_the_others() {
    let mut rig = Rig::new(hello);
    let other = rig.engine.acceptor.listeners()[0].try_clone().unwrap();
    let mut waiting: Vec<_> = (0..3).map(|_| rig.connect()).collect();
    waiting.iter_mut().for_each(|client| client.write_all(GET).unwrap());
    let mut coming = rig.connect();
    rig.engine.shut_down(ShutdownMode::Drain { closes_for_all: true });
    let refused = TcpStream::connect(("127.0.0.1", rig.port)).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused, "though {other:?} is open");
    coming.write_all(GET).unwrap();
    for client in waiting.iter_mut().chain([&mut coming]) {
        assert!(rig.receive(client, 500).contains("hello"));
    }
    assert_eq!(rig.engine.connection_count(), 0);
}

#[test]
fn a_drain_of_one_worker_leaves_the_listeners_to_the_others() {
    let mut rig = Rig::new(hello);
    let other = rig.engine.acceptor.listeners()[0].try_clone().unwrap();
    rig.engine.shut_down(ShutdownMode::Drain { closes_for_all: false });
    let _client = rig.connect();
    assert!(other.accept().unwrap().is_some());
}

#[test]
fn a_listener_that_another_worker_has_closed_for_all_is_left_in_silence() {
    let mut first = Rig::new(hello);
    let other = first.engine.acceptor.listeners()[0].try_clone().unwrap();
    let mut second = Engine::new(Settings::default(), vec![other], None).unwrap();
    first.engine.shut_down(ShutdownMode::Drain { closes_for_all: true });
    let mut events = Events::new();
    second.poll(&mut events, Some(10_000));
    assert!(second.warning().is_none());
    // The closed listener causes no further events.
    assert!(!second.handle().waiter.wait(&mut events, Some(0)));
}

#[test]
fn a_drain_that_runs_out_responds_with_503_and_not_by_a_reset() {
    let mut rig = Rig::new(later);
    let [mut called, mut half, mut unread, mut idle] = [(); 4].map(|()| rig.connect());
    called.write_all(GET).unwrap();
    half.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf").unwrap();
    rig.run_until(|rig| rig.handler.tickets.len() == 1 && rig.engine.connection_count() == 4);
    // The request and these bytes are longer than one read, and the server never reads them.
    unread.write_all(GET).unwrap();
    unread.write_all(&[b'x'; 100_000]).unwrap();
    rig.engine.shut_down(ShutdownMode::Drain { closes_for_all: true });
    rig.engine.shut_down(ShutdownMode::Abort);
    assert_eq!(rig.engine.connection_count(), 0);
    for client in [&mut called, &mut half, &mut unread] {
        let mut got = String::new();
        client.read_to_string(&mut got).unwrap();
        assert!(got.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{got:?}");
        assert!(got.ends_with("the server is stopping\n"), "{got:?}");
    }
    assert_eq!(idle.read(&mut [0; 1]).unwrap(), 0);
}

/// Returns two workers of a group. Only the first worker has a listener.
fn pair() -> (Rig, Rig) {
    let group = crate::WorkerTable::new(2).unwrap();
    let mut first = Rig::new(hello);
    let listener = first.engine.acceptor.listeners()[0].try_clone().unwrap();
    let port = first.port;
    first.engine = Engine::new(Settings::default(), vec![listener], Some(group.handle(0))).unwrap();
    let engine = Engine::new(Settings::default(), Vec::new(), Some(group.handle(1))).unwrap();
    engine.migration.as_ref().unwrap().worker.note_connections(1_000, 1_000);
    (first, Rig { engine, handler: ActingHandler { act: hello, tickets: Vec::new() }, port })
}

#[test]
fn a_worker_that_retires_leaves_its_connections_and_those_that_wait_to_the_other() {
    let (mut first, mut second) = pair();
    let (mut idle, mut half) = (first.connect(), first.connect());
    idle.write_all(GET).unwrap();
    half.write_all(&GET[..9]).unwrap();
    assert!(first.receive(&mut idle, 50).contains("hello"));
    first.run_until(|rig| rig.engine.connection_count() == 2);
    let mut waiting = first.connect();
    first.engine.shut_down(ShutdownMode::HandOver);
    first.run_until(|rig| rig.engine.is_done());
    second.run_until(|rig| rig.engine.connection_count() == 3);
    half.write_all(&GET[9..]).unwrap();
    waiting.write_all(GET).unwrap();
    idle.write_all(GET).unwrap();
    for client in [&mut half, &mut waiting, &mut idle] {
        assert!(second.receive(client, 50).contains("hello"));
    }
}

#[test]
fn a_retired_worker_takes_nothing_back_if_it_is_retired_again() {
    for again in [ShutdownMode::HandOver, ShutdownMode::Drain { closes_for_all: false }] {
        let (mut first, mut second) = pair();
        let mut client = first.connect();
        client.write_all(GET).unwrap();
        assert!(first.receive(&mut client, 50).contains("hello"));
        first.engine.shut_down(ShutdownMode::HandOver);
        first.run_until(|rig| rig.engine.is_done());
        // The worker's threads may have ended, so nothing would serve a connection that the worker took.
        first.engine.shut_down(again);
        assert_eq!(first.engine.connection_count(), 0, "{again:?}");
        drop(first);
        second.run_until(|rig| rig.engine.connection_count() == 1);
        client.write_all(GET).unwrap();
        assert!(second.receive(&mut client, 50).contains("hello"), "{again:?}");
    }
}

#[test]
fn an_engine_alone_keeps_its_connections_for_the_next_program() {
    let mut rig = Rig::new(hello);
    let mut idle = rig.connect();
    idle.write_all(GET).unwrap();
    assert!(rig.receive(&mut idle, 50).contains("hello"));
    rig.engine.shut_down(ShutdownMode::HandOver);
    assert!(rig.engine.is_done());
    idle.write_all(GET).unwrap();
    let mut events = Events::new();
    rig.engine.poll(&mut events, Some(1_000));
    while rig.engine.turn(&mut rig.handler) {}
    idle.set_nonblocking(true).unwrap();
    assert_eq!(idle.read(&mut [0; 1]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    assert_eq!(rig.engine.connection_count(), 1);
    let file = inheritance::export(&mut rig.engine).unwrap();
    assert_eq!(rig.engine.connection_count(), 0);
    assert!(rustix::fs::fstat(&file).unwrap().st_size > 0);
    // The socket is still open for the next program.
    assert_eq!(idle.read(&mut [0; 1]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
}
