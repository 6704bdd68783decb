//! The source of an event in the poller.

use crate::events::slab::EntryId;

/// The words of the waker, the mailbox and the handover; the words of listeners count down from there. All other words
/// are connections.
const WAKER: u64 = u64::MAX;
const MAILBOX: u64 = WAKER - 1;
const HANDOVER: u64 = MAILBOX - 1;
const FIRST_LISTENER: u64 = HANDOVER - 1;

/// The maximum number of listeners of one engine.
pub(crate) const LISTENERS_MAX: usize = 1 << 12;

/// The source of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token {
    /// A thread ends the wait of the engine.
    Waker,
    /// A worker has sent a message.
    Mailbox,
    /// A retiring worker has handed a connection over.
    Handover,
    /// Connections wait at the listener with the index.
    Listener(usize),
    /// A connection is readable, writable or broken.
    Connection(EntryId),
}

impl Token {
    /// Packs the token into one word, for the kernel to keep.
    pub(crate) fn to_word(self) -> u64 {
        match self {
            Self::Waker => WAKER,
            Self::Mailbox => MAILBOX,
            Self::Handover => HANDOVER,
            Self::Listener(index) => FIRST_LISTENER - index.min(LISTENERS_MAX - 1) as u64,
            Self::Connection(id) => id.to_word(),
        }
    }

    pub(crate) fn from_word(word: u64) -> Self {
        match word {
            WAKER => Self::Waker,
            MAILBOX => Self::Mailbox,
            HANDOVER => Self::Handover,
            word if word > FIRST_LISTENER - LISTENERS_MAX as u64 => {
                Self::Listener(usize::try_from(FIRST_LISTENER - word).unwrap_or(usize::MAX))
            }
            word => Self::Connection(EntryId::from_word(word)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_as_a_word() {
        let id = EntryId::from_word(7 << 32 | 5);
        let tokens = [
            Token::Waker,
            Token::Mailbox,
            Token::Handover,
            Token::Listener(0),
            Token::Listener(LISTENERS_MAX - 1),
            Token::Connection(id),
        ];
        for token in tokens {
            assert_eq!(Token::from_word(token.to_word()), token);
        }
    }
}
