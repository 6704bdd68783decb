//! Calls of loaded libraries into libc that reach this extension first.
//!
//! A call from one library into another goes through a slot in the caller's import table. Here slots are pointed at
//! functions of ours, which report each call to its observers in the extension, and then make the call. Only the
//! objects whose tables are changed are concerned. Nothing is left in the environment, and a child that is started by
//! `exec` is not affected.
//!
//! Reading order:
//!
//! 1. [`import`]: an imported function, and how slots are pointed at its replacement.
//! 2. [`arguments`]: arguments of interposed calls, as types that are safe to read.
//! 3. [`calls`]: the table of all interposed calls of libc, with the observers of each.
//! 4. [`errno`]: the variable that an observer must leave as it was.
//!
//! On Windows, `windows_calls` and `windows_arguments` take the place of the others.

#[cfg(unix)]
pub(crate) mod arguments;
#[cfg(unix)]
pub(crate) mod calls;
#[cfg(unix)]
pub(crate) mod errno;
pub(crate) mod import;
#[cfg(windows)]
pub(crate) mod windows_arguments;
#[cfg(windows)]
pub(crate) mod windows_calls;
