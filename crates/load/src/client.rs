//! A client: a connection, its requests and their responses.

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use crate::account::Account;
use crate::broadcast::Marker;
use crate::conversation::Conversation;
use crate::exchange::Event;
use crate::pace::Pace;
use crate::pending::PendingRequest;
use crate::plan::{Class, ClientKind, Plan, nanoseconds};
use crate::rotation::Rotation;
use crate::run_context::RunContext;
use crate::schedule::Schedule;
use crate::socket::{Delivery, Intake, Socket};
use crate::tally::FailureKind;
use crate::websocket::WebSocket;

/// The delay before the next attempt after a failed connect.
const RECONNECT_NS: u64 = 100_000_000;
/// The delay before a new connection if the last one broke without any response.
const RETRY_NS: u64 = 10_000_000;
/// The interval at which a client asks whether a server that has closed acknowledged the requests.
const REFUSAL_NS: u64 = 1_000_000;

/// A client with its counts. Times are nanoseconds since the start of the run.
#[derive(Debug)]
pub(crate) struct Client {
    /// The index among the clients, which is also the token in epoll.
    token: usize,
    account: Account,
    schedule: Schedule,
    rotation: Rotation,
    /// The most requests that may be pending at once.
    depth: usize,
    /// When the client begins.
    start_ns: u64,
    /// The number within the class.
    number: usize,
    socket: Socket,
    conversation: Conversation,
    pace: Pace,
    /// The earliest timer that is set.
    wake_ns: u64,
}

impl Client {
    /// Creates client `number` of class `class`; `token` is its index among the clients of its thread.
    pub(crate) fn new(
        plan: &Plan,
        class: usize,
        number: u32,
        token: usize,
        marker: &Marker,
    ) -> Self {
        let is_scheduled = matches!(plan.classes[class].kind, ClientKind::Scheduled { .. });
        let ramp_ns = if is_scheduled { 0 } else { nanoseconds(plan.ramp) };
        let start = u128::from(ramp_ns) * u128::from(number)
            / u128::from(plan.classes[class].connections.max(1));
        let Class { kind, url, .. } = plan.classes[class];
        let request = &plan.urls[0].request;
        let depth = if request.keeps_alive() { plan.classes[class].depth() } else { 1 };
        let conversation = Conversation::new(plan, depth, marker);
        Self {
            token,
            account: Account::new(class, kind, plan.urls.len(), url.unwrap_or(0)),
            schedule: plan.classes[class].schedule(number, plan.ramp),
            rotation: Rotation::new(plan, &plan.classes[class], number),
            depth,
            number: number as usize,
            start_ns: u64::try_from(start).unwrap_or(u64::MAX),
            socket: Socket::Closed { retry_ns: 0 },
            conversation,
            pace: Pace::of(kind),
            wake_ns: u64::MAX,
        }
    }

    /// The requests and responses so far.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// Begins to count, after the warm-up.
    pub(crate) fn begin(&mut self) {
        self.account.clear();
        self.conversation.forget_served();
    }

    /// Returns the number of requests that are queued or sent and have no response.
    pub(crate) fn pending(&self) -> usize {
        self.conversation.len()
    }

    /// Whether nothing is pending.
    pub(crate) fn is_quiet(&self) -> bool {
        self.conversation.is_empty()
    }

    /// The number of responses for each stream; empty unless the protocol is HTTP/2.
    pub(crate) fn served(&self) -> &[u64] {
        self.conversation.served()
    }

    /// Returns the number of requests that wait for a response, and how long the oldest has waited.
    pub(crate) fn waiting(&self, now_ns: u64) -> (u64, u64) {
        let (overdue, due_ns) =
            self.schedule.overdue(self.account.asked, now_ns).unwrap_or((0, now_ns));
        let oldest_ns = self.conversation.oldest().map_or(due_ns, |request| request.due_ns);
        (self.conversation.len() as u64 + overdue, now_ns.saturating_sub(oldest_ns))
    }

    /// Does whatever is due now: queues requests, connects, sends.
    pub(crate) fn advance(&mut self, now_ns: u64, context: &mut RunContext<'_>) {
        self.queue_due_requests(now_ns, context);
        match self.socket {
            Socket::Closed { .. } if !self.conversation.is_wanted() => {}
            Socket::Closed { retry_ns } if now_ns < retry_ns => self.wake_at(retry_ns, context),
            Socket::Closed { .. } => self.connect(now_ns, context),
            Socket::Connecting { .. } => {}
            Socket::Open { .. } if self.socket.awaits_refusal() => {
                self.receive(context.buffer.len(), context);
            }
            Socket::Open { .. } => {
                self.send(now_ns, context);
                self.sip(now_ns, context);
            }
        }
    }

    /// Handles a timer.
    pub(crate) fn wake(&mut self, now_ns: u64, context: &mut RunContext<'_>) {
        self.wake_ns = u64::MAX;
        self.advance(now_ns, context);
    }

    /// Handles an event of the socket.
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

    /// Gives up requests that have waited for longer than `timeout_ns`.
    pub(crate) fn expire(&mut self, now_ns: u64, timeout_ns: u64, context: &mut RunContext<'_>) {
        while let Some(request) = self.conversation.expire(now_ns, timeout_ns) {
            self.account.lose(request, FailureKind::TimedOut, now_ns);
            context.interval.failed += 1;
            self.advance(now_ns, context);
        }
        let waited_ns = now_ns.saturating_sub(self.account.waiting_ns);
        if !self.conversation.is_empty() && waited_ns >= timeout_ns {
            self.fail(FailureKind::TimedOut, now_ns, context);
        }
    }

    /// Expects the broadcast with this number.
    pub(crate) fn expect(&mut self, number: u64, due_ns: u64, now_ns: u64) {
        if self.conversation.is_empty() {
            self.account.waiting_ns = now_ns;
        }
        self.account.asked += 1;
        self.conversation.push(PendingRequest { due_ns, url: 0, request: 0, number });
    }

    /// Sends the broadcast with this number to the server.
    pub(crate) fn send_broadcast(
        &mut self,
        number: u64,
        now_ns: u64,
        context: &mut RunContext<'_>,
    ) {
        self.conversation.websocket().into_iter().for_each(|socket| socket.send_broadcast(number));
        self.send(now_ns, context);
    }

    /// Queues the requests that are due, as many as may be pending. Otherwise sets a timer for the next one.
    fn queue_due_requests(&mut self, now_ns: u64, context: &mut RunContext<'_>) {
        if context.broadcasts.is_some() {
            return;
        }
        if now_ns < self.start_ns {
            return self.wake_at(self.start_ns, context);
        }
        while self.conversation.len() < self.depth && !context.is_spent() {
            match self.schedule.due_ns(self.account.asked, self.account.last_response_ns, now_ns) {
                Some(due_ns) if due_ns <= now_ns => {
                    if !context.take_request() {
                        return;
                    }
                    if self.conversation.is_empty() {
                        self.account.waiting_ns = now_ns;
                    }
                    let url = self.rotation.next();
                    let request = context.pick(url, self.account.asked, self.number);
                    self.conversation.push(PendingRequest { due_ns, url, request, number: 0 });
                    self.schedule.advance();
                    self.account.asked += 1;
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
        self.conversation.restart(&context.requests);
        let reads_slowly = matches!(self.account.kind, ClientKind::SlowRead { .. });
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
            self.account.tallies.of_client().connects += 1;
            self.pace.next_ns = now_ns;
            self.send(now_ns, context);
            self.sip(now_ns, context);
        }
    }

    fn refused(&mut self, errno: Errno, now_ns: u64, context: &mut RunContext<'_>) {
        context.failures.count(FailureKind::Connect, errno.to_string());
        self.fail(FailureKind::Connect, now_ns, context);
    }

    /// Sends as much as the socket takes. Requests for different URLs are sent one after another.
    fn send(&mut self, now_ns: u64, context: &mut RunContext<'_>) {
        let is_slow = matches!(self.account.kind, ClientKind::Trickle { .. });
        self.conversation.prepare(&context.requests, now_ns);
        loop {
            let most = if is_slow && self.conversation.is_unsent() {
                self.sendable(now_ns, context)
            } else {
                usize::MAX
            };
            let bytes = self.conversation.unsent(&context.requests);
            let bytes = &bytes[..bytes.len().min(most)];
            let length = bytes.len();
            match self.socket.send(self.token, bytes, &context.epoll) {
                Ok(sent) => self.conversation.count_sent(sent, &context.requests),
                Err(errno) => {
                    let failure = self.socket.unsent_failure_kind(context);
                    return match failure {
                        FailureKind::Reset if self.is_stale() => self.reopen(now_ns, context),
                        FailureKind::Reset => self.fail_by(errno, now_ns, context),
                        _ => self.fail(failure, now_ns, context),
                    };
                }
            }
            if is_slow || length == 0 || self.socket.awaits_room() {
                return;
            }
            self.conversation.prepare(&context.requests, now_ns);
            if !self.conversation.is_unsent() {
                return;
            }
        }
    }

    /// Returns 1 if the next byte of a trickling client is due, or else 0. Schedules the next wake-up.
    fn sendable(&mut self, now_ns: u64, context: &mut RunContext<'_>) -> usize {
        let is_time = self.pace.step(now_ns);
        if is_time {
            // A client that makes progress must not run into the timeout.
            self.account.waiting_ns = now_ns;
        }
        self.wake_at(self.pace.next_ns, context);
        usize::from(is_time)
    }

    /// Lets a slow reader read a few bytes if they are due.
    fn sip(&mut self, now_ns: u64, context: &mut RunContext<'_>) {
        if let ClientKind::SlowRead { bytes, .. } = self.account.kind {
            if self.pace.step(now_ns) {
                self.account.waiting_ns = now_ns;
                self.receive(bytes, context);
            }
            self.wake_at(self.pace.next_ns, context);
        }
    }

    /// Receives up to `bytes_max` bytes of responses.
    fn receive(&mut self, bytes_max: usize, context: &mut RunContext<'_>) {
        let bytes_max = bytes_max.min(context.buffer.len());
        // The bytes of a body that fills the buffer are not examined, so they need not be copied.
        let discard = self.conversation.body_bytes_left() >= bytes_max as u64;
        let received = self.socket.receive(&mut context.buffer, bytes_max, discard);
        let now_ns = context.now_ns();
        match received {
            Ok(Some(0)) => self.end(now_ns, context),
            Ok(Some(bytes)) => match self.digest(bytes, now_ns, context) {
                Ok(true) if self.socket.is_over() => self.end(now_ns, context),
                digested => self.go_on(digested, now_ns, context),
            },
            Ok(None) if self.socket.awaits_refusal() => self.end(now_ns, context),
            Ok(None) => {}
            Err(errno) => match self.socket.tls_failure_kind(context) {
                Some(failure) => self.fail(failure, now_ns, context),
                None if self.is_stale() => self.reopen(now_ns, context),
                None => self.fail_by(errno, now_ns, context),
            },
        }
    }

    /// Uses the connection further if `is_usable`, or else a new one.
    fn go_on(
        &mut self,
        is_usable: Result<bool, FailureKind>,
        now_ns: u64,
        context: &mut RunContext<'_>,
    ) {
        match is_usable {
            Ok(true) => self.advance(now_ns, context),
            Ok(false) => self.renew(now_ns, context),
            Err(failure) => {
                if let Some(reason) = self.conversation.other_protocol() {
                    context.failures.count(failure, reason);
                }
                self.fail(failure, now_ns, context);
            }
        }
    }

    /// Reads the responses in the first `bytes` of the buffer. Returns whether the connection can be used
    /// further.
    fn digest(
        &mut self,
        bytes: usize,
        now_ns: u64,
        context: &mut RunContext<'_>,
    ) -> Result<bool, FailureKind> {
        let buffer = std::mem::take(&mut context.buffer);
        let mut rest = &buffer[..bytes];
        let mut is_usable = Ok(true);
        while !rest.is_empty() && is_usable == Ok(true) {
            let before = rest.len();
            is_usable = match self.conversation.read(&mut rest, &context.requests) {
                Ok(step) => {
                    let received = before - rest.len();
                    self.account.receive(step.url, received);
                    context.interval.bytes += received as u64;
                    Ok(self.take(step.event, now_ns, context))
                }
                Err(failure) => Err(failure),
            };
        }
        context.buffer = buffer;
        is_usable
    }

    /// Counts an event. Returns whether the connection can be used further.
    fn take(&mut self, event: Event, now_ns: u64, context: &mut RunContext<'_>) -> bool {
        match event {
            Event::Partial => true,
            Event::Farewell => false,
            Event::Lost(request, failure) => {
                self.account.lose(request, failure, now_ns);
                context.interval.failed += 1;
                true
            }
            Event::Subscribed => {
                context.broadcasts.iter_mut().for_each(|all| all.subscribed += 1);
                true
            }
            Event::Response(answer) => {
                let latency_ns = self.account.complete(&answer, now_ns);
                context.interval.requests += 1;
                context.interval.errors += u64::from(answer.status >= Some(400));
                context.interval.latency.record(latency_ns);
                self.socket.count_response();
                if let Some(broadcasts) = &mut context.broadcasts {
                    broadcasts.end(answer.request.number, true, now_ns);
                }
                !answer.is_last
            }
        }
    }

    /// Handles the end of the connection. It can overtake the server's refusal of requests.
    fn end(&mut self, now_ns: u64, context: &mut RunContext<'_>) {
        let is_refusable = self.is_stale() && !self.conversation.is_empty();
        match is_refusable.then(|| self.socket.delivery()) {
            Some(Delivery::Refused) => self.reopen(now_ns, context),
            Some(Delivery::Pending) => self.await_refusal(now_ns, context),
            Some(Delivery::Acknowledged) | None => {
                let is_usable = self.closed(now_ns, context);
                self.go_on(is_usable, now_ns, context);
            }
        }
    }

    /// Takes the end of the connection for the end of a response if it may be that.
    fn closed(&mut self, now_ns: u64, context: &mut RunContext<'_>) -> Result<bool, FailureKind> {
        if let Some(failure) = self.socket.tls_failure_kind(context) {
            return Err(failure);
        }
        match self.conversation.close() {
            Ok(event) => {
                self.take(event, now_ns, context);
                Ok(false)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Waits until it is known whether the server has received the requests. Epoll reports a refusal and no
    /// acknowledgement, so the latter is asked for.
    fn await_refusal(&mut self, now_ns: u64, context: &mut RunContext<'_>) {
        match self.socket.await_refusal(self.token, &context.epoll) {
            Ok(()) => self.wake_at(now_ns + REFUSAL_NS, context),
            Err(errno) => self.fail_by(errno, now_ns, context),
        }
    }

    /// Whether a failure may be due to a kept connection that the server closed before it read the requests.
    /// A request that is sent again does not come here a second time, because its new connection has had no
    /// response.
    fn is_stale(&self) -> bool {
        self.socket.has_responded() && self.conversation.is_between_responses()
    }

    /// Sends the pending requests again, on another connection.
    fn reopen(&mut self, now_ns: u64, context: &mut RunContext<'_>) {
        self.account.retry(self.conversation.oldest());
        self.renew(now_ns, context);
    }

    /// Connects again at once.
    fn renew(&mut self, now_ns: u64, context: &mut RunContext<'_>) {
        self.unsubscribe(context);
        self.socket = Socket::Closed { retry_ns: now_ns };
        self.advance(now_ns, context);
    }

    /// Counts a reset, with the reason that the system gives.
    fn fail_by(&mut self, errno: Errno, now_ns: u64, context: &mut RunContext<'_>) {
        context.failures.count(FailureKind::Reset, errno.to_string());
        self.fail(FailureKind::Reset, now_ns, context);
    }

    /// Records that broadcasts do not reach the client until it is connected again.
    fn unsubscribe(&mut self, context: &mut RunContext<'_>) {
        let was_open = self.conversation.websocket().is_some_and(WebSocket::leave);
        if let Some(broadcasts) = context.broadcasts.as_mut().filter(|_| was_open) {
            broadcasts.subscribed -= 1;
        }
    }

    /// Counts the failure and all pending requests as lost, and reconnects after a delay.
    fn fail(&mut self, failure: FailureKind, now_ns: u64, context: &mut RunContext<'_>) {
        let pending = self.conversation.take();
        self.account.fail(failure, &pending, now_ns);
        context.interval.failed += pending.len() as u64;
        for request in &pending {
            context.broadcasts.iter_mut().for_each(|all| all.end(request.number, false, now_ns));
        }
        self.unsubscribe(context);
        let rest_ns = match self.socket {
            Socket::Open { responses: 1.., .. } => 0,
            Socket::Open { .. } => RETRY_NS,
            Socket::Closed { .. } | Socket::Connecting { .. } => RECONNECT_NS,
        };
        self.socket = Socket::Closed { retry_ns: now_ns + rest_ns };
        self.advance(now_ns, context);
    }
}
