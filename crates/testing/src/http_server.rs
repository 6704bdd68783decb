//! An HTTP server with known behaviour, good or bad, that runs a thread for each connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

/// A plain response.
pub const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// The reaction of the server to a request.
pub type Behaviour = dyn Fn(&mut TcpStream, &ReceivedRequest) -> Next + Send + Sync;

/// A received request without a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedRequest {
    /// The connection of the request, counted from 0.
    pub connection: usize,
    /// The number of earlier requests on the connection.
    pub earlier: usize,
    /// The path with its query, as in the request line.
    pub path: String,
}

/// The next step after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Read another request.
    Read,
    /// Close the connection.
    Close,
    /// Leave the connection open, without reading or writing.
    Hang,
}

/// A running server, which stops when it is dropped.
#[derive(Debug)]
pub struct HttpServer {
    /// The server's address: a free port of the loopback interface.
    pub address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Starts a server.
    ///
    /// # Panics
    /// If no port is free.
    #[must_use]
    pub fn new(
        behaviour: impl Fn(&mut TcpStream, &ReceivedRequest) -> Next + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let behaviour: Arc<Behaviour> = Arc::new(behaviour);
        let thread = thread::spawn(move || serve(&listener, &over, &behaviour));
        Self { address, is_over, thread: Some(thread) }
    }

    /// Starts a server that answers every request with `response`.
    #[must_use]
    pub fn answering(response: &'static str) -> Self {
        Self::new(move |stream, _| write(stream, response))
    }

    /// Starts a server that answers every request on the first `served` connections, and only the first request on each
    /// later connection.
    #[must_use]
    pub fn starving(served: usize) -> Self {
        Self::new(move |stream, request| {
            if request.connection >= served && request.earlier > 0 {
                return Next::Hang;
            }
            write(stream, HELLO)
        })
    }

    /// Returns the URL of a path.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

/// Writes a response. Returns `Close` if the client has disconnected.
pub fn write(stream: &mut TcpStream, response: &str) -> Next {
    if stream.write_all(response.as_bytes()).is_ok() { Next::Read } else { Next::Close }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Wakes the accept call, which then notices the end.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it does not panic");
        }
    }
}

/// Accepts connections until the server stops, then closes all connections.
fn serve(listener: &TcpListener, is_over: &AtomicBool, behaviour: &Arc<Behaviour>) {
    let number = AtomicUsize::new(0);
    let mut connections = Vec::new();
    for stream in listener.incoming() {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let stream = stream.expect("a connection comes");
        let other = stream.try_clone().expect("a descriptor is left");
        let (number, behaviour) = (number.fetch_add(1, Ordering::Relaxed), Arc::clone(behaviour));
        connections.push((other, thread::spawn(move || converse(stream, number, &*behaviour))));
    }
    for (stream, thread) in connections {
        let _ = stream.shutdown(Shutdown::Both);
        thread.join().expect("it does not panic");
    }
}

/// Reads requests without bodies, and applies the behaviour to each.
fn converse(mut stream: TcpStream, connection: usize, behaviour: &Behaviour) {
    let mut reader = BufReader::new(stream.try_clone().expect("a descriptor is left"));
    for earlier in 0.. {
        let Some(path) = read_head(&mut reader) else { break };
        match behaviour(&mut stream, &ReceivedRequest { connection, earlier, path }) {
            Next::Read => {}
            Next::Close => break,
            Next::Hang => {
                let _ = reader.read_to_end(&mut Vec::new());
            }
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
}

/// Returns the path of a request, if its head is complete.
fn read_head(reader: &mut impl BufRead) -> Option<String> {
    let (mut path, mut line) = (None, String::new());
    while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        if line == "\r\n" {
            return path;
        }
        path = path.or_else(|| line.split(' ').nth(1).map(str::to_owned));
        line.clear();
    }
    None
}
