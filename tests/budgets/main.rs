//! Golden counts: how many questions a task may ask the file system. They repeat exactly on every
//! machine; a change of one is a change of what the project promises.
#![forbid(unsafe_code)]

mod names;
