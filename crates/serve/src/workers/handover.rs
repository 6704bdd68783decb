//! How the connections of a worker that retires reach the workers that stay, or those of the next server.
//!
//! One mailbox for all: each worker that serves reads it. A message in it outlives the process that wrote it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;

use super::mailbox::{self, Mailbox, MailboxSender, Message};
use crate::Error;
use crate::entry::Entry;

/// The form of its messages. A server of another form makes a mailbox of its own.
pub const VERSION: u32 = 1;

/// How often room is looked for, and how long that lasts each time.
const TRIES_MAX: usize = 100;
const PAUSE: Duration = Duration::from_millis(1);

/// A mailbox that several groups of workers can share.
#[derive(Debug)]
pub struct Handover {
    mailbox: Mailbox,
    sender: MailboxSender,
}

impl Handover {
    /// An empty one.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn new() -> Result<Self, Error> {
        mailbox::pair().map(|(mailbox, sender)| Self { mailbox, sender })
    }

    /// The one whose [`descriptors`](Self::descriptors) these were in an older process.
    #[must_use]
    pub fn from_descriptors([mailbox, sender]: [OwnedFd; 2]) -> Self {
        Self { mailbox: Mailbox::from(mailbox), sender: MailboxSender::from(sender) }
    }

    /// Its two ends, for a process that follows this one.
    #[must_use]
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.mailbox.as_fd(), self.sender.as_fd()]
    }

    /// Puts a connection in. Its socket here is to be dropped after that.
    ///
    /// # Errors
    /// `EAGAIN` if there is no room now.
    pub(crate) fn send(&self, connection: &Entry) -> Result<(), Errno> {
        self.sender.send(connection)
    }

    /// Puts a connection in, and waits a while for room.
    ///
    /// # Errors
    /// `EAGAIN` if there was none all the while.
    pub(super) fn send_patiently(&self, connection: &Entry) -> Result<(), Errno> {
        for _ in 0..TRIES_MAX {
            match self.send(connection) {
                Err(Errno::AGAIN) => std::thread::sleep(PAUSE),
                sent => return sent,
            }
        }
        Err(Errno::AGAIN)
    }

    /// Takes the next connection out.
    ///
    /// # Errors
    /// `EMFILE` if there was one, and no descriptor is left for it.
    pub(crate) fn receive(&self, inbox: &mut [u8], now_ms: u64) -> Result<Option<Entry>, Errno> {
        match self.mailbox.receive(inbox, now_ms)? {
            Some(Message::Connection(connection)) => Ok(Some(*connection)),
            Some(Message::Bell) | None => Ok(None),
        }
    }
}

/// Readable when a connection is waiting.
impl AsFd for Handover {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.mailbox.as_fd()
    }
}
