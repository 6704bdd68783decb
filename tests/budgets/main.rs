//! Golden counts: how many questions a task may ask the system. They repeat exactly on every
//! machine; a change of one is a change of what the project promises.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod boot;
#[cfg(target_os = "linux")]
mod load;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod mount;
mod names;
#[cfg(target_os = "linux")]
mod serve;

/// Who mounts changes the table of mounts, which a watched index follows: one at a time.
#[cfg(target_os = "linux")]
static MOUNT_TABLE: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(target_os = "linux")]
fn mount_table() -> std::sync::MutexGuard<'static, ()> {
    MOUNT_TABLE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
