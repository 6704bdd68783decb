//! The mailbox through which the connections of a retiring worker reach the remaining workers, or those of the next
//! server.
//!
//! All serving workers read the same mailbox. A message in it outlives the process that wrote it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;

use super::mailbox::{self, Mailbox, MailboxSender, Message};
use crate::Error;
use crate::entry::Entry;

/// The version of the message format. A server with another version creates a mailbox of its own.
pub const VERSION: u32 = 1;

/// How often a full mailbox is tried again, and the pause before each try.
const TRIES_MAX: usize = 100;
const PAUSE: Duration = Duration::from_millis(1);

/// A mailbox that several groups of workers can share.
#[derive(Debug)]
pub struct Handover {
    mailbox: Mailbox,
    sender: MailboxSender,
}

impl Handover {
    /// Creates an empty mailbox.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn new() -> Result<Self, Error> {
        mailbox::pair().map(|(mailbox, sender)| Self { mailbox, sender })
    }

    /// Restores the mailbox whose [`descriptors`](Self::descriptors) an older process passed on.
    #[must_use]
    pub fn from_descriptors([mailbox, sender]: [OwnedFd; 2]) -> Self {
        Self { mailbox: Mailbox::from(mailbox), sender: MailboxSender::from(sender) }
    }

    /// The two ends of the mailbox, for the next process.
    #[must_use]
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.mailbox.as_fd(), self.sender.as_fd()]
    }

    /// Sends a connection. The caller then drops its socket.
    ///
    /// # Errors
    /// `EAGAIN` if there is no room now.
    pub(crate) fn send(&self, connection: &Entry) -> Result<(), Errno> {
        self.sender.send(connection)
    }

    /// Sends a connection, and waits a while for room.
    ///
    /// # Errors
    /// `EAGAIN` if no room appeared in that time.
    pub(super) fn send_patiently(&self, connection: &Entry) -> Result<(), Errno> {
        for _ in 0..TRIES_MAX {
            match self.send(connection) {
                Err(Errno::AGAIN) => std::thread::sleep(PAUSE),
                sent => return sent,
            }
        }
        Err(Errno::AGAIN)
    }

    /// Takes the next connection.
    ///
    /// # Errors
    /// `EMFILE` if a connection was there, but no descriptor was left for it.
    pub(crate) fn receive(&self, inbox: &mut [u8], now_ms: u64) -> Result<Option<Entry>, Errno> {
        match self.mailbox.receive(inbox, now_ms)? {
            Some(Message::Connection(connection)) => Ok(Some(*connection)),
            Some(Message::Bell) | None => Ok(None),
        }
    }
}

/// The descriptor is readable while a connection waits.
impl AsFd for Handover {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.mailbox.as_fd()
    }
}
