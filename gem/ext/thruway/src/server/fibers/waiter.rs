//! The descriptors that the fibers of one thread wait for, and the wait for them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::io::Errno;

/// Descriptors taken from the kernel at once.
const READY_MAX: usize = 256;

/// The bits of `poll` and `epoll` that fibers ask for: readable, urgent data, writable. They are Ruby's, too.
const ASKED: u32 = 0b111;

/// Waits for descriptors, and for a bell that other threads ring.
pub(in crate::server) struct FiberWaiter {
    epoll: OwnedFd,
    bell: OwnedFd,
}

/// The descriptors that were found ready, with their events.
pub(in crate::server) struct ReadyDescriptors(Vec<epoll::Event>);

// SAFETY: the kernel reports descriptors, which are numbers; the pointers of its structure are not used.
unsafe impl Send for ReadyDescriptors {}

/// The reasons for which a wait has ended.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::server) struct WaitEnd {
    /// The engine has events.
    pub(in crate::server) engine: bool,
    /// A descriptor of a fiber is ready, or the bell was rung.
    pub(in crate::server) own: bool,
}

impl ReadyDescriptors {
    pub(in crate::server) fn new() -> Self {
        Self(Vec::with_capacity(READY_MAX))
    }

    /// Takes out the descriptors and their events.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (RawFd, u32)> + '_ {
        self.0.drain(..).map(|event| {
            let (flags, data) = (event.flags, event.data);
            let is_broken = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
            // After an error, the next call of either kind reports it.
            let events = if is_broken { ASKED } else { flags.bits() & ASKED };
            (RawFd::try_from(data.u64()).unwrap_or(-1), events)
        })
    }
}

impl FiberWaiter {
    /// # Errors
    /// The process has no free descriptors.
    pub(in crate::server) fn new() -> std::io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?, bell })
    }

    /// Reports the next of `events` of a descriptor, once. The events of an earlier call are not reported any more.
    ///
    /// # Errors
    /// `PERM` for a descriptor that is always ready, such as a file's; others if the descriptor cannot be watched.
    pub(super) fn watch(&self, descriptor: RawFd, events: u32) -> Result<(), Errno> {
        if descriptor < 0 {
            return Err(Errno::BADF);
        }
        // SAFETY: the descriptor is used in this function only, and a closed one is refused.
        let watched = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let flags = epoll::EventFlags::from_bits_retain(events & ASKED);
        let flags = flags | epoll::EventFlags::ONESHOT;
        let data = epoll::EventData::new_u64(u64::from(descriptor.unsigned_abs()));
        match epoll::modify(&self.epoll, watched, data, flags) {
            Err(Errno::NOENT) => epoll::add(&self.epoll, watched, data, flags),
            result => result,
        }
    }

    /// Ends the wait, now or as soon as it begins.
    pub(in crate::server) fn ring(&self) {
        // It fails only if 2^64 - 2 rings are pending.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Receives the events that are ready, without waiting.
    pub(super) fn look(&self, ready: &mut ReadyDescriptors) {
        ready.0.clear();
        let room = rustix::buffer::spare_capacity(&mut ready.0);
        // It fails for invalid descriptors only.
        let _ = epoll::wait(&self.epoll, room, Some(&Timespec::default()));
    }

    /// Waits until a descriptor is ready, until the bell is rung, until `engine` has events, or for `timeout`.
    pub(in crate::server) fn wait(
        &self,
        engine: Option<BorrowedFd<'_>>,
        ready: &mut ReadyDescriptors,
        timeout: Option<Duration>,
    ) -> WaitEnd {
        let input = |descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN);
        let own = [input(self.epoll.as_fd()), input(self.bell.as_fd())];
        let mut polled = [own[0].clone(), own[1].clone(), input(engine.unwrap_or(own[0].as_fd()))];
        let count = if engine.is_some() { 3 } else { 2 };
        let timeout = timeout.map(timespec);
        // Only a signal ends a wait on valid descriptors early.
        if !poll(&mut polled[..count], timeout.as_ref()).is_ok_and(|found| found > 0) {
            return WaitEnd::default();
        }
        let is_ready = polled.map(|descriptor| descriptor.revents().contains(PollFlags::IN));
        if is_ready[0] {
            self.look(ready);
        }
        if is_ready[1] {
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        }
        WaitEnd { engine: count == 3 && is_ready[2], own: is_ready[0] || is_ready[1] }
    }
}

fn timespec(timeout: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    }
}
