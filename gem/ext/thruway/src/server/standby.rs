//! The standby: a thread of each worker that never takes the interpreter lock.
//!
//! While it is on duty (see `duty`) it does at the engine what needs no application. It takes in events, reads
//! bodies, writes responses, ends what takes too long, and gives requests to other workers. It also notices that the
//! leader blocks while requests wait, or computes for long, and calls a follower.

use std::fs::File;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use thruway_serve::Events;

use super::shared_engine::SharedEngine;
use super::signal::{PATIENCE_US, Signal};

/// From one look at a leader that runs to the next, while requests wait. Ruby releases the lock for each `stat` and
/// each line of a log: to be told of each release costs more.
const WATCH: Duration = Duration::from_millis(1);

/// From the first look at a leader to the second, where Ruby does not tell whether it waits.
const LOOK: Duration = Duration::from_millis(1);

/// The longest time between two looks at a leader that computes in one call; it doubles from look to look. The
/// leader's wait is noticed that late at most.
const LOOK_MAX: Duration = Duration::from_millis(8);

/// How long one call may keep what waits from the other threads while it computes. It is ten of Ruby's quanta: a call
/// of usual length is over sooner. Calls that take turns at the lock each take longer.
const LONG_CALL: Duration = Duration::from_secs(1);

struct Standby {
    engine: Arc<SharedEngine>,
    signal: Arc<Signal>,
    leader: Leader,
}

/// Starts the standby, a thread unknown to Ruby.
///
/// # Errors
/// The system has no threads left.
pub(super) fn start(
    engine: Arc<SharedEngine>,
    signal: Arc<Signal>,
) -> std::io::Result<JoinHandle<()>> {
    let standby = Standby { engine, signal, leader: Leader::default() };
    std::thread::Builder::new().name("thruway-standby".into()).spawn(move || {
        hold_signals();
        standby.run();
    })
}

impl Standby {
    fn run(mut self) {
        let mut events = Events::new();
        let signal = Arc::clone(&self.signal);
        while signal.duty.wait(|| signal.calls()) {
            self.stand_in(&mut events);
            signal.set_awaited(false);
        }
    }

    fn stand_in(&mut self, events: &mut Events) {
        let mut timeout = Some(Duration::ZERO);
        while self.signal.duty.is_on() {
            self.signal.duty.wait_beside(self.engine.waiter(), events, timeout);
            self.signal.duty.note_look();
            self.signal.set_watched(false);
            let attention = self.engine.lock().attend(events);
            self.signal.set_awaited(attention.waiting > 0);
            if !self.signal.duty.is_on() {
                // The leader may have begun to wait since, without a look at what was taken in here.
                if attention.waiting > 0 || attention.is_woken {
                    self.engine.wake();
                }
                return;
            }
            let look = self.see_to_successor();
            timeout = [attention.rest, look].into_iter().flatten().min();
        }
    }

    /// Calls a follower if one is wanted, and the leader is blocked or has computed for long; when to look again.
    fn see_to_successor(&mut self) -> Option<Duration> {
        let left = LONG_CALL.saturating_sub(self.leader.note_call(self.signal.calls()));
        let is_wanted = self.signal.wants_successor();
        if is_wanted && left.is_zero() {
            self.signal.note_long_call(self.leader.call);
            self.signal.call_follower();
        }
        let look = self.see_to_blocked_leader(is_wanted);
        let look_at_long = is_wanted.then_some(if left.is_zero() { LONG_CALL } else { left });
        [look, look_at_long].into_iter().flatten().min()
    }

    /// Calls a follower if one is wanted, and the leader is blocked; when to look again.
    fn see_to_blocked_leader(&mut self, is_wanted: bool) -> Option<Duration> {
        if !self.signal.load.is_told() {
            // Without a successor to call, it looks for siblings that could give something.
            let looks = is_wanted || self.signal.load.is_unsure() && self.signal.has_followers();
            return (looks && self.look_at_leader()).then_some(self.leader.pause);
        }
        if !is_wanted {
            return None;
        }
        self.signal.set_watched(true);
        let Some(suspended_us) = self.signal.suspended_for_us() else { return Some(WATCH) };
        if let Some(left_us) = PATIENCE_US.checked_sub(suspended_us).filter(|left_us| *left_us > 0)
        {
            return Some(Duration::from_micros(left_us));
        }
        self.signal.call_follower();
        Some(WATCH)
    }

    /// Looks whether the leader is blocked; true if it is to be looked at again.
    fn look_at_leader(&mut self) -> bool {
        let call = self.signal.calls();
        let is_known = std::mem::replace(&mut self.leader.looked_at, call) == call;
        let is_blocked = is_known && self.leader.sleeps(self.signal.leader_thread());
        if is_blocked {
            self.signal.load.note_blocked();
        }
        if is_blocked && self.signal.wants_successor() {
            self.signal.call_follower();
        }
        let pause = self.leader.pause;
        self.leader.pause = if is_known { (2 * pause).min(LOOK_MAX) } else { LOOK };
        !is_known || self.signal.wants_successor()
    }
}

/// The leader's thread as the system sees it.
#[derive(Default)]
struct Leader {
    thread: u32,
    stat: Option<File>,
    /// The call in which it was seen, and since when.
    call: u64,
    since: Option<Instant>,
    /// The call in which it was looked at.
    looked_at: u64,
    /// Until the next look.
    pause: Duration,
}

impl Leader {
    /// Notes which call it is in; for how long it has been seen there.
    fn note_call(&mut self, call: u64) -> Duration {
        if std::mem::replace(&mut self.call, call) != call {
            self.since = None;
        }
        self.since.get_or_insert_with(Instant::now).elapsed()
    }

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

/// Blocks every signal in this thread: they are for Ruby's own threads.
fn hold_signals() {
    let mut all = MaybeUninit::uninit();
    // SAFETY: the call writes the whole set and cannot fail.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the set is written; the old one is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut()) };
}
