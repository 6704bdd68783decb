//! Notices that the leader blocks inside the application, and calls a follower.

use std::fs::File;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use super::baton::Signal;
use super::suspension;

/// How long a leader may be without the lock: several times as long as it takes to hand the lead on, so that
/// short waits hand nothing on.
const PATIENCE: Duration = Duration::from_micros(500);

/// From a leader's new call to the first look at it.
const LOOK: Duration = Duration::from_millis(1);

/// Between two looks at a leader that computes in one call, at most: as late is it seen that it has begun to
/// wait. Each look takes twice as long as the one before to come.
const LOOK_MAX: Duration = Duration::from_millis(8);

/// Looks at a leader that is in no call before the watchdog sleeps; they take as long as those at a call.
const LOOKS_BEFORE_SLEEP: u32 = 4;

/// Starts a thread, unknown to Ruby, that watches the leader while it is in the application. It is told
/// when the leader lets go of the lock, by a Ruby that can tell; otherwise it looks.
///
/// # Errors
/// The system has no threads left.
pub(super) fn start(signal: Arc<Signal>) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name("thruway-watch".into()).spawn(move || {
        hold_signals();
        if suspension::tell(&signal) {
            wait_for_suspensions(&signal);
        } else {
            look(&signal);
        }
    });
    thread.map(drop)
}

fn wait_for_suspensions(signal: &Signal) -> ! {
    let mut suspension = 0;
    loop {
        suspension = signal.sleep_until_suspension(suspension);
        std::thread::sleep(PATIENCE);
        if signal.is_still_suspended(suspension) {
            signal.call_follower();
        }
    }
}

fn look(signal: &Signal) -> ! {
    let mut leader = Leader::default();
    let (mut last, mut quiet, mut interval) = (0, 0, LOOK);
    loop {
        std::thread::sleep(interval);
        let calls = signal.calls();
        let is_in_application = calls % 2 == 1;
        let stays = is_in_application && calls == last && signal.has_followers();
        if stays && leader.sleeps(signal.leader_thread()) {
            signal.call_follower();
        }
        interval = if calls == last { (2 * interval).min(LOOK_MAX) } else { LOOK };
        quiet = if calls == last && !is_in_application { quiet + 1 } else { 0 };
        if quiet == LOOKS_BEFORE_SLEEP {
            signal.sleep_until_call();
            (quiet, interval) = (0, LOOK);
        }
        last = calls;
    }
}

/// The leader's thread as the system sees it.
#[derive(Default)]
struct Leader {
    thread: u32,
    stat: Option<File>,
}

impl Leader {
    /// Whether the thread sleeps: it waits for something, be it the interpreter lock.
    fn sleeps(&mut self, thread: u32) -> bool {
        if self.thread != thread {
            self.thread = thread;
            self.stat = File::open(format!("/proc/self/task/{thread}/stat")).ok();
        }
        let mut text = [0; 256];
        let length = self.stat.as_ref().and_then(|stat| stat.read_at(&mut text, 0).ok());
        // The state follows the name, which is in parentheses and may hold some.
        let text = &text[..length.unwrap_or(0)];
        let end = text.iter().rposition(|byte| *byte == b')');
        end.and_then(|end| text.get(end + 2)) == Some(&b'S')
    }
}

/// Leaves every signal to Ruby's own threads.
fn hold_signals() {
    let mut all = MaybeUninit::uninit();
    // SAFETY: the call writes the whole set and cannot fail.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the set is written; the old one is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut()) };
}
