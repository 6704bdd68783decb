//! `thruway serve`: serves a folder or a Rack application.

mod acme;
mod folder;
mod options;
mod puma;
mod ruby;

use std::path::Path;

use thruway_serve::monotonic_us;

use crate::output::Answer;
pub(crate) use acme::{AGENT_VERB, AcmeOptions};
pub(crate) use options::Serve;
pub(crate) use puma::advise;

impl Serve {
    pub(crate) fn run(self) -> Answer {
        let started_us = monotonic_us();
        if is_application(&self.target) {
            ruby::run(&self, started_us)
        } else {
            self.refuse_what_needs_an_application()?;
            folder::run(&self, started_us)
        }
    }
}

/// Whether Ruby serves `target`: a file, a folder with a `config.ru`, or a path that ends in `.ru`.
fn is_application(target: &Path) -> bool {
    let is_file = |path: &Path| path.metadata().is_ok_and(|metadata| !metadata.is_dir());
    let is_rackup = target.extension().is_some_and(|suffix| suffix == "ru");
    is_rackup || is_file(target) || is_file(&target.join("config.ru"))
}
