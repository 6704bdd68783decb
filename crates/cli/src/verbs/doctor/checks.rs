//! The result of a check.

/// How a thing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Works,
    /// It is slower, or something else takes its place.
    Limited,
    Broken,
}

impl State {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Works => "ok",
            Self::Limited => "less",
            Self::Broken => "no",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) state: State,
    /// The finding, as a sentence.
    pub(super) told: String,
    /// The cure, if there is one.
    pub(super) cure: Option<String>,
}

impl Check {
    pub(super) fn works(name: &'static str, told: impl Into<String>) -> Self {
        Self { name, state: State::Works, told: told.into(), cure: None }
    }

    pub(super) fn limited(name: &'static str, told: impl Into<String>, cure: &str) -> Self {
        Self { name, state: State::Limited, told: told.into(), cure: Some(cure.to_owned()) }
    }

    pub(super) fn broken(name: &'static str, told: impl Into<String>, cure: &str) -> Self {
        Self { name, state: State::Broken, told: told.into(), cure: Some(cure.to_owned()) }
    }
}
