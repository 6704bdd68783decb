//! PROXY heads before a handshake.

use thruway_http1::proxy::ProxyVersion;
use thruway_tls::{ClientContext, ClientOptions, Trust};

use super::*;
use crate::{ClientSource, Peer};

const LINE: &[u8] = b"PROXY TCP4 192.0.2.7 10.0.0.1 4711 443\r\n";
const BINARY: &[u8] =
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x07\x0a\0\0\x01\x12\x67\x01\xbb";

/// The type of a handshake record.
const HANDSHAKE: u8 = 0x16;

/// Creates an engine that speaks TLS behind proxies that send heads of this version.
fn rig(version: ProxyVersion, handshake_ms: u64) -> Rig {
    let client_source = ClientSource::Proxy(version);
    let mut settings = Settings { client_source, ..Settings::default() };
    settings.timeouts.handshake_ms = handshake_ms;
    Rig::with_tls(hello, settings)
}

/// Returns the first bytes that a TLS client sends.
fn client_hello() -> Vec<u8> {
    let any = ClientOptions { trust: Trust::Anyone, certificate: None };
    let mut session = ClientContext::new("localhost", b"http/1.1", &any).unwrap().begin().unwrap();
    let mut bytes = Vec::new();
    session.send(&mut bytes).unwrap();
    bytes
}

/// Returns the address of the only client, as known to the engine.
fn peer(rig: &Rig) -> Option<Peer> {
    let slab = &rig.engine.store.slab;
    slab.ids().find_map(|id| Some(slab.get(id)?.peer))
}

/// Checks that the server continues the handshake, and that it knows the client that the head has named.
fn shakes_hands(rig: &mut Rig, client: &mut TcpStream) {
    let got = {
        client.set_nonblocking(true).unwrap();
        let mut first = [0];
        rig.run_until(|_| client.read(&mut first).is_ok());
        first[0]
    };
    assert_eq!(got, HANDSHAKE);
    assert_eq!(peer(rig), Some(Peer::Tcp("192.0.2.7:4711".parse().unwrap())));
}

#[test]
fn a_head_before_a_handshake_names_the_client() {
    for (version, head) in [(ProxyVersion::V1, LINE), (ProxyVersion::V2, BINARY)] {
        let mut rig = rig(version, 20_000);
        let mut whole = rig.connect();
        whole.write_all(&[head, &client_hello()].concat()).unwrap();
        shakes_hands(&mut rig, &mut whole);
        rig.engine.shut_down(ShutdownMode::Abort);
        // The same bytes arrive one at a time.
        let mut slow = rig.connect();
        for byte in [head, &client_hello()].concat() {
            slow.write_all(&[byte]).unwrap();
            let waits = |rig: &Rig| rig.engine.connection_count() == 1 && !rig.engine.has_waiting();
            rig.run_until(|rig| waits(rig));
        }
        shakes_hands(&mut rig, &mut slow);
    }
}

#[test]
fn bytes_other_than_a_proxy_head_before_a_handshake_are_refused() {
    let endless = [b"PROXY ".as_slice(), &[b'x'; 200]].concat();
    let long = [&BINARY[..14], &[0xff, 0xff], &[0; 12]].concat();
    for (version, wrong) in [
        (ProxyVersion::V1, client_hello()),
        (ProxyVersion::V1, BINARY.to_vec()),
        (ProxyVersion::V1, endless),
        (ProxyVersion::V2, client_hello()),
        (ProxyVersion::V2, LINE.to_vec()),
        (ProxyVersion::V2, long),
    ] {
        let mut rig = rig(version, 20_000);
        let mut client = rig.connect();
        client.write_all(&wrong).unwrap();
        let got = rig.receive(&mut client, usize::MAX);
        assert!(got.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{got}");
    }
}

#[test]
fn a_head_that_does_not_come_whole_ends_with_its_time_or_its_client() {
    for rest in [&LINE[..0], &LINE[..20]] {
        let mut late = rig(ProxyVersion::V1, 50);
        let mut client = late.connect();
        client.write_all(rest).unwrap();
        late.run_until(|rig| rig.engine.connection_count() == 1);
        late.run_until(|rig| rig.engine.connection_count() == 0);
        let mut cut = rig(ProxyVersion::V1, 20_000);
        let mut client = cut.connect();
        client.write_all(rest).unwrap();
        cut.run_until(|rig| rig.engine.connection_count() == 1);
        client.shutdown(Shutdown::Write).unwrap();
        cut.run_until(|rig| rig.engine.connection_count() == 0);
    }
}

#[test]
fn another_address_begins_with_its_handshake() {
    let mut rig = rig(ProxyVersion::V1, 20_000);
    rig.engine.store.settings.trust = "192.0.2.0/24".parse().unwrap();
    let mut spoof = rig.connect();
    spoof.write_all(&[LINE, &client_hello()].concat()).unwrap();
    let got = rig.receive(&mut spoof, usize::MAX);
    assert!(!got.as_bytes().starts_with(&[HANDSHAKE]), "{got:?}");
    drop(spoof);
    rig.run_until(|rig| rig.engine.connection_count() == 0);
    let mut client = rig.connect();
    client.write_all(&client_hello()).unwrap();
    let own = Peer::Tcp(client.local_addr().unwrap());
    let mut first = [0];
    client.set_nonblocking(true).unwrap();
    rig.run_until(|_| client.read(&mut first).is_ok());
    assert_eq!((first[0], peer(&rig)), (HANDSHAKE, Some(own)));
}
