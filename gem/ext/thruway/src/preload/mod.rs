//! Templates: a Ruby that has booted, and is forked for each command. See docs/explanation/design/preload.md.
//!
//! Reading order:
//!
//! 1. [`post`]: what this Ruby is to be.
//! 2. [`learner`]: a command that says what it loads.
//! 3. [`calls`], [`questions`] and [`notes`]: what a template's boot asks.
//! 4. [`native`]: the parts of `preload_template.rb` that Ruby has no methods for.
//! 5. [`guard`]: a child that would need another boot.

mod calls;
mod guard;
mod learner;
mod native;
mod notes;
mod post;
mod questions;

use crate::ruby::{Gvl, Protected, RModule};
use thruway_boot::Boot;

pub(crate) use guard::check as check_guard;
pub(crate) use learner::{begun, learn};

/// What is defined in a template alone.
pub(crate) fn define(ruby: Protected, thruway: RModule) {
    post::take(ruby.gvl());
    learner::begin(ruby.gvl());
    if post::is_template() {
        native::define(ruby, thruway);
    }
}

/// The boot begins: before it has asked anything.
pub(crate) fn begin(_: Gvl, boot: &Boot) {
    if post::is_template() {
        questions::prepare();
        notes::begin();
        boot.files.observe(notes::observe);
    }
}

/// The boot has pointed libruby's calls where it wants them: a template sees them before that.
pub(crate) fn watch() {
    if post::is_template() {
        calls::install();
    }
}
