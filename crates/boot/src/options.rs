//! How a boot is to go: what `THRUWAY_BOOT` and `THRUWAY_PACK` say.

use std::ffi::OsStr;
use std::path::PathBuf;

/// Before the number of the process that gives the report.
const EXPLAINED: &str = "explained-process-";

/// The parts that can be left out one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// Answers to `require`'s look-ups.
    Lookups,
    /// Compiled code.
    Code,
    /// Compiled gemspecs.
    Gems,
    /// What YAML files say.
    Yaml,
    /// What JSON files say.
    Json,
}

impl Part {
    /// All parts, in the order in which they are listed.
    pub const ALL: [Self; 5] = [Self::Lookups, Self::Code, Self::Gems, Self::Yaml, Self::Json];

    /// The part's name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lookups => "lookups",
            Self::Code => "code",
            Self::Gems => "gems",
            Self::Yaml => "yaml",
            Self::Json => "json",
        }
    }
}

/// When what a pack says is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trust {
    /// A file's stamp is compared each time it is used, a folder's once a process.
    #[default]
    Validated,
    /// As validated, but a file with another stamp is read and its digest compared: for machines
    /// that check the same sources out anew each time.
    Digest,
    /// The folders' times are compared once, at the start; after that nothing is asked.
    Frozen,
    /// Nothing is compared: the files are part of an image, as the pack is.
    Image,
}

/// How a boot is to go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// The pack, if it is not the application's own.
    pub pack: Option<PathBuf>,
    /// When the pack is believed.
    pub trust: Trust,
    /// Whether the pack stays as it is: nothing is learned.
    pub read_only: bool,
    /// Whether libruby's calls into libc are left alone: names become paths, and Ruby asks the rest.
    pub portable: bool,
    /// Parts that are left to Ruby.
    pub without: Vec<Part>,
    /// Whether a report is printed at exit.
    pub explain: bool,
    /// The process of which the report is, once one has begun; programs that it starts give none.
    pub explained_process: Option<u32>,
    /// Ruby collects no garbage until the program has asked for that many megabytes.
    pub gc_after_mb: Option<u32>,
    /// Everything is left to Ruby.
    pub off: bool,
}

impl Options {
    /// Reads the options; words that are not known are left out, since an environment may come from
    /// another version.
    #[must_use]
    pub fn from_environment(words: Option<&OsStr>, pack: Option<&OsStr>) -> Self {
        let mut options =
            Self { pack: pack.filter(|p| !p.is_empty()).map(PathBuf::from), ..Self::default() };
        let words = words.map(OsStr::to_string_lossy).unwrap_or_default();
        for word in words.split(',') {
            match word {
                "off" => options.off = true,
                "explain" => options.explain = true,
                "read-only" => options.read_only = true,
                "portable" => options.portable = true,
                "digest" => options.trust = Trust::Digest,
                "frozen" => options.trust = Trust::Frozen,
                "trust-image" => options.trust = Trust::Image,
                word if word.starts_with(EXPLAINED) => {
                    options.explained_process = word[EXPLAINED.len()..].parse().ok();
                }
                word if word.starts_with("gc-after-") => {
                    options.gc_after_mb = word["gc-after-".len()..].parse().ok();
                }
                word => {
                    let part = word.strip_prefix("without-");
                    let part = Part::ALL.into_iter().find(|known| Some(known.name()) == part);
                    options.without.extend(part);
                }
            }
        }
        options
    }

    /// The words for the environment, such that [`from_environment`](Self::from_environment) reads
    /// the same options; empty for the default ones.
    #[must_use]
    pub fn words(&self) -> String {
        let mut words = Vec::new();
        match self.trust {
            Trust::Validated => {}
            Trust::Digest => words.push("digest".to_owned()),
            Trust::Frozen => words.push("frozen".to_owned()),
            Trust::Image => words.push("trust-image".to_owned()),
        }
        words.extend(self.read_only.then(|| "read-only".to_owned()));
        words.extend(self.portable.then(|| "portable".to_owned()));
        words.extend(self.without.iter().map(|part| format!("without-{}", part.name())));
        words.extend(self.gc_after_mb.map(|megabytes| format!("gc-after-{megabytes}")));
        words.extend(self.explain.then(|| "explain".to_owned()));
        words.extend(self.explained_process.map(|process| format!("{EXPLAINED}{process}")));
        words.extend(self.off.then(|| "off".to_owned()));
        words.join(",")
    }

    /// The words as they are for `process`, if they ask for a report and no process is named yet.
    #[must_use]
    pub fn words_explaining(words: &OsStr, process: u32) -> Option<String> {
        let mut options = Self::from_environment(Some(words), None);
        let is_asked = options.explain && options.explained_process.is_none();
        is_asked.then(|| {
            options.explained_process = Some(process);
            options.words()
        })
    }

    /// Whether a part is used.
    #[must_use]
    pub fn has(&self, part: Part) -> bool {
        !self.without.contains(&part)
    }

    /// Whether the disk is asked about nothing that the pack knows.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        matches!(self.trust, Trust::Frozen | Trust::Image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &str) -> Options {
        Options::from_environment(Some(OsStr::new(words)), None)
    }

    #[test]
    fn options_are_read_as_they_were_written() {
        for trust in [Trust::Validated, Trust::Digest, Trust::Frozen, Trust::Image] {
            let (without, gc_after_mb) = (Part::ALL.to_vec(), Some(64));
            let options = Options {
                trust,
                without,
                gc_after_mb,
                read_only: true,
                portable: true,
                explain: true,
                explained_process: Some(7),
                ..Options::default()
            };
            assert_eq!(read(&options.words()), options);
        }
        assert_eq!(Options::default().words(), "");
        assert!(read("off").off);
    }

    #[test]
    fn a_report_that_is_asked_for_is_of_one_process() {
        let explaining = |words: &str| Options::words_explaining(OsStr::new(words), 7);
        assert_eq!(
            explaining("digest,explain").as_deref(),
            Some("digest,explain,explained-process-7")
        );
        assert_eq!(explaining("explain,explained-process-5"), None);
        assert_eq!(explaining("digest"), None);
    }

    #[test]
    fn unknown_words_are_left_out() {
        assert_eq!(read("fly,without-wings,,explain").words(), "explain");
    }

    #[test]
    fn an_empty_pack_is_none() {
        assert_eq!(Options::from_environment(None, Some(OsStr::new(""))), Options::default());
        let options = Options::from_environment(None, Some(OsStr::new("/a.pack")));
        assert_eq!(options.pack, Some("/a.pack".into()));
    }
}
