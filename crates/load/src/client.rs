//! One client: a connection, what it has asked, and what came back.

use std::collections::VecDeque;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use crate::plan::{Class, ClientKind, Plan};
use crate::response::{Response, ResponseReader};
use crate::run_context::RunContext;
use crate::schedule::Schedule;
use crate::socket::Socket;
use crate::tally::{Tally, Trouble};

/// Rest before a connection is tried again that could not be made.
const RECONNECT_NS: u64 = 100_000_000;
/// Rest before a new connection after one that broke without a single response.
const RETRY_NS: u64 = 10_000_000;
/// A trickling client's time between two bytes.
const TRICKLE_NS: u64 = 100_000_000;

/// A client and all that it counted. Times are nanoseconds since the start of the run.
#[derive(Debug)]
pub(crate) struct Client {
    /// Its place among the clients, and its name in epoll.
    token: usize,
    kind: ClientKind,
    schedule: Schedule,
    /// How many requests may be pending at a time.
    depth: usize,
    /// Whether a connection may be used for more than one request.
    keeps_alive: bool,
    socket: Socket,
    reader: ResponseReader,
    /// When each pending request was due, the oldest first.
    pending: VecDeque<u64>,
    /// How many bytes of the pending requests are not sent yet.
    unsent: usize,
    asked: u64,
    last_response_ns: u64,
    /// Since when the oldest pending request has the server's attention to itself.
    waiting_ns: u64,
    /// When a trickling client may send its next byte.
    next_byte_ns: u64,
    /// The earliest wake-up that is set.
    wake_ns: u64,
    tally: Tally,
}

impl Client {
    /// The `number`th client of its class; `token` is its place among all.
    pub(crate) fn new(plan: &Plan, class: Class, number: u32, token: usize) -> Self {
        let is_deep = matches!(class.kind, ClientKind::Greedy | ClientKind::Scheduled { .. });
        let depth =
            if is_deep && plan.request.keeps_alive() { plan.depth.max(1) as usize } else { 1 };
        Self {
            token,
            kind: class.kind,
            schedule: class.kind.schedule(plan, class.connections, number),
            depth,
            keeps_alive: plan.request.keeps_alive(),
            socket: Socket::Closed { retry_ns: 0 },
            reader: ResponseReader::new(plan.request.is_head()),
            pending: VecDeque::with_capacity(depth),
            unsent: 0,
            asked: 0,
            last_response_ns: 0,
            waiting_ns: 0,
            next_byte_ns: 0,
            wake_ns: u64::MAX,
            tally: Tally::default(),
        }
    }

    pub(crate) fn kind(&self) -> ClientKind {
        self.kind
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Whether it has asked for anything yet.
    pub(crate) fn has_asked(&self) -> bool {
        self.asked > 0
    }

    /// Whether nothing is pending.
    pub(crate) fn is_quiet(&self) -> bool {
        self.pending.is_empty()
    }

    /// How many requests wait for a response, and for how long the oldest has.
    pub(crate) fn waiting(&self, now_ns: u64) -> (u64, u64) {
        let (overdue, due_ns) = self.schedule.overdue(self.asked, now_ns).unwrap_or((0, now_ns));
        let oldest_ns = self.pending.front().copied().unwrap_or(due_ns);
        (self.pending.len() as u64 + overdue, now_ns.saturating_sub(oldest_ns))
    }

    /// Does what is due now: asks, connects, sends.
    pub(crate) fn advance(&mut self, now_ns: u64, context: &mut RunContext<'_>) {
        self.ask(now_ns, context);
        match self.socket {
            Socket::Closed { .. } if self.pending.is_empty() => {}
            Socket::Closed { retry_ns } if now_ns < retry_ns => self.wake_at(retry_ns, context),
            Socket::Closed { .. } => self.connect(now_ns, context),
            Socket::Connecting(_) => {}
            Socket::Open { .. } => self.send(now_ns, context),
        }
    }

    /// A wake-up that was set has come.
    pub(crate) fn wake(&mut self, now_ns: u64, context: &mut RunContext<'_>) {
        self.wake_ns = u64::MAX;
        self.advance(now_ns, context);
    }

    /// The socket has something to say.
    pub(crate) fn ready(&mut self, flags: EventFlags, context: &mut RunContext<'_>) {
        match self.socket {
            Socket::Closed { .. } => {}
            Socket::Connecting(_) => {
                let now_ns = context.now_ns();
                match self.socket.open() {
                    Ok(()) => self.opened(now_ns, context),
                    Err(errno) => self.refused(errno, now_ns, context),
                }
            }
            Socket::Open { .. } => {
                if flags.intersects(EventFlags::OUT) {
                    self.send(context.now_ns(), context);
                }
                if flags.intersects(EventFlags::IN | EventFlags::ERR | EventFlags::HUP) {
                    self.receive(context);
                }
            }
        }
    }

    /// Gives a request up that has waited too long.
    pub(crate) fn expire(&mut self, now_ns: u64, timeout_ns: u64, context: &mut RunContext<'_>) {
        let waited_ns = now_ns.saturating_sub(self.waiting_ns);
        if !self.pending.is_empty() && waited_ns >= timeout_ns {
            self.fail(Trouble::TimedOut, now_ns, context);
        }
    }

    fn ask(&mut self, now_ns: u64, context: &mut RunContext<'_>) {
        while self.pending.len() < self.depth && context.left > 0 {
            match self.schedule.due_ns(self.asked, self.last_response_ns, now_ns) {
                Some(due_ns) if due_ns <= now_ns => {
                    if self.pending.is_empty() {
                        self.waiting_ns = now_ns;
                    }
                    self.pending.push_back(due_ns);
                    self.unsent += context.request_bytes;
                    self.asked += 1;
                    context.left -= 1;
                }
                Some(due_ns) => return self.wake_at(due_ns, context),
                None => return,
            }
        }
    }

    fn wake_at(&mut self, at_ns: u64, context: &mut RunContext<'_>) {
        if at_ns < self.wake_ns {
            self.wake_ns = at_ns;
            context.timers.set(at_ns, self.token);
        }
    }

    fn connect(&mut self, now_ns: u64, context: &mut RunContext<'_>) {
        self.reader.restart();
        self.unsent = self.pending.len() * context.request_bytes;
        match Socket::connect(self.token, context) {
            Ok(Socket::Closed { .. }) => {
                self.socket = Socket::Closed { retry_ns: now_ns + RETRY_NS };
                self.wake_at(now_ns + RETRY_NS, context);
            }
            Ok(socket) => {
                self.socket = socket;
                self.opened(now_ns, context);
            }
            Err(errno) => self.refused(errno, now_ns, context),
        }
    }

    fn opened(&mut self, now_ns: u64, context: &mut RunContext<'_>) {
        if matches!(self.socket, Socket::Open { .. }) {
            self.tally.connects += 1;
            self.send(now_ns, context);
        }
    }

    fn refused(&mut self, errno: Errno, now_ns: u64, context: &mut RunContext<'_>) {
        context.refusal = Some(errno);
        self.fail(Trouble::Connect, now_ns, context);
    }

    fn send(&mut self, now_ns: u64, context: &mut RunContext<'_>) {
        let start = self.pending.len() * context.request_bytes - self.unsent;
        let sendable = self.sendable(now_ns, context);
        match self.socket.send(self.token, start..start + sendable, context) {
            Ok(sent) => self.unsent -= sent,
            Err(_) => self.fail(Trouble::Reset, now_ns, context),
        }
    }

    /// How many bytes may be sent: all, or in its time one of a trickling client's.
    fn sendable(&mut self, now_ns: u64, context: &mut RunContext<'_>) -> usize {
        if self.kind != ClientKind::Trickle || self.unsent == 0 {
            return self.unsent;
        }
        let is_time = now_ns >= self.next_byte_ns;
        if is_time {
            self.next_byte_ns = now_ns + TRICKLE_NS;
        }
        self.wake_at(self.next_byte_ns, context);
        usize::from(is_time)
    }

    fn receive(&mut self, context: &mut RunContext<'_>) {
        // Of a body that fills the buffer nobody looks at the bytes, so they need not be copied.
        let discard = self.reader.body_bytes_left() >= context.buffer.len() as u64;
        let received = self.socket.receive(&mut context.buffer, discard);
        let now_ns = context.now_ns();
        let digested = match received {
            Ok(Some(0)) => self.closed(now_ns),
            Ok(Some(bytes)) => self.digest(&context.buffer[..bytes], now_ns, context.request_bytes),
            Ok(None) => return,
            Err(_) => Err(Trouble::Reset),
        };
        match digested {
            Ok(true) => self.advance(now_ns, context),
            Ok(false) => {
                self.socket = Socket::Closed { retry_ns: now_ns };
                self.advance(now_ns, context);
            }
            Err(trouble) => self.fail(trouble, now_ns, context),
        }
    }

    /// Reads the responses in `bytes`; whether the connection can be used on.
    fn digest(&mut self, bytes: &[u8], now_ns: u64, request_bytes: usize) -> Result<bool, Trouble> {
        self.tally.bytes += bytes.len() as u64;
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.pending.is_empty() {
                return Err(Trouble::Unasked);
            }
            let read = self.reader.read(&mut rest).map_err(|_| Trouble::Malformed)?;
            let Some(response) = read else { break };
            // A response to a request that is not sent yet leaves the connection in doubt.
            let was_sent = self.unsent <= (self.pending.len() - 1) * request_bytes;
            self.complete(response, now_ns);
            if !(self.keeps_alive && response.keeps_alive && was_sent) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn complete(&mut self, response: Response, now_ns: u64) {
        if let Some(due_ns) = self.pending.pop_front() {
            self.tally.complete(response.status, now_ns - due_ns);
        }
        self.socket.responded();
        self.last_response_ns = now_ns;
        self.waiting_ns = now_ns;
    }

    /// The server closed, which may be what ends the response.
    fn closed(&mut self, now_ns: u64) -> Result<bool, Trouble> {
        match self.reader.close() {
            Ok(Some(response)) => self.complete(response, now_ns),
            Ok(None) if self.pending.is_empty() => {}
            Ok(None) => return Err(Trouble::Unanswered),
            Err(_) => return Err(Trouble::Truncated),
        }
        Ok(false)
    }

    /// Counts the trouble with all that was pending, and begins again after a rest.
    fn fail(&mut self, trouble: Trouble, now_ns: u64, context: &mut RunContext<'_>) {
        self.tally.trouble(trouble, self.pending.len());
        self.pending.clear();
        self.unsent = 0;
        self.last_response_ns = now_ns;
        let rest_ns = match self.socket {
            Socket::Open { responses: 1.., .. } => 0,
            Socket::Open { .. } => RETRY_NS,
            Socket::Closed { .. } | Socket::Connecting(_) => RECONNECT_NS,
        };
        self.socket = Socket::Closed { retry_ns: now_ns + rest_ns };
        self.advance(now_ns, context);
    }
}
