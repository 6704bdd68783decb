//! The maker of a template: a process that waits until the command has ended, and then runs the same command as a
//! template.
//!
//! The maker is not a child of the command, which would notice the maker's end, and not in the command's process group,
//! which the terminal's signals reach. The maker stays in the session, because only a process of a terminal's session
//! can join the session's jobs.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{
    Pid, PidfdFlags, Resource, WaitOptions, getrlimit, pidfd_open, setpgid, setsid, waitpid,
};
use thruway_preload::key::Key;
use thruway_preload::plan::Plan;
use thruway_preload::role::{self, Assignment, Role};
use thruway_preload::template_folder::{KeyFile, TemplateFolder};
use thruway_preload::terminal::{self, Terminal};
use thruway_preload::{client, wire};
use thruway_spawn::{Command, variables_of};
use thruway_sys::descriptor;
use thruway_sys::process::fork;

/// The number of templates that a user may have. The template that has been idle longest is evicted.
const TEMPLATES_MAX: usize = 8;
/// The number of keys whose history is kept.
const KEYS_MAX: usize = 64;
/// The descriptor number of the lock in a template: above the numbers that programs get, if the limit on descriptors
/// permits.
const LOCK_NUMBER_MIN: i32 = 600;
/// The descriptor numbers to leave from the lock's number up to the limit.
const LOCK_NUMBERS: u64 = 8;

/// The request to make a template.
pub(super) struct Order<'a> {
    pub(super) place: &'a TemplateFolder,
    pub(super) key: &'a Key,
    pub(super) lock: OwnedFd,
    pub(super) words: &'a [OsString],
    pub(super) command: &'a Command,
}

/// Starts the maker. Returns the assignment of this process, which becomes the command and reports the features that it
/// loads.
pub(super) fn start(order: &Order<'_>) -> io::Result<Assignment> {
    let number = order.key.number();
    let process = std::process::id();
    let own = pidfd_open(own_pid()?, PidfdFlags::empty())?;
    let folder = order.place.path().to_owned();
    let between = fork(|| match fork(|| make(order, &own)) {
        Ok(_) => 0,
        Err(_) => 1,
    })?;
    waitpid(Pid::from_raw(between), WaitOptions::empty())?;
    Ok(Assignment { process, key: number, lock: -1, folder })
}

fn own_pid() -> io::Result<Pid> {
    Ok(rustix::process::getpid())
}

/// Runs the maker. Returns only if no template results.
fn make(order: &Order<'_>, command: &OwnedFd) -> u8 {
    let steps = || -> io::Result<()> {
        leave_job()?;
        let_go_of_streams()?;
        let mut polled = [PollFd::new(command, PollFlags::IN)];
        rustix::io::retry_on_intr(|| poll(&mut polled, None))?;
        become_template(order)
    };
    u8::from(steps().is_err())
}

fn leave_job() -> io::Result<()> {
    if Terminal::of_process()?.is_there() {
        setpgid(None, None)?;
    } else {
        setsid()?;
    }
    Ok(())
}

/// Redirects each descriptor to /dev/null, so that files opened by the boot get the same numbers as in the command.
/// Terminals stay: Ruby checks at its start whether its streams are terminals.
fn let_go_of_streams() -> io::Result<()> {
    let nothing = openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    for number in terminal::descriptors()? {
        let is_terminal =
            number < 3 && descriptor::with(number, terminal::is_terminal) == Some(true);
        if !is_terminal && number != nothing.as_raw_fd() {
            descriptor::put(nothing.as_fd(), number)?;
        }
    }
    Ok(())
}

fn become_template(order: &Order<'_>) -> io::Result<()> {
    let number = order.key.number();
    let plan = order.place.read(number, KeyFile::Plan).and_then(|bytes| Plan::decoded(&bytes));
    if plan.is_none_or(|plan| plan.features.is_empty()) {
        // The command was killed or became a daemon before its Ruby reported its features. The next command may report
        // them.
        return Ok(());
    }
    make_room(order.place);
    order.place.forget_oldest(KEYS_MAX);
    order.place.remove(number, KeyFile::Refusal);
    order.place.write(number, KeyFile::Key, &order.key.encoded())?;
    let words: Vec<_> = order.words.iter().map(|word| word.as_encoded_bytes().to_vec()).collect();
    order.place.write(number, KeyFile::Command, &wire::encoded(&words))?;
    let lock = descriptor::copy_from(order.lock.as_fd(), lock_number())?;
    descriptor::put(lock.as_fd(), lock.as_raw_fd())?;
    let role = Role::Template(Assignment {
        process: std::process::id(),
        key: number,
        lock: lock.as_raw_fd(),
        folder: order.place.path().to_owned(),
    });
    let as_given = crate::command::of_words(order.words);
    let variables = variables_of(order.command).into_iter();
    let template = variables.fold(as_given, |command, (key, value)| command.env(key, value));
    Err(io::Error::other(template.env(role::VARIABLE, role.value()).replace().to_string()))
}

fn lock_number() -> i32 {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let last = i32::try_from(limit.saturating_sub(LOCK_NUMBERS)).unwrap_or(i32::MAX);
    last.min(LOCK_NUMBER_MIN)
}

/// Stops the templates that have been idle longest, to make room for another.
fn make_room(place: &TemplateFolder) {
    let mut idle: Vec<(u64, u128)> = Vec::new();
    for key in place.keys(KeyFile::Socket) {
        let report = client::status(place, key).ok().flatten();
        match report.and_then(|fields| number(&fields, b"idle_seconds")) {
            Some(seconds) => idle.push((seconds, key)),
            // No process listens any longer.
            None => place.remove(key, KeyFile::Socket),
        }
    }
    idle.sort_unstable();
    for (_, key) in idle.into_iter().skip(TEMPLATES_MAX - 1) {
        let _ = client::stop_template(place, key);
    }
}

/// Parses the number that follows `name` among the names and values of a report.
pub(super) fn number(fields: &[Vec<u8>], name: &[u8]) -> Option<u64> {
    let pair = fields.chunks(2).find(|pair| pair[0] == name)?;
    std::str::from_utf8(pair.get(1)?).ok()?.parse().ok()
}
