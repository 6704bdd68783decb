//! Whether a process is at rest: all of its threads sleep.
//!
//! A fast machine's request meets a thread still looking for work; a slow machine's wakes a sleeping thread. The two
//! take different numbers of instructions. So each request is sent to a server at rest.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest time for a server below callgrind to come to rest. It takes milliseconds; a busy machine takes more.
const REST_MAX: Duration = Duration::from_secs(60);

/// How often each thread has left the processor, by its id. `None` while one of them runs or wants to.
type Switches = Option<BTreeMap<PathBuf, String>>;

/// Waits until all threads of the process sleep. They are read one by one, so one of them may run in the meantime.
/// Two readings with the same counts of context switches show that none did.
pub(crate) fn wait(pid: u32) -> std::io::Result<()> {
    let tasks = PathBuf::from(format!("/proc/{pid}/task"));
    let start = Instant::now();
    let mut before = None;
    loop {
        let now = switches(&tasks)?;
        if now.is_some() && now == before {
            return Ok(());
        }
        if start.elapsed() > REST_MAX {
            return Err(Error::new(ErrorKind::TimedOut, "its threads do not come to rest"));
        }
        before = now;
        std::thread::yield_now();
    }
}

fn switches(tasks: &Path) -> std::io::Result<Switches> {
    let mut switches = BTreeMap::new();
    for task in std::fs::read_dir(tasks)? {
        let path = task?.path();
        // A thread that has ended meanwhile runs no longer.
        let Ok(status) = std::fs::read_to_string(path.join("status")) else { return Ok(None) };
        match asleep(&status) {
            Some(counts) => switches.insert(path, counts),
            None => return Ok(None),
        };
    }
    Ok(Some(switches))
}

/// The lines with the counts of context switches of a thread that sleeps, from its `status`.
fn asleep(status: &str) -> Option<String> {
    let field = |name| status.lines().find_map(|line: &str| line.strip_prefix(name));
    if !field("State:")?.trim_start().starts_with('S') {
        return None;
    }
    Some([field("voluntary_ctxt_switches:")?, field("nonvoluntary_ctxt_switches:")?].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_sleeps_only_in_the_state_for_it() {
        let status = |state| {
            format!(
                "Name:\tx\nState:\t{state}\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t2\n"
            )
        };
        assert_eq!(asleep(&status("S (sleeping)")).as_deref(), Some("\t7\t2"));
        assert_eq!(asleep(&status("R (running)")), None);
        assert_eq!(asleep(&status("D (disk sleep)")), None);
    }
}
