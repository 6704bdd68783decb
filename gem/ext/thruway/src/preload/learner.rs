//! A command that learns: which files it loaded, in which order, and what was complete by then.

use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, OnceLock, PoisonError};

use thruway_boot::Environment;
use thruway_preload::place::{Part, Place};
use thruway_preload::plan::{Begun, Cut, Plan, Run, Variable};

use super::post;
use crate::ruby::constants::global;
use crate::ruby::{Gvl, RArray, RString};

static BEGUN: Mutex<Vec<Begun>> = Mutex::new(Vec::new());
/// Variables that were changed when the first of Rails' files was begun.
static VARIABLES: OnceLock<Vec<Variable>> = OnceLock::new();

/// Ruby begins to load a file.
pub(crate) fn begun(gvl: Gvl, path: &[u8]) {
    if post::learner().is_none() {
        return;
    }
    if Cut::of(path) > Cut::Gem {
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
    let plan = run.plan(application.as_os_str().as_bytes());
    let Ok(place) = Place::at(&post.folder) else { return };
    let known = place.read(post.key, Part::Plan).and_then(|bytes| Plan::decoded(&bytes));
    let plan = match known {
        Some(known) => plan.after(known),
        None => plan,
    };
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
