//! The options of a boot, read from `THRUWAY_BOOT` and `THRUWAY_PACK`.

use std::ffi::OsStr;
use std::path::PathBuf;

/// The prefix of the word that carries the ID of the reporting process.
const EXPLAINED: &str = "explained-process-";

/// The parts of the boot that can be disabled individually.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// Answers to the look-ups of `require`.
    Lookups,
    /// Compiled code.
    Code,
    /// Compiled gemspecs.
    Gems,
    /// The content of YAML files.
    Yaml,
    /// The content of JSON files.
    Json,
    /// The content of time zones' files.
    Zones,
    /// The size with which Ruby's heap begins.
    Heap,
}

impl Part {
    /// All parts, in the order of their documentation.
    pub const ALL: [Self; 7] =
        [Self::Lookups, Self::Code, Self::Gems, Self::Yaml, Self::Json, Self::Zones, Self::Heap];

    /// The part's name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lookups => "lookups",
            Self::Code => "code",
            Self::Gems => "gems",
            Self::Yaml => "yaml",
            Self::Json => "json",
            Self::Zones => "zones",
            Self::Heap => "heap",
        }
    }
}

/// When the content of a pack is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trust {
    /// A file's stamp is compared at each use, a folder's once per process.
    #[default]
    Validated,
    /// Like `Validated`, but a file with a different stamp is read and its digest compared. For machines that
    /// check out the same sources anew each time.
    Digest,
    /// Folder times are compared once at the start; after that there are no queries.
    Frozen,
    /// Nothing is compared: files and pack belong to one image.
    Image,
}

/// The options of a boot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// The path of the pack, if it is not the application's own.
    pub pack: Option<PathBuf>,
    /// When the pack is trusted.
    pub trust: Trust,
    /// Whether the pack stays unchanged and nothing is learned.
    pub read_only: bool,
    /// Whether libruby's calls to libc are left alone. The boot then turns names into paths, and Ruby
    /// performs all other queries.
    pub portable: bool,
    /// The disabled parts.
    pub without: Vec<Part>,
    /// Whether a report is printed at exit.
    pub explain: bool,
    /// The process that prints the report. Programs started by this process print none.
    pub explained_process: Option<u32>,
    /// The amount of allocation, in megabytes, before which Ruby does not collect garbage.
    pub gc_after_mb: Option<u32>,
    /// Whether the boot is disabled as a whole.
    pub off: bool,
}

impl Options {
    /// Parses the options. Unknown words are ignored, since the environment may come from another version.
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

    /// Returns the words for `THRUWAY_BOOT` from which [`from_environment`](Self::from_environment) reads the
    /// same options; empty for the defaults.
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

    /// Returns the words with `process` as the reporting process, if a report is wanted and no process is
    /// set.
    #[must_use]
    pub fn words_explaining(words: &OsStr, process: u32) -> Option<String> {
        let mut options = Self::from_environment(Some(words), None);
        let is_asked = options.explain && options.explained_process.is_none();
        is_asked.then(|| {
            options.explained_process = Some(process);
            options.words()
        })
    }

    /// Whether a part is enabled.
    #[must_use]
    pub fn has(&self, part: Part) -> bool {
        !self.without.contains(&part)
    }

    /// Whether the pack is trusted without queries to the disk.
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
