//! Waits until a process is at rest: all of its threads sleep.
//!
//! On a fast machine, a request meets a thread that still looks for work; on a slow one, it wakes a sleeping thread.
//! The two cases take different numbers of instructions. So each request is sent to a server at rest.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest time for a server under callgrind to come to rest. Usually it takes milliseconds; on a busy machine,
/// more.
const REST_MAX: Duration = Duration::from_secs(60);

/// How often each thread has left the processor, by its id. `None` if a thread runs or is ready to run.
type Switches = Option<BTreeMap<PathBuf, String>>;

/// Waits until all threads of the process sleep. Threads are read one by one, so one of them may run in the meantime.
/// Two readings with equal counts of context switches show that none did.
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
        // A thread that has ended in the meantime no longer runs.
        let Ok(status) = std::fs::read_to_string(path.join("status")) else { return Ok(None) };
        match asleep(&status) {
            Some(counts) => switches.insert(path, counts),
            None => return Ok(None),
        };
    }
    Ok(Some(switches))
}

/// The counts of context switches in the `status` of a sleeping thread; none for any other thread.
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
