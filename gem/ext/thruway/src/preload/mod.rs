//! Templates: a template is a Ruby that has booted, and that forks for each command. See
//! docs/explanation/design/preload.md.
//!
//! Reading order:
//!
//! 1. [`process_role`]: whether this Ruby is a template, a command from which a template is planned, or neither.
//! 2. [`learner`] and [`rake`]: observe a command to plan a template.
//! 3. [`template_calls`], [`questions`] and [`notes`]: note the calls of a template's boot, of which kind each question
//!    about a file is, and the files on which the boot depends.
//! 4. [`effects`]: ends a template before its boot has an effect on other processes.
//! 5. [`native`]: the native methods of `preload_template.rb`.
//! 6. [`guard`]: detects, in a child, that the command would have needed a template with other variables.

mod effects;
mod guard;
mod learner;
mod native;
pub(crate) mod notes;
mod process_role;
mod questions;
mod rake;
pub(crate) mod template_calls;

use crate::interpose::calls;
use crate::ruby::{Gvl, ProtectedCall, RModule};
use thruway_boot::Boot;

pub(crate) use guard::check as check_guard;
pub(crate) use learner::{record_load, write_plan};

/// Defines the methods of a template, in a template only.
pub(crate) fn define(ruby: ProtectedCall, thruway: RModule) {
    process_role::take(ruby.gvl());
    learner::begin(ruby.gvl());
    if process_role::is_template() {
        native::define(ruby, thruway);
    }
}

/// Starts to note the boot's questions to the disk, in a template. Called before the first question.
pub(crate) fn begin_notes(_: Gvl, boot: &Boot) {
    if process_role::is_template() {
        questions::prepare();
        notes::begin();
        boot.files.observe(notes::observe);
    }
}

/// Observes the calls of all loaded libraries, in a template. Called when the boot has started.
pub(crate) fn observe_calls() {
    if process_role::is_template() {
        calls::observe_loaded_objects();
    }
}
