//! A command that learns: which files it loaded, in which order, and what was complete by then.

use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, OnceLock, PoisonError};

use thruway_boot::Environment;
use thruway_preload::place::{Part, Place};
use thruway_preload::plan::{Begun, Plan, Run, Variable, is_environment};

use super::post;
use crate::ruby::constants::global;
use crate::ruby::{Gvl, RArray, RString};

static BEGUN: Mutex<Vec<Begun>> = Mutex::new(Vec::new());
/// Variables that the command had changed when it began Rails' environment.
static VARIABLES: OnceLock<Vec<Variable>> = OnceLock::new();

/// Ruby begins to load a file.
pub(crate) fn begun(gvl: Gvl, path: &[u8]) {
    if post::learner().is_none() {
        return;
    }
    if is_environment(path) {
        VARIABLES.get_or_init(post::changed_variables);
    }
    let complete = RArray::of(gvl, global(gvl, c"$LOADED_FEATURES"));
    // SAFETY: it is a global's, and no Ruby code runs while the slice lives.
    let complete = complete.map_or(0, |features| unsafe { features.elements() }.len());
    let mut all = BEGUN.lock().unwrap_or_else(PoisonError::into_inner);
    all.push(Begun { path: path.to_vec(), complete });
}

/// The command ends: writes down what a template for such commands should load.
pub(crate) fn learn() {
    let Some(post) = post::learner() else { return };
    // SAFETY: Ruby calls what is registered for its end with the lock held.
    let gvl = unsafe { Gvl::assume() };
    let begun = std::mem::take(&mut *BEGUN.lock().unwrap_or_else(PoisonError::into_inner));
    let variables = VARIABLES.get().cloned().unwrap_or_default();
    let run = Run { begun, features: features(gvl), variables };
    let environment = Environment::from_environment(|name| std::env::var_os(name));
    let Ok(folder) = std::env::current_dir() else { return };
    let application = environment.application(&folder);
    let mut plan = run.plan(application.as_os_str().as_bytes());
    let Ok(place) = Place::at(&post.folder) else { return };
    let is_rails = plan.features.last().is_some_and(|path| is_environment(path));
    let known = place.read(post.key, Part::Plan).and_then(|bytes| Plan::decoded(&bytes));
    if let (Some(known), false) = (known, is_rails) {
        // What not every run loads may be another command's.
        let common = known.common(&plan);
        plan = if common.features.is_empty() { plan } else { common };
    }
    // Without it there is no template, and nothing else.
    let _ = place.write(post.key, Part::Plan, &plan.encoded());
}

fn features(gvl: Gvl) -> Vec<Vec<u8>> {
    let Some(features) = RArray::of(gvl, global(gvl, c"$LOADED_FEATURES")) else {
        return Vec::new();
    };
    // SAFETY: it is a global's, and no Ruby code runs while the slice lives.
    let features = unsafe { features.elements() }.iter();
    // SAFETY: as above, for the Strings.
    let bytes = |feature: &u64| Some(unsafe { RString::of(gvl, *feature)?.bytes() }.to_vec());
    features.filter_map(bytes).collect()
}
