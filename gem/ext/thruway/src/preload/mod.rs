//! Templates: a template is a Ruby that has booted, and that forks for each command. See
//! docs/explanation/design/preload.md.
//!
//! Reading order:
//!
//! 1. [`post`]: the role of this Ruby.
//! 2. [`learner`] and [`rake`]: observe a command to plan a template.
//! 3. [`noted`], [`questions`] and [`notes`]: the questions to the disk on which a template's boot depends.
//! 4. [`acts`]: ends a template that is about to act.
//! 5. [`native`]: the native methods of `preload_template.rb`.
//! 6. [`guard`]: detects a child that would need another boot.

mod acts;
mod guard;
mod learner;
mod native;
pub(crate) mod noted;
pub(crate) mod notes;
mod post;
mod questions;
mod rake;

use crate::interpose::calls;
use crate::ruby::{Gvl, ProtectedCall, RModule};
use thruway_boot::Boot;

pub(crate) use guard::check as check_guard;
pub(crate) use learner::{begun, learn};

/// Defines the methods of a template, in a template only.
pub(crate) fn define(ruby: ProtectedCall, thruway: RModule) {
    post::take(ruby.gvl());
    learner::begin(ruby.gvl());
    if post::is_template() {
        native::define(ruby, thruway);
    }
}

/// Starts to take notes at the start of the boot, before its first question.
pub(crate) fn begin(_: Gvl, boot: &Boot) {
    if post::is_template() {
        questions::prepare();
        notes::begin();
        boot.files.observe(notes::observe);
    }
}

/// Observes calls of all loaded libraries in a template. Called at the end of the start of the boot.
pub(crate) fn watch() {
    if post::is_template() {
        calls::observe_loaded_objects();
    }
}
