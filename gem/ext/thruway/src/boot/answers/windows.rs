//! Answers to calls that libruby makes into Windows while it searches for a feature.
//!
//! Ruby queries the attributes of a candidate, and opens the candidate to check that the file is readable. Then Ruby
//! examines each folder above the file, and the file itself, because any of them can be a link (`rb_file_load_ok`,
//! `rb_realpath_internal`). Ruby examines the folders of its load path in the same way. The boot knows the folders, and
//! one look-up tells the file. Calls about the file are answered in exactly this order ([`Walk`]). Any other call
//! reaches Windows, and ends the walk.
//!
//! For `require_relative`, Ruby also looks for the long form of the last component of the path. Where the folder's
//! names have the component letter by letter, or not at all, there is no other form.
//!
//! The handle in an answer belongs to an event object, so that no call on the handle can reach a file.

use std::cell::Cell;
use std::os::windows::io::IntoRawHandle;
use std::sync::OnceLock;

use thruway_boot::listing::NameKind;
use thruway_boot::{Lookup, Part, path};
use thruway_sys::imports::Object;
use thruway_sys::{event, last_error};

use super::current;
use super::search::{self, PathMark, Phase};
use crate::interpose::windows_arguments::WideArgument;
use crate::interpose::windows_arguments::{Handle, OpenArguments};
use crate::interpose::windows_calls;

const SLASH: u16 = b'/' as u16;
const BACKSLASH: u16 = b'\\' as u16;

const DIRECTORY: u32 = 0x10;
const NORMAL: u32 = 0x80;

/// How `rb_file_load_ok` opens a candidate: to read it, not to be removed by others, if it exists.
const CANDIDATE: OpenArguments = OpenArguments {
    access: 0x8000_0000,
    sharing: 3,
    has_security: false,
    disposition: 3,
    flags: NORMAL,
    has_template: false,
};

/// How `lstat` opens a file: with no rights, shared in all ways, if it exists; a folder or a link too.
const EXAMINED: OpenArguments = OpenArguments {
    access: 0,
    sharing: 7,
    has_security: false,
    disposition: 3,
    flags: 0x0200_0000 | 0x0020_0000,
    has_template: false,
};

/// The most units of a path: those of a path that the boot looks up.
const PATH_UNITS_MAX: usize = 260;

/// `INVALID_FILE_ATTRIBUTES`, and the error that goes with it: `ERROR_FILE_NOT_FOUND`.
const NO_ATTRIBUTES: u32 = u32::MAX;
const NOT_FOUND: u32 = 2;

/// The call that Ruby makes next about the file of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Any; none is answered.
    Other,
    /// The candidate is opened.
    Open,
    /// The candidate is closed.
    Close,
    /// A folder above the file is examined, or the file.
    Examine,
}

/// The file that is open to be examined: its attributes, if Ruby has not asked for them yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExaminedFile {
    Nothing,
    Open(u32),
    Described,
}

/// A file that the boot has looked up, and Ruby's progress through the calls about this file.
#[derive(Debug, Clone, Copy)]
struct Walk {
    path: [u16; PATH_UNITS_MAX],
    length: usize,
    /// Whether no link is on the way.
    is_real: bool,
    step: Step,
    examined: ExaminedFile,
}

const NO_WALK: Walk = Walk {
    path: [0; PATH_UNITS_MAX],
    length: 0,
    is_real: false,
    step: Step::Other,
    examined: ExaminedFile::Nothing,
};

thread_local! {
    static WALK: Cell<Walk> = const { Cell::new(NO_WALK) };
    static IS_EXPANDING: Cell<bool> = const { Cell::new(false) };
}

/// The handle that stands for files which were not opened; `None` as long as no call is answered.
static STAND_IN: OnceLock<usize> = OnceLock::new();

/// Starts to answer calls of libruby. Returns whether that is possible.
pub(super) fn begin(libruby: *const ()) -> bool {
    let Ok(event) = event::create() else { return false };
    // It stays open as long as the process.
    let event = event.into_raw_handle();
    let is_possible = Object::containing(libruby).is_some();
    STAND_IN.get_or_init(|| event as usize);
    is_possible && windows_calls::interpose_libruby(libruby).is_ok()
}

/// Whether Ruby is searching for a feature on this thread.
pub(crate) fn is_searching() -> bool {
    search::phase() != Phase::Idle
}

/// Ends the walk and forgets the seen file, because the thread is about to wait for another thread, which may change
/// files.
pub(crate) fn waits() {
    search::forget_file();
    stop();
}

/// Ends the walk of this thread.
pub(super) fn stop() {
    WALK.set(NO_WALK);
}

/// Ruby expands the path of a feature on this thread, without other calls of `FindFirstFileW`.
pub(super) fn expand() {
    IS_EXPANDING.set(true);
}

/// Ruby has expanded the path.
pub(super) fn end_expansion() {
    IS_EXPANDING.set(false);
}

/// Whether the last component of a path that is being expanded has no other form.
pub(crate) fn has_no_other_name(path: WideArgument) -> bool {
    if !IS_EXPANDING.get() {
        return false;
    }
    let text = slashed(path);
    let known =
        current::boot().zip(text).is_some_and(|(boot, path)| boot.files.has_no_other_name(&path));
    known && answered(()).is_some()
}

/// The attributes of a candidate, if it is a file that this process may read, or if it is known to be missing.
pub(crate) fn attributes(path: WideArgument) -> Option<u32> {
    let boot = current::boot().filter(|boot| boot.options.has(Part::Lookups))?;
    if boot.options.portable {
        return None;
    }
    let units = path.units();
    let text = String::from_utf16(units).ok().filter(|_| units.len() < PATH_UNITS_MAX)?;
    let path = text.as_bytes();
    if !is_searching() {
        let is_missing = is_encoding(path) && matches!(boot.files.look_up(path), Lookup::Missing);
        return if is_missing { missing() } else { None };
    }
    stop();
    let mark = PathMark::of(path);
    let look = match search::last_file() {
        Some((seen, file)) if seen == mark => Lookup::File(file),
        _ => boot.files.look_up(path),
    };
    match look {
        Lookup::File(file) => {
            search::record_file(mark, file);
            let real = boot.files.real_path_below(path, true);
            WALK.set(Walk::new(units, real.is_some_and(|real| real == path)));
            answered(NORMAL)
        }
        // A file that was missing when its folder was listed may exist by now.
        Lookup::Missing if search::current().is_settled || boot.files.is_frozen() => missing(),
        Lookup::Missing | Lookup::Undecided => None,
    }
}

fn missing() -> Option<u32> {
    last_error::set(NOT_FOUND);
    answered(NO_ATTRIBUTES)
}

/// Whether Ruby is looking for one of its encodings. Ruby does so in every folder of the load path, and without
/// `require`. Encodings are not installed while a program runs.
fn is_encoding(path: &[u8]) -> bool {
    let folder = path::split(path).filter(|_| path.ends_with(b".so")).map(|(folder, _)| folder);
    folder.is_some_and(|folder| folder.ends_with(b"/enc") || folder.ends_with(b"/enc/trans"))
}

/// The handle of a file that Ruby opens next, according to its walk, or of a folder that is no link.
pub(crate) fn opened(path: WideArgument, opening: OpenArguments) -> Option<Handle> {
    if !is_searching() {
        return None;
    }
    let walk = WALK.get();
    let next = if walk.step == Step::Open && opening == CANDIDATE && walk.is_at(path) {
        Some(Walk { step: Step::Close, ..walk })
    } else if opening != EXAMINED {
        None
    } else if walk.step == Step::Examine && walk.is_real && walk.is_at(path) {
        Some(Walk { examined: ExaminedFile::Open(NORMAL), ..walk })
    } else {
        attributes_of_real(path).map(|found| Walk { examined: ExaminedFile::Open(found), ..walk })
    };
    match next {
        Some(next) => {
            WALK.set(next);
            answered(stand_in()?)
        }
        None => {
            stop();
            None
        }
    }
}

/// The attributes of the file at a path whose components are known not to be links.
fn attributes_of_real(path: WideArgument) -> Option<u32> {
    let boot = current::boot().filter(|boot| boot.options.has(Part::Lookups))?;
    match boot.files.real_kind(&slashed(path)?)? {
        NameKind::Folder => Some(DIRECTORY),
        _ => Some(NORMAL),
    }
}

/// The bytes of a path, with `/` between its components.
fn slashed(path: WideArgument) -> Option<Vec<u8>> {
    let mut path = String::from_utf16(path.units()).ok()?.into_bytes();
    path.iter_mut().filter(|byte| **byte == b'\\').for_each(|byte| *byte = b'/');
    Some(path)
}

/// The attributes of the file that a handle stands for.
pub(crate) fn described(file: Handle) -> Option<u32> {
    let walk = WALK.get();
    let ExaminedFile::Open(attributes) = walk.examined else { return None };
    if Some(file) != stand_in() {
        return None;
    }
    WALK.set(Walk { examined: ExaminedFile::Described, ..walk });
    answered(attributes)
}

/// Whether a handle stands for a file. That handle stays open.
pub(crate) fn closed(handle: Handle) -> bool {
    if Some(handle) != stand_in() {
        return false;
    }
    let walk = WALK.get();
    let is_candidate = walk.step == Step::Close && walk.examined == ExaminedFile::Nothing;
    let step = if is_candidate { Step::Examine } else { walk.step };
    WALK.set(Walk { step, examined: ExaminedFile::Nothing, ..walk });
    true
}

fn stand_in() -> Option<Handle> {
    STAND_IN.get().map(|handle| Handle::of(*handle as *mut std::ffi::c_void))
}

fn answered<T>(answer: T) -> Option<T> {
    if let Some(boot) = current::boot() {
        boot.counts.answered.add(1);
    }
    Some(answer)
}

impl Walk {
    /// `path` has room here.
    fn new(path: &[u16], is_real: bool) -> Self {
        let mut walk = Self { length: path.len(), is_real, step: Step::Open, ..NO_WALK };
        walk.path[..path.len()].copy_from_slice(path);
        walk
    }

    /// Whether `path` is this path, with any separators.
    fn is_at(&self, path: WideArgument) -> bool {
        let with_backslash = |unit: &u16| if *unit == SLASH { BACKSLASH } else { *unit };
        let own = self.path[..self.length].iter().map(with_backslash);
        path.units().iter().map(with_backslash).eq(own)
    }
}
