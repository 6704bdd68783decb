//! The connections of peers whose faults have ended earlier connections.

use super::*;

/// Returns a rig, and the time at which its local peer may begin a connection, which is `wait_ms` from now.
fn rig_after_fault(wait_ms: u64) -> (Rig, u64) {
    let rig = Rig::new(hello);
    let store = &rig.engine.store;
    let fault_ms = store.clock.now_ms + wait_ms;
    store.faulty_peers.note(rig.local_peer(), fault_ms);
    (rig, fault_ms)
}

fn ask(rig: &Rig) -> TcpStream {
    let mut client = rig.connect();
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    client
}

#[test]
fn a_connection_of_a_faulty_peer_begins_later_and_is_served() {
    let (mut rig, fault_ms) = rig_after_fault(300);
    let mut client = ask(&rig);
    let response = rig.receive(&mut client, 1);
    assert!(response.contains("hello"), "{response}");
    let now_ms = rig.engine.store.clock.now_ms;
    assert!(now_ms > fault_ms);
    assert_eq!(rig.engine.acceptor.wait_ms(now_ms), None, "nothing is left to wait for");
}

#[test]
fn a_connection_to_the_listener_of_metrics_begins_at_once() {
    let mut rig = Rig::with(hello, Settings { metrics_listener: Some(0), ..Settings::default() });
    let store = &rig.engine.store;
    let fault_ms = store.clock.now_ms + 60_000;
    store.faulty_peers.note(rig.local_peer(), fault_ms);
    let mut client = rig.connect();
    client.write_all(b"GET /live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let response = rig.receive(&mut client, 1);
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}

#[test]
fn it_begins_at_once_when_the_server_stops() {
    let (mut rig, fault_ms) = rig_after_fault(60_000);
    let peer = rig.local_peer();
    let store = &mut rig.engine.store;
    store.clock.now_ms = fault_ms;
    let mut client = ask(&rig);
    rig.engine.acceptor.accept(0, &mut rig.engine.store, None);
    assert_eq!(rig.engine.connection_count(), 0, "it waits");
    assert!(rig.engine.store.faulty_peers.begin_ms(peer, fault_ms).is_some());
    rig.engine.shut_down(ShutdownMode::Drain { closes_for_all: true });
    let response = rig.receive(&mut client, 1);
    assert!(response.contains("hello"), "{response}");
}

#[test]
fn a_connection_that_would_wait_for_long_is_closed_and_the_log_says_so() {
    let (mut rig, _) = rig_after_fault(60_000);
    let mut client = ask(&rig);
    client.set_nonblocking(true).unwrap();
    let is_over = |client: &mut TcpStream| match client.read(&mut [0]) {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    };
    rig.run_until(|_| is_over(&mut client));
    let line = rig.engine.warning().expect("there is a line in the log").to_string();
    assert!(line.starts_with("cannot accept a connection: 127.0.0.1:"), "{line}");
    assert_eq!(rig.engine.connection_count(), 0);
}
