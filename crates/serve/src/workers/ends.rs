//! The ends of all mailboxes. Every worker has them.

use super::handover::Handover;
use super::mailbox::{Mailbox, MailboxSender, Message};
use crate::entry::MOVED_BYTES_MAX;
use crate::events::clock;

/// The mailboxes of a group.
#[derive(Debug)]
pub(super) struct Ends {
    /// Each worker's.
    pub(super) mailboxes: Vec<(Mailbox, MailboxSender)>,
    /// For the connections of workers that retire.
    pub(super) handover: Handover,
}

impl Ends {
    /// Hands over the connections in the mailbox of worker `index`, which serves no more.
    pub(super) fn forward(&self, index: usize) {
        let (now_ms, mut inbox) = (clock::monotonic_us() / 1000, vec![0; MOVED_BYTES_MAX]);
        while let Ok(Some(message)) = self.mailboxes[index].0.receive(&mut inbox, now_ms) {
            if let Message::Connection(connection) = message {
                // It is closed if no worker takes anything out.
                let _ = self.handover.send_patiently(&connection);
            }
        }
    }
}
