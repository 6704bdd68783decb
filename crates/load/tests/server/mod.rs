//! A server whose behaviour is known, good or bad: a thread a connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

/// A plain answer.
pub(crate) const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// What the server does with the `connection`th connection when the `request`th request on it has
/// come in, both counted from 0.
pub(crate) type Behaviour = dyn Fn(&mut TcpStream, usize, usize) -> Next + Send + Sync;

/// What comes after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another request.
    Read,
    /// The end of the connection.
    Close,
    /// Nothing ever, with the connection left open.
    Hang,
}

/// A running server; it ends when it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn new(
        behaviour: impl Fn(&mut TcpStream, usize, usize) -> Next + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let behaviour: Arc<Behaviour> = Arc::new(behaviour);
        let thread = thread::spawn(move || serve(&listener, &over, &behaviour));
        Self { address, is_over, thread: Some(thread) }
    }

    /// Answers every request with `answer`.
    pub(crate) fn answering(answer: &'static str) -> Self {
        Self::new(move |stream, _, _| write(stream, answer))
    }

    /// Answers the first `served` connections always, and every later one once.
    pub(crate) fn starving(served: usize) -> Self {
        Self::new(move |stream, connection, request| {
            if connection >= served && request > 0 {
                return Next::Hang;
            }
            write(stream, HELLO)
        })
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

/// Writes and reads on, or closes if nobody is there.
pub(crate) fn write(stream: &mut TcpStream, answer: &str) -> Next {
    if stream.write_all(answer.as_bytes()).is_ok() { Next::Read } else { Next::Close }
}

impl Drop for Server {
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
    for request in 0.. {
        if !read_head(&mut reader) {
            break;
        }
        match behaviour(&mut stream, connection, request) {
            Next::Read => {}
            Next::Close => break,
            Next::Hang => {
                let _ = reader.read_to_end(&mut Vec::new());
            }
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
}

/// Whether a head came to its end.
fn read_head(reader: &mut impl BufRead) -> bool {
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        if line == "\r\n" {
            return true;
        }
        line.clear();
    }
    false
}
