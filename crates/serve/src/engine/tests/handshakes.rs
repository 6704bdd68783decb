//! The limits on the duration and the number of handshakes.

use super::*;

/// The header of a handshake record, without the announced content.
const BEGUN: [u8; 5] = [0x16, 3, 1, 2, 0];

#[test]
fn a_handshake_has_its_time_however_often_the_client_sends_a_byte() {
    let mut settings = Settings::default();
    settings.timeouts.handshake_ms = 100;
    let mut rig = Rig::with_tls(|_, _, _| {}, settings);
    let mut clients = [rig.connect(), rig.connect()];
    clients[1].write_all(&BEGUN).unwrap();
    rig.run_until(|rig| rig.engine.connection_count() == 2);
    rig.run_until(|rig| {
        // The write fails once the server has closed the connection.
        let _ = clients[1].write_all(&[0]);
        rig.engine.connection_count() == 0
    });
}

#[test]
fn of_too_many_handshakes_that_wait_for_their_clients_the_oldest_ends() {
    let settings = Settings { handshakes_max: 2, ..Settings::default() };
    let mut rig = Rig::with_tls(|_, _, _| {}, settings);
    let mut clients: Vec<_> = (0..4).map(|_| rig.connect()).collect();
    for (open, client) in clients.iter_mut().enumerate() {
        client.write_all(&BEGUN).unwrap();
        let expected = 4 - open.saturating_sub(1);
        rig.run_until(|rig| !rig.engine.store.tls.begun.is_empty());
        rig.run_until(|rig| rig.engine.connection_count() == expected);
    }
    assert_eq!(clients[0].read(&mut [0]).unwrap_or(0), 0, "the oldest was ended");
    assert!(rig.engine.warning().unwrap().to_string().starts_with("cannot finish a handshake: 2"));
}

#[test]
fn a_client_of_plain_http_gets_a_response_that_names_https() {
    let mut rig = Rig::with_tls(|_, _, _| {}, Settings::default());
    let mut client = rig.connect();
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let got = rig.receive(&mut client, usize::MAX);
    assert!(got.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{got}");
    assert!(got.ends_with("400 Bad Request: this port speaks HTTPS\n"), "{got}");
}
