//! An HTTP server whose behaviour is known, good or bad: a thread a connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

/// A plain response.
pub const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// What the server does when a request has come in.
pub type Behaviour = dyn Fn(&mut TcpStream, &Received) -> Next + Send + Sync;

/// A request without a body that has come in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// Which connection it came on, counted from 0.
    pub connection: usize,
    /// How many requests came on that connection before it.
    pub earlier: usize,
    /// The path with its query, as it stands in the request line.
    pub path: String,
}

/// What comes after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Another request.
    Read,
    /// The end of the connection.
    Close,
    /// Nothing ever, with the connection left open.
    Hang,
}

/// A running server; it ends when it is dropped.
#[derive(Debug)]
pub struct HttpServer {
    /// Where it listens: a free port of the loopback.
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
        behaviour: impl Fn(&mut TcpStream, &Received) -> Next + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let behaviour: Arc<Behaviour> = Arc::new(behaviour);
        let thread = thread::spawn(move || serve(&listener, &over, &behaviour));
        Self { address, is_over, thread: Some(thread) }
    }

    /// Answers every request with `response`.
    #[must_use]
    pub fn answering(response: &'static str) -> Self {
        Self::new(move |stream, _| write(stream, response))
    }

    /// Answers the first `served` connections always, and every later one once.
    #[must_use]
    pub fn starving(served: usize) -> Self {
        Self::new(move |stream, request| {
            if request.connection >= served && request.earlier > 0 {
                return Next::Hang;
            }
            write(stream, HELLO)
        })
    }

    /// The URL of a path.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

/// Writes and reads on, or closes if the client has gone.
pub fn write(stream: &mut TcpStream, response: &str) -> Next {
    if stream.write_all(response.as_bytes()).is_ok() { Next::Read } else { Next::Close }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Wakes the accept, which sees that it is over.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it does not panic");
        }
    }
}

/// Accepts until it is over, and then ends all connections.
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

/// Reads requests without bodies, and does what the behaviour says.
fn converse(mut stream: TcpStream, connection: usize, behaviour: &Behaviour) {
    let mut reader = BufReader::new(stream.try_clone().expect("a descriptor is left"));
    for earlier in 0.. {
        let Some(path) = read_head(&mut reader) else { break };
        match behaviour(&mut stream, &Received { connection, earlier, path }) {
            Next::Read => {}
            Next::Close => break,
            Next::Hang => {
                let _ = reader.read_to_end(&mut Vec::new());
            }
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
}

/// The path of a request whose head came to its end.
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
