//! Calls of loaded libraries into libc that reach this extension first.
//!
//! A call from one library into another goes through a slot in the caller's import table. Here slots are pointed at
//! functions of ours, which report a call to the parts of the extension that observe it, and hand it on. Only the
//! objects whose tables are changed are concerned. Nothing is left in the environment, and a child that is started
//! by `exec` is not affected.
//!
//! Reading order:
//!
//! 1. [`import`]: an imported function, and how slots are pointed at its replacement.
//! 2. [`arguments`]: arguments of interposed calls, as types that are safe to read.
//! 3. [`calls`]: the table of all interposed calls of libc, with the observers of each.
//! 4. [`errno`]: the variable that an observer must leave as it was.

pub(crate) mod arguments;
pub(crate) mod calls;
pub(crate) mod errno;
pub(crate) mod import;
