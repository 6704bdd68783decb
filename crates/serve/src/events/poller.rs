//! Events on sockets: epoll, edge-triggered for connections.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::io::Errno;

use crate::Error;

/// The maximum number of events taken from the kernel at once.
const EVENTS_MAX: usize = 256;

/// A set of descriptors, each with the events of interest.
#[derive(Debug)]
pub(crate) struct Poller {
    epoll: Arc<OwnedFd>,
}

/// Waits for an engine's events. The waiter is separate from the engine, so that a thread can wait while others use the
/// engine.
#[derive(Debug, Clone)]
pub struct Waiter {
    epoll: Arc<OwnedFd>,
}

/// Events that a wait returned and that the engine has not processed yet.
pub struct Events {
    list: Vec<epoll::Event>,
}

impl fmt::Debug for Events {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Events({})", self.list.len())
    }
}

/// Ends the wait of another thread.
#[derive(Debug, Clone)]
pub struct Waker {
    event: Arc<OwnedFd>,
}

/// One event: its token and its kinds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    pub(crate) word: u64,
    pub(crate) is_readable: bool,
    pub(crate) is_writable: bool,
    /// Whether the peer sends nothing beyond the bytes that have arrived.
    pub(crate) is_ended: bool,
}

impl Events {
    /// No events, with room for many.
    #[must_use]
    pub fn new() -> Self {
        Self { list: Vec::with_capacity(EVENTS_MAX) }
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Event> + '_ {
        use epoll::EventFlags as Flags;
        // A broken connection is both readable and writable: the next read or write returns the error.
        let broken = Flags::ERR | Flags::HUP;
        self.list.drain(..).map(move |event| {
            let (flags, data) = (event.flags, event.data);
            Event {
                word: data.u64(),
                is_readable: flags.intersects(Flags::IN | Flags::RDHUP | broken),
                is_writable: flags.intersects(Flags::OUT | broken),
                is_ended: flags.intersects(Flags::RDHUP | broken),
            }
        })
    }
}

impl Default for Events {
    fn default() -> Self {
        Self::new()
    }
}

impl Waiter {
    /// Waits until an event or a signal comes, or `timeout_ms` have passed (none: for ever). Returns whether an event
    /// came.
    pub fn wait(&self, events: &mut Events, timeout_ms: Option<u64>) -> bool {
        self.wait_for(events, timeout_ms.map(Duration::from_millis))
    }

    /// Waits like [`wait`](Self::wait), with a finer clock.
    pub fn wait_for(&self, events: &mut Events, timeout: Option<Duration>) -> bool {
        let given = timeout.map(timespec);
        events.list.clear();
        let room = rustix::buffer::spare_capacity(&mut events.list);
        let waited = match epoll::wait(&*self.epoll, room, given.as_ref()) {
            Err(Errno::NOSYS | Errno::PERM) => self.wait_ms(events, timeout),
            waited => waited,
        };
        // Only a signal ends a wait on a valid descriptor early.
        waited.is_ok_and(|count| count > 0)
    }

    /// Waits like [`wait_for`](Self::wait_for), and also returns when the bell rings.
    pub fn wait_with(&self, bell: &Bell, events: &mut Events, timeout: Option<Duration>) {
        events.list.clear();
        let descriptor = |event| PollFd::from_borrowed_fd(event, PollFlags::IN);
        let mut both = [descriptor(self.epoll.as_fd()), descriptor(bell.event.as_fd())];
        // Only a signal ends a wait on valid descriptors early.
        let _ = poll(&mut both, timeout.map(timespec).as_ref());
        if both[0].revents().contains(PollFlags::IN) {
            self.wait_for(events, Some(Duration::ZERO));
        }
    }

    /// Waits in whole milliseconds, on kernels before 5.11 and in sandboxes that refuse the finer call.
    fn wait_ms(&self, events: &mut Events, timeout: Option<Duration>) -> Result<usize, Errno> {
        // Round up to the next millisecond: a wait that ended early would be repeated again and again.
        let ms = timeout.map(|timeout| timeout.as_nanos().div_ceil(1_000_000));
        let ms = ms.map(|ms| u32::try_from(ms).unwrap_or(u32::MAX));
        thruway_sys::epoll::wait_ms(self.epoll.as_fd(), &mut events.list, ms)
    }
}

impl AsFd for Waiter {
    /// A descriptor that is readable while events are pending, for a thread that also waits for other descriptors.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Wakes the standby thread, which waits for the bell alone or together with an engine's events, until the bell is
/// silenced. The bell is no event of the engine: an event would also wake a waiting leader, again and again, until the
/// standby has had a processor.
#[derive(Debug, Clone)]
pub struct Bell {
    event: Arc<OwnedFd>,
}

impl Bell {
    pub(crate) fn new() -> Result<Self, Error> {
        Ok(Self { event: Arc::new(new_eventfd()?) })
    }

    /// Ends the wait, now or as soon as it begins.
    pub fn ring(&self) {
        // A write fails only if 2^64 - 2 rings are pending.
        let _ = rustix::io::write(&*self.event, &1_u64.to_ne_bytes());
    }

    /// Waits until the bell rings, at most for `timeout`.
    pub fn wait(&self, timeout: Option<Duration>) {
        let mut descriptors = [PollFd::new(&*self.event, PollFlags::IN)];
        // Only a signal ends a wait on a valid descriptor early.
        let rung = poll(&mut descriptors, timeout.map(timespec).as_ref());
        if rung.is_ok_and(|count| count > 0) {
            self.silence();
        }
    }

    /// Clears pending rings.
    pub fn silence(&self) {
        let _ = rustix::io::read(&*self.event, &mut [0; 8]);
    }
}

fn new_eventfd() -> Result<OwnedFd, Error> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|errno| Error::system("make an eventfd", errno))
}

fn timespec(timeout: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    }
}

impl Waker {
    /// Ends the wait, now or as soon as it begins.
    pub fn wake(&self) {
        // A write fails only if 2^64 - 2 wakes are pending.
        let _ = rustix::io::write(&*self.event, &1_u64.to_ne_bytes());
    }

    pub(crate) fn clear(&self) {
        // A read fails only if no wake is pending.
        let _ = rustix::io::read(&*self.event, &mut [0; 8]);
    }
}

impl Poller {
    pub(crate) fn new() -> Result<Self, Error> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|errno| Error::system("make an epoll", errno))?;
        Ok(Self { epoll: Arc::new(epoll) })
    }

    pub(crate) fn waiter(&self) -> Waiter {
        Waiter { epoll: Arc::clone(&self.epoll) }
    }

    /// Creates a waker whose event has the token `word`.
    pub(crate) fn waker(&self, word: u64) -> Result<Waker, Error> {
        let event = new_eventfd()?;
        self.add(&event, word, epoll::EventFlags::IN)
            .map_err(|errno| Error::system("wait for an eventfd", errno))?;
        Ok(Waker { event: Arc::new(event) })
    }

    /// Reports each change on a connection once.
    pub(crate) fn add_connection(&self, socket: impl AsFd, word: u64) -> Result<(), Errno> {
        use epoll::EventFlags as Flags;
        self.add(socket, word, Flags::IN | Flags::OUT | Flags::RDHUP | Flags::ET)
    }

    /// Reports connections that wait to be accepted, to one waiting process at a time.
    pub(crate) fn add_listener(&self, socket: impl AsFd, word: u64) -> Result<(), Errno> {
        self.add(socket, word, epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE)
    }

    /// Reports messages for as long as any are pending.
    pub(crate) fn add_mailbox(&self, socket: impl AsFd, word: u64) -> Result<(), Errno> {
        self.add(socket, word, epoll::EventFlags::IN)
    }

    pub(crate) fn remove(&self, socket: impl AsFd) {
        // A socket that was never added needs no removal.
        let _ = epoll::delete(&*self.epoll, socket);
    }

    fn add(&self, socket: impl AsFd, word: u64, flags: epoll::EventFlags) -> Result<(), Errno> {
        epoll::add(&*self.epoll, socket, epoll::EventData::new_u64(word), flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_wakes_only_a_wait_with_it() {
        let (poller, bell) = (Poller::new().unwrap(), Bell::new().unwrap());
        let (waiter, mut events) = (poller.waiter(), Events::new());
        bell.ring();
        assert!(!waiter.wait(&mut events, Some(0)), "the leader waits on");
        waiter.wait_with(&bell, &mut events, None);
        assert_eq!(events.drain().count(), 0);
        bell.silence();
        waiter.wait_with(&bell, &mut events, Some(Duration::ZERO));
    }

    #[test]
    fn events_come_beside_a_bell() {
        let (poller, bell) = (Poller::new().unwrap(), Bell::new().unwrap());
        let waker = poller.waker(7).unwrap();
        waker.wake();
        let mut events = Events::new();
        poller.waiter().wait_with(&bell, &mut events, None);
        assert_eq!(events.drain().map(|event| event.word).collect::<Vec<_>>(), [7]);
    }
}
