//! The standby: a thread of each worker that never takes the interpreter lock.
//!
//! While it is on duty (see `thruway_roles`) it does at the engine whatever needs no application: it takes in events,
//! reads bodies, writes responses, ends requests that take too long, and gives requests to other workers. It also looks
//! out for a leader that blocks while requests wait, or that computes for long, and calls a successor.

use std::fs::File;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use thruway_roles::Lookout;
use thruway_serve::{Events, monotonic_us};

use super::roles::Roles;
use super::shared_engine::SharedEngine;

struct Standby {
    engine: Arc<SharedEngine>,
    roles: Arc<Roles>,
    lookout: Lookout,
    leader: LeaderThread,
}

/// Starts the standby, a thread that Ruby does not know.
///
/// # Errors
/// The system cannot create a thread.
pub(super) fn start(
    engine: Arc<SharedEngine>,
    roles: Arc<Roles>,
) -> std::io::Result<JoinHandle<()>> {
    let standby =
        Standby { engine, roles, lookout: Lookout::default(), leader: LeaderThread::default() };
    std::thread::Builder::new().name("thruway-standby".into()).spawn(move || {
        hold_signals();
        standby.run();
    })
}

impl Standby {
    fn run(mut self) {
        let mut events = Events::new();
        while self.roles.wait_for_duty() {
            self.stand_in(&mut events);
            self.roles.set_awaited(false);
        }
    }

    fn stand_in(&mut self, events: &mut Events) {
        let roles = Arc::clone(&self.roles);
        let mut timeout = Some(Duration::ZERO);
        while roles.is_on_duty() {
            self.engine.waiter().wait_with(&roles.bell().0, events, timeout);
            roles.begin_look();
            let attention = self.engine.lock().attend(events);
            roles.set_awaited(attention.waiting > 0);
            if !roles.is_on_duty() {
                // The leader may have started to wait since, without seeing the events that were taken in here.
                if attention.waiting > 0 || attention.is_woken {
                    self.engine.wake();
                }
                return;
            }
            let sleeps = |thread| self.leader.sleeps(thread);
            let look = self.lookout.look(&roles, monotonic_us, sleeps);
            timeout = [attention.rest, look].into_iter().flatten().min();
        }
    }
}

/// The leader's thread, observed from outside Ruby.
#[derive(Default)]
struct LeaderThread {
    thread: u32,
    stat: Option<File>,
}

impl LeaderThread {
    /// Whether the thread sleeps, waiting for anything, including the interpreter lock.
    fn sleeps(&mut self, thread: u32) -> bool {
        if self.thread != thread {
            self.thread = thread;
            self.stat = File::open(format!("/proc/self/task/{thread}/stat")).ok();
        }
        let mut text = [0; 256];
        let length = self.stat.as_ref().and_then(|stat| stat.read_at(&mut text, 0).ok());
        // The state follows the name, which is in parentheses and may contain parentheses.
        let text = &text[..length.unwrap_or(0)];
        let end = text.iter().rposition(|byte| *byte == b')');
        end.and_then(|end| text.get(end + 2)) == Some(&b'S')
    }
}

/// Blocks all signals in this thread. Signals are for Ruby's own threads.
pub(super) fn hold_signals() {
    let mut all = MaybeUninit::uninit();
    // SAFETY: the call writes the whole set and cannot fail.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the set was filled above; the old set is not requested.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut()) };
}
