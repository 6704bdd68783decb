//! Parses a class of clients: `KIND=N`, and for `--class` also options.

use std::str::FromStr;
use std::time::Duration;

use thruway_load::{Arrivals, Class, ClientKind};

use super::number::{connections, milliseconds, rate, whole};

/// The default number of pending requests of a pipelined client.
const DEPTH_DEFAULT: u32 = 16;
/// The default pause of a polite client.
pub(super) const PAUSE_DEFAULT: Duration = Duration::from_millis(10);
/// The default time between two steps of a slow client.
const GAP_DEFAULT: Duration = Duration::from_millis(100);
/// The default number of bytes that a slowly reading client takes at a time.
const BYTES_DEFAULT: u64 = 1024;

/// Each kind, and its options besides `url`.
const KINDS: [(&str, &[&str]); 7] = [
    ("greedy", &["depth"]),
    ("pipelined", &["depth"]),
    ("polite", &["pause"]),
    ("scheduled", &["rate", "arrivals", "burst", "depth"]),
    ("trickle", &["gap"]),
    ("slow-read", &["gap", "bytes"]),
    ("idle", &[]),
];

/// A class whose missing options default to those of the whole run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ClassText {
    kind: &'static str,
    connections: u32,
    rate: Option<f64>,
    arrivals: Option<Arrivals>,
    burst: Option<u32>,
    depth: Option<u32>,
    pause: Option<Duration>,
    gap: Option<Duration>,
    bytes: Option<u64>,
    /// The number of the URL among the run's URLs, from 1.
    pub(super) url: Option<u32>,
}

/// The values of the options that a class does not set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Defaults {
    pub(super) depth: u32,
    pub(super) pause: Duration,
    pub(super) arrivals: Arrivals,
    pub(super) burst: u32,
}

impl ClassText {
    /// Returns the class of the clients of `-c`: greedy, or scheduled with `--rate`.
    pub(super) fn plain(connections: u32, rate: Option<f64>) -> Self {
        let kind = if rate.is_some() { "scheduled" } else { "greedy" };
        Self { rate, ..Self::new(kind, connections) }
    }

    fn new(kind: &'static str, connections: u32) -> Self {
        let (rate, arrivals, burst, depth) = (None, None, None, None);
        let (pause, gap, bytes, url) = (None, None, None, None);
        Self { kind, connections, rate, arrivals, burst, depth, pause, gap, bytes, url }
    }

    /// Completes the class with the values of the run.
    pub(super) fn resolved(&self, defaults: Defaults) -> Class {
        let is_deep = self.kind == "pipelined" && defaults.depth == 1;
        let depth = self.depth.unwrap_or(if is_deep { DEPTH_DEFAULT } else { defaults.depth });
        let url = self.url.map(|number| number as usize - 1);
        let burst = self.burst.unwrap_or(defaults.burst);
        Class { depth, url, burst, ..Class::new(self.client_kind(defaults), self.connections) }
    }

    fn client_kind(&self, defaults: Defaults) -> ClientKind {
        let gap = self.gap.unwrap_or(GAP_DEFAULT);
        match self.kind {
            "pipelined" => ClientKind::Pipelined,
            "polite" => ClientKind::Polite { pause: self.pause.unwrap_or(defaults.pause) },
            "scheduled" => ClientKind::Scheduled {
                rate: self.rate.unwrap_or(1.0),
                arrivals: self.arrivals.unwrap_or(defaults.arrivals),
            },
            "trickle" => ClientKind::Trickle { gap },
            "slow-read" => {
                let bytes =
                    usize::try_from(self.bytes.unwrap_or(BYTES_DEFAULT)).unwrap_or(usize::MAX);
                ClientKind::SlowRead { gap, bytes }
            }
            "idle" => ClientKind::Idle,
            _ => ClientKind::Greedy,
        }
    }

    /// Whether the class uses an option of the whole run, because the class does not set the option.
    pub(super) fn heeds(&self, option: &str) -> bool {
        let has_own = match option {
            "arrivals" => self.arrivals.is_some(),
            "depth" => self.depth.is_some(),
            "burst" => self.burst.is_some(),
            "pause" => self.pause.is_some(),
            _ => self.url.is_some(),
        };
        !has_own && (option == "url" || self.options().contains(&option))
    }

    /// Returns the options of the class's kind, besides `url`.
    fn options(&self) -> &'static [&'static str] {
        let known = KINDS.iter().find(|(kind, _)| *kind == self.kind);
        known.map_or(&[], |(_, options)| *options)
    }

    fn set(&mut self, option: &str, value: &str) -> Result<(), String> {
        let known = self.options();
        if option != "url" && !known.contains(&option) {
            let known = [known, &["url"]].concat().join(", ");
            return Err(format!("{} clients have no {option:?}; they take: {known}", self.kind));
        }
        match option {
            "rate" => self.rate = Some(rate(value)?),
            "arrivals" => self.arrivals = Some(arrivals(value)?),
            "depth" => self.depth = Some(whole(value, 1..=1024)?),
            "burst" => self.burst = Some(whole(value, 1..=1_000_000)?),
            "pause" => self.pause = Some(milliseconds(value)?),
            "gap" => self.gap = Some(gap(value)?),
            "bytes" => self.bytes = Some(whole(value, 1..=131_072)?),
            _ => self.url = Some(whole(value, 1..=u32::MAX)?),
        }
        Ok(())
    }
}

/// Parses a class such as `polite=3` or `polite=3,pause=50,url=2`.
impl FromStr for ClassText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut items = text.split(',').map(|item| item.split_once('='));
        let first = items.next().flatten();
        let (name, number) = first.ok_or("write it as KIND=CONNECTIONS, as in polite=3")?;
        let kind = KINDS.iter().find(|(kind, _)| *kind == name).ok_or_else(|| {
            format!(
                "{name:?} is not a kind of client: the kinds are greedy, pipelined, polite, scheduled, \
                 trickle, slow-read and idle; options of a class are for --class"
            )
        })?;
        let mut class = Self::new(kind.0, connections(number)?);
        for item in items {
            let (option, value) = item.ok_or("write an option of a class as NAME=VALUE")?;
            class.set(option, value).map_err(|error| format!("{option}: {error}"))?;
        }
        if class.burst.is_some_and(|burst| burst > 1) && class.arrivals == Some(Arrivals::Poisson) {
            return Err("burst: bursts are not poisson: leave out one of the two".to_owned());
        }
        if class.kind == "scheduled" && class.rate.is_none() {
            return Err(
                "scheduled clients need a rate: --class scheduled=N,rate=REQUESTS_A_SECOND".into(),
            );
        }
        Ok(class)
    }
}

/// Parses the time between two steps of a slow client.
fn gap(text: &str) -> Result<Duration, String> {
    match milliseconds(text)? {
        gap if gap < Duration::from_millis(1) => Err("must be at least 1 ms".to_owned()),
        gap => Ok(gap),
    }
}

/// Parses the distribution of the requests of an open loop.
pub(super) fn arrivals(text: &str) -> Result<Arrivals, String> {
    match text {
        "even" => Ok(Arrivals::Even),
        "poisson" => Ok(Arrivals::Poisson),
        _ => Err("arrivals must be even or poisson".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULTS: Defaults =
        Defaults { depth: 1, pause: PAUSE_DEFAULT, arrivals: Arrivals::Even, burst: 1 };

    fn class(text: &str) -> Class {
        text.parse::<ClassText>().expect(text).resolved(DEFAULTS)
    }

    #[test]
    fn a_class_is_a_kind_and_a_number() {
        assert_eq!(class("greedy=9"), Class::new(ClientKind::Greedy, 9));
        assert_eq!(class("idle=10000"), Class::new(ClientKind::Idle, 10_000));
        let pause = Duration::from_millis(10);
        assert_eq!(class("polite=1"), Class::new(ClientKind::Polite { pause }, 1));
    }

    #[test]
    fn its_options_stand_behind_it() {
        let kind = ClientKind::Scheduled { rate: 2.5, arrivals: Arrivals::Poisson };
        let expected = Class { depth: 3, url: Some(1), ..Class::new(kind, 4) };
        assert_eq!(class("scheduled=4,rate=2.5,arrivals=poisson,depth=3,url=2"), expected);
        let gap = Duration::from_millis(20);
        assert_eq!(class("trickle=1,gap=20"), Class::new(ClientKind::Trickle { gap }, 1));
        let slow = ClientKind::SlowRead { gap, bytes: 512 };
        assert_eq!(class("slow-read=2,gap=20,bytes=512"), Class::new(slow, 2));
    }

    #[test]
    fn a_pipelined_client_is_deep_by_itself() {
        assert_eq!(class("pipelined=1").depth, DEPTH_DEFAULT);
        assert_eq!(class("pipelined=1,depth=1").depth, 1);
        let deep = Defaults { depth: 4, ..DEFAULTS };
        assert_eq!("pipelined=1".parse::<ClassText>().unwrap().resolved(deep).depth, 4);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_does() {
        for (text, part) in [
            ("greedy", "write it as KIND=CONNECTIONS"),
            ("rude=1", "\"rude\" is not a kind of client: the kinds are greedy, "),
            ("greedy=0", "0 is not in 1..=1000000"),
            ("greedy=-1", "\"-1\" is not a number"),
            ("greedy=1,pause=5", "greedy clients have no \"pause\"; they take: depth, url"),
            ("idle=1,depth", "NAME=VALUE"),
            ("scheduled=1", "need a rate"),
            ("scheduled=1,rate=0", "rate: not a rate that can be kept"),
            ("scheduled=1,rate=1,arrivals=late", "arrivals must be even or poisson"),
            ("slow-read=1,bytes=0", "bytes: 0 is not in 1..=131072"),
        ] {
            let error = text.parse::<ClassText>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
