//! The process that keeps a mount alive: it holds the state that must not be lost, and restarts a worker that died.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::ExitStatus;
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, setsid};
use thruway_fuse::wire::feature;
use thruway_sys::printable;
use thruway_sys::signal::BlockedSignals;

use super::channel::Channel;
use super::ipc::{Command, Event, ServeCommand, Update};
use super::live_sources::{LiveSources, SourceChange};
use super::spawn::spawn;
use crate::limits::GRACE;
use crate::lock_holder::LockHolder;
use crate::memory::{Count, Memory};
use crate::policy::PolicyFile;
use crate::source_table::SourceTable;
use crate::{Error, Log, Plan, attach, control, limits, mounts, status};

/// The time that a worker has to end after its connection was aborted.
const GRACE_ABORTED: Duration = Duration::from_millis(200);

/// The time that the daemon of the previous mount has to end.
const PREDECESSOR_TIMEOUT: Duration = Duration::from_secs(5);

/// After this many deaths, each within [`STABLE`] of the worker's start, the supervisor gives up.
const DEATHS_MAX: u32 = 5;
const STABLE: Duration = Duration::from_secs(10);

/// The state that outlives a worker and lasts as long as the mount.
struct MountState<'a> {
    plan: &'a Plan,
    log: &'a Log,
    /// The device number of the mount as `major:minor`.
    mount_device: String,
    memory: Memory,
    status_socket: Option<UnixListener>,
    /// The socket over which clients change the mount.
    control_socket: Option<UnixListener>,
    sources: &'a LiveSources,
    /// Clients whose change is not in effect yet.
    waiting: RefCell<Vec<UnixStream>>,
    /// The locked files.
    locks: RefCell<HashMap<LockHolder, OwnedFd>>,
    /// The connection and all its clones. If only the worker held a clone, the worker's death would close the clone and
    /// lose the requests that were read through it.
    devices: Vec<OwnedFd>,
}

/// The way in which a worker ended.
enum WorkerExit {
    /// The mount is gone.
    Unmounted,
    /// The worker cannot serve at all.
    Failed(Error),
    /// The worker died.
    Died(ExitStatus),
}

/// Mounts the view, and keeps a worker running until the mount is gone. A daemon moves to its own session.
pub(crate) fn run(
    plan: &Plan,
    log: &Log,
    is_daemon: bool,
    report: impl Fn(Event),
) -> Result<(), Error> {
    let failed = |cause| Error::new("cannot serve", &plan.target, cause);
    let signals = BlockedSignals::new(&[Signal::HUP, Signal::INT, Signal::TERM]).map_err(failed)?;
    limits::raise();
    // The kernel's table of mounts shows the sources as the user gave them.
    let is_cancelled = || matches!(signals.next(), Ok(Some(Signal::INT | Signal::TERM)));
    let sources = &LiveSources::open(plan, log, is_cancelled)?;
    let mut restarting =
        RestartState { policy: RefCell::new(plan.policy.clone()), deaths: 0, restarts: 0 };
    loop {
        let device = attach::attach(plan)?;
        if is_daemon && restarting.restarts == 0 {
            // The session must not change before mounting: at an automount, the kernel blocks all processes outside
            // systemd's process group.
            setsid().map_err(|errno| failed(errno.into()))?;
        }
        let state = MountState::new(plan, log, sources, device);
        let outcome = state.and_then(|state| state.run_workers(&signals, &report, &mut restarting));
        if !matches!(outcome, Ok(ServeOutcome::Unmounted)) {
            // No process would ever serve the mount.
            let _ = attach::detach(&plan.target, true);
        }
        match outcome? {
            ServeOutcome::Unmounted => return Ok(()),
            ServeOutcome::ConnectionLost => log.error(format_args!(
                "remounted {} after the connection was lost",
                printable::path(&plan.target)
            )),
        }
    }
}

/// The state that survives when a lost mount is made anew.
struct RestartState {
    /// The last policy that was read without an error.
    policy: RefCell<Option<PolicyFile>>,
    /// The number of workers in succession that died soon after their start.
    deaths: u32,
    /// The number of workers that were started after a worker had died.
    restarts: u64,
}

/// The reason why a mount is no longer served.
enum ServeOutcome {
    /// The view was unmounted.
    Unmounted,
    /// A worker died with requests that the kernel cannot send again.
    ConnectionLost,
}

impl<'a> MountState<'a> {
    fn new(
        plan: &'a Plan,
        log: &'a Log,
        sources: &'a LiveSources,
        device: OwnedFd,
    ) -> Result<Self, Error> {
        let failed = |cause| Error::new("cannot serve", &plan.target, cause);
        let memory = Memory::new().map_err(|cause| {
            let is_limit = cause.raw_os_error() == Some(Errno::FBIG.raw_os_error());
            let error = failed(cause);
            let hint = "the limit of file sizes (ulimit -f) is too low for the table of inodes, which is sparse";
            if is_limit { error.with_hint(hint) } else { error }
        })?;
        let mounted = mounts::at(&plan.target).map_err(failed)?;
        let mount_device = mounted.map(|mounted| mounted.device).unwrap_or_default();
        let status_socket = listen(&status::socket_name(&mount_device))
            .inspect_err(|cause| {
                log.warn(format_args!("cannot report the status of this mount: {cause}"))
            })
            .ok();
        let control_socket = listen(&control::socket_name(&mount_device))
            .inspect_err(|cause| {
                log.warn(format_args!("cannot change this mount while it is in use: {cause}"))
            })
            .ok();
        let threads = available_parallelism().map_or(1, usize::from);
        let devices = attach::clones(device, threads)?;
        let (locks, waiting) = (RefCell::default(), RefCell::default());
        Ok(Self {
            plan,
            log,
            mount_device,
            memory,
            status_socket,
            control_socket,
            sources,
            waiting,
            locks,
            devices,
        })
    }

    fn run_workers(
        &self,
        signals: &BlockedSignals,
        report: &impl Fn(Event),
        restarting: &mut RestartState,
    ) -> Result<ServeOutcome, Error> {
        self.memory.add(Count::Restarts, restarting.restarts);
        let mut is_restart = false;
        loop {
            let start = Instant::now();
            let status = match self.run_worker(signals, report, is_restart, &restarting.policy)? {
                WorkerExit::Unmounted => return Ok(ServeOutcome::Unmounted),
                WorkerExit::Failed(error) => return Err(error),
                WorkerExit::Died(status) => status,
            };
            restarting.deaths = if start.elapsed() > STABLE { 1 } else { restarting.deaths + 1 };
            restarting.restarts += 1;
            self.log.error(format_args!("the worker died ({status}); starting another"));
            self.memory.count(Count::Restarts);
            if restarting.deaths == DEATHS_MAX {
                let target = printable::path(&self.plan.target);
                return Err(Error::plain(format_args!(
                    "giving up on {target}: {DEATHS_MAX} workers died, the last with {status}"
                )));
            }
            if !self.can_resend() {
                return Ok(ServeOutcome::ConnectionLost);
            }
            is_restart = true;
        }
    }

    /// Whether the kernel sends the requests of a dead worker to the next one. Requests in a ring are lost.
    fn can_resend(&self) -> bool {
        let negotiated = self.memory.negotiated();
        negotiated.is_none_or(|negotiated| !negotiated.has(feature::OVER_IO_URING))
    }

    /// Starts a worker and waits for its end.
    fn run_worker(
        &self,
        signals: &BlockedSignals,
        report: &impl Fn(Event),
        is_restart: bool,
        policy: &RefCell<Option<PolicyFile>>,
    ) -> Result<WorkerExit, Error> {
        let failed = |cause| Error::new("cannot start a worker for", &self.plan.target, cause);
        let (channel, mut child) = spawn(false).map_err(failed)?;
        let pid = Pid::from_child(&child);
        let ended = pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| failed(errno.into()))?;
        self.send_command(&channel, is_restart, policy).map_err(failed)?;
        let mut failure = None;
        let mut channel = Some(channel);
        let mut deadline: Option<Instant> = None;
        let mut is_killed = false;
        loop {
            let patience = deadline.filter(|_| !is_killed);
            let wakeup = self.wait(&ended, signals, channel.as_ref(), patience).map_err(failed)?;
            if wakeup.has_ended {
                // Events that the worker sent before its end are still unread.
                while let Some(open) = &channel
                    && self.receive_event(open, report, &mut failure)
                {}
                let status = child.wait().map_err(failed)?;
                return Ok(match failure {
                    Some(error) => WorkerExit::Failed(error),
                    None if status.success() || deadline.is_some() => WorkerExit::Unmounted,
                    None => WorkerExit::Died(status),
                });
            }
            if wakeup.has_event
                && !channel
                    .as_ref()
                    .is_some_and(|open| self.receive_event(open, report, &mut failure))
            {
                channel = None;
            }
            if wakeup.has_client {
                self.serve_client(channel.as_ref());
            }
            while let Ok(Some(signal)) = signals.next() {
                match signal {
                    Signal::HUP => {
                        self.read_policy_again(channel.as_ref(), policy);
                        self.reload_sources(channel.as_ref());
                    }
                    _ if deadline.is_none() => deadline = Some(self.begin_unmount()),
                    _ => deadline = Some(Instant::now()),
                }
            }
            if !is_killed && deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                is_killed = true;
                self.log.warn(if self.is_aborted() {
                    "killing the worker, which does not respond"
                } else {
                    "the mount is still in use; disconnecting its users"
                });
                drop(child.kill());
            }
        }
    }

    /// Handles the worker's next event. Returns `false` if no more events will arrive.
    fn receive_event(
        &self,
        channel: &Channel,
        report: &impl Fn(Event),
        failure: &mut Option<Error>,
    ) -> bool {
        let Ok(Some((event, mut descriptors))) = channel.receive::<Event>() else {
            return false;
        };
        match event {
            Event::Ready => {
                // A new worker begins with the present sources.
                self.reply_to_waiting();
                report(Event::Ready);
            }
            Event::SourcesSet => self.reply_to_waiting(),
            Event::Failed(error) => *failure = Some(error),
            Event::Locking(holder) => {
                self.locks.borrow_mut().extend(descriptors.pop().map(|file| (holder, file)))
            }
            Event::Unlocked(holder) => drop(self.locks.borrow_mut().remove(&holder)),
        }
        true
    }

    /// Reads the policy file again, and sends the policy to the worker if it has no error.
    fn read_policy_again(&self, channel: Option<&Channel>, last: &RefCell<Option<PolicyFile>>) {
        let Some(path) = last.borrow().as_ref().map(|policy| policy.path.clone()) else { return };
        match PolicyFile::read(&path) {
            Err(error) => self.log.error(format_args!("{error}; the previous rules stay in force")),
            Ok(policy) => {
                // If the worker dies meanwhile, the next worker starts with this policy.
                channel.map(|channel| channel.send(&Update::Policy(policy.clone()), &[]));
                *last.borrow_mut() = Some(policy);
            }
        }
    }

    /// Evaluates the patterns of sources again, and reads their file again.
    fn reload_sources(&self, channel: Option<&Channel>) {
        match self.sources.change(SourceChange::Reload) {
            Ok(table) => drop(table.map(|table| self.send_sources(channel, &table))),
            Err(error) => self.log.error(format_args!("{error}; the sources stay as they are")),
        }
    }

    /// Serves a client that changes the mount.
    fn serve_client(&self, channel: Option<&Channel>) {
        let accepted = self.control_socket.as_ref().map(UnixListener::accept);
        let Some(Ok((client, _))) = accepted else { return };
        let Some(change) = control::receive(&client) else { return };
        match self.sources.change(change) {
            Err(error) => control::reply(&client, &Err(error)),
            Ok(Some(table)) if self.send_sources(channel, &table) => {
                self.waiting.borrow_mut().push(client);
            }
            Ok(_) => control::reply(&client, &Ok(self.shown_sources())),
        }
    }

    /// Sends the sources to the worker. Returns `false` if no worker runs; the next one begins with them.
    fn send_sources(&self, channel: Option<&Channel>, table: &SourceTable) -> bool {
        let shown: Vec<_> = table.specs().map(ToString::to_string).collect();
        self.log.note(format_args!("the sources are now {}", shown.join(" ")));
        channel.is_some_and(|channel| channel.send(&Update::Sources(table.clone()), &[]).is_ok())
    }

    fn reply_to_waiting(&self) {
        for client in self.waiting.borrow_mut().drain(..) {
            control::reply(&client, &Ok(self.shown_sources()));
        }
    }

    fn shown_sources(&self) -> Vec<String> {
        self.sources.table().specs().map(ToString::to_string).collect()
    }

    /// Detaches the mount, so that no new users can reach it. Returns the deadline for present users.
    fn begin_unmount(&self) -> Instant {
        if let Err(error) = attach::detach_own(&self.plan.target, &self.mount_device) {
            self.log.error(error);
        }
        Instant::now() + if self.is_aborted() { GRACE_ABORTED } else { GRACE }
    }

    /// Whether the kernel has aborted the connection.
    fn is_aborted(&self) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut device = [PollFd::new(&self.devices[0], PollFlags::empty())];
        poll(&mut device, Some(&at_once)).is_ok() && device[0].revents().contains(PollFlags::ERR)
    }

    /// Waits for the worker's end, a signal, an event, a client or the deadline.
    fn wait(
        &self,
        ended: &OwnedFd,
        signals: &BlockedSignals,
        channel: Option<&Channel>,
        deadline: Option<Instant>,
    ) -> std::io::Result<Wakeup> {
        let mut waits =
            vec![PollFd::new(ended, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        waits.extend(channel.map(|channel| PollFd::new(channel, PollFlags::IN)));
        waits.extend(self.control_socket.as_ref().map(|socket| PollFd::new(socket, PollFlags::IN)));
        let patience = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let patience = patience.and_then(|patience| Timespec::try_from(patience).ok());
        match poll(&mut waits, patience.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let is_ready = |index: usize| waits.get(index).is_some_and(|s| !s.revents().is_empty());
        let client_at = if channel.is_some() { 3 } else { 2 };
        Ok(Wakeup {
            has_ended: is_ready(0),
            has_event: channel.is_some() && is_ready(2),
            has_client: is_ready(client_at),
        })
    }

    fn send_command(
        &self,
        channel: &Channel,
        is_restart: bool,
        policy: &RefCell<Option<PolicyFile>>,
    ) -> std::io::Result<()> {
        let locks = self.locks.borrow();
        let command = Command::Serve(ServeCommand {
            locks: locks.keys().copied().collect(),
            plan: Plan { policy: policy.borrow().clone(), ..self.plan.clone() },
            mount_device: self.mount_device.clone(),
            has_status_socket: self.status_socket.is_some(),
            is_restart,
            sources: self.sources.table(),
            is_merged: self.sources.is_merged(),
        });
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![self.memory.as_fd()];
        descriptors.extend(self.status_socket.as_ref().map(AsFd::as_fd));
        descriptors.extend(self.sources.unfollowed());
        descriptors.extend(locks.values().map(AsFd::as_fd));
        descriptors.extend(self.devices.iter().map(AsFd::as_fd));
        channel.send(&command, &descriptors)
    }
}

/// The reasons why the supervisor woke up.
struct Wakeup {
    has_ended: bool,
    has_event: bool,
    has_client: bool,
}

/// Binds a Unix socket to an abstract name, which leaves no file behind.
///
/// The name contains the device number of the mount. The kernel may reuse the number of a mount that has just been
/// removed, while the daemon of that mount is still ending. So a name in use is tried again for a while.
fn listen(name: &str) -> std::io::Result<UnixListener> {
    let name = SocketAddr::from_abstract_name(name)?;
    let deadline = Instant::now() + PREDECESSOR_TIMEOUT;
    loop {
        match UnixListener::bind_addr(&name) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < deadline => {
                sleep(Duration::from_millis(5));
            }
            bound => return bound,
        }
    }
}
