//! A command that learns: which files it loaded, in which order, and what was complete by then.

use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, OnceLock, PoisonError};

use thruway_boot::Environment;
use thruway_preload::plan::{Cut, Folders, LoadStart, Plan, Run, Variable};
use thruway_preload::template_folder::{KeyFile, TemplateFolder};

use super::post;
use crate::ruby::constants::global;
use crate::ruby::{Gvl, RArray};

static BEGUN: Mutex<Vec<LoadStart>> = Mutex::new(Vec::new());
/// Variables that were changed when the first of Rails' files was begun.
static VARIABLES: OnceLock<Vec<Variable>> = OnceLock::new();
/// The command's arguments at that time.
static ARGUMENTS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();

/// The load path before the command has changed it.
static START: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
/// The load path as it was last, as objects, and what was new in it.
static LAST: Mutex<(Vec<u64>, Option<Folders>)> = Mutex::new((Vec::new(), None));

/// The boot begins.
pub(super) fn begin(gvl: Gvl) {
    if post::learner().is_some() {
        START.get_or_init(|| strings(gvl, c"$LOAD_PATH"));
    }
}

/// Ruby begins to load a file.
pub(crate) fn begun(gvl: Gvl, path: &[u8]) {
    if post::learner().is_none() {
        return;
    }
    if Cut::of(path) > Cut::Gem {
        VARIABLES.get_or_init(post::changed_variables);
        ARGUMENTS.get_or_init(|| strings(gvl, c"$*"));
    }
    let complete = RArray::of(gvl, global(gvl, c"$LOADED_FEATURES"));
    let complete = complete.map_or(0, |features| features.len(gvl));
    let mut all = BEGUN.lock().unwrap_or_else(PoisonError::into_inner);
    all.push(LoadStart { path: path.to_vec(), complete, folders: folders(gvl) });
}

/// What the command has put into the load path. It is looked at anew where it has other objects.
fn folders(gvl: Gvl) -> Folders {
    let Some(now) = RArray::of(gvl, global(gvl, c"$LOAD_PATH")) else { return Folders::default() };
    // SAFETY: it is a global's, and no Ruby code runs while the slice lives.
    let now = unsafe { now.elements() };
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.1.is_none() || last.0 != now {
        let start = START.get().map_or(&[][..], Vec::as_slice);
        *last = (now.to_vec(), Some(Folders::added(&strings(gvl, c"$LOAD_PATH"), start)));
    }
    last.1.clone().unwrap_or_default()
}

/// The command ends: writes down what a template for such commands should load.
pub(crate) fn learn() {
    let Some(post) = post::learner() else { return };
    // SAFETY: Ruby calls what is registered for its end with the lock held.
    let gvl = unsafe { Gvl::assume() };
    let starts = std::mem::take(&mut *BEGUN.lock().unwrap_or_else(PoisonError::into_inner));
    let run = Run {
        starts,
        features: strings(gvl, c"$LOADED_FEATURES"),
        variables: VARIABLES.get().cloned().unwrap_or_default(),
        arguments: ARGUMENTS.get().cloned().unwrap_or_default(),
    };
    let environment = Environment::from_environment(|name| std::env::var_os(name));
    let Ok(folder) = std::env::current_dir() else { return };
    let application = environment.application(&folder).folder;
    let plan = run.plan(application.as_os_str().as_bytes());
    let Ok(place) = TemplateFolder::at(&post.folder) else { return };
    let known = place.read(post.key, KeyFile::Plan).and_then(|bytes| Plan::decoded(&bytes));
    let plan = match known {
        Some(known) => plan.after(known),
        None => plan,
    };
    // Without it there is no template, and nothing else.
    let _ = place.write(post.key, KeyFile::Plan, &plan.encoded());
}

/// The Strings of a global Array.
fn strings(gvl: Gvl, name: &'static CStr) -> Vec<Vec<u8>> {
    RArray::of(gvl, global(gvl, name)).map_or_else(Vec::new, |all| all.strings(gvl))
}
