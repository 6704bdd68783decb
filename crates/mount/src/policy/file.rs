//! The file of a policy.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thruway_sys::printable;

use super::Policy;
use super::text::parse;
use crate::Error;

/// The text of a policy, which is known to have no errors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyFile {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl PolicyFile {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// The file cannot be read or has an error; the message gives line and column.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path)
            .map_err(|cause| Error::new("cannot read the policy", path, cause))?;
        let file = Self { path: path.to_owned(), text };
        file.policy().map(|_| file)
    }

    pub(crate) fn policy(&self) -> Result<Policy, Error> {
        parse(&self.text).map_err(|fault| {
            Error::plain(format_args!("in the policy {}, {fault}", printable::path(&self.path)))
                .with_hint("a policy with an error is rejected as a whole")
        })
    }
}
