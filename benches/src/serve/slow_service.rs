//! A service that takes some time for each response, for applications that call another service.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

/// The time between a request and its response.
const TAKES: Duration = Duration::from_millis(200);

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";

/// How long a client may take to send its request.
const REQUEST_MAX: Duration = Duration::from_secs(1);

/// The port of the service, which starts with the first call and ends with the process.
pub(crate) fn port() -> io::Result<u16> {
    static PORT: OnceLock<u16> = OnceLock::new();
    match PORT.get() {
        Some(port) => Ok(*port),
        None => start().map(|port| *PORT.get_or_init(|| port)),
    }
}

fn start() -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // A client that connects and sends its request later holds up no other.
            thread::spawn(|| respond(client));
        }
    });
    Ok(port)
}

/// Reads a request, whose head is short, and responds when its time has passed.
fn respond(mut client: TcpStream) {
    let _ = client.set_read_timeout(Some(REQUEST_MAX));
    if client.read(&mut [0; 4096]).is_ok_and(|length| length > 0) {
        thread::sleep(TAKES);
        // A client that has gone needs no response.
        let _ = client.write_all(RESPONSE);
    }
}
