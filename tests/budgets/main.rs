//! Golden counts: how many questions a task may ask the system. They repeat exactly on every
//! machine; a change of one is a change of what the project promises.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod boot;
#[cfg(target_os = "linux")]
mod cli;
#[cfg(target_os = "linux")]
mod load;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod mount;
mod names;
#[cfg(target_os = "linux")]
mod preload;
#[cfg(target_os = "linux")]
mod serve;
#[cfg(target_os = "linux")]
mod trace;
