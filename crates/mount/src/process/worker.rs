//! The process that answers the kernel: what is agreed on first, then a thread for each processor.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use thruway_fuse::wire::feature;
use thruway_fuse::{Agreement, Answer, Frame, Offer, Operation};
use thruway_sys::fuse_ring;
use thruway_sys::signal::BlockedSignals;

use super::channel::Channel;
use super::ipc::{Report, Service};
use crate::limits::GRACE;
use crate::memory::Memory;
use crate::policy::PolicyFile;
use crate::schedule::reader_activity::{Escort, Work};
use crate::transport::device::{Device, Received};
use crate::transport::pool::Pool;
use crate::transport::reader::Reader;
use crate::transport::reader_pool::{self, Place};
use crate::transport::reply::Replier;
use crate::transport::ring;
use crate::view::{Behaviour, PolicyEnforcer, Timeouts, View};
use crate::{Changes, Error, Log, Mode, Plan, Transport, attach, limits, status, watch};

/// How often idle descriptors are closed.
const AGE_INTERVAL: Duration = Duration::from_secs(5);

/// Most pages in a request where the kernel moves the data by itself: folders and extended
/// attributes are all that is left.
const PASSTHROUGH_PAGES_MAX: u16 = 32;
/// Most pages in a request where data comes through the daemon: 1 MiB.
const DATA_PAGES_MAX: u16 = 256;

/// What came with the order to serve.
struct Inheritance {
    memory: Arc<Memory>,
    status_socket: Option<UnixListener>,
    roots: Vec<OwnedFd>,
    locked: Vec<OwnedFd>,
    devices: Vec<OwnedFd>,
}

/// Serves until the mount is gone.
pub(crate) fn run(
    service: Service,
    descriptors: Vec<OwnedFd>,
    log: &Log,
    supervisor: Channel,
) -> Result<(), Error> {
    let target = service.plan.target.clone();
    let failed = |cause: std::io::Error| Error::new("cannot serve", &target, cause);
    // A request that panics must not leave its caller waiting: the process dies, and the next one
    // gets the request again.
    die_of_panics(log.clone());
    // The terminal's Ctrl-C is the supervisor's business.
    let signals = BlockedSignals::new(&[Signal::HUP, Signal::INT, Signal::TERM]).map_err(failed)?;
    let inheritance = Inheritance::new(&service, descriptors).map_err(failed)?;
    let agreement = inheritance.agreement(&service.plan).map_err(|errno| failed(errno.into()))?;
    serve(&service, inheritance, agreement, log, Superior { supervisor, signals })
}

fn die_of_panics(log: Log) {
    std::panic::set_hook(Box::new(move |panic| {
        log.error(panic);
        std::process::abort();
    }));
}

fn serve(
    service: &Service,
    mut inheritance: Inheritance,
    agreement: Agreement,
    log: &Log,
    superior: Superior,
) -> Result<(), Error> {
    let memory = &inheritance.memory;
    let policy = service.plan.policy.as_ref().map(PolicyFile::policy).transpose()?;
    let failed = |errno: Errno| Error::new("cannot serve", &service.plan.target, errno);
    let device = inheritance.devices[0].try_clone().map_err(|_| failed(Errno::MFILE))?;
    let view = View::new(
        Arc::clone(memory),
        std::mem::take(&mut inheritance.roots),
        device,
        agreement,
        behaviour(&service.plan),
        policy.map(|policy| PolicyEnforcer::new(policy, log.clone())),
        limits::raise(),
    )
    .map_err(failed)?;
    let keeper = superior.supervisor.try_clone().map_err(|_| failed(Errno::MFILE))?;
    let left = std::mem::take(&mut inheritance.locked);
    view.locks().inherit(service.locks.iter().copied().zip(left), keeper);
    let view = Arc::new(view);
    say_what_is_missing(&service.plan, &agreement, &view, log);
    start_helpers(service, &view, inheritance.status_socket.take());
    let team =
        Team { pool: Pool::new(Arc::clone(&view)), view: Arc::clone(&view), memory, agreement };
    let servers = team.start(inheritance.devices).map_err(failed)?;
    // Who asked may be gone by now; that is no reason to stop.
    let _ = superior.supervisor.send(&Report::Ready, &[]);
    let (ordered, mount) = (Arc::clone(&view), service.clone());
    thread::spawn(move || {
        superior.obey(&ordered);
        superior.succeed(&mount);
    });
    if service.is_restart {
        view.take_over().map_err(failed)?;
    }
    // A thread that panics has taken the process with it.
    let ends = servers.into_iter().map(|server| server.join().unwrap_or(Err(Errno::IO)));
    ends.collect::<Result<(), _>>().map_err(failed)
}

/// What the threads that answer requests have in common.
struct Team<'a> {
    view: Arc<View>,
    memory: &'a Arc<Memory>,
    pool: Arc<Pool>,
    agreement: Agreement,
}

/// A thread that answers requests until the mount is gone.
type Server = JoinHandle<Result<(), Errno>>;

impl Team<'_> {
    /// A thread for each descriptor, or for each processor's queue and one for what still comes over
    /// a descriptor: what is forgotten, and interrupts.
    fn start(&self, mut devices: Vec<OwnedFd>) -> Result<Vec<Server>, Errno> {
        let mut servers = Vec::new();
        if self.agreement.has(feature::OVER_IO_URING) {
            let escort = Arc::<Escort>::default();
            let mut works = Vec::new();
            for share in ring::shares(self.agreement.payload_bytes_max())? {
                let device = devices[0].try_clone().map_err(|_| Errno::MFILE)?;
                let work = Work::new(&escort);
                works.push(Arc::clone(&work));
                servers.push(self.at_ring(device, share, work));
            }
            // It ends with the process.
            thread::spawn(move || ring::watch(&escort, works));
            devices.truncate(1);
        }
        let places = reader_pool::places(devices.len());
        let at_devices = devices.into_iter().zip(places);
        servers.extend(at_devices.map(|(device, place)| self.at_device(device, place)));
        Ok(servers)
    }

    fn at_device(&self, device: OwnedFd, place: Place) -> Server {
        let (view, memory, pool) = self.clones();
        let payload_bytes_max = self.agreement.payload_bytes_max();
        thread::spawn(move || {
            Reader::new(device, payload_bytes_max, (&view, &memory, &pool))?.run(place)
        })
    }

    fn at_ring(&self, device: OwnedFd, share: ring::Share, work: Arc<Work>) -> Server {
        let (view, memory, pool) = self.clones();
        let payload_bytes_max = self.agreement.payload_bytes_max();
        thread::spawn(move || {
            let parts = (&*view, &*memory, &pool);
            ring::Server::new(device, &share, payload_bytes_max, work, parts)?.run()
        })
    }

    fn clones(&self) -> (Arc<View>, Arc<Memory>, Arc<Pool>) {
        (Arc::clone(&self.view), Arc::clone(self.memory), Arc::clone(&self.pool))
    }
}

/// Who says what else is to be done.
struct Superior {
    supervisor: Channel,
    /// What is the supervisor's business, as long as it lives.
    signals: BlockedSignals,
}

impl Superior {
    /// Does what the supervisor orders while requests are served.
    fn obey(&self, view: &View) {
        while let Ok(Some((policy, _))) = self.supervisor.receive::<PolicyFile>() {
            // The supervisor has found it to be right.
            if let Ok(policy) = policy.policy() {
                view.set_policy(policy);
            }
        }
    }

    /// The supervisor is dead. Who wants the mount to end tells this process now.
    #[expect(
        clippy::disallowed_methods,
        reason = "who answers requests does not end while the mount is in use"
    )]
    fn succeed(&self, mount: &Service) {
        loop {
            let _ = poll(&mut [PollFd::new(&self.signals, PollFlags::IN)], None);
            match self.signals.next() {
                Ok(Some(Signal::INT | Signal::TERM)) | Err(_) => break,
                Ok(_) => {}
            }
        }
        // If that fails, the mount dies with this process.
        let _ = attach::detach_own(&mount.plan.target, &mount.mount_device);
        thread::sleep(GRACE);
        std::process::exit(0);
    }
}

/// Threads that answer no requests; they end with the process.
fn start_helpers(service: &Service, view: &Arc<View>, status_socket: Option<UnixListener>) {
    let aging = Arc::clone(view);
    thread::spawn(move || {
        loop {
            thread::sleep(AGE_INTERVAL);
            aging.age();
        }
    });
    start_telling(view);
    let deferring = Arc::clone(view);
    thread::spawn(move || deferring.tell_deferred());
    let locking = Arc::clone(view);
    thread::spawn(move || locking.locks().keep_trying());
    if let Some(listener) = status_socket {
        let (view, plan) = (Arc::clone(view), service.plan.clone());
        thread::spawn(move || status::serve(&listener, || view.status(&plan)));
    }
}

/// Two threads for each processor, if changes are told at once: the kernel may hold one up for a lock.
fn start_telling(view: &Arc<View>) {
    if view.changes() != Changes::Told {
        let view = Arc::clone(view);
        thread::spawn(move || view.watch().map(|watch| watch.run_late(|change| view.tell(change))));
        return;
    }
    for processor in watch::processors().flat_map(|processor| [processor; 2]) {
        let view = Arc::clone(view);
        thread::spawn(move || {
            // Elsewhere, or later than others, it tells the same changes.
            let _ = watch::stay_first_on(processor);
            view.watch().map(|watch| watch.run(|change| view.tell(change)))
        });
    }
}

fn say_what_is_missing(plan: &Plan, agreement: &Agreement, view: &View, log: &Log) {
    if plan.transport == Transport::IoUring && !agreement.has(feature::OVER_IO_URING) {
        log.warn(
            "requests come over /dev/fuse: io_uring needs Linux 6.14, \
             /sys/module/fuse/parameters/enable_uring, and to be allowed to this process",
        );
    }
    if plan.mode == Mode::Frozen || !plan.passthrough || view.passes_through() {
        return;
    }
    log.warn(if agreement.has(feature::PASSTHROUGH) {
        "passthrough needs CAP_SYS_ADMIN in the first user namespace: data goes through the daemon"
    } else {
        "this kernel has no passthrough (Linux 6.9 has): data goes through the daemon"
    });
}

impl Inheritance {
    fn new(service: &Service, descriptors: Vec<OwnedFd>) -> std::io::Result<Self> {
        let mut descriptors = descriptors.into_iter();
        let missing = || std::io::Error::other("a descriptor is missing");
        let memory = Memory::from_file(descriptors.next().ok_or_else(missing)?)?;
        let status_socket = match service.has_status_socket {
            true => Some(descriptors.next().ok_or_else(missing)?.into()),
            false => None,
        };
        let roots: Vec<_> = descriptors.by_ref().take(service.plan.sources.len()).collect();
        let locked: Vec<_> = descriptors.by_ref().take(service.locks.len()).collect();
        let devices: Vec<_> = descriptors.collect();
        if roots.is_empty() || devices.is_empty() {
            return Err(missing());
        }
        Ok(Self { memory: Arc::new(memory), status_socket, roots, locked, devices })
    }

    /// What a worker before us has agreed on, or what we do now.
    fn agreement(&self, plan: &Plan) -> Result<Agreement, Errno> {
        if let Some(agreement) = self.memory.agreement() {
            return Ok(agreement);
        }
        let device = Device::new(self.devices[0].try_clone().map_err(|_| Errno::MFILE)?);
        let agreement = agree(&device, plan)?;
        self.memory.set_agreement(&agreement);
        Ok(agreement)
    }
}

/// Answers the kernel's first request.
fn agree(device: &Device, plan: &Plan) -> Result<Agreement, Errno> {
    let mut buffer = vec![0; 64 * 1024];
    let Received::Request(length) = device.receive(&mut buffer)? else { return Err(Errno::NODEV) };
    let frame = Frame::joined(&buffer[..length]).map_err(|_| Errno::PROTO)?;
    let request = frame.request().map_err(|_| Errno::PROTO)?;
    let Operation::Init(offer, high_features) = request.operation else {
        return Err(Errno::PROTO);
    };
    let offer = Offer::new(offer, high_features);
    let mut answer = Answer::default();
    if !offer.is_understood() {
        answer.fail(Errno::PROTO.raw_os_error());
        device.reply(request.unique, &mut answer);
        return Err(Errno::PROTO);
    }
    let wanted = wanted(plan);
    let passthrough = wanted & offer.features & feature::PASSTHROUGH != 0;
    let pages_max = if passthrough { PASSTHROUGH_PAGES_MAX } else { DATA_PAGES_MAX };
    let agreement = offer.accept(wanted, pages_max, 1);
    agreement.put(&mut answer);
    device.reply(request.unique, &mut answer);
    Ok(agreement)
}

/// What we want of the kernel.
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
    // Kept targets would be told to those, too, to whom the policy refuses them.
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

fn behaviour(plan: &Plan) -> Behaviour {
    Behaviour {
        frozen: plan.mode == Mode::Frozen,
        xattr: plan.xattr,
        shared_locks: plan.shared_locks,
        changes: plan.changes,
        create: plan.create,
        timeouts: Timeouts { entry: plan.entry_timeout, attributes: plan.attribute_timeout },
    }
}
