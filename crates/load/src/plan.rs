//! What a run does: whom it asks for what, with which clients, and for how long.

use std::str::FromStr;
use std::time::Duration;

use crate::schedule::{Schedule, open_loop};
use crate::{Address, Request};

/// A run, described.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where connections go to.
    pub address: Address,
    /// What every client asks.
    pub request: Request,
    /// The clients. Those of a class behave alike and are compared with one another.
    pub classes: Vec<Class>,
    /// How many requests a greedy or scheduled client may have pending at a time; at least 1.
    pub depth: u32,
    /// The rest that a polite client takes after each response.
    pub pause: Duration,
    /// When the run ends, if nothing ends it before.
    pub duration: Option<Duration>,
    /// After how many answered or failed requests the run ends.
    pub requests: Option<u64>,
    /// When a pending request is given up, and its connection closed.
    pub timeout: Duration,
}

/// Clients that behave alike.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Class {
    /// What they do.
    pub kind: ClientKind,
    /// How many there are, each with a connection of its own.
    pub connections: u32,
}

/// How a client behaves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ClientKind {
    /// Always has as many requests pending as it may.
    Greedy,
    /// Asks, waits for the response, rests.
    Polite,
    /// Asks at a constant rate that does not wait for responses (open loop): all of the class together ask
    /// `rate` times a second.
    Scheduled {
        /// Requests a second, of the whole class.
        rate: f64,
    },
    /// Sends its requests a byte at a time: a slow client.
    Trickle,
    /// Asks once and keeps its connection open.
    Idle,
}

impl ClientKind {
    /// The kind's name, as it stands in a mix and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Greedy => "greedy",
            Self::Polite => "polite",
            Self::Scheduled { .. } => "scheduled",
            Self::Trickle => "trickle",
            Self::Idle => "idle",
        }
    }

    /// Whether clients of this kind have a claim to equal shares.
    #[must_use]
    pub fn is_judged(self) -> bool {
        !matches!(self, Self::Trickle | Self::Idle)
    }

    pub(crate) fn schedule(self, plan: &Plan, clients: u32, client: u32) -> Schedule {
        match self {
            Self::Greedy | Self::Trickle => Schedule::Always,
            Self::Polite => Schedule::After { pause_ns: nanoseconds(plan.pause) },
            Self::Scheduled { rate } => open_loop(rate, clients, client),
            Self::Idle => Schedule::Once,
        }
    }
}

/// A class in a mix: `greedy=9`.
impl FromStr for Class {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, number) = text.split_once('=').ok_or("write it as NAME=CONNECTIONS")?;
        let kinds = [ClientKind::Greedy, ClientKind::Polite, ClientKind::Trickle, ClientKind::Idle];
        let kind = kinds.into_iter().find(|kind| kind.name() == name);
        let kind = kind.ok_or("a class is greedy, polite, trickle or idle")?;
        match number.parse() {
            Ok(connections) if connections > 0 => Ok(Self { kind, connections }),
            _ => Err(format!("{number:?} is not a number of connections")),
        }
    }
}

/// A time as the clients count it; one that is too long is the longest.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_names_its_classes() {
        assert_eq!("greedy=9".parse(), Ok(Class { kind: ClientKind::Greedy, connections: 9 }));
        assert_eq!("idle=10000".parse(), Ok(Class { kind: ClientKind::Idle, connections: 10_000 }));
        for text in ["greedy", "greedy=", "greedy=0", "greedy=-1", "rude=1", "scheduled=1"] {
            assert!(text.parse::<Class>().is_err(), "{text}");
        }
    }
}
