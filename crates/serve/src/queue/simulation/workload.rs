//! The workload: the shapes of requests, and the times between a client's requests.

use thruway_testing::Random;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Phase {
    /// Microseconds with the interpreter lock.
    Compute(f64),
    /// Microseconds without the lock.
    Wait(f64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Cpu5,
    Sleep50,
    Page,
    /// One request in twenty computes for 80 ms in four phases, with waits in between.
    Tail,
    Short,
}

impl Shape {
    pub(super) const ALL: [Self; 5] =
        [Self::Cpu5, Self::Sleep50, Self::Page, Self::Tail, Self::Short];

    /// The phases of a request, and whether the request is heavy. Durations vary by 5 %, so that equal requests do not
    /// run in step.
    pub(super) fn request(self, random: &mut Random) -> (Vec<Phase>, bool) {
        use Phase::{Compute, Wait};
        let is_heavy = self == Self::Tail && unit(random) < 0.05;
        let mut phases = match self {
            Self::Cpu5 => vec![Compute(5e3)],
            Self::Sleep50 => vec![Wait(50e3)],
            Self::Page => vec![Wait(4e3), Compute(1.5e3), Wait(6e3), Compute(1.5e3)],
            Self::Tail if is_heavy => [Compute(20e3), Wait(10e3)].repeat(4),
            Self::Tail => vec![Compute(1e3), Wait(1e3), Compute(1e3)],
            Self::Short => return (vec![Compute(10.0)], false),
        };
        for phase in &mut phases {
            let (Compute(length_us) | Wait(length_us)) = phase;
            *length_us *= 0.95 + 0.1 * unit(random);
        }
        (phases, is_heavy)
    }
}

/// When a connection's next request arrives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Habit {
    /// The given number of requests is outstanding at any time; the next one follows a moment after a response.
    Greedy(usize),
    /// One request arrives per period of the given microseconds, if the last one was served.
    Every(f64),
    /// Requests arrive as the open loop sends them.
    Open,
}

/// A random number from zero to one.
pub(super) fn unit(random: &mut Random) -> f64 {
    (random.number() >> 11) as f64 / (1_u64 << 53) as f64
}

/// A random pause between two independent arrivals.
pub(super) fn pause_us(random: &mut Random, mean_us: f64) -> f64 {
    -mean_us * (1.0 - unit(random)).ln()
}
