//! One client: a connection, what it has asked, and what came back.

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use crate::pending::{PendingRequest, PendingRequests};
use crate::plan::{Class, ClientKind, Plan, nanoseconds};
use crate::response::{Response, ResponseReader};
use crate::rotation::Rotation;
use crate::run_context::RunContext;
use crate::schedule::Schedule;
use crate::socket::{Intake, Socket};
use crate::tally::{TallyByUrl, Trouble};

/// Rest before a connection is tried again that could not be made.
const RECONNECT_NS: u64 = 100_000_000;
/// Rest before a new connection, if the last one broke without a single response.
const RETRY_NS: u64 = 10_000_000;

/// A client and all that it counted. Times are nanoseconds since the start of the run.
#[derive(Debug)]
pub(crate) struct Client {
    /// Its place among the clients, and its name in epoll.
    token: usize,
    /// The place of its class in the plan.
    class: usize,
    kind: ClientKind,
    schedule: Schedule,
    rotation: Rotation,
    /// How many requests may be pending at a time.
    depth: usize,
    /// Whether a connection may be used for more than one request.
    keeps_alive: bool,
    socket: Socket,
    reader: ResponseReader,
    pending: PendingRequests,
    asked: u64,
    last_response_ns: u64,
    /// Since when the oldest pending request has the server's attention to itself.
    waiting_ns: u64,
    /// When a slow client may send its next byte, or read its next few.
    next_step_ns: u64,
    /// The earliest wake-up that is set.
    wake_ns: u64,
    tallies: TallyByUrl,
}

impl Client {
    /// The `number`th client of the plan's `class`th class; `token` is its place among all.
    pub(crate) fn new(plan: &Plan, class: usize, number: u32, token: usize) -> Self {
        let Class { kind, url, .. } = plan.classes[class];
        let request = &plan.urls[0].request;
        let depth = if request.keeps_alive() { plan.classes[class].depth() } else { 1 };
        Self {
            token,
            class,
            kind,
            schedule: plan.classes[class].schedule(number),
            rotation: Rotation::new(plan, &plan.classes[class], number),
            depth,
            keeps_alive: request.keeps_alive(),
            socket: Socket::Closed { retry_ns: 0 },
            reader: ResponseReader::new(request.is_head()),
            pending: PendingRequests::with_capacity(depth),
            asked: 0,
            last_response_ns: 0,
            waiting_ns: 0,
            next_step_ns: 0,
            wake_ns: u64::MAX,
            tallies: TallyByUrl::new(plan.urls.len(), url.unwrap_or(0)),
        }
    }

    pub(crate) fn kind(&self) -> ClientKind {
        self.kind
    }

    /// The place of its class in the plan.
    pub(crate) fn class(&self) -> usize {
        self.class
    }

    pub(crate) fn tallies(&self) -> &TallyByUrl {
        &self.tallies
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
        let oldest_ns = self.pending.oldest().map_or(due_ns, |request| request.due_ns);
        (self.pending.len() as u64 + overdue, now_ns.saturating_sub(oldest_ns))
    }

    /// Does what is due now: asks, connects, sends.
    pub(crate) fn advance(&mut self, now_ns: u64, context: &mut RunContext<'_>) {
        self.ask(now_ns, context);
        match self.socket {
            Socket::Closed { .. } if self.pending.is_empty() => {}
            Socket::Closed { retry_ns } if now_ns < retry_ns => self.wake_at(retry_ns, context),
            Socket::Closed { .. } => self.connect(now_ns, context),
            Socket::Connecting { .. } => {}
            Socket::Open { .. } => {
                self.send(now_ns, context);
                self.sip(now_ns, context);
            }
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
            Socket::Connecting { .. } => {
                let now_ns = context.now_ns();
                match self.socket.open(context) {
                    Ok(()) => self.opened(now_ns, context),
                    Err(errno) => self.refused(errno, now_ns, context),
                }
            }
            Socket::Open { .. } => {
                if flags.intersects(EventFlags::OUT) {
                    self.send(context.now_ns(), context);
                }
                if flags.intersects(EventFlags::IN | EventFlags::ERR | EventFlags::HUP) {
                    self.receive(context.buffer.len(), context);
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
                    self.pending.push(PendingRequest { due_ns, url: self.rotation.next() });
                    self.schedule.advance();
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
        self.pending.resend();
        let reads_slowly = matches!(self.kind, ClientKind::SlowRead { .. });
        let intake = if reads_slowly { Intake::Slow } else { Intake::Prompt };
        match Socket::connect(self.token, intake, context) {
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
            self.tallies.of_client().connects += 1;
            self.next_step_ns = now_ns;
            self.send(now_ns, context);
            self.sip(now_ns, context);
        }
    }

    fn refused(&mut self, errno: Errno, now_ns: u64, context: &mut RunContext<'_>) {
        context.refusal = Some(errno);
        self.fail(Trouble::Connect, now_ns, context);
    }

    /// Sends what there is room for; requests of several URLs one after another.
    fn send(&mut self, now_ns: u64, context: &mut RunContext<'_>) {
        let is_slow = matches!(self.kind, ClientKind::Trickle { .. });
        loop {
            let part = self.pending.next_part(|url| context.requests[url].one_bytes);
            let (url, mut part) = part.unwrap_or((0, 0..0));
            if is_slow && !part.is_empty() {
                part.end = part.start + self.sendable(now_ns, context);
            }
            let length = part.len();
            match self.socket.send(self.token, url, part, context) {
                Ok(sent) => self.pending.count_sent(sent, context.requests[url].one_bytes),
                Err(_) => return self.fail(Trouble::Reset, now_ns, context),
            }
            let is_short = !self.pending.is_unsent() || length == 0 || self.socket.awaits_room();
            if is_slow || is_short {
                return;
            }
        }
    }

    /// How many bytes a trickling client may send: one in its time.
    fn sendable(&mut self, now_ns: u64, context: &mut RunContext<'_>) -> usize {
        let is_time = self.step(now_ns);
        self.wake_at(self.next_step_ns, context);
        usize::from(is_time)
    }

    /// Has a client that takes its responses slowly take a few bytes, if it is time.
    fn sip(&mut self, now_ns: u64, context: &mut RunContext<'_>) {
        if let ClientKind::SlowRead { bytes, .. } = self.kind {
            if self.step(now_ns) {
                self.receive(bytes, context);
            }
            self.wake_at(self.next_step_ns, context);
        }
    }

    /// Whether it is time for a slow client to do something. Its request is not given up while it does.
    fn step(&mut self, now_ns: u64) -> bool {
        let (ClientKind::Trickle { gap } | ClientKind::SlowRead { gap, .. }) = self.kind else {
            return true;
        };
        let is_time = now_ns >= self.next_step_ns;
        if is_time {
            self.next_step_ns = now_ns + nanoseconds(gap);
            self.waiting_ns = now_ns;
        }
        is_time
    }

    /// Takes up to `bytes_max` bytes of responses.
    fn receive(&mut self, bytes_max: usize, context: &mut RunContext<'_>) {
        let bytes_max = bytes_max.min(context.buffer.len());
        // Nothing looks at the bytes of a body that fills the buffer, so they need not be copied.
        let discard = self.reader.body_bytes_left() >= bytes_max as u64;
        let received = self.socket.receive(&mut context.buffer, bytes_max, discard);
        let now_ns = context.now_ns();
        let digested = match received {
            Ok(Some(0)) => self.closed(now_ns),
            Ok(Some(bytes)) => match self.digest(&context.buffer[..bytes], now_ns) {
                Ok(true) if self.socket.is_over() => self.closed(now_ns),
                digested => digested,
            },
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
    fn digest(&mut self, bytes: &[u8], now_ns: u64) -> Result<bool, Trouble> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let Some(oldest) = self.pending.oldest() else { return Err(Trouble::Unasked) };
            let before = rest.len();
            let read = self.reader.read(&mut rest).map_err(|_| Trouble::Malformed)?;
            self.tallies.of_mut(oldest.url).bytes += (before - rest.len()) as u64;
            let Some(response) = read else { break };
            // A response to a request that is not sent yet leaves the connection in doubt.
            let was_sent = self.complete(response, now_ns);
            if !(self.keeps_alive && response.keeps_alive && was_sent) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Counts a response to the oldest request; whether that one had been sent in full.
    fn complete(&mut self, response: Response, now_ns: u64) -> bool {
        let popped = self.pending.pop();
        if let Some((request, _)) = popped {
            self.tallies.of_mut(request.url).complete(response.status, now_ns - request.due_ns);
        }
        self.socket.responded();
        self.last_response_ns = now_ns;
        self.waiting_ns = now_ns;
        popped.is_some_and(|(_, was_sent)| was_sent)
    }

    /// The server closed, which may be what ends the response.
    fn closed(&mut self, now_ns: u64) -> Result<bool, Trouble> {
        match self.reader.close() {
            Ok(Some(response)) => {
                self.complete(response, now_ns);
            }
            Ok(None) if self.pending.is_empty() => {}
            Ok(None) => return Err(Trouble::Unanswered),
            Err(_) => return Err(Trouble::Truncated),
        }
        Ok(false)
    }

    /// Counts the trouble with all that was pending, and begins again after a rest.
    fn fail(&mut self, trouble: Trouble, now_ns: u64, context: &mut RunContext<'_>) {
        match self.pending.oldest() {
            Some(oldest) if trouble != Trouble::Connect => self.tallies.of_mut(oldest.url),
            _ => self.tallies.of_client(),
        }
        .trouble(trouble);
        self.pending.iter().for_each(|request| self.tallies.of_mut(request.url).failed += 1);
        self.pending.clear();
        self.last_response_ns = now_ns;
        let rest_ns = match self.socket {
            Socket::Open { responses: 1.., .. } => 0,
            Socket::Open { .. } => RETRY_NS,
            Socket::Closed { .. } | Socket::Connecting { .. } => RECONNECT_NS,
        };
        self.socket = Socket::Closed { retry_ns: now_ns + rest_ns };
        self.advance(now_ns, context);
    }
}
