//! One client: a connection, what it has asked, and what came back.

use std::collections::VecDeque;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use crate::engine::Shared;
use crate::link::Link;
use crate::pace::Pace;
use crate::plan::{Class, Habit, Plan};
use crate::response::{Response, ResponseReader};
use crate::tally::{Tally, Trouble};

/// Rest before a connection is tried again that could not be made.
const RECONNECT_NS: u64 = 100_000_000;
/// Rest before a new connection after one that broke without a single answer.
const RETRY_NS: u64 = 10_000_000;
/// A trickling client's time between two bytes.
const TRICKLE_NS: u64 = 100_000_000;

/// A client and all that it counted. Times are nanoseconds since the start of the run.
#[derive(Debug)]
pub(crate) struct Client {
    /// Its place among the clients, and its name in epoll.
    token: usize,
    habit: Habit,
    pace: Pace,
    /// How many requests may be pending at a time.
    depth: usize,
    /// Whether a connection may be used for more than one request.
    keeps_alive: bool,
    link: Link,
    reader: ResponseReader,
    /// When each pending request was due, the oldest first.
    pending: VecDeque<u64>,
    /// How many bytes of the pending requests are not sent yet.
    unsent: usize,
    asked: u64,
    answered_ns: u64,
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
        let is_deep = matches!(class.habit, Habit::Greedy | Habit::Scheduled { .. });
        let depth =
            if is_deep && plan.request.keeps_alive() { plan.depth.max(1) as usize } else { 1 };
        Self {
            token,
            habit: class.habit,
            pace: class.habit.pace(plan, class.connections, number),
            depth,
            keeps_alive: plan.request.keeps_alive(),
            link: Link::Down { retry_ns: 0 },
            reader: ResponseReader::new(plan.request.is_head()),
            pending: VecDeque::with_capacity(depth),
            unsent: 0,
            asked: 0,
            answered_ns: 0,
            waiting_ns: 0,
            next_byte_ns: 0,
            wake_ns: u64::MAX,
            tally: Tally::default(),
        }
    }

    pub(crate) fn habit(&self) -> Habit {
        self.habit
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

    /// How many requests wait for an answer, and for how long the oldest has.
    pub(crate) fn waiting(&self, now_ns: u64) -> (u64, u64) {
        let (overdue, due_ns) = self.pace.overdue(self.asked, now_ns).unwrap_or((0, now_ns));
        let oldest_ns = self.pending.front().copied().unwrap_or(due_ns);
        (self.pending.len() as u64 + overdue, now_ns.saturating_sub(oldest_ns))
    }

    /// Does what is due now: asks, connects, sends.
    pub(crate) fn advance(&mut self, now_ns: u64, shared: &mut Shared<'_>) {
        self.ask(now_ns, shared);
        match self.link {
            Link::Down { .. } if self.pending.is_empty() => {}
            Link::Down { retry_ns } if now_ns < retry_ns => self.wake_at(retry_ns, shared),
            Link::Down { .. } => self.connect(now_ns, shared),
            Link::Connecting(_) => {}
            Link::Open { .. } => self.send(now_ns, shared),
        }
    }

    /// A wake-up that was set has come.
    pub(crate) fn wake(&mut self, now_ns: u64, shared: &mut Shared<'_>) {
        self.wake_ns = u64::MAX;
        self.advance(now_ns, shared);
    }

    /// The socket has something to say.
    pub(crate) fn ready(&mut self, flags: EventFlags, shared: &mut Shared<'_>) {
        match self.link {
            Link::Down { .. } => {}
            Link::Connecting(_) => {
                let now_ns = shared.now_ns();
                match self.link.open() {
                    Ok(()) => self.opened(now_ns, shared),
                    Err(errno) => self.refused(errno, now_ns, shared),
                }
            }
            Link::Open { .. } => {
                if flags.intersects(EventFlags::OUT) {
                    self.send(shared.now_ns(), shared);
                }
                if flags.intersects(EventFlags::IN | EventFlags::ERR | EventFlags::HUP) {
                    self.receive(shared);
                }
            }
        }
    }

    /// Gives a request up that has waited too long.
    pub(crate) fn expire(&mut self, now_ns: u64, timeout_ns: u64, shared: &mut Shared<'_>) {
        let waited_ns = now_ns.saturating_sub(self.waiting_ns);
        if !self.pending.is_empty() && waited_ns >= timeout_ns {
            self.fail(Trouble::TimedOut, now_ns, shared);
        }
    }

    fn ask(&mut self, now_ns: u64, shared: &mut Shared<'_>) {
        while self.pending.len() < self.depth && shared.left > 0 {
            match self.pace.due_ns(self.asked, self.answered_ns, now_ns) {
                Some(due_ns) if due_ns <= now_ns => {
                    if self.pending.is_empty() {
                        self.waiting_ns = now_ns;
                    }
                    self.pending.push_back(due_ns);
                    self.unsent += shared.request_bytes;
                    self.asked += 1;
                    shared.left -= 1;
                }
                Some(due_ns) => return self.wake_at(due_ns, shared),
                None => return,
            }
        }
    }

    fn wake_at(&mut self, at_ns: u64, shared: &mut Shared<'_>) {
        if at_ns < self.wake_ns {
            self.wake_ns = at_ns;
            shared.timers.set(at_ns, self.token);
        }
    }

    fn connect(&mut self, now_ns: u64, shared: &mut Shared<'_>) {
        self.reader.restart();
        self.unsent = self.pending.len() * shared.request_bytes;
        match Link::connect(self.token, shared) {
            Ok(Link::Down { .. }) => {
                self.link = Link::Down { retry_ns: now_ns + RETRY_NS };
                self.wake_at(now_ns + RETRY_NS, shared);
            }
            Ok(link) => {
                self.link = link;
                self.opened(now_ns, shared);
            }
            Err(errno) => self.refused(errno, now_ns, shared),
        }
    }

    fn opened(&mut self, now_ns: u64, shared: &mut Shared<'_>) {
        if matches!(self.link, Link::Open { .. }) {
            self.tally.connects += 1;
            self.send(now_ns, shared);
        }
    }

    fn refused(&mut self, errno: Errno, now_ns: u64, shared: &mut Shared<'_>) {
        shared.refusal = Some(errno);
        self.fail(Trouble::Connect, now_ns, shared);
    }

    fn send(&mut self, now_ns: u64, shared: &mut Shared<'_>) {
        let start = self.pending.len() * shared.request_bytes - self.unsent;
        let sendable = self.sendable(now_ns, shared);
        match self.link.send(self.token, start..start + sendable, shared) {
            Ok(sent) => self.unsent -= sent,
            Err(_) => self.fail(Trouble::Reset, now_ns, shared),
        }
    }

    /// How many bytes may be sent: all, or in its time one of a trickling client's.
    fn sendable(&mut self, now_ns: u64, shared: &mut Shared<'_>) -> usize {
        if self.habit != Habit::Trickle || self.unsent == 0 {
            return self.unsent;
        }
        let is_time = now_ns >= self.next_byte_ns;
        if is_time {
            self.next_byte_ns = now_ns + TRICKLE_NS;
        }
        self.wake_at(self.next_byte_ns, shared);
        usize::from(is_time)
    }

    fn receive(&mut self, shared: &mut Shared<'_>) {
        // Of a body that fills the buffer nobody looks at the bytes, so they need not be copied.
        let discard = self.reader.body_bytes_left() >= shared.buffer.len() as u64;
        let received = self.link.receive(&mut shared.buffer, discard);
        let now_ns = shared.now_ns();
        let digested = match received {
            Ok(Some(0)) => self.closed(now_ns),
            Ok(Some(bytes)) => self.digest(&shared.buffer[..bytes], now_ns, shared.request_bytes),
            Ok(None) => return,
            Err(_) => Err(Trouble::Reset),
        };
        match digested {
            Ok(true) => self.advance(now_ns, shared),
            Ok(false) => {
                self.link = Link::Down { retry_ns: now_ns };
                self.advance(now_ns, shared);
            }
            Err(trouble) => self.fail(trouble, now_ns, shared),
        }
    }

    /// Reads the answers in `bytes`; whether the connection can be used on.
    fn digest(&mut self, bytes: &[u8], now_ns: u64, request_bytes: usize) -> Result<bool, Trouble> {
        self.tally.bytes += bytes.len() as u64;
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.pending.is_empty() {
                return Err(Trouble::Unasked);
            }
            let read = self.reader.read(&mut rest).map_err(|_| Trouble::Malformed)?;
            let Some(response) = read else { break };
            // An answer to a request that is not sent yet leaves the connection in doubt.
            let was_sent = self.unsent <= (self.pending.len() - 1) * request_bytes;
            self.answer(response, now_ns);
            if !(self.keeps_alive && response.keeps_alive && was_sent) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn answer(&mut self, response: Response, now_ns: u64) {
        if let Some(due_ns) = self.pending.pop_front() {
            self.tally.answer(response.status, now_ns - due_ns);
        }
        self.link.answered();
        self.answered_ns = now_ns;
        self.waiting_ns = now_ns;
    }

    /// The server closed, which may be what ends the answer.
    fn closed(&mut self, now_ns: u64) -> Result<bool, Trouble> {
        match self.reader.close() {
            Ok(Some(response)) => self.answer(response, now_ns),
            Ok(None) if self.pending.is_empty() => {}
            Ok(None) => return Err(Trouble::Unanswered),
            Err(_) => return Err(Trouble::Truncated),
        }
        Ok(false)
    }

    /// Counts the trouble with all that was pending, and begins again after a rest.
    fn fail(&mut self, trouble: Trouble, now_ns: u64, shared: &mut Shared<'_>) {
        self.tally.trouble(trouble, self.pending.len());
        self.pending.clear();
        self.unsent = 0;
        self.answered_ns = now_ns;
        let rest_ns = match self.link {
            Link::Open { answers: 1.., .. } => 0,
            Link::Open { .. } => RETRY_NS,
            Link::Down { .. } | Link::Connecting(_) => RECONNECT_NS,
        };
        self.link = Link::Down { retry_ns: now_ns + rest_ns };
        self.advance(now_ns, shared);
    }
}
