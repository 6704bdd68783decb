//! The ways in which a command boots.

/// A way to boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Plain,
    Packed,
    Frozen,
    Preloaded,
}

/// The ways that are compared with plain Ruby.
pub(super) const COMPARED: [Way; 3] = [Way::Packed, Way::Frozen, Way::Preloaded];

impl Way {
    /// Returns the words in front of a command.
    pub(super) fn verb(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &[],
            Self::Packed => &["run", "--explain"],
            Self::Frozen => &["run", "--explain", "--frozen"],
            Self::Preloaded => &["run", "--explain", "--preload"],
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Packed => "packed",
            Self::Frozen => "frozen",
            Self::Preloaded => "preloaded",
        }
    }

    /// Whether features are loaded in the order of plain Ruby. A template loads some of them in advance.
    pub(super) fn keeps_order(self) -> bool {
        self != Self::Preloaded
    }

    /// Reads in the output of `--explain` how a command booted. Returns a description, whether the command booted in
    /// this way, and whether further starts would boot as this one did.
    pub(super) fn kind(self, errors: &str) -> (String, bool, bool) {
        let said =
            |prefix| errors.lines().filter_map(move |line| line.strip_prefix(prefix)).next_back();
        match self {
            Self::Plain => ("plain".to_owned(), true, true),
            Self::Packed | Self::Frozen => {
                let counts = errors.lines().filter_map(counts).max();
                let Some((packed, compiled)) = counts else {
                    return ("it did not say what came from the pack".to_owned(), false, false);
                };
                // A first boot compiles more than it finds in the pack.
                (format!("{packed} from the pack, {compiled} compiled"), packed > compiled, false)
            }
            Self::Preloaded => {
                let how = said("thruway: preload: ").unwrap_or("not said").to_owned();
                let is_fork = how.starts_with("forked");
                let is_final = ["there is no template: ", "cannot be asked", "root does not run"];
                let is_final = is_final.iter().any(|words| how.contains(words));
                (if is_fork { "fork".to_owned() } else { how }, is_fork, is_final)
            }
        }
    }
}

/// Parses the two numbers in `thruway: 1105 features from the pack, 3 compiled`.
fn counts(line: &str) -> Option<(u64, u64)> {
    let rest = line.strip_prefix("thruway: ")?;
    let (packed, rest) = rest.split_once(" features from the pack, ")?;
    let compiled = rest.split(' ').next()?;
    Some((packed.parse().ok()?, compiled.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_boot_is_not_one_from_the_pack() {
        let kind = |errors| Way::Packed.kind(errors);
        assert!(!kind("thruway: 0 features from the pack, 1105 compiled\n").1);
        let (how, is_right, _) =
            kind("a warning\nthruway: 1105 features from the pack, 3 compiled\n");
        assert_eq!((how.as_str(), is_right), ("1105 from the pack, 3 compiled", true));
        assert!(!kind("an error").1);
    }

    #[test]
    fn a_command_that_will_never_fork_is_not_started_again() {
        let kind = |errors| Way::Preloaded.kind(errors);
        assert_eq!(
            kind("thruway: preload: forked from template 7\n"),
            ("fork".into(), true, false)
        );
        let how = "booted, since there is no template: the boot starts a thread";
        let said = format!("thruway: preload: {how}\n");
        assert_eq!(kind(&said), (how.into(), false, true));
        assert!(!kind("thruway: preload: booted, since a template is being made\n").2);
    }
}
