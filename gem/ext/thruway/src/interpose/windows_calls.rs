//! The calls of libruby into Windows that are interposed while Ruby searches for a feature. The
//! [boot](crate::boot) answers some of them; all others go on to Windows.

use std::ffi::c_void;
use std::io;

use thruway_sys::imports::Object;

use super::import::{imports, replace};
use super::windows_arguments::{Handle, InformationArgument, OpenArguments, WideArgument};
use crate::boot::answers;

imports! { CALLS:
    GET_FILE_ATTRIBUTES c"GetFileAttributesW" get_file_attributes: GetFileAttributes;
    CREATE_FILE c"CreateFileW" create_file: CreateFile;
    GET_INFORMATION c"GetFileInformationByHandle" get_information: GetInformation;
    CLOSE_HANDLE c"CloseHandle" close_handle: CloseHandle;
    WAIT_FOR_ONE c"WaitForSingleObject" wait_for_one: WaitForOne;
    WAIT_FOR_MANY c"WaitForMultipleObjects" wait_for_many: WaitForMany;
}

type GetFileAttributes = unsafe extern "system" fn(WideArgument) -> u32;
type CreateFile = unsafe extern "system" fn(
    WideArgument,
    u32,
    u32,
    *const c_void,
    u32,
    u32,
    *const c_void,
) -> Handle;
type GetInformation = unsafe extern "system" fn(Handle, InformationArgument) -> i32;
type CloseHandle = unsafe extern "system" fn(Handle) -> i32;
type WaitForOne = unsafe extern "system" fn(Handle, u32) -> u32;
type WaitForMany = unsafe extern "system" fn(u32, *const Handle, i32, u32) -> u32;

/// The result of a wait that has ended because the time was over.
const WAIT_TIMEOUT: u32 = 258;

/// Points the imports of libruby at the replacements.
///
/// # Errors
/// The DLL of Ruby cannot be found, lacks one of these imports, or its import table cannot be written.
pub(crate) fn interpose_libruby(libruby: *const ()) -> io::Result<()> {
    let object = Object::containing(libruby).ok_or(io::ErrorKind::NotFound)?;
    if CALLS.iter().any(|call| object.slots(call.name()).is_empty()) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    replace(&object, CALLS.iter().copied())
}

unsafe extern "system" fn get_file_attributes(path: WideArgument) -> u32 {
    if let Some(attributes) = answers::attributes(path) {
        return attributes;
    }
    // SAFETY: this function runs, so the import was replaced.
    let original = unsafe { GET_FILE_ATTRIBUTES.original() };
    // SAFETY: the arguments are those of the caller.
    unsafe { original(path) }
}

unsafe extern "system" fn create_file(
    path: WideArgument,
    access: u32,
    sharing: u32,
    security: *const c_void,
    disposition: u32,
    flags: u32,
    template: *const c_void,
) -> Handle {
    let (has_security, has_template) = (!security.is_null(), !template.is_null());
    let opening = OpenArguments { access, sharing, has_security, disposition, flags, has_template };
    if let Some(handle) = answers::opened(path, opening) {
        return handle;
    }
    // SAFETY: this function runs, so the import was replaced.
    let original = unsafe { CREATE_FILE.original() };
    // SAFETY: the arguments are those of the caller.
    unsafe { original(path, access, sharing, security, disposition, flags, template) }
}

unsafe extern "system" fn get_information(file: Handle, result: InformationArgument) -> i32 {
    if let Some(attributes) = answers::described(file) {
        result.write(attributes);
        return 1;
    }
    // SAFETY: this function runs, so the import was replaced.
    let original = unsafe { GET_INFORMATION.original() };
    // SAFETY: the arguments are those of the caller.
    unsafe { original(file, result) }
}

unsafe extern "system" fn close_handle(handle: Handle) -> i32 {
    if answers::closed(handle) {
        return 1;
    }
    // SAFETY: this function runs, so the import was replaced.
    let original = unsafe { CLOSE_HANDLE.original() };
    // SAFETY: the arguments are those of the caller.
    unsafe { original(handle) }
}

/// Ruby waits whenever it takes the interpreter lock, hardly ever for long. A wait that would not end at once is told
/// from the others by a first one without time, which has the same effect if it succeeds.
unsafe extern "system" fn wait_for_one(object: Handle, time_ms: u32) -> u32 {
    // SAFETY: this function runs, so the import was replaced.
    let original = unsafe { WAIT_FOR_ONE.original() };
    if answers::is_searching() {
        // SAFETY: the handle is that of the caller.
        let result = unsafe { original(object, 0) };
        if result != WAIT_TIMEOUT || time_ms == 0 {
            return result;
        }
        answers::waits();
    }
    // SAFETY: the arguments are those of the caller.
    unsafe { original(object, time_ms) }
}

/// As [`wait_for_one`].
unsafe extern "system" fn wait_for_many(
    count: u32,
    objects: *const Handle,
    all: i32,
    time_ms: u32,
) -> u32 {
    // SAFETY: this function runs, so the import was replaced.
    let original = unsafe { WAIT_FOR_MANY.original() };
    if answers::is_searching() {
        // SAFETY: the handles are those of the caller.
        let result = unsafe { original(count, objects, all, 0) };
        if result != WAIT_TIMEOUT || time_ms == 0 {
            return result;
        }
        answers::waits();
    }
    // SAFETY: the arguments are those of the caller.
    unsafe { original(count, objects, all, time_ms) }
}
