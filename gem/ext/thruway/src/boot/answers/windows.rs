//! Answers to calls that libruby makes into Windows while it searches for a feature.
//!
//! Ruby queries the attributes of a candidate, and opens the candidate to check that the file is readable. Then Ruby
//! examines each folder above the file, and the file itself, because any of them can be a link (`rb_file_load_ok`,
//! `rb_realpath_internal`). The boot knows all these answers after a single look-up. It therefore answers these calls,
//! in exactly this order ([`Walk`]). Any other call reaches Windows, and ends the walk.
//!
//! The handle in an answer belongs to an event object, so that no call on the handle can reach a file.

use std::cell::Cell;
use std::os::windows::io::IntoRawHandle;
use std::sync::OnceLock;

use thruway_boot::{Lookup, Part};
use thruway_sys::event;
use thruway_sys::imports::Object;

use super::current;
use super::search::{self, PathMark, Phase};
use crate::interpose::windows_arguments::WideArgument;
use crate::interpose::windows_arguments::{Handle, OpenArguments};
use crate::interpose::windows_calls;

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
/// The length of a root such as `C:\`.
const ROOT_UNITS: usize = 3;

const SLASH: u16 = b'/' as u16;
const BACKSLASH: u16 = b'\\' as u16;

/// The call that Ruby makes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Any; none is answered.
    Other,
    /// The candidate is opened.
    Open,
    /// The candidate is closed.
    Close,
    /// The part of the path before this place is opened, to be examined.
    Examine(usize),
    /// The part that is open is described.
    Describe(usize),
    /// The part that is open is closed.
    CloseExamined(usize),
}

/// A file that the boot has looked up, and Ruby's progress through the calls about this file.
#[derive(Debug, Clone, Copy)]
struct Walk {
    /// The path, with `\` between its components.
    path: [u16; PATH_UNITS_MAX],
    length: usize,
    /// Whether no link is on the way.
    is_real: bool,
    step: Step,
}

const NO_WALK: Walk =
    Walk { path: [0; PATH_UNITS_MAX], length: 0, is_real: false, step: Step::Other };

thread_local! {
    static WALK: Cell<Walk> = const { Cell::new(NO_WALK) };
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
    search::forget();
    stop();
}

/// Ends the walk of this thread.
pub(super) fn stop() {
    advance(Step::Other);
}

/// The attributes of a candidate, if it is a file that this process may read.
pub(crate) fn attributes(path: WideArgument) -> Option<u32> {
    if !is_searching() {
        return None;
    }
    stop();
    let boot = current::boot().filter(|boot| boot.options.has(Part::Lookups))?;
    let units = path.units();
    let text = String::from_utf16(units).ok().filter(|_| units.len() < PATH_UNITS_MAX)?;
    let mark = PathMark::of(text.as_bytes());
    let file = match search::seen() {
        Some((seen, file)) if seen == mark => file,
        _ => match boot.files.look_up(text.as_bytes()) {
            Lookup::File(file) => file,
            Lookup::Missing | Lookup::Undecided => return None,
        },
    };
    search::see(mark, file);
    let real = boot.files.real_path_below(text.as_bytes(), true);
    let is_real = real.is_some_and(|real| real == text.as_bytes());
    WALK.set(Walk::new(units, is_real));
    answered(NORMAL)
}

/// The handle of a file that Ruby opens next, according to its walk.
pub(crate) fn opened(path: WideArgument, opening: OpenArguments) -> Option<Handle> {
    if !is_searching() {
        return None;
    }
    let walk = WALK.get();
    let next = match walk.step {
        Step::Open if opening == CANDIDATE && walk.is_at(path, walk.length) => Step::Close,
        Step::Examine(end) if opening == EXAMINED && walk.is_at(path, end) => Step::Describe(end),
        _ => {
            stop();
            return None;
        }
    };
    advance(next);
    answered(stand_in()?)
}

/// The attributes of the file that a handle stands for.
pub(crate) fn described(file: Handle) -> Option<u32> {
    let walk = WALK.get();
    let Step::Describe(end) = walk.step else { return None };
    if Some(file) != stand_in() {
        return None;
    }
    advance(Step::CloseExamined(end));
    answered(if end == walk.length { NORMAL } else { DIRECTORY })
}

/// Whether a handle stands for a file. That handle stays open.
pub(crate) fn closed(handle: Handle) -> bool {
    if Some(handle) != stand_in() {
        return false;
    }
    let walk = WALK.get();
    advance(match walk.step {
        Step::Close if walk.is_real => walk.examine_after(ROOT_UNITS),
        Step::CloseExamined(end) if end < walk.length => walk.examine_after(end + 1),
        _ => Step::Other,
    });
    true
}

fn stand_in() -> Option<Handle> {
    STAND_IN.get().map(|handle| Handle::of(*handle as *mut std::ffi::c_void))
}

fn advance(step: Step) {
    WALK.set(Walk { step, ..WALK.get() });
}

fn answered<T>(answer: T) -> Option<T> {
    if let Some(boot) = current::boot() {
        boot.counts.answered.add(1);
    }
    Some(answer)
}

impl Walk {
    /// `path` has room here, and `/` between its components.
    fn new(path: &[u16], is_real: bool) -> Self {
        let mut walk = Self { length: path.len(), is_real, step: Step::Open, ..NO_WALK };
        walk.path[..path.len()].copy_from_slice(path);
        walk.path.iter_mut().filter(|unit| **unit == SLASH).for_each(|unit| *unit = BACKSLASH);
        walk
    }

    /// Whether `path` is the part of this path before `end`.
    fn is_at(&self, path: WideArgument, end: usize) -> bool {
        let with_backslash = |unit: &u16| if *unit == SLASH { BACKSLASH } else { *unit };
        path.units().iter().map(with_backslash).eq(self.path[..end].iter().copied())
    }

    /// Ruby examines the component that begins at `start`.
    fn examine_after(&self, start: usize) -> Step {
        let rest = &self.path[start..self.length];
        let end = rest.iter().position(|unit| *unit == BACKSLASH);
        Step::Examine(end.map_or(self.length, |end| start + end))
    }
}
