//! Observes a command from which a template is planned: the files that it loads, their order, and the features that
//! were complete at each.

use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, OnceLock, PoisonError};

use thruway_boot::Environment;
use thruway_preload::plan::{Cut, Folders, LoadStart, Plan, RakeState, Run, Variable};
use thruway_preload::template_folder::{KeyFile, TemplateFolder};

use super::{process_role, rake};
use crate::ruby::constants::global;
use crate::ruby::{Gvl, RArray};

/// The observations of a command from which a template is planned, made with the interpreter lock held.
struct LearnerState {
    /// The files that have begun to load, in order.
    starts: Mutex<Vec<LoadStart>>,
    /// The variables that differed when the first of Rails' files began to load.
    variables: OnceLock<Vec<Variable>>,
    /// The command's arguments at that time.
    arguments: OnceLock<Vec<Vec<u8>>>,
    /// The state of Rake's application at that time.
    rake: OnceLock<RakeState>,
    /// The load path before the command changes it.
    start_load_path: OnceLock<Vec<Vec<u8>>>,
    /// The last load path, as objects, and the folders that it added.
    last_load_path: Mutex<(Vec<u64>, Option<Folders>)>,
}

static STATE: LearnerState = LearnerState {
    starts: Mutex::new(Vec::new()),
    variables: OnceLock::new(),
    arguments: OnceLock::new(),
    rake: OnceLock::new(),
    start_load_path: OnceLock::new(),
    last_load_path: Mutex::new((Vec::new(), None)),
};

/// Records the load path at the start of the boot.
pub(super) fn begin(gvl: Gvl) {
    if process_role::learner().is_some() {
        STATE.start_load_path.get_or_init(|| strings(gvl, c"$LOAD_PATH"));
    }
}

/// Records a file that Ruby begins to load.
pub(crate) fn record_load(gvl: Gvl, path: &[u8]) {
    if process_role::learner().is_none() {
        return;
    }
    if Cut::of(path) > Cut::Gem {
        STATE.variables.get_or_init(process_role::changed_variables);
        STATE.arguments.get_or_init(|| strings(gvl, c"$*"));
        STATE.rake.get_or_init(|| rake::state(gvl));
    }
    let complete = RArray::of(gvl, global(gvl, c"$LOADED_FEATURES"));
    let complete = complete.map_or(0, |features| features.len(gvl));
    let mut all = STATE.starts.lock().unwrap_or_else(PoisonError::into_inner);
    all.push(LoadStart { path: path.to_vec(), complete, folders: folders(gvl) });
}

/// The folders that the command has added to the load path. They are computed again when the load path holds other
/// objects.
fn folders(gvl: Gvl) -> Folders {
    let Some(now) = RArray::of(gvl, global(gvl, c"$LOAD_PATH")) else { return Folders::default() };
    // SAFETY: the Array is a global, and no Ruby code runs while the slice lives.
    let now = unsafe { now.elements() };
    let mut last = STATE.last_load_path.lock().unwrap_or_else(PoisonError::into_inner);
    if last.1.is_none() || last.0 != now {
        let start = STATE.start_load_path.get().map_or(&[][..], Vec::as_slice);
        *last = (now.to_vec(), Some(Folders::added(&strings(gvl, c"$LOAD_PATH"), start)));
    }
    last.1.clone().unwrap_or_default()
}

/// Writes the plan of a template for such commands, at the end of the command.
pub(crate) fn write_plan() {
    let Some(assignment) = process_role::learner() else { return };
    // SAFETY: Ruby holds the lock when it calls the functions of its exit.
    let gvl = unsafe { Gvl::assume() };
    let starts = std::mem::take(&mut *STATE.starts.lock().unwrap_or_else(PoisonError::into_inner));
    let run = Run {
        starts,
        features: strings(gvl, c"$LOADED_FEATURES"),
        variables: STATE.variables.get().cloned().unwrap_or_default(),
        arguments: STATE.arguments.get().cloned().unwrap_or_default(),
        rake: STATE.rake.get().cloned().unwrap_or_default(),
    };
    let environment = Environment::from_environment(|name| std::env::var_os(name));
    let Ok(folder) = std::env::current_dir() else { return };
    let application = environment.application(&folder).folder;
    let plan = run.plan(application.as_os_str().as_bytes());
    let Ok(place) = TemplateFolder::at(&assignment.folder) else { return };
    let known = place.read(assignment.key, KeyFile::Plan).and_then(|bytes| Plan::decoded(&bytes));
    let plan = match known {
        Some(known) => plan.after(known),
        None => plan,
    };
    // If the plan cannot be written, there is no template, and nothing else is lost.
    let _ = place.write(assignment.key, KeyFile::Plan, &plan.encoded());
}

/// The Strings of an Array in a global variable.
fn strings(gvl: Gvl, name: &'static CStr) -> Vec<Vec<u8>> {
    RArray::of(gvl, global(gvl, name)).map_or_else(Vec::new, |all| all.strings(gvl))
}
