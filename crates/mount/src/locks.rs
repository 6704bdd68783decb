//! Sets locks on the backing files, so that programs that use the sources directly see them.
//!
//! Each holder of locks has its own open file, so the kernel resolves conflicts between all programs that lock the
//! file, through the mount or directly. A request that waits for a lock occupies no thread. A single thread tries all
//! waiting locks: immediately when a lock is released through the mount, and every [`RETRY`] for locks of other
//! programs.
//!
//! The supervisor keeps a copy of each of these files, so that locks outlive a worker.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use thruway_fuse::Reply;
use thruway_sys::record_lock::{self, RecordLock};

use crate::actor::errno;
use crate::inodes::{InodeId, lock};
use crate::lock_holder::LockHolder;
use crate::process::Channel;
use crate::process::Event;
use crate::transport::reply::ReplySender;

/// The interval at which waiting locks are tried, since a program outside the mount may hold them.
const RETRY: Duration = Duration::from_millis(20);
/// The maximum number of waiting locks.
const WAITING_MAX: usize = 4096;

/// A change of a lock.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LockChange {
    Flock(FlockOperation),
    Record(RecordLock),
    Unlock { start: u64, end: u64 },
}

impl LockHolder {
    /// Returns the change that releases all locks of the holder.
    fn all(&self) -> LockChange {
        match self.is_flock {
            true => LockChange::Flock(FlockOperation::Unlock),
            false => LockChange::Unlock { start: 0, end: i64::MAX.cast_unsigned() },
        }
    }
}

#[derive(Debug)]
struct WaitingLock {
    unique: u64,
    file: Arc<OwnedFd>,
    change: LockChange,
    sender: Arc<dyn ReplySender>,
}

#[derive(Debug, Default)]
struct State {
    files: HashMap<LockHolder, Arc<OwnedFd>>,
    /// In the order of arrival.
    waiting: Vec<WaitingLock>,
}

#[derive(Debug, Default)]
pub(crate) struct Locks {
    state: Mutex<State>,
    changed: Condvar,
    /// Keeps copies of the files.
    supervisor: OnceLock<Channel>,
}

impl Locks {
    /// Takes over the locks of the previous worker. From now on, `supervisor` keeps copies of all files.
    pub(crate) fn inherit(
        &self,
        left: impl Iterator<Item = (LockHolder, OwnedFd)>,
        supervisor: Channel,
    ) {
        lock(&self.state).files.extend(left.map(|(holder, file)| (holder, Arc::new(file))));
        // The function is called once, so the cell is empty.
        let _ = self.supervisor.set(supervisor);
    }

    /// Returns the open file with the holder's locks, which `open` opens the first time.
    pub(crate) fn file(
        &self,
        holder: LockHolder,
        open: impl FnOnce() -> Result<OwnedFd, Errno>,
    ) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(file) = lock(&self.state).files.get(&holder) {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(open()?);
        match lock(&self.state).files.entry(holder) {
            Entry::Occupied(other) => Ok(Arc::clone(other.get())),
            Entry::Vacant(place) => {
                self.tell_supervisor(&Event::Locking(holder), &[file.as_fd()]);
                Ok(Arc::clone(place.insert(file)))
            }
        }
    }

    /// Sends the event, unless the supervisor is dead.
    fn tell_supervisor(&self, event: &Event, file: &[BorrowedFd<'_>]) {
        let _ = self.supervisor.get().map(|supervisor| supervisor.send(event, file));
    }

    /// Sets or releases a lock at once, or fails with `EAGAIN`.
    pub(crate) fn set(&self, file: &OwnedFd, change: &LockChange) -> Result<(), Errno> {
        change.try_on(file)?;
        if matches!(change, LockChange::Unlock { .. } | LockChange::Flock(FlockOperation::Unlock)) {
            self.changed.notify_one();
        }
        Ok(())
    }

    /// Replies to the request as soon as the lock is acquired.
    pub(crate) fn wait(
        &self,
        unique: u64,
        file: Arc<OwnedFd>,
        change: LockChange,
        sender: Arc<dyn ReplySender>,
    ) -> Result<(), Errno> {
        let mut state = lock(&self.state);
        if state.waiting.len() == WAITING_MAX {
            return Err(Errno::NOLCK);
        }
        state.waiting.push(WaitingLock { unique, file, change, sender });
        self.changed.notify_one();
        Ok(())
    }

    /// Releases all locks of the holder.
    pub(crate) fn end(&self, holder: LockHolder) {
        let mut state = lock(&self.state);
        let ended = state.files.remove_entry(&holder);
        self.release(ended);
    }

    /// Releases all locks on a file that no program has open any more. The kernel does not report the end of locks that
    /// belong to open files (`F_OFD_SETLK`).
    pub(crate) fn end_all(&self, inode: InodeId) {
        let mut state = lock(&self.state);
        self.release(state.files.extract_if(|holder, _| holder.inode == inode));
    }

    /// Releases locks. The caller holds the state's lock, so that the supervisor receives a holder's events in order.
    fn release(&self, ended: impl IntoIterator<Item = (LockHolder, Arc<OwnedFd>)>) {
        let mut any = false;
        for (holder, file) in ended {
            // The supervisor closes its copy later, so closing this descriptor alone would not unlock. An error means
            // that there was no lock.
            let _ = holder.all().try_on(&file);
            self.tell_supervisor(&Event::Unlocked(holder), &[]);
            any = true;
        }
        if any {
            self.changed.notify_one();
        }
    }

    /// Ends the wait of this request with `EINTR`.
    pub(crate) fn interrupt(&self, unique: u64) {
        let mut state = lock(&self.state);
        let Some(place) = state.waiting.iter().position(|one| one.unique == unique) else { return };
        let waiting = state.waiting.remove(place);
        drop(state);
        waiting.reply(Err(Errno::INTR));
    }

    /// Tries waiting locks, and never returns.
    pub(crate) fn keep_trying(&self) {
        let mut state = lock(&self.state);
        loop {
            state = if state.waiting.is_empty() {
                self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else {
                let waited = self.changed.wait_timeout(state, RETRY);
                waited.unwrap_or_else(PoisonError::into_inner).0
            };
            state.try_waiting();
        }
    }
}

impl State {
    fn try_waiting(&mut self) {
        self.waiting.retain(|waiting| match waiting.change.try_on(&waiting.file) {
            Err(Errno::AGAIN) => true,
            done => {
                waiting.reply(done);
                false
            }
        });
    }
}

impl WaitingLock {
    fn reply(&self, done: Result<(), Errno>) {
        let mut reply = Reply::default();
        if let Err(errno) = done {
            reply.fail(errno.raw_os_error());
        }
        self.sender.send(self.unique, &mut reply);
    }
}

impl LockChange {
    fn try_on(&self, file: &OwnedFd) -> Result<(), Errno> {
        let done = match self {
            Self::Flock(operation) => return flock(file, *operation),
            Self::Record(lock) => record_lock::try_lock(file.as_fd(), lock),
            Self::Unlock { start, end } => record_lock::unlock(file.as_fd(), *start, *end),
        };
        done.map_err(|error| errno(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::sync::mpsc::{Receiver, Sender, channel};

    #[derive(Debug)]
    struct Replies(Sender<(u64, i32)>);

    impl ReplySender for Replies {
        fn send(&self, unique: u64, reply: &mut Reply) {
            self.0.send((unique, reply.errno())).unwrap();
        }
    }

    struct Fixture {
        file: tempfile::NamedTempFile,
        locks: Arc<Locks>,
        replies: Receiver<(u64, i32)>,
        sender: Arc<dyn ReplySender>,
    }

    const EXCLUSIVE: LockChange = LockChange::Flock(FlockOperation::NonBlockingLockExclusive);
    const UNLOCK: LockChange = LockChange::Flock(FlockOperation::Unlock);

    impl Fixture {
        fn new() -> Self {
            let (sender, replies) = channel();
            let locks = Arc::new(Locks::default());
            let trying = Arc::clone(&locks);
            std::thread::spawn(move || trying.keep_trying());
            let file = tempfile::NamedTempFile::new().unwrap();
            Self { file, locks, replies, sender: Arc::new(Replies(sender)) }
        }

        fn file(&self, owner: u64) -> Arc<OwnedFd> {
            let holder = LockHolder { inode: InodeId(2), owner, is_flock: true };
            let open = || Ok(File::open(self.file.path()).unwrap().into());
            self.locks.file(holder, open).unwrap()
        }
    }

    #[test]
    fn a_waiting_request_gets_its_reply_when_the_lock_is_released() {
        let fixture = Fixture::new();
        let (one, other) = (fixture.file(1), fixture.file(2));
        fixture.locks.set(&one, &EXCLUSIVE).unwrap();
        assert_eq!(fixture.locks.set(&other, &EXCLUSIVE), Err(Errno::AGAIN));
        let sender = Arc::clone(&fixture.sender);
        fixture.locks.wait(7, Arc::clone(&other), EXCLUSIVE, sender).unwrap();
        fixture.locks.set(&one, &UNLOCK).unwrap();
        assert_eq!(fixture.replies.recv(), Ok((7, 0)));
        assert_eq!(fixture.locks.set(&one, &EXCLUSIVE), Err(Errno::AGAIN));
    }

    #[test]
    fn a_waiting_lock_notices_the_end_of_a_holder_inside_and_outside() {
        let fixture = Fixture::new();
        let outside = File::open(fixture.file.path()).unwrap();
        flock(&outside, FlockOperation::LockExclusive).unwrap();
        let sender = Arc::clone(&fixture.sender);
        fixture.locks.wait(8, fixture.file(1), EXCLUSIVE, Arc::clone(&sender)).unwrap();
        drop(outside);
        assert_eq!(fixture.replies.recv(), Ok((8, 0)));
        fixture.locks.wait(9, fixture.file(2), EXCLUSIVE, sender).unwrap();
        fixture.locks.end(LockHolder { inode: InodeId(2), owner: 1, is_flock: true });
        assert_eq!(fixture.replies.recv(), Ok((9, 0)));
    }

    #[test]
    fn an_interrupted_request_waits_no_longer() {
        let fixture = Fixture::new();
        fixture.locks.set(&fixture.file(1), &EXCLUSIVE).unwrap();
        let sender = Arc::clone(&fixture.sender);
        fixture.locks.wait(5, fixture.file(2), EXCLUSIVE, sender).unwrap();
        fixture.locks.interrupt(4);
        fixture.locks.interrupt(5);
        assert_eq!(fixture.replies.recv(), Ok((5, Errno::INTR.raw_os_error())));
    }
}
