//! The ends of all mailboxes, of which every worker has a copy.

use super::handover::Handover;
use super::load_table::LoadRow;
use super::mailbox::{Mailbox, MailboxSender, Message};
use crate::entry::MOVED_BYTES_MAX;
use crate::events::clock;

/// The mailboxes of a group.
#[derive(Debug)]
pub(super) struct Ends {
    /// The mailbox of each worker.
    pub(super) mailboxes: Vec<(Mailbox, MailboxSender)>,
    /// The mailbox for the connections of retiring workers.
    pub(super) handover: Handover,
}

impl Ends {
    /// Hands over the connections in the mailbox of worker `index`, which has the `row` and no longer serves.
    pub(super) fn forward(&self, index: usize, row: LoadRow<'_>) {
        let (now_ms, mut inbox) = (clock::monotonic_us() / 1000, vec![0; MOVED_BYTES_MAX]);
        while let Ok(Some(message)) = self.mailboxes[index].0.receive(&mut inbox, now_ms) {
            if let Message::Connection(connection) = message {
                row.connections().release();
                // The connection is closed if no worker reads the mailbox.
                let _ = self.handover.send_patiently(&connection);
            }
        }
    }
}
