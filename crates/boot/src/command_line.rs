//! What a Ruby command line switches off before the first line of a program runs.
//!
//! `thruway run` starts Ruby without RubyGems and loads it itself, from the pack. Whoever asked for a
//! Ruby without it, or without one of the parts that come with it, has to get that.

/// The parts that Ruby loads before a program, each of which can be switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// RubyGems; without it none of the others is loaded.
    pub gems: bool,
    /// `error_highlight`.
    pub error_highlight: bool,
    /// `did_you_mean`.
    pub did_you_mean: bool,
    /// `syntax_suggest`, from Ruby 3.2 on.
    pub syntax_suggest: bool,
}

impl Features {
    /// What Ruby loads when nobody says anything.
    pub const ALL: Self =
        Self { gems: true, error_highlight: true, did_you_mean: true, syntax_suggest: true };

    /// Takes in a `RUBYOPT`.
    #[must_use]
    pub fn after_environment(mut self, words: &[u8]) -> Self {
        let words = words.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        self.take(words);
        self
    }

    /// Takes in a command line, program included. It is read as Ruby reads it: up to the name of the
    /// script, the options of which are not Ruby's.
    #[must_use]
    pub fn after_arguments<'a>(mut self, arguments: impl IntoIterator<Item = &'a [u8]>) -> Self {
        self.take(arguments.into_iter().skip(1));
        self
    }

    fn take<'a>(&mut self, mut words: impl Iterator<Item = &'a [u8]>) {
        while let Some(word) = words.next() {
            match word.strip_prefix(b"-") {
                None | Some(b"" | b"-") => return,
                Some(letters) => match letters.strip_prefix(b"-") {
                    Some(long) => self.take_long(long, &mut words),
                    None if wants_next(letters) => drop(words.next()),
                    None => {}
                },
            }
        }
    }

    fn take_long<'a>(&mut self, option: &'a [u8], words: &mut impl Iterator<Item = &'a [u8]>) {
        /// Long options that take the next word if nothing follows a `=`.
        const WITH_VALUE: [&[u8]; 6] = [
            b"encoding",
            b"external-encoding",
            b"internal-encoding",
            b"backtrace-limit",
            b"dump",
            b"parser",
        ];
        for (name, is_on) in [(&b"enable"[..], true), (b"disable", false)] {
            let Some(rest) = option.strip_prefix(name) else { continue };
            let list = match rest.split_first() {
                Some((b'=' | b'-', list)) => Some(list),
                Some(_) => None,
                None => words.next(),
            };
            list.unwrap_or_default()
                .split(|byte| *byte == b',')
                .for_each(|name| self.set(name, is_on));
        }
        if WITH_VALUE.contains(&option) {
            words.next();
        }
    }

    /// Names may be cut short, and `_` be written as `-`; `gem` is another name of `gems`.
    fn set(&mut self, name: &[u8], is_on: bool) {
        let name: Vec<u8> =
            name.iter().map(|byte| if *byte == b'-' { b'_' } else { *byte }).collect();
        let is = |full: &str| !name.is_empty() && full.as_bytes().starts_with(&name);
        let all = is("all");
        for (feature, full) in [
            (&mut self.gems, "gems"),
            (&mut self.error_highlight, "error_highlight"),
            (&mut self.did_you_mean, "did_you_mean"),
            (&mut self.syntax_suggest, "syntax_suggest"),
        ] {
            if all || is(full) {
                *feature = is_on;
            }
        }
    }
}

/// Whether a cluster of one-letter options ends with one whose value is the next word.
fn wants_next(letters: &[u8]) -> bool {
    const ENDS: &[u8] = b"eIrCXEFKWxi0T";
    const TAKES_NEXT: &[u8] = b"eIrCXE";
    match letters.iter().position(|letter| ENDS.contains(letter)) {
        Some(at) => at + 1 == letters.len() && TAKES_NEXT.contains(&letters[at]),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(line: &str) -> Features {
        Features::ALL.after_arguments(line.split(' ').map(str::as_bytes))
    }

    #[test]
    fn everything_is_on_unless_it_is_switched_off() {
        for line in ["ruby", "ruby -e 0", "ruby -w x.rb", "ruby --enable=all x", "ruby --jit x"] {
            assert_eq!(after(line), Features::ALL, "{line}");
        }
    }

    #[test]
    fn every_spelling_is_understood() {
        for line in [
            "ruby --disable-gems x",
            "ruby --disable=gems x",
            "ruby --disable gems x",
            "ruby --disable-gem x",
            "ruby -w -e 0 --disable=did_you_mean,gems",
            "ruby --disable-all x",
            "ruby -W0 -Ilib -r set --disable-gems x",
        ] {
            assert!(!after(line).gems, "{line}");
        }
        let only = after("ruby --disable-did-you-mean --disable=error_highlight x");
        assert_eq!(
            only,
            Features { gems: true, syntax_suggest: true, ..after("ruby --disable-all") }
        );
        assert!(after("ruby --disable-gems --enable-gems x").gems);
    }

    #[test]
    fn the_scripts_own_options_are_not_rubys() {
        for line in [
            "ruby x.rb --disable-gems",
            "ruby -- --disable-gems",
            "ruby - --disable-gems",
            "ruby -e --disable-gems",
            "ruby -we --disable-gems",
            "ruby -I --disable-gems x",
            "ruby --encoding --disable-gems x",
        ] {
            assert!(after(line).gems, "{line}");
        }
    }

    #[test]
    fn the_environment_counts_too() {
        assert!(!Features::ALL.after_environment(b" -W0  --disable-gems ").gems);
        let features = Features::ALL.after_environment(b"--disable=gems");
        assert!(features.after_arguments([&b"ruby"[..], b"--enable=gems"]).gems);
    }
}
