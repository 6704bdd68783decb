//! Random numbers that are the same on every machine.

/// Marsaglia's xorshift generator. A test can name its cases by their seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates a generator with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // A state of zero would stay zero, and small seeds would start with similar numbers.
        Self((0x9E37_79B9_7F4A_7C15 ^ seed).max(1))
    }

    /// Creates a generator with the seed in the variable `THRUWAY_SEED`, or 0.
    #[must_use]
    pub fn from_environment() -> Self {
        Self::new(setting("THRUWAY_SEED", 0))
    }

    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `limit`, or 0 if `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.number() >> 11) as usize % limit.max(1)
    }
}

/// Returns the number in an environment variable, such as `THRUWAY_CASES`.
///
/// # Panics
/// If the variable is not a number.
#[must_use]
pub fn setting(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect(variable))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_names_its_numbers() {
        let numbers = |seed| {
            let mut random = Random::new(seed);
            [1000; 8].map(|limit| random.below(limit))
        };
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
        assert!(numbers(0x9E37_79B9_7F4A_7C15).iter().any(|number| *number != 0));
    }
}
