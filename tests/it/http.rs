//! A server under test, and a client that shows every byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// The time after which a test fails, and never a measure.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running `thruway serve`. Dropping the value kills the server.
pub(crate) struct Server {
    child: Child,
    /// The line that the server has printed when ready.
    pub(crate) line: String,
}

impl Server {
    /// Starts `command`, and waits until the server prints its address.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the server starts");
        let stdout = child.stdout.take().expect("its stdout is a pipe");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("it prints a line");
        assert!(line.starts_with("serving "), "{line:?}");
        Self { child, line }
    }

    /// Starts `command`, and also returns the address of the metrics, which the next line contains.
    pub(crate) fn start_with_metrics(command: &mut Command) -> (Self, String) {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the server starts");
        let stdout = child.stdout.take().expect("its stdout is a pipe");
        let mut lines = BufReader::new(stdout).lines().map(|line| line.expect("it is text"));
        let line = lines.next().expect("it prints a line");
        let metrics = lines.next().expect("it prints another line");
        let address = metrics.strip_prefix("metrics on ").expect("it names the address");
        (Self { child, line }, address.to_owned())
    }

    /// `127.0.0.1:PORT`
    pub(crate) fn address(&self) -> &str {
        let after = self.line.split("://").nth(1).expect("it names its address");
        after.split([' ', ',']).next().expect("the address ends")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the server, and waits until the server has ended.
    pub(crate) fn stop(self, signal: &str) -> ExitStatus {
        let kill = Command::new("kill").args([signal, &self.pid().to_string()]).status();
        assert!(kill.expect("kill starts").success());
        self.wait()
    }

    /// Waits until the server has ended by itself.
    pub(crate) fn wait(mut self) -> ExitStatus {
        self.child.wait().expect("it ends")
    }

    pub(crate) fn connect(&self) -> Client<TcpStream> {
        let stream = TcpStream::connect(self.address()).expect("the server accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("it is a valid time");
        Client { stream: BufReader::new(stream) }
    }

    /// Sends a request on a new connection.
    pub(crate) fn get(&self, path: &str, fields: &str) -> Response {
        self.connect().request("GET", path, fields)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection.
pub(crate) struct Client<S> {
    stream: BufReader<S>,
}

/// An answer, byte for byte.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// The head, as text.
    pub(crate) head: String,
    /// The body without its framing.
    pub(crate) body: Vec<u8>,
}

impl Response {
    /// Returns the field with a name in lower case.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut named = lines.filter(|(own, _)| own.eq_ignore_ascii_case(name));
        named.next().map(|(_, value)| value)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is text")
    }
}

impl Client<UnixStream> {
    pub(crate) fn unix(path: &std::path::Path) -> Self {
        let stream = UnixStream::connect(path).expect("the server accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("it is a valid time");
        Self { stream: BufReader::new(stream) }
    }
}

impl Client<TcpStream> {
    pub(crate) fn socket(&self) -> &TcpStream {
        self.stream.get_ref()
    }
}

impl<S: Read + Write> Client<S> {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).expect("the server reads");
    }

    /// `fields` are whole lines, such as `Range: bytes=0-1\r\n`.
    pub(crate) fn request(&mut self, method: &str, path: &str, fields: &str) -> Response {
        self.send(format!("{method} {path} HTTP/1.1\r\nHost: test\r\n{fields}\r\n").as_bytes());
        self.response(method == "HEAD")
    }

    /// Reads a response.
    pub(crate) fn response(&mut self, is_head: bool) -> Response {
        self.try_response(is_head).expect("the server answers")
    }

    /// Reads a response, or `None` if the connection has ended.
    pub(crate) fn try_response(&mut self, is_head: bool) -> Option<Response> {
        let head = self.head()?;
        let status = head.split(' ').nth(1)?.parse().expect("the status is a number");
        let mut response = Response { status, head, body: Vec::new() };
        let length = response.field("content-length").map(|text| text.parse().expect(text));
        if is_head || matches!(status, 100..=199 | 204 | 304) {
            return Some(response);
        }
        response.body = if response.field("transfer-encoding") == Some("chunked") {
            self.chunks()
        } else if let Some(length) = length {
            let mut body = vec![0; length];
            self.stream.read_exact(&mut body).ok()?;
            body
        } else {
            self.rest()
        };
        Some(response)
    }

    /// Everything up to the end of the connection.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).expect("the connection ends well");
        rest
    }

    /// Waits for the first bytes of an answer, and leaves them to be read.
    pub(crate) fn wait_for_answer(&mut self) {
        assert!(!self.stream.fill_buf().expect("the server answers").is_empty());
    }

    /// Whether the server has closed the connection.
    pub(crate) fn is_closed(&mut self) -> bool {
        matches!(self.stream.fill_buf(), Ok([]) | Err(_))
    }

    fn head(&mut self) -> Option<String> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.stream.read_line(&mut head).ok()? == 0 {
                assert_eq!(head, "", "the head is whole");
                return None;
            }
        }
        Some(head)
    }

    fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let mut size = String::new();
            self.stream.read_line(&mut size).expect("a chunk follows");
            let size = usize::from_str_radix(size.trim_end(), 16).expect("it has a size");
            let mut chunk = vec![0; size + 2];
            self.stream.read_exact(&mut chunk).expect("the chunk is whole");
            assert!(chunk.ends_with(b"\r\n"));
            if size == 0 {
                return body;
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }
}
