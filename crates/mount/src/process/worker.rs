//! The process that serves the kernel's requests: it negotiates features, then runs a thread for each CPU.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use thruway_fuse::wire::feature;
use thruway_fuse::{ConnectionOptions, Frame, InitRequest, Operation, Reply};
use thruway_sys::fuse_ring;
use thruway_sys::signal::BlockedSignals;

use super::channel::Channel;
use super::ipc::{Event, ServeCommand, Update};
use crate::limits::GRACE;
use crate::memory::Memory;
use crate::plan::{FollowLinks, OnFull};
use crate::policy::PolicyFile;
use crate::schedule::reader_activity::{Activity, MonitorThread};
use crate::transport::device::{Device, ReadOutcome};
use crate::transport::dispatch::Services;
use crate::transport::pool::Pool;
use crate::transport::reader::Reader;
use crate::transport::reader_pool::{self, ReaderSlot};
use crate::transport::reply::ReplySender;
use crate::transport::ring;
use crate::upper::Upper;
use crate::view::{Behaviour, PolicyEnforcer, SourcePlaces, Timeouts, View};
use crate::{Changes, Error, Log, Mode, Plan, Transport, attach, limits, status, watch};

/// The interval at which idle descriptors are closed.
const AGE_INTERVAL: Duration = Duration::from_secs(5);

/// The maximum number of pages in a request if the kernel moves file data: only folders and extended attributes are
/// transferred.
const PASSTHROUGH_PAGES_MAX: u16 = 32;
/// The maximum number of pages in a request if the daemon moves file data: 1 MiB.
const DATA_PAGES_MAX: u16 = 256;

/// The descriptors that arrived with the command to serve.
struct InheritedFds {
    memory: Arc<Memory>,
    status_socket: Option<UnixListener>,
    roots: Vec<OwnedFd>,
    locked: Vec<OwnedFd>,
    devices: Vec<OwnedFd>,
}

/// Serves requests until the mount is gone.
pub(crate) fn run(
    service: ServeCommand,
    descriptors: Vec<OwnedFd>,
    log: &Log,
    channel: Channel,
) -> Result<(), Error> {
    let target = service.plan.target.clone();
    let failed = |cause: std::io::Error| Error::new("cannot serve", &target, cause);
    // A panic must not leave a caller waiting: the process aborts, and the next worker receives the request again.
    abort_on_panic(log.clone());
    // Ctrl-C in a terminal signals the worker as well, but the supervisor handles the signal.
    let signals = BlockedSignals::new(&[Signal::HUP, Signal::INT, Signal::TERM]).map_err(failed)?;
    let inherited = InheritedFds::new(&service, descriptors).map_err(failed)?;
    let negotiated = inherited.negotiated(&service.plan).map_err(|errno| failed(errno.into()))?;
    serve(&service, inherited, negotiated, log, SupervisorLink { channel, signals })
}

fn abort_on_panic(log: Log) {
    std::panic::set_hook(Box::new(move |panic| {
        log.error(panic);
        std::process::abort();
    }));
}

fn serve(
    service: &ServeCommand,
    mut inherited: InheritedFds,
    negotiated: ConnectionOptions,
    log: &Log,
    link: SupervisorLink,
) -> Result<(), Error> {
    let memory = &inherited.memory;
    let policy = service.plan.policy.as_ref().map(PolicyFile::policy).transpose()?;
    let failed = |errno: Errno| Error::new("cannot serve", &service.plan.target, errno);
    let device = inherited.devices[0].try_clone().map_err(|_| failed(Errno::MFILE))?;
    let presence = service.plan.presence.clone();
    let sources = SourcePlaces { table: service.sources.clone(), presence };
    let view = View::new(
        Arc::clone(memory),
        (sources, std::mem::take(&mut inherited.roots)),
        device,
        negotiated,
        behaviour(service)?,
        policy.map(|policy| PolicyEnforcer::new(policy, log.clone())),
        limits::raise(),
    )
    .map_err(failed)?;
    let supervisor = link.channel.try_clone().map_err(|_| failed(Errno::MFILE))?;
    let left = std::mem::take(&mut inherited.locked);
    view.locks().inherit(service.locks.iter().copied().zip(left), supervisor);
    let view = Arc::new(view);
    if !service.is_restart {
        warn_of_missing_features(&service.plan, &negotiated, &view, log);
    }
    start_helpers(service, &view, inherited.status_socket.take());
    let (pool, memory) = (Pool::new(&view), Arc::clone(memory));
    let services = Services { view: Arc::clone(&view), memory, pool };
    let payload_bytes_max = negotiated.payload_bytes_max();
    let threads = RequestThreads {
        services,
        payload_bytes_max,
        over_ring: negotiated.has(feature::OVER_IO_URING),
    };
    let threads = threads.start(inherited.devices).map_err(failed)?;
    // The worker continues even if the supervisor is dead.
    let _ = link.channel.send(&Event::Ready, &[]);
    let (shared_view, mount) = (Arc::clone(&view), service.clone());
    thread::spawn(move || {
        link.apply_updates(&shared_view);
        link.end_after_supervisor(&mount);
    });
    if service.is_restart {
        view.take_over().map_err(failed)?;
    }
    // A panic would have aborted the process.
    let results = threads.into_iter().map(|thread| thread.join().unwrap_or(Err(Errno::IO)));
    results.collect::<Result<(), _>>().map_err(failed)
}

/// Starts the threads that serve requests.
struct RequestThreads {
    services: Services,
    payload_bytes_max: usize,
    over_ring: bool,
}

/// A thread that serves requests until the mount is gone.
type RequestThread = JoinHandle<Result<(), Errno>>;

impl RequestThreads {
    /// Starts a thread for each descriptor. With io_uring, starts a thread for each CPU's queue, and a thread for the
    /// messages that the kernel still sends over a descriptor: forgets and interrupts.
    fn start(&self, mut devices: Vec<OwnedFd>) -> Result<Vec<RequestThread>, Errno> {
        let mut threads = Vec::new();
        if self.over_ring {
            let monitor_thread = Arc::<MonitorThread>::default();
            let mut activities = Vec::new();
            for share in ring::shares(self.payload_bytes_max)? {
                let device = devices[0].try_clone().map_err(|_| Errno::MFILE)?;
                let activity = Activity::new(&monitor_thread);
                activities.push(Arc::clone(&activity));
                threads.push(self.at_ring(device, share, activity));
            }
            // The thread ends with the process.
            thread::spawn(move || ring::monitor(&monitor_thread, activities));
            devices.truncate(1);
        }
        let reader_slots = reader_pool::reader_slots(devices.len());
        let at_devices = devices.into_iter().zip(reader_slots);
        threads.extend(at_devices.map(|(device, slot)| self.at_device(device, slot)));
        Ok(threads)
    }

    fn at_device(&self, device: OwnedFd, slot: ReaderSlot) -> RequestThread {
        let (services, payload_bytes_max) = (self.services.clone(), self.payload_bytes_max);
        thread::spawn(move || Reader::new(device, payload_bytes_max, services)?.run(slot))
    }

    fn at_ring(
        &self,
        device: OwnedFd,
        share: ring::QueueShare,
        activity: Arc<Activity>,
    ) -> RequestThread {
        let (services, payload_bytes_max) = (self.services.clone(), self.payload_bytes_max);
        thread::spawn(move || {
            ring::QueueServer::new(device, &share, payload_bytes_max, activity, services)?.run()
        })
    }
}

/// The connection to the supervisor, and the signals to handle after the supervisor has died.
struct SupervisorLink {
    channel: Channel,
    /// Signals that the supervisor handles for as long as it lives.
    signals: BlockedSignals,
}

impl SupervisorLink {
    /// Applies each change that the supervisor sends, until the supervisor is dead.
    fn apply_updates(&self, view: &View) {
        while let Ok(Some((update, _))) = self.channel.receive::<Update>() {
            match update {
                // The supervisor has already checked the policy.
                Update::Policy(policy) => {
                    drop(policy.policy().map(|policy| view.set_policy(policy)))
                }
                Update::Sources(table) => {
                    view.set_sources(table);
                    let _ = self.channel.send(&Event::SourcesSet, &[]);
                }
            }
        }
    }

    /// Waits for a signal that ends the mount, after the supervisor has died, and ends this process.
    #[expect(
        clippy::disallowed_methods,
        reason = "the request threads do not end while the mount is in use"
    )]
    fn end_after_supervisor(&self, mount: &ServeCommand) {
        loop {
            let _ = poll(&mut [PollFd::new(&self.signals, PollFlags::IN)], None);
            match self.signals.next() {
                Ok(Some(Signal::INT | Signal::TERM)) | Err(_) => break,
                Ok(_) => {}
            }
        }
        // If the unmount fails, the mount ends with this process.
        let _ = attach::detach_own(&mount.plan.target, &mount.mount_device);
        thread::sleep(GRACE);
        std::process::exit(0);
    }
}

/// Starts the threads that serve no requests. They end with the process.
fn start_helpers(service: &ServeCommand, view: &Arc<View>, status_socket: Option<UnixListener>) {
    let aging = Arc::clone(view);
    thread::spawn(move || {
        loop {
            thread::sleep(AGE_INTERVAL);
            aging.age();
        }
    });
    start_notifiers(view);
    let deferring = Arc::clone(view);
    thread::spawn(move || deferring.run_deferred());
    let following = Arc::clone(view);
    thread::spawn(move || following.follow_mounts());
    let locking = Arc::clone(view);
    thread::spawn(move || locking.locks().keep_trying());
    if let Some(listener) = status_socket {
        let (view, plan) = (Arc::clone(view), service.plan.clone());
        thread::spawn(move || status::serve(&listener, || view.status(&plan)));
    }
}

/// Starts the threads that report changes. With [`Changes::Told`] there are two threads for each CPU, since the kernel
/// may block one of them on a lock; otherwise a single thread suffices.
fn start_notifiers(view: &Arc<View>) {
    if view.changes() != Changes::Told {
        let view = Arc::clone(view);
        thread::spawn(move || {
            view.watch().map(|watch| watch.run_late(|change| view.apply(change)))
        });
        return;
    }
    for processor in watch::processors().flat_map(|processor| [processor; 2]) {
        let view = Arc::clone(view);
        thread::spawn(move || {
            // A thread that could not move to the CPU, or lacks the priority, reports the same changes later.
            let _ = watch::preempt_on(processor);
            view.watch().map(|watch| watch.run(|change| view.apply(change)))
        });
    }
}

fn warn_of_missing_features(plan: &Plan, negotiated: &ConnectionOptions, view: &View, log: &Log) {
    if plan.transport == Transport::IoUring && !negotiated.has(feature::OVER_IO_URING) {
        log.warn(
            "requests arrive over /dev/fuse: io_uring needs Linux 6.14, \
             /sys/module/fuse/parameters/enable_uring, and permission for this process",
        );
    }
    if plan.mode == Mode::Frozen || !plan.passthrough || view.passes_through() {
        return;
    }
    log.warn(if negotiated.has(feature::PASSTHROUGH) {
        "passthrough needs CAP_SYS_ADMIN in the initial user namespace: data goes through the daemon"
    } else {
        "this kernel has no passthrough (Linux 6.9 or later is needed): data goes through the daemon"
    });
}

impl InheritedFds {
    fn new(service: &ServeCommand, descriptors: Vec<OwnedFd>) -> std::io::Result<Self> {
        let mut descriptors = descriptors.into_iter();
        let missing = || std::io::Error::other("a descriptor is missing");
        let memory = Memory::from_file(descriptors.next().ok_or_else(missing)?)?;
        let status_socket = match service.has_status_socket {
            true => Some(descriptors.next().ok_or_else(missing)?.into()),
            false => None,
        };
        let roots: Vec<_> = descriptors
            .by_ref()
            .take(service.sources.entries.iter().filter(|entry| entry.place.is_none()).count())
            .collect();
        let locked: Vec<_> = descriptors.by_ref().take(service.locks.len()).collect();
        let devices: Vec<_> = descriptors.collect();
        if devices.is_empty() {
            return Err(missing());
        }
        Ok(Self { memory: Arc::new(memory), status_socket, roots, locked, devices })
    }

    /// Returns the features that the previous worker has negotiated, or negotiates them.
    fn negotiated(&self, plan: &Plan) -> Result<ConnectionOptions, Errno> {
        if let Some(negotiated) = self.memory.negotiated() {
            return Ok(negotiated);
        }
        let device = Device::new(self.devices[0].try_clone().map_err(|_| Errno::MFILE)?);
        let negotiated = negotiate(&device, plan)?;
        self.memory.set_negotiated(&negotiated);
        Ok(negotiated)
    }
}

/// Replies to the kernel's first request, INIT.
fn negotiate(device: &Device, plan: &Plan) -> Result<ConnectionOptions, Errno> {
    let mut buffer = vec![0; 64 * 1024];
    let ReadOutcome::Request(length) = device.receive(&mut buffer)? else {
        return Err(Errno::NODEV);
    };
    let frame = Frame::from_bytes(&buffer[..length]).map_err(|_| Errno::PROTO)?;
    let request = frame.request().map_err(|_| Errno::PROTO)?;
    let Operation::Init(init, high_features) = request.operation else {
        return Err(Errno::PROTO);
    };
    let init = InitRequest::new(init, high_features);
    let mut reply = Reply::default();
    if !init.is_supported() {
        reply.fail(Errno::PROTO.raw_os_error());
        device.send(request.unique, &mut reply);
        return Err(Errno::PROTO);
    }
    let wanted = wanted(plan);
    let passthrough = wanted & init.features & feature::PASSTHROUGH != 0;
    let writes_arrive = plan.on_full == OnFull::Move;
    let pages_max =
        if passthrough && !writes_arrive { PASSTHROUGH_PAGES_MAX } else { DATA_PAGES_MAX };
    let negotiated = init.accept(wanted, pages_max, 1);
    negotiated.put(&mut reply);
    device.send(request.unique, &mut reply);
    Ok(negotiated)
}

/// Returns the features that this mount requests.
fn wanted(plan: &Plan) -> u64 {
    let both = feature::ASYNC_READ
        | feature::BIG_WRITES
        | feature::DONT_MASK
        | feature::DO_READDIRPLUS
        | feature::READDIRPLUS_AUTO
        | feature::ASYNC_DIO
        | feature::PARALLEL_DIROPS
        | feature::POSIX_ACL
        | feature::NO_OPENDIR_SUPPORT
        | feature::SETXATTR_EXT
        | feature::FLOCK_LOCKS
        | feature::HAS_RESEND;
    // A cached target would be shown even to callers to whom the policy refuses the link.
    let both = if plan.policy.is_none() { both | feature::CACHE_SYMLINKS } else { both };
    let both = if plan.shared_locks { both | feature::POSIX_LOCKS } else { both };
    let over_ring = plan.transport == Transport::IoUring && fuse_ring::is_available();
    let both = if over_ring { both | feature::OVER_IO_URING } else { both };
    match plan.mode {
        Mode::Frozen => both | feature::NO_OPEN_SUPPORT | feature::EXPLICIT_INVAL_DATA,
        Mode::Live => {
            both | feature::ATOMIC_O_TRUNC
                | feature::AUTO_INVAL_DATA
                | feature::HANDLE_KILLPRIV_V2
                | feature::CREATE_SUPP_GROUP
                | if plan.policy.is_none() { feature::DIRECT_IO_ALLOW_MMAP } else { 0 }
                | if plan.passthrough { feature::PASSTHROUGH } else { 0 }
        }
    }
}

fn behaviour(service: &ServeCommand) -> Result<Behaviour, Error> {
    let plan = &service.plan;
    Ok(Behaviour {
        frozen: plan.mode == Mode::Frozen,
        xattr: plan.xattr,
        shared_locks: plan.shared_locks,
        changes: plan.changes,
        create: plan.create,
        free_min_bytes: plan.free_min_bytes,
        make_folders: plan.make_folders,
        moves_when_full: plan.on_full == OnFull::Move,
        is_merged: service.is_merged,
        owners: (!plan.owners.is_plain()).then(|| plan.owners.clone()),
        follows_links_at: (plan.follow_links == FollowLinks::Regular).then(|| plan.target.clone()),
        timeouts: Timeouts { entry: plan.entry_timeout, attributes: plan.attribute_timeout },
        upper: plan.upper.as_deref().map(Upper::open).transpose()?.map(Arc::new),
    })
}
