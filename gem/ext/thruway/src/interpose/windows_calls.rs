//! The interposed calls of libruby into Windows. The [boot](crate::boot) answers some of them while Ruby searches for
//! a feature. Others report that this process has changed a file, or may have learned of a change. All calls that are
//! not answered go on to Windows.
//!
//! Functions of the C library are declared like those of Windows, since 64-bit systems have a single calling
//! convention.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::io;
use std::sync::atomic::Ordering;
use std::time::Instant;

use thruway_sys::imports::Object;
use thruway_sys::{file_type, last_error};

use super::import::{Import, Replaceable, imports, replace};
use super::windows_arguments::{
    Handle, InformationArgument, OpenArguments, ProcedureName, WideArgument,
};
use crate::boot::{answers, changes, outside};

imports! { ANSWERED:
    GET_FILE_ATTRIBUTES c"GetFileAttributesW" get_file_attributes: GetFileAttributes;
    CREATE_FILE c"CreateFileW" create_file: CreateFile;
    GET_INFORMATION c"GetFileInformationByHandle" get_information: GetInformation;
    CLOSE_HANDLE c"CloseHandle" close_handle: CloseHandle;
    FIND_FIRST_FILE c"FindFirstFileW" find_first_file: FindFirstFile;
    WAIT_FOR_ONE c"WaitForSingleObject" wait_for_one: WaitForOne;
    WAIT_FOR_MANY c"WaitForMultipleObjects" wait_for_many: WaitForMany;
    GET_PROC_ADDRESS c"GetProcAddress" get_proc_address: GetProcAddress;
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
type FindFirstFile = unsafe extern "system" fn(WideArgument, *mut c_void) -> Handle;
type WaitForOne = unsafe extern "system" fn(Handle, u32) -> u32;
type WaitForMany = unsafe extern "system" fn(u32, *const Handle, i32, u32) -> u32;
type GetProcAddress = unsafe extern "system" fn(*const c_void, ProcedureName) -> *mut c_void;

/// Functions that change files or receive messages, and that have no replacement here. A libruby that imports one of
/// them is an unknown version, and is not interposed, because the boot would miss changes.
const UNOBSERVED: [&CStr; 28] = [
    c"CopyFileA",
    c"CopyFileExW",
    c"CopyFileW",
    c"CreateDirectoryA",
    c"CreateDirectoryExW",
    c"CreateFile2",
    c"CreateHardLinkA",
    c"CreateProcessA",
    c"CreateSymbolicLinkA",
    c"CreateSymbolicLinkW",
    c"DeleteFileA",
    c"MoveFileA",
    c"MoveFileExA",
    c"MoveFileW",
    c"RemoveDirectoryA",
    c"ReplaceFileW",
    c"SetFileAttributesA",
    c"SetFileInformationByHandle",
    c"SleepEx",
    c"WaitForMultipleObjectsEx",
    c"WaitForSingleObjectEx",
    c"_open",
    c"_unlink",
    c"_wrename",
    c"_wunlink",
    c"fopen",
    c"rename",
    c"system",
];

/// The result of a wait whose time limit has passed.
const WAIT_TIMEOUT: u32 = 258;
/// `ERROR_FILE_NOT_FOUND`
const NOT_FOUND: u32 = 2;

/// Points the imports of libruby at the replacements. `libruby` is any address in libruby.
///
/// # Errors
/// Ruby's DLL cannot be found, lacks an import to answer, imports a call that would have to be observed, or its
/// import table cannot be written.
pub(crate) fn interpose_libruby(libruby: *const ()) -> io::Result<()> {
    let object = Object::containing(libruby).ok_or(io::ErrorKind::NotFound)?;
    let has = |name: &CStr| !object.slots(name).is_empty();
    if ANSWERED.iter().any(|call| !has(call.name())) || UNOBSERVED.iter().any(|name| has(name)) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    replace(&object, ANSWERED.iter().chain(OBSERVED).copied())
}

/// Defines the replacement of each function that is only observed: `after` runs when the function has returned, with
/// its result.
macro_rules! observed {
    ($($place:ident $symbol:literal $function:ident($($name:ident: $type:ty),* $(,)?) -> $result:ty
        { $after:expr })*) => {
        $(
            static $place: Import<unsafe extern "system" fn($($type),*) -> $result> =
                // SAFETY: the types are those of the function. The replacement hands each call on.
                unsafe { Import::new($symbol, $function) };

            unsafe extern "system" fn $function($($name: $type),*) -> $result {
                // SAFETY: this function runs, so the import was replaced.
                let original = unsafe { $place.original() };
                // SAFETY: the arguments are those of the caller.
                let result = unsafe { original($($name),*) };
                last_error::kept(|| ($after)(result));
                result
            }
        )*

        static OBSERVED: &[&dyn Replaceable] = &[$(&$place),*];
    };
}

observed! {
    // Changes of files.
    MOVE_FILE c"MoveFileExW" move_file(from: WideArgument, to: WideArgument, flags: u32) -> i32 {
        |moved| if moved != 0 { changes::changed(from); changes::changed(to) }
    }
    DELETE_FILE c"DeleteFileW" delete_file(path: WideArgument) -> i32 {
        |deleted| if deleted != 0 { changes::changed(path) }
    }
    CREATE_DIRECTORY c"CreateDirectoryW" create_directory(path: WideArgument, security: *const c_void)
        -> i32 {
        |created| if created != 0 { changes::changed(path) }
    }
    REMOVE_DIRECTORY c"RemoveDirectoryW" remove_directory(path: WideArgument) -> i32 {
        |removed| if removed != 0 { changes::changed(path) }
    }
    CREATE_HARD_LINK c"CreateHardLinkW" create_hard_link(path: WideArgument, file: WideArgument,
        security: *const c_void) -> i32 {
        |created| if created != 0 { changes::changed(path) }
    }
    CREATE_SYMBOLIC_LINK c"CreateSymbolicLinkW" create_symbolic_link(path: WideArgument,
        target: WideArgument, flags: u32) -> u8 {
        |created| if created != 0 { changes::changed(path) }
    }
    SET_ATTRIBUTES c"SetFileAttributesW" set_attributes(path: WideArgument, attributes: u32) -> i32 {
        |set| if set != 0 { changes::edited(path) }
    }
    SET_INFORMATION c"SetFileInformationByHandle" set_information(file: Handle, kind: c_int,
        information: *const c_void, size: u32) -> i32 {
        |_| changes::changed_somewhere()
    }
    OPEN c"_wopen" open(path: WideArgument, flags: c_int, mode: c_int) -> c_int {
        |descriptor| if descriptor != -1 { changes::opened_by_flags(path, flags) }
    }
    REOPEN c"_wfreopen" reopen(path: WideArgument, mode: WideArgument, stream: *mut c_void)
        -> *mut c_void {
        |_| changes::opened_as_stream(path)
    }
    REOPEN_SAFELY c"_wfreopen_s" reopen_safely(result: *mut *mut c_void, path: WideArgument,
        mode: WideArgument, stream: *mut c_void) -> c_int {
        |_| changes::opened_as_stream(path)
    }
    CHANGE_MODE c"_wchmod" change_mode(path: WideArgument, mode: c_int) -> c_int {
        |failed| if failed == 0 { changes::edited(path) }
    }
    REMOVE c"remove" remove(path: *const c_void) -> c_int {
        |_| changes::changed_somewhere()
    }
    CLOSE c"_close" close(descriptor: c_int) -> c_int {
        |_| changes::closed()
    }

    // Reading, and waiting.
    READ_FILE c"ReadFile" read_file(file: Handle, data: *mut c_void, length: u32, read: *mut u32,
        overlapped: *mut c_void) -> i32 {
        |_| if !file_type::is_on_disk(file.number()) { outside::heard() }
    }
    READ c"_read" read(descriptor: c_int, data: *mut c_void, length: c_uint) -> c_int {
        |_| if !file_type::is_descriptor_on_disk(descriptor) { outside::heard() }
    }
    GET_RESULT c"GetOverlappedResult" get_result(file: Handle, overlapped: *mut c_void,
        length: *mut u32, waits: i32) -> i32 {
        |_| if !file_type::is_on_disk(file.number()) { outside::heard() }
    }
    PEEK_PIPE c"PeekNamedPipe" peek_pipe(pipe: Handle, data: *mut c_void, size: u32, read: *mut u32,
        available: *mut u32, left: *mut u32) -> i32 {
        |_| outside::heard()
    }
    READ_CONSOLE c"ReadConsoleInputA" read_console(console: Handle, records: *mut c_void, count: u32,
        read: *mut u32) -> i32 {
        |_| outside::heard()
    }
    READ_CONSOLE_WIDE c"ReadConsoleInputW" read_console_wide(console: Handle, records: *mut c_void,
        count: u32, read: *mut u32) -> i32 {
        |_| outside::heard()
    }
    LOCK c"LockFileEx" lock(file: Handle, flags: u32, reserved: u32, low: u32, high: u32,
        overlapped: *mut c_void) -> i32 {
        |_| outside::heard()
    }
    SLEEP c"Sleep" sleep(time_ms: u32) -> () {
        |()| if time_ms > 0 { outside::heard() }
    }

    // Sockets.
    SELECT c"select" select(count: c_int, read: *mut c_void, write: *mut c_void, other: *mut c_void,
        time: *const c_void) -> c_int {
        |_| outside::heard()
    }
    RECEIVE c"recv" receive(socket: usize, data: *mut c_void, length: c_int, flags: c_int) -> c_int {
        |_| outside::heard()
    }
    RECEIVE_FROM c"recvfrom" receive_from(socket: usize, data: *mut c_void, length: c_int,
        flags: c_int, address: *mut c_void, size: *mut c_int) -> c_int {
        |_| outside::heard()
    }
    WSA_RECEIVE c"WSARecv" wsa_receive(socket: usize, buffers: *mut c_void, count: u32,
        length: *mut u32, flags: *mut u32, overlapped: *mut c_void, routine: *const c_void) -> c_int {
        |_| outside::heard()
    }
    WSA_RECEIVE_FROM c"WSARecvFrom" wsa_receive_from(socket: usize, buffers: *mut c_void, count: u32,
        length: *mut u32, flags: *mut u32, address: *mut c_void, size: *mut c_int,
        overlapped: *mut c_void, routine: *const c_void) -> c_int {
        |_| outside::heard()
    }
    WSA_GET_RESULT c"WSAGetOverlappedResult" wsa_get_result(socket: usize, overlapped: *mut c_void,
        length: *mut u32, waits: i32, flags: *mut u32) -> i32 {
        |_| outside::heard()
    }
    ACCEPT c"accept" accept(socket: usize, address: *mut c_void, size: *mut c_int) -> usize {
        |_| outside::heard()
    }
    CONNECT c"connect" connect(socket: usize, address: *const c_void, size: c_int) -> c_int {
        |_| outside::heard()
    }

    // Processes.
    CREATE_PROCESS c"CreateProcessW" create_process(program: WideArgument, line: *mut c_void,
        process_security: *const c_void, thread_security: *const c_void, inherits: i32, flags: u32,
        environment: *const c_void, folder: WideArgument, start: *const c_void,
        process: *mut c_void) -> i32 {
        |_| outside::met_child()
    }
    GET_EXIT_CODE c"GetExitCodeProcess" get_exit_code(process: Handle, code: *mut u32) -> i32 {
        |_| outside::met_child()
    }
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
    let file = unsafe { original(path, access, sharing, security, disposition, flags, template) };
    if file != Handle::INVALID {
        last_error::kept(|| changes::opened(path, opening));
    }
    file
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
    let result = unsafe { original(handle) };
    last_error::kept(changes::closed);
    result
}

/// Ruby looks up the long form of a name's last component. To Ruby, a name that is already long and a missing name
/// are the same.
unsafe extern "system" fn find_first_file(path: WideArgument, result: *mut c_void) -> Handle {
    if answers::has_no_other_name(path) {
        last_error::set(NOT_FOUND);
        return Handle::INVALID;
    }
    // SAFETY: this function runs, so the import was replaced.
    let original = unsafe { FIND_FIRST_FILE.original() };
    // SAFETY: the arguments are those of the caller.
    unsafe { original(path, result) }
}

/// Ruby waits whenever it takes the interpreter lock, rarely for long. A first call with a timeout of zero recognises
/// waits that end at once, and has the same effect as the real call if it succeeds.
unsafe extern "system" fn wait_for_one(object: Handle, time_ms: u32) -> u32 {
    // SAFETY: this function runs, so the import was replaced.
    let original = unsafe { WAIT_FOR_ONE.original() };
    // SAFETY: the handle is that of the caller.
    wait(time_ms, |time_ms| unsafe { original(object, time_ms) })
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
    // SAFETY: the handles are those of the caller.
    wait(time_ms, |time_ms| unsafe { original(count, objects, all, time_ms) })
}

/// Waits by `original`, first with a timeout of zero. A wait that does not end at once is reported to the boot, which
/// then looks for changes by other processes.
fn wait(time_ms: u32, original: impl Fn(u32) -> u32) -> u32 {
    let result = original(0);
    if result != WAIT_TIMEOUT || time_ms == 0 {
        return result;
    }
    if answers::is_searching() {
        answers::waits();
    }
    let begin = Instant::now();
    let result = original(time_ms);
    last_error::kept(|| outside::waited_since(begin));
    result
}

/// Ruby looks up the functions that older versions of Windows lack.
unsafe extern "system" fn get_proc_address(
    library: *const c_void,
    name: ProcedureName,
) -> *mut c_void {
    // SAFETY: this function runs, so the import was replaced.
    let original = unsafe { GET_PROC_ADDRESS.original() };
    // SAFETY: the arguments are those of the caller.
    let function = unsafe { original(library, name) };
    let late: [&dyn Replaceable; 2] = [&CREATE_SYMBOLIC_LINK, &SET_INFORMATION];
    match late.into_iter().find(|import| name.is(import.name())) {
        Some(import) if !function.is_null() => {
            import.original_address().store(function, Ordering::Release);
            import.replacement_address()
        }
        _ => function,
    }
}
