//! The size of Ruby's heap at the end of a boot, by the command that was booted.

use std::ffi::OsString;

/// The most commands whose heaps a pack describes. A pack is written once for each.
pub const COMMANDS_MAX: usize = 16;

/// The fewest features of a boot whose heap is remembered. A smaller boot collects in no time.
const FEATURES_MIN: u64 = 200;

/// The fewest slots of a heap that is remembered. A smaller heap hardly grows, and is not worth a write of the pack.
const SLOTS_MIN: u64 = 60_000;

/// The most slots that are remembered for each feature of the boot. Rails has 150. A program that loads little code
/// and creates millions of objects is past its boot.
const SLOTS_PER_FEATURE_MAX: u64 = 256;

/// The most size pools of a heap. Ruby 3.3 has five.
const POOLS_MAX: usize = 16;

/// The most bytes of a command's name.
const NAME_BYTES_MAX: usize = 512;

/// The variables that select which part of an application a command loads.
const VARIABLES: [&str; 2] = ["RAILS_ENV", "RACK_ENV"];

/// The number of slots in each size pool of Ruby's heap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeapSize(Vec<u32>);

impl HeapSize {
    /// The size that is remembered of a boot that has loaded so many features; `None` if the boot was too small.
    #[must_use]
    pub fn of_boot(slots: &[u64], features: u64) -> Option<Self> {
        let sum: u64 = slots.iter().sum();
        let most = features.saturating_mul(SLOTS_PER_FEATURE_MAX);
        if features < FEATURES_MIN || sum < SLOTS_MIN || slots.len() > POOLS_MAX {
            return None;
        }
        let share = |slots: &u64| u32::try_from(slots * most.min(sum) / sum).ok();
        slots.iter().map(share).collect::<Option<_>>().map(Self)
    }

    /// Reads a size from a pack; `None` if the bytes are no size.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (slots, rest) = bytes.as_chunks::<4>();
        let is_size = rest.is_empty() && !slots.is_empty() && slots.len() <= POOLS_MAX;
        is_size.then(|| Self(slots.iter().map(|slots| u32::from_le_bytes(*slots)).collect()))
    }

    /// The bytes for a pack.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.0.iter().flat_map(|slots| slots.to_le_bytes()).collect()
    }

    /// The number of slots in each pool, from the smallest objects to the largest.
    pub fn slots(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().copied().map(u64::from)
    }

    /// The number of slots in each pool with which the next boot begins. Between two collections, a heap holds garbage,
    /// too. The second pool has most of it: a boot without collections fills 2.2 times the slots of the other pools,
    /// and 3.9 times those of the second one. More slots save collections, and cost more memory than bootsnap takes.
    pub fn slots_for_boot(&self) -> impl Iterator<Item = u64> + '_ {
        let more = |pool, slots| if pool == 1 { slots / 2 } else { 0 };
        self.slots().enumerate().map(move |(pool, slots)| slots + more(pool, slots))
    }

    /// Whether the heap is larger by half than a heap that began with the size for a boot that `known` gives. A smaller
    /// difference would be that beginning's own.
    #[must_use]
    pub fn has_outgrown(&self, known: &Self) -> bool {
        let (own, known) = (self.slots().sum::<u64>(), known.slots_for_boot().sum::<u64>());
        own * 2 > known * 3
    }
}

/// Returns the name of a command: the script, its first argument if that is the word of a subcommand, and the
/// environment of the application. `words` are those of the process, with the Ruby first.
pub fn command(
    words: impl IntoIterator<Item = OsString>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Vec<u8> {
    let words = words.into_iter().skip(1).map(|word| word.into_encoded_bytes());
    let mut words = words.skip_while(|word| word.starts_with(b"-") && word != b"-e");
    let script = words.next().unwrap_or_default();
    let subcommand = words.next().filter(|word| script != b"-e" && is_subcommand(word));
    let variables = VARIABLES.map(|name| variable(name).map(OsString::into_encoded_bytes));
    let parts = [Some(script), subcommand].into_iter().chain(variables);
    let mut name = parts.map(Option::unwrap_or_default).collect::<Vec<_>>().join(&0);
    name.truncate(NAME_BYTES_MAX);
    name
}

/// Whether a word names a part of a program, like `server` and `db:migrate`, rather than a file.
fn is_subcommand(word: &[u8]) -> bool {
    let is_of_names = |byte: &u8| byte.is_ascii_alphanumeric() || b":_-".contains(byte);
    word.first().is_some_and(u8::is_ascii_lowercase) && word.iter().all(is_of_names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(line: &str, environment: Option<&str>) -> String {
        let words = line.split(' ').map(OsString::from);
        let variable = |name: &str| environment.filter(|_| name == "RAILS_ENV").map(OsString::from);
        String::from_utf8(command(words, variable)).unwrap()
    }

    #[test]
    fn a_command_is_a_script_with_its_subcommand_and_environment() {
        let server = name("ruby -W0 bin/rails server -p 3000", Some("production"));
        assert_eq!(server, "bin/rails\0server\0production\0");
        assert_eq!(server, name("ruby bin/rails server --quiet", Some("production")));
        assert_ne!(server, name("ruby bin/rails server", None));
        assert_ne!(server, name("ruby bin/rails console", Some("production")));
        assert_eq!(name("ruby bin/rspec a_spec.rb", None), name("ruby bin/rspec b_spec.rb", None));
        assert_eq!(name("ruby -e 1 a", None), name("ruby -e 2 b", None));
        assert!(command([OsString::from("ruby"), "x".repeat(9999).into()], |_| None).len() <= 512);
    }

    #[test]
    fn a_size_is_read_as_it_was_written() {
        let size = HeapSize::of_boot(&[150_000, 40_000, 9], 1500).unwrap();
        assert_eq!(size.slots().collect::<Vec<_>>(), [150_000, 40_000, 9]);
        assert_eq!(size.slots_for_boot().collect::<Vec<_>>(), [150_000, 60_000, 9]);
        assert_eq!(HeapSize::decode(&size.encode()), Some(size));
        for bytes in [&[][..], &[1, 2, 3], &[0; 4 * POOLS_MAX + 4]] {
            assert_eq!(HeapSize::decode(bytes), None);
        }
    }

    #[test]
    fn only_a_boot_is_remembered() {
        assert_eq!(HeapSize::of_boot(&[90_000], FEATURES_MIN - 1), None);
        assert_eq!(HeapSize::of_boot(&[50_000, 9_000], 1000), None);
        let jobs = HeapSize::of_boot(&[9_000_000, 1_000_000], 1000).unwrap();
        assert_eq!(jobs.slots().collect::<Vec<_>>(), [230_400, 25_600]);
    }

    #[test]
    fn a_boot_does_not_outgrow_the_size_that_it_began_with() {
        let size = |slots| HeapSize::of_boot(slots, 2000).unwrap();
        let known = size(&[100_000, 40_000]);
        let begun: Vec<_> = known.slots_for_boot().collect();
        assert!(!size(&begun).has_outgrown(&known));
        assert!(!size(&[180_000, 60_000]).has_outgrown(&known));
        assert!(size(&[200_000, 60_000]).has_outgrown(&known));
        assert!(!size(&[60_000, 1000]).has_outgrown(&known));
    }
}
