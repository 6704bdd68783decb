//! Ctrl-C in a Windows console, which every program of the console receives.

use std::io;

use windows_sys::Win32::System::Console::SetConsoleCtrlHandler;
use windows_sys::core::BOOL;

/// Makes this process ignore Ctrl-C and Ctrl-Break, so that the program for which it waits decides about them. That
/// program still receives both.
///
/// # Errors
/// Any error of the system.
pub fn leave_interrupts_to_others() -> io::Result<()> {
    // SAFETY: the handler is a function of this program, and may run on any thread.
    let is_set = unsafe { SetConsoleCtrlHandler(Some(is_handled), 1) };
    if is_set == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

extern "system" fn is_handled(event: u32) -> BOOL {
    const CTRL_C: u32 = 0;
    const CTRL_BREAK: u32 = 1;
    BOOL::from(matches!(event, CTRL_C | CTRL_BREAK))
}
