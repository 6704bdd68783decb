//! Starts a mount, and runs as a process of a mount.

use std::fs;
use std::io;

use thruway_sys::printable;

use super::channel::Channel;
use super::ipc::{Command, Event};
use super::spawn::spawn;
use super::{supervisor, worker};
use crate::{Error, Log, LogTarget, Plan};

/// Mounts the view. With `ready`, the function stays in the foreground: it calls `ready` when the mount can be used,
/// and returns when the mount is gone. Without `ready`, it returns as soon as the mount can be used.
///
/// # Errors
/// The sources or the target cannot be used, or the mount is refused.
pub fn start(
    plan: Plan,
    ready: Option<&dyn Fn()>,
    log: impl FnOnce(&LogTarget) -> Result<Log, Error>,
) -> Result<(), Error> {
    plan.check()?;
    if let Some(ready) = ready {
        let log = log(&plan.log)?.of(&plan.target);
        return supervisor::run(&plan, &log, false, |event| {
            if matches!(event, Event::Ready) {
                ready();
            }
        });
    }
    let target = plan.target.clone();
    let failed = |cause| Error::new("cannot start the daemon for", &target, cause);
    let (channel, mut child) = spawn(true).map_err(failed)?;
    channel.send(&Command::Supervise(plan), &[]).map_err(failed)?;
    match channel.receive::<Event>().map_err(failed)? {
        Some((Event::Ready, _)) => fs::metadata(&target)
            .map(|_| ())
            .map_err(|cause| Error::new("no answer from", &target, cause)),
        Some((Event::Failed(error), _)) => {
            let _ = child.wait();
            Err(error)
        }
        _ => {
            let status = child.wait().map_err(failed)?;
            Err(Error::plain(format_args!(
                "the daemon for {} died ({status})",
                printable::path(&target)
            )))
        }
    }
}

/// Runs as a process of a mount, by the command that the parent sends over standard input.
///
/// # Errors
/// There is no parent, or the command fails.
pub fn run_inner(log: impl FnOnce(&LogTarget) -> Result<Log, Error>) -> Result<(), Error> {
    let no_parent = |cause: io::Error| {
        Error::plain(format_args!("no command on standard input: {cause}"))
            .with_hint("this verb is for thruway mount's own processes")
    };
    let channel = Channel::from_stdin().map_err(no_parent)?;
    // Without a name, the kernel calls the process `exe`, after the path that started it.
    let _ = rustix::thread::set_name(c"thruway");
    let command = channel.receive::<Command>().map_err(no_parent)?;
    let Some((command, descriptors)) = command else {
        return Err(no_parent(io::ErrorKind::UnexpectedEof.into()));
    };
    // The process continues even if its parent is gone.
    let report = |event: Event| drop(channel.send(&event, &[]));
    let done = match command {
        Command::Supervise(plan) => supervise(&plan, log, report),
        Command::Serve(service) => log(&service.plan.log).and_then(|log| {
            let supervisor = channel.try_clone().map_err(no_parent)?;
            let log = log.of(&service.plan.target);
            worker::run(service, descriptors, &log, supervisor)
                .inspect_err(|error| log.error(error))
        }),
    };
    done.inspect_err(|error| report(Event::Failed(error.clone())))
}

fn supervise(
    plan: &Plan,
    log: impl FnOnce(&LogTarget) -> Result<Log, Error>,
    report: impl Fn(Event),
) -> Result<(), Error> {
    let log = log(&plan.log)?.of(&plan.target);
    supervisor::run(plan, &log, true, report).inspect_err(|error| log.error(error))
}
