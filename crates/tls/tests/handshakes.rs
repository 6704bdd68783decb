//! Handshakes in pieces and with random changes: a session decrypts what was encrypted, or ends.
//!
//! `THRUWAY_CASES` sets the number of cases (`cargo x fuzz` runs a million), and `THRUWAY_SEED` the random seed.
#![forbid(unsafe_code)]

use std::sync::Arc;

use thruway_testing::{Random, certificate, setting};
use thruway_tls::{
    ClientContext, ClientOptions, OpenError, Options, RECORD_BYTES_MAX, ServerContext, Session,
    TicketKeys, Trust,
};

/// The number of cases in CI, small because a handshake costs a signature.
const CASES: u64 = 120;
/// The maximum number of round trips before a handshake is over.
const ROUNDS: usize = 10;

/// The certificate of the test is signed by nobody.
const ANYONE: ClientOptions = ClientOptions { trust: Trust::Anyone, certificate: None };

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Returns the encrypted bytes that are not yet sent.
fn unsent(session: &mut Session) -> Vec<u8> {
    let mut bytes = Vec::new();
    session.send(&mut bytes).expect("memory takes everything");
    bytes
}

/// Decrypts bytes in pieces of random sizes, until the session ends.
fn open(session: &mut Session, bytes: &[u8], random: &mut Random) -> Result<Vec<u8>, OpenError> {
    let (mut said, mut rest) = (Vec::new(), bytes);
    let mut buffer = vec![0; RECORD_BYTES_MAX * 3];
    while !rest.is_empty() {
        let size = (1 + random.below(random.clone().below(3_000) + 1)).min(rest.len());
        let (piece, after) = rest.split_at(size);
        rest = after;
        let range = RECORD_BYTES_MAX..RECORD_BYTES_MAX + size;
        buffer[range.clone()].copy_from_slice(piece);
        let opened = session.open(&mut buffer, range)?;
        assert!(opened <= RECORD_BYTES_MAX + size, "it stays before what was not read");
        said.extend_from_slice(&buffer[..opened]);
    }
    Ok(said)
}

/// Changes, removes or adds a few bytes.
fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len());
    let end = (at + random.below(4)).min(bytes.len());
    let piece: Vec<u8> = (0..random.below(4)).map(|_| random.number().to_le_bytes()[0]).collect();
    bytes.splice(at..end, piece);
}

/// Sends a client's request, with one of the flights damaged. Returns the bytes that the server decrypts.
fn converse(
    server: &mut Session,
    client: &mut Session,
    damaged: Option<usize>,
    random: &mut Random,
) -> Result<Vec<u8>, OpenError> {
    assert_eq!(client.seal(REQUEST), REQUEST.len());
    let mut said = Vec::new();
    for round in 0..ROUNDS {
        let mut flight = unsent(client);
        if damaged == Some(round) && !flight.is_empty() {
            damage(&mut flight, random);
        }
        said.extend(open(server, &flight, random)?);
        // A client that receives an alert ends the session itself.
        let _ = open(client, &unsent(server), random);
    }
    Ok(said)
}

#[test]
fn whatever_a_client_sends_is_what_it_sealed_or_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let pair = certificate::localhost(folder.path());
    let options =
        Options { certificates: vec![(pair.certificate, pair.key)], ..Options::default() };
    let keys = Arc::new(TicketKeys::new().expect("memory that can be shared"));
    let context = ServerContext::new(options, keys, true).expect("the files are right");
    let clients = ClientContext::new("localhost", b"h2", &ANYONE).expect("it is a name");
    let (mut random, mut whole, mut ended) = (Random::from_environment(), 0, 0);
    for case in 0..setting("THRUWAY_CASES", CASES) {
        let mut server = context.begin().expect("a session");
        let mut client = clients.begin().expect("a session");
        let damaged = (case % 3 > 0).then(|| random.below(2));
        let came = converse(&mut server, &mut client, damaged, &mut random);
        let said = came.as_deref().unwrap_or_default();
        assert!(REQUEST.starts_with(said), "case {case}: {said:?}");
        if damaged.is_none() {
            assert_eq!(came.as_deref(), Ok(REQUEST), "case {case}");
            assert!(server.speaks_http2() && !server.is_handshaking(), "case {case}");
        }
        whole += u64::from(said == REQUEST);
        ended += u64::from(came.is_err());
    }
    assert!(whole > 0 && ended > 0, "{whole} whole, {ended} ended");
}
