//! The process that keeps a mount alive: it holds what must not be lost and starts a worker again
//! that has died.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::ExitStatus;
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, setsid};
use thruway_fuse::wire::feature;
use thruway_sys::signal::BlockedSignals;

use super::channel::Channel;
use super::ipc::{Order, Report, Service};
use super::spawn::spawn;
use crate::limits::GRACE;
use crate::lock_holder::LockHolder;
use crate::memory::{Count, Memory};
use crate::policy::PolicyFile;
use crate::{Error, Log, Plan, attach, limits, mounts, sources, status};

/// How long a worker has that nobody can use any more.
const GRACE_ALONE: Duration = Duration::from_millis(200);

/// How long the daemon of a mount before us may take to end.
const PREDECESSOR_PATIENCE: Duration = Duration::from_secs(5);

/// A worker that dies this often, each time within [`STABLE`] of its start, is given up.
const DEATHS_MAX: u32 = 5;
const STABLE: Duration = Duration::from_secs(10);

/// What must outlive a worker.
struct Estate<'a> {
    plan: &'a Plan,
    log: &'a Log,
    /// `major:minor` of the mount.
    mount_device: String,
    memory: Memory,
    status_socket: Option<UnixListener>,
    roots: &'a [OwnedFd],
    /// The files that locks are on.
    locks: RefCell<HashMap<LockHolder, OwnedFd>>,
    /// The connection and its clones. All of them: a clone that only the worker holds would take
    /// the requests that it has read with it when it dies.
    devices: Vec<OwnedFd>,
}

/// How one worker ended.
enum End {
    /// The mount is gone.
    Unmounted,
    /// It cannot serve at all.
    Failed(Error),
    /// It died.
    Died(ExitStatus),
}

/// Mounts, and looks after workers until the mount is gone; a daemon in a session of its own.
pub(crate) fn run(
    plan: &Plan,
    log: &Log,
    is_daemon: bool,
    report: impl Fn(Report),
) -> Result<(), Error> {
    let failed = |cause| Error::new("cannot serve", &plan.target, cause);
    let signals = BlockedSignals::new(&[Signal::HUP, Signal::INT, Signal::TERM]).map_err(failed)?;
    limits::raise();
    let roots = sources::open(plan)?;
    let mut life = Life { policy: RefCell::new(plan.policy.clone()), deaths: 0, restarts: 0 };
    loop {
        let device = attach::attach(plan)?;
        if is_daemon && life.restarts == 0 {
            // Not before: where an automount is set off, the kernel has all but systemd's own group wait.
            setsid().map_err(|errno| failed(errno.into()))?;
        }
        let estate = Estate::new(plan, log, &roots, device);
        let served =
            estate.and_then(|estate| estate.look_after_workers(&signals, &report, &mut life));
        if !matches!(served, Ok(Served::ToTheEnd)) {
            // Nobody would ever answer there.
            let _ = attach::detach(&plan.target, true);
        }
        match served? {
            Served::ToTheEnd => return Ok(()),
            Served::Lost => log.error(format_args!("mounted {} anew", plan.target.display())),
        }
    }
}

/// What goes on when a mount is lost and made anew.
struct Life {
    /// The policy that was read last and has no error.
    policy: RefCell<Option<PolicyFile>>,
    /// Workers that died one soon after the other.
    deaths: u32,
    /// Workers that followed another one.
    restarts: u64,
}

/// How far a mount was served.
enum Served {
    /// Until it was taken away.
    ToTheEnd,
    /// Until a worker died with requests that cannot be sent again.
    Lost,
}

impl<'a> Estate<'a> {
    fn new(
        plan: &'a Plan,
        log: &'a Log,
        roots: &'a [OwnedFd],
        device: OwnedFd,
    ) -> Result<Self, Error> {
        let failed = |cause| Error::new("cannot serve", &plan.target, cause);
        let memory = Memory::new().map_err(failed)?;
        let mounted = mounts::at(&plan.target).map_err(failed)?;
        let mount_device = mounted.map(|mounted| mounted.device).unwrap_or_default();
        let status_socket = listen(&mount_device)
            .inspect_err(|cause| log.warn(format_args!("no status for this mount: {cause}")))
            .ok();
        let threads = available_parallelism().map_or(1, usize::from);
        let devices = attach::clones(device, threads)?;
        let locks = RefCell::default();
        Ok(Self { plan, log, mount_device, memory, status_socket, roots, locks, devices })
    }

    fn look_after_workers(
        &self,
        signals: &BlockedSignals,
        report: &impl Fn(Report),
        life: &mut Life,
    ) -> Result<Served, Error> {
        self.memory.add(Count::Restarts, life.restarts);
        let mut is_restart = false;
        loop {
            let start = Instant::now();
            let status = match self.look_after_one(signals, report, is_restart, &life.policy)? {
                End::Unmounted => return Ok(Served::ToTheEnd),
                End::Failed(error) => return Err(error),
                End::Died(status) => status,
            };
            life.deaths = if start.elapsed() > STABLE { 1 } else { life.deaths + 1 };
            life.restarts += 1;
            self.log.error(format_args!("the worker died ({status}); starting another"));
            self.memory.count(Count::Restarts);
            if life.deaths == DEATHS_MAX {
                let target = self.plan.target.display();
                return Err(Error::plain(format_args!(
                    "gave {target} up: {DEATHS_MAX} workers died, the last with {status}"
                )));
            }
            if !self.can_send_again() {
                return Ok(Served::Lost);
            }
            is_restart = true;
        }
    }

    /// Whether another worker gets the requests that one had when it died. What has gone into a ring
    /// is lost with it.
    fn can_send_again(&self) -> bool {
        let agreement = self.memory.agreement();
        agreement.is_none_or(|agreement| !agreement.has(feature::OVER_IO_URING))
    }

    /// Starts a worker and waits for its end.
    fn look_after_one(
        &self,
        signals: &BlockedSignals,
        report: &impl Fn(Report),
        is_restart: bool,
        policy: &RefCell<Option<PolicyFile>>,
    ) -> Result<End, Error> {
        let failed = |cause| Error::new("cannot start a worker for", &self.plan.target, cause);
        let (channel, mut child) = spawn(false).map_err(failed)?;
        let pid = Pid::from_child(&child);
        let ended = pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| failed(errno.into()))?;
        self.give_orders(&channel, is_restart, policy).map_err(failed)?;
        let mut failure = None;
        let mut channel = Some(channel);
        let mut deadline: Option<Instant> = None;
        let mut is_killed = false;
        loop {
            let patience = deadline.filter(|_| !is_killed);
            let awake = wait(&ended, signals, channel.as_ref(), patience).map_err(failed)?;
            if awake.ended {
                // What it has said before.
                while let Some(open) = &channel
                    && self.hear(open, report, &mut failure)
                {}
                let status = child.wait().map_err(failed)?;
                return Ok(match failure {
                    Some(error) => End::Failed(error),
                    None if status.success() || deadline.is_some() => End::Unmounted,
                    None => End::Died(status),
                });
            }
            if awake.message
                && !channel.as_ref().is_some_and(|open| self.hear(open, report, &mut failure))
            {
                channel = None;
            }
            while let Ok(Some(signal)) = signals.next() {
                match signal {
                    Signal::HUP => self.read_policy_again(channel.as_ref(), policy),
                    _ if deadline.is_none() => deadline = Some(self.begin_end()),
                    _ => deadline = Some(Instant::now()),
                }
            }
            if !is_killed && deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                is_killed = true;
                self.log.warn(if self.is_cut_off() {
                    "the worker hangs; it is killed"
                } else {
                    "the mount is still in use; its users are cut off"
                });
                drop(child.kill());
            }
        }
    }

    /// Hears what the worker has to say next; `false` if there is nothing any more.
    fn hear(
        &self,
        channel: &Channel,
        report: &impl Fn(Report),
        failure: &mut Option<Error>,
    ) -> bool {
        let Ok(Some((message, mut descriptors))) = channel.receive::<Report>() else {
            return false;
        };
        match message {
            Report::Ready => report(Report::Ready),
            Report::Failed(error) => *failure = Some(error),
            Report::Locking(holder) => {
                self.locks.borrow_mut().extend(descriptors.pop().map(|file| (holder, file)))
            }
            Report::Unlocked(holder) => drop(self.locks.borrow_mut().remove(&holder)),
        }
        true
    }

    /// Hands the worker the policy as it stands in its file now, if that has no error.
    fn read_policy_again(&self, channel: Option<&Channel>, last: &RefCell<Option<PolicyFile>>) {
        let Some(path) = last.borrow().as_ref().map(|policy| policy.path.clone()) else { return };
        match PolicyFile::read(&path) {
            Err(error) => self.log.error(format_args!("{error}; the rules before it stay")),
            Ok(policy) => {
                // A worker that is about to die gives its place to one that starts with it.
                channel.map(|channel| channel.send(&policy, &[]));
                *last.borrow_mut() = Some(policy);
            }
        }
    }

    /// Takes the mount away for new users, and says how long the present ones have.
    fn begin_end(&self) -> Instant {
        if let Err(error) = attach::detach_own(&self.plan.target, &self.mount_device) {
            self.log.error(error);
        }
        Instant::now() + if self.is_cut_off() { GRACE_ALONE } else { GRACE }
    }

    /// Whether the kernel has ended the connection.
    fn is_cut_off(&self) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut device = [PollFd::new(&self.devices[0], PollFlags::empty())];
        poll(&mut device, Some(&at_once)).is_ok() && device[0].revents().contains(PollFlags::ERR)
    }

    fn give_orders(
        &self,
        channel: &Channel,
        is_restart: bool,
        policy: &RefCell<Option<PolicyFile>>,
    ) -> std::io::Result<()> {
        let locks = self.locks.borrow();
        let order = Order::Serve(Service {
            locks: locks.keys().copied().collect(),
            plan: Plan { policy: policy.borrow().clone(), ..self.plan.clone() },
            mount_device: self.mount_device.clone(),
            has_status_socket: self.status_socket.is_some(),
            is_restart,
        });
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![self.memory.as_fd()];
        descriptors.extend(self.status_socket.as_ref().map(AsFd::as_fd));
        descriptors.extend(self.roots.iter().map(AsFd::as_fd));
        descriptors.extend(locks.values().map(AsFd::as_fd));
        descriptors.extend(self.devices.iter().map(AsFd::as_fd));
        channel.send(&order, &descriptors)
    }
}

/// Why the supervisor woke up.
struct Awake {
    ended: bool,
    message: bool,
}

/// Waits for the worker's end, a signal, a message or the deadline.
fn wait(
    ended: &OwnedFd,
    signals: &BlockedSignals,
    channel: Option<&Channel>,
    deadline: Option<Instant>,
) -> std::io::Result<Awake> {
    let mut sources = vec![PollFd::new(ended, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
    sources.extend(channel.map(|channel| PollFd::new(channel, PollFlags::IN)));
    let patience = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let patience = patience.and_then(|patience| Timespec::try_from(patience).ok());
    match poll(&mut sources, patience.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let is_ready = |index: usize| sources.get(index).is_some_and(|s| !s.revents().is_empty());
    Ok(Awake { ended: is_ready(0), message: is_ready(2) })
}

/// The socket that says how the mount is. Its name is no file: nothing is left behind.
///
/// The kernel gives the number of a mount that has just gone to the next one, and the daemon that had
/// it may still be about to end.
fn listen(mount_device: &str) -> std::io::Result<UnixListener> {
    let name = SocketAddr::from_abstract_name(status::socket_name(mount_device))?;
    let deadline = Instant::now() + PREDECESSOR_PATIENCE;
    loop {
        match UnixListener::bind_addr(&name) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < deadline => {
                sleep(Duration::from_millis(5));
            }
            bound => return bound,
        }
    }
}
