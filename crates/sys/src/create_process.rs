//! Starts another program on Windows.

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::os::windows::io::{AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle, RawHandle};
use std::ptr;

use windows_sys::Win32::Foundation::{
    DUPLICATE_SAME_ACCESS, DuplicateHandle, INVALID_HANDLE_VALUE, WAIT_FAILED, WAIT_OBJECT_0,
};
use windows_sys::Win32::System::Console::{
    GetStdHandle, STD_ERROR_HANDLE, STD_INPUT_HANDLE, STD_OUTPUT_HANDLE,
};
use windows_sys::Win32::System::Threading::{
    CREATE_NEW_PROCESS_GROUP, CREATE_UNICODE_ENVIRONMENT, CreateProcessW,
    DeleteProcThreadAttributeList, EXTENDED_STARTUPINFO_PRESENT, GetCurrentProcess,
    GetExitCodeProcess, INFINITE, InitializeProcThreadAttributeList,
    PROC_THREAD_ATTRIBUTE_HANDLE_LIST, PROCESS_INFORMATION, STARTF_USESTDHANDLES, STARTUPINFOEXW,
    TerminateProcess, UpdateProcThreadAttribute, WaitForSingleObject,
};

/// A program's path, command line and surroundings. Strings are UTF-16 and end in NUL.
#[derive(Debug)]
pub struct Create<'a> {
    /// The path of the program.
    pub application: &'a [u16],
    /// The command line that the program receives.
    pub command_line: Vec<u16>,
    /// Sorted entries of the form `NAME=value`, each with a NUL, and a final NUL; `None` inherits the environment.
    pub environment: Option<&'a [u16]>,
    /// The program's current folder; `None` inherits the folder.
    pub folder: Option<&'a [u16]>,
    /// The program's standard handles; `None` inherits the handle.
    pub stdio: [Option<BorrowedHandle<'a>>; 3],
    /// Whether the program starts a new process group, which Ctrl-C does not reach.
    pub new_group: bool,
}

/// A program that was started.
#[derive(Debug)]
pub struct Process {
    handle: OwnedHandle,
    id: u32,
}

impl Create<'_> {
    /// Starts the program, which inherits the three standard handles and no others.
    ///
    /// # Errors
    /// Any error of the system, and `InvalidInput` for a string that does not end in NUL.
    pub fn start(mut self) -> io::Result<Process> {
        let texts =
            [Some(self.application), Some(&self.command_line), self.environment, self.folder];
        if texts.into_iter().flatten().any(|text| text.last() != Some(&0)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let own = [STD_INPUT_HANDLE, STD_OUTPUT_HANDLE, STD_ERROR_HANDLE];
        let mut stdio = [const { None }; 3];
        for ((copy, given), own) in stdio.iter_mut().zip(self.stdio).zip(own) {
            *copy = inheritable(given, own)?;
        }
        let inherited: Vec<_> = stdio.iter().flatten().map(AsRawHandle::as_raw_handle).collect();
        let handle_list = HandleList::new(&inherited)?;
        let startup = startup(&stdio, &handle_list);
        let group = if self.new_group { CREATE_NEW_PROCESS_GROUP } else { 0 };
        let mut information = MaybeUninit::<PROCESS_INFORMATION>::uninit();
        // SAFETY: every string ends in NUL, and the command line is writable. The startup information and the memory
        // that it points to outlive the call.
        let started = unsafe {
            CreateProcessW(
                self.application.as_ptr(),
                self.command_line.as_mut_ptr(),
                ptr::null(),
                ptr::null(),
                i32::from(!handle_list.handles.is_empty()),
                group | CREATE_UNICODE_ENVIRONMENT | EXTENDED_STARTUPINFO_PRESENT,
                self.environment.map_or(ptr::null(), |block| block.as_ptr().cast()),
                self.folder.map_or(ptr::null(), <[u16]>::as_ptr),
                (&raw const startup).cast(),
                information.as_mut_ptr(),
            )
        };
        check(started)?;
        // SAFETY: the call succeeded, so it initialised the structure.
        let information = unsafe { information.assume_init() };
        // SAFETY: the call created the handle, and nothing else owns it.
        drop(unsafe { OwnedHandle::from_raw_handle(information.hThread) });
        // SAFETY: as above.
        let handle = unsafe { OwnedHandle::from_raw_handle(information.hProcess) };
        Ok(Process { handle, id: information.dwProcessId })
    }
}

impl Process {
    /// Returns the process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Waits for the end of the program and returns its exit code.
    ///
    /// # Errors
    /// Any error of the system.
    pub fn wait(&self) -> io::Result<u32> {
        self.ended_within(INFINITE)?.ok_or_else(|| io::ErrorKind::TimedOut.into())
    }

    /// Returns the exit code if the program has ended.
    ///
    /// # Errors
    /// Any error of the system.
    pub fn try_wait(&self) -> io::Result<Option<u32>> {
        self.ended_within(0)
    }

    fn ended_within(&self, milliseconds: u32) -> io::Result<Option<u32>> {
        // SAFETY: the handle is open.
        match unsafe { WaitForSingleObject(self.handle.as_raw_handle(), milliseconds) } {
            WAIT_OBJECT_0 => {}
            WAIT_FAILED => return Err(io::Error::last_os_error()),
            _ => return Ok(None),
        }
        let mut code = 0;
        // SAFETY: the handle is open, and there is room for the code.
        check(unsafe { GetExitCodeProcess(self.handle.as_raw_handle(), &raw mut code) })?;
        Ok(Some(code))
    }

    /// Ends the program with exit code 1.
    ///
    /// # Errors
    /// Any error of the system.
    pub fn terminate(&self) -> io::Result<()> {
        // SAFETY: the handle is open.
        check(unsafe { TerminateProcess(self.handle.as_raw_handle(), 1) })
    }
}

fn check(result: i32) -> io::Result<()> {
    if result != 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns an inheritable copy of `given`, or of this process's own standard handle without `given`. Returns `None` if
/// this process has no such handle.
fn inheritable(given: Option<BorrowedHandle<'_>>, own: u32) -> io::Result<Option<OwnedHandle>> {
    let handle = match given {
        Some(given) => given.as_raw_handle(),
        // SAFETY: the call takes a plain number.
        None => unsafe { GetStdHandle(own) },
    };
    if handle.is_null() || handle == INVALID_HANDLE_VALUE {
        return Ok(None);
    }
    // SAFETY: the call has no preconditions.
    let process = unsafe { GetCurrentProcess() };
    let mut copy = ptr::null_mut();
    // SAFETY: the handle is open, and there is room for the copy.
    let copied = unsafe {
        DuplicateHandle(process, handle, process, &raw mut copy, 0, 1, DUPLICATE_SAME_ACCESS)
    };
    check(copied)?;
    // SAFETY: the call created the handle, and nothing else owns it.
    Ok(Some(unsafe { OwnedHandle::from_raw_handle(copy) }))
}

fn startup(stdio: &[Option<OwnedHandle>; 3], handle_list: &HandleList<'_>) -> STARTUPINFOEXW {
    let raw =
        |copy: &Option<OwnedHandle>| copy.as_ref().map_or(ptr::null_mut(), |c| c.as_raw_handle());
    let mut startup = STARTUPINFOEXW::default();
    startup.StartupInfo.cb = size_of::<STARTUPINFOEXW>() as u32;
    startup.StartupInfo.dwFlags = STARTF_USESTDHANDLES;
    [
        startup.StartupInfo.hStdInput,
        startup.StartupInfo.hStdOutput,
        startup.StartupInfo.hStdError,
    ] = stdio.each_ref().map(raw);
    startup.lpAttributeList = handle_list.list();
    startup
}

/// The list of handles that a program inherits.
struct HandleList<'a> {
    /// The list in the system's layout; empty if no handle is inherited.
    room: Vec<u64>,
    /// The handles that the list points to.
    handles: &'a [RawHandle],
}

impl<'a> HandleList<'a> {
    fn new(handles: &'a [RawHandle]) -> io::Result<Self> {
        if handles.is_empty() {
            return Ok(Self { room: Vec::new(), handles });
        }
        let mut bytes = 0;
        // SAFETY: without a list, the call only reports the size that a list needs.
        unsafe { InitializeProcThreadAttributeList(ptr::null_mut(), 1, 0, &raw mut bytes) };
        let mut room = vec![0_u64; bytes.div_ceil(size_of::<u64>())];
        // SAFETY: the buffer has the size that the system reported.
        check(unsafe {
            InitializeProcThreadAttributeList(room.as_mut_ptr().cast(), 1, 0, &raw mut bytes)
        })?;
        let list = Self { room, handles };
        // SAFETY: the list is initialised for one attribute, and the handles outlive it.
        check(unsafe {
            UpdateProcThreadAttribute(
                list.list(),
                0,
                PROC_THREAD_ATTRIBUTE_HANDLE_LIST as usize,
                handles.as_ptr().cast(),
                size_of_val(handles),
                ptr::null_mut(),
                ptr::null(),
            )
        })?;
        Ok(list)
    }

    fn list(&self) -> *mut c_void {
        if self.room.is_empty() { ptr::null_mut() } else { self.room.as_ptr().cast_mut().cast() }
    }
}

impl Drop for HandleList<'_> {
    fn drop(&mut self) {
        if !self.room.is_empty() {
            // SAFETY: the list was initialised, and is not used again.
            unsafe { DeleteProcThreadAttributeList(self.list()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::windows_folders::system;
    use std::io::Read;
    use std::os::windows::ffi::OsStrExt;
    use std::os::windows::io::AsHandle;

    fn wide(text: &str) -> Vec<u16> {
        text.encode_utf16().chain([0]).collect()
    }

    fn cmd() -> Vec<u16> {
        system().unwrap().join("cmd.exe").as_os_str().encode_wide().chain([0]).collect()
    }

    fn create<'a>(application: &'a [u16], line: &str) -> Create<'a> {
        Create {
            application,
            command_line: wide(line),
            environment: None,
            folder: None,
            stdio: [None; 3],
            new_group: false,
        }
    }

    #[test]
    fn a_program_runs_and_its_exit_code_is_returned() {
        let cmd = cmd();
        let process = create(&cmd, "cmd /d /c exit 7").start().unwrap();
        assert!(process.id() != 0);
        assert_eq!(process.wait().unwrap(), 7);
        assert_eq!(process.try_wait().unwrap(), Some(7));
    }

    #[test]
    fn its_output_its_folder_and_its_environment_are_given() {
        let (cmd, folder) = (cmd(), wide(r"C:\windows"));
        let environment: Vec<u16> = "A=1\0SystemRoot=C:\\windows\0\0".encode_utf16().collect();
        let (mut reader, writer) = io::pipe().unwrap();
        let create = Create {
            environment: Some(&environment),
            folder: Some(&folder),
            stdio: [None, Some(writer.as_handle()), None],
            ..create(&cmd, "cmd /d /c \"echo %A%&cd\"")
        };
        let process = create.start().unwrap();
        drop(writer);
        let mut output = String::new();
        reader.read_to_string(&mut output).unwrap();
        assert_eq!(output.to_lowercase(), "1\r\nc:\\windows\r\n");
        assert_eq!(process.wait().unwrap(), 0);
    }

    #[test]
    fn a_missing_program_is_an_error() {
        let none = wide(r"C:\none.exe");
        let error = create(&none, "none").start().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(2));
        let without_nul = [u16::from(b'a')];
        assert!(create(&without_nul, "a").start().is_err());
    }

    #[test]
    fn a_program_can_be_ended() {
        let cmd = cmd();
        let (_reader, stays_open) = io::pipe().unwrap();
        let stdio = [Some(_reader.as_handle()), None, None];
        let process = Create { stdio, ..create(&cmd, "cmd /d /c set /p A=") }.start().unwrap();
        assert_eq!(process.try_wait().unwrap(), None);
        process.terminate().unwrap();
        assert_eq!(process.wait().unwrap(), 1);
        drop(stays_open);
    }
}
