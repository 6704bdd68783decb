//! Starting a mount, and the processes behind it.

use std::fs;
use std::io;

use super::channel::Channel;
use super::ipc::{Order, Report};
use super::spawn::spawn;
use super::{supervisor, worker};
use crate::{Error, Log, LogTarget, Plan};

/// Mounts, in the foreground if there is a `ready` to be called when the mount answers. In the foreground it
/// returns when the mount is gone, else as soon as it answers.
///
/// # Errors
/// The sources or the target cannot be used, or the mount is refused.
pub fn start(
    plan: Plan,
    ready: Option<&dyn Fn()>,
    log: impl FnOnce(&LogTarget) -> Result<Log, Error>,
) -> Result<(), Error> {
    if let Some(ready) = ready {
        let log = log(&plan.log)?.of(&plan.target);
        return supervisor::run(&plan, &log, false, |report| {
            if matches!(report, Report::Ready) {
                ready();
            }
        });
    }
    let target = plan.target.clone();
    let failed = |cause| Error::new("cannot start the daemon for", &target, cause);
    let (channel, mut child) = spawn(true).map_err(failed)?;
    channel.send(&Order::Supervise(plan), &[]).map_err(failed)?;
    match channel.receive::<Report>().map_err(failed)? {
        Some((Report::Ready, _)) => fs::metadata(&target)
            .map(|_| ())
            .map_err(|cause| Error::new("no answer from", &target, cause)),
        Some((Report::Failed(error), _)) => {
            let _ = child.wait();
            Err(error)
        }
        _ => {
            let status = child.wait().map_err(failed)?;
            Err(Error::plain(format_args!("the daemon for {} died ({status})", target.display())))
        }
    }
}

/// Runs as a process of a mount, as the parent orders over standard input.
///
/// # Errors
/// There is no parent, or the order cannot be carried out.
pub fn run_inner(log: impl FnOnce(&LogTarget) -> Result<Log, Error>) -> Result<(), Error> {
    let no_parent = |cause: io::Error| {
        Error::plain(format_args!("no order on standard input: {cause}"))
            .with_hint("this verb is for thruway mount's own processes")
    };
    let channel = Channel::from_stdin().map_err(no_parent)?;
    // Else the kernel shows `exe`, after the path that it was started by.
    let _ = rustix::thread::set_name(c"thruway");
    let order = channel.receive::<Order>().map_err(no_parent)?;
    let Some((order, descriptors)) = order else {
        return Err(no_parent(io::ErrorKind::UnexpectedEof.into()));
    };
    // Who asked may be gone by now; that is no reason to stop.
    let report = |report: Report| drop(channel.send(&report, &[]));
    let done = match order {
        Order::Supervise(plan) => supervise(&plan, log, report),
        Order::Serve(service) => log(&service.plan.log).and_then(|log| {
            let supervisor = channel.try_clone().map_err(no_parent)?;
            let log = log.of(&service.plan.target);
            worker::run(service, descriptors, &log, supervisor)
                .inspect_err(|error| log.error(error))
        }),
    };
    done.inspect_err(|error| report(Report::Failed(error.clone())))
}

fn supervise(
    plan: &Plan,
    log: impl FnOnce(&LogTarget) -> Result<Log, Error>,
    report: impl Fn(Report),
) -> Result<(), Error> {
    let log = log(&plan.log)?.of(&plan.target);
    supervisor::run(plan, &log, true, report).inspect_err(|error| log.error(error))
}
