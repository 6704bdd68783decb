//! The template's end of the socket: waits for commands and supervises the forks that run them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use thruway_sys::printable;
use thruway_sys::process::{Change, Wait, send_signal, wait};
use thruway_sys::signal::{ChildEvents, DefaultActions, number};
use thruway_sys::{descriptor, peer};

use crate::boot_queries::BootQueries;
use crate::open_files::{self, Descriptors};
use crate::plan::Variable;
use crate::template_folder::{KeyFile, TemplateFolder};
use crate::terminal::Terminal;
use crate::wire::{Kind, Message, decoded};

/// A template ends after this time without a command.
pub const IDLE_MAX: Duration = Duration::from_secs(30 * 60);
/// The interval at which a template checks that its files still exist.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// The time that a client has to send its request. Clients send at once, so a slow peer is not a client.
const REQUEST_MAX: Duration = Duration::from_secs(5);

/// A description of a template, for reports.
#[derive(Debug, Clone, Default)]
pub struct Description {
    /// The folder of the application.
    pub application: String,
    /// The words of the command, for display.
    pub command: String,
    /// The number of loaded features.
    pub features: usize,
    /// The words of the command for which the template was started.
    pub words: Vec<Vec<u8>>,
    /// The number of leading words that a command must share with `words`; `None` if all words must be equal.
    pub same_words: Option<usize>,
    /// Variables outside the key that the boot read, with their values.
    pub read: Vec<Variable>,
    /// Why the template loads nothing in advance; empty if it does load features.
    pub bare: String,
}

impl Description {
    /// Returns why a command with these words and variables cannot be forked.
    fn objection(&self, words: &[Vec<u8>], environment: &[Vec<u8>]) -> Option<&'static str> {
        let is_same = |(name, then): &Variable| {
            let now = environment.chunks_exact(2).find(|pair| &pair[0] == name);
            now.map(|pair| &pair[1]) == then.as_ref()
        };
        if !self.read.iter().all(is_same) {
            return Some("its boot read a variable that has changed");
        }
        match self.same_words {
            None => (words != self.words)
                .then_some("the application reads its arguments as it boots, and they differ"),
            Some(count) => (words.get(..count) != self.words.get(..count))
                .then_some("Ruby or its script has different arguments"),
        }
    }
}

/// A waiting template.
#[derive(Debug)]
pub struct Template {
    place: TemplateFolder,
    key: u128,
    listener: UnixListener,
    events: ChildEvents,
    /// Keeps these signals fatal. Ruby's handlers only set a flag for the interpreter, which does not run
    /// while the template waits.
    _ended_by: DefaultActions,
    /// The leader of the session, if the session has a terminal.
    leader: Option<OwnedFd>,
    lock: i32,
    observed: BootQueries,
    description: Description,
    children: Vec<Child>,
    began: Instant,
    used: Instant,
    forks: u64,
    /// The duration of the last comparison, in microseconds.
    compared_us: u64,
}

#[derive(Debug)]
struct Child {
    process: i32,
    socket: UnixStream,
    is_orphan: bool,
}

/// A command to fork for.
#[derive(Debug)]
pub struct Request {
    /// The words of the command.
    pub words: Vec<Vec<u8>>,
    /// The environment: names and values in turn.
    pub environment: Vec<Vec<u8>>,
    numbers: Vec<i32>,
    descriptors: Vec<OwnedFd>,
    group: i32,
    socket: UnixStream,
    /// A description of the template, for the client.
    template: String,
}

/// The next task of a template.
#[derive(Debug)]
pub enum Task {
    /// Fork and run a command.
    Fork(Request),
    /// End.
    End,
}

impl Template {
    /// Binds the socket. `lock` is the descriptor of the key's lock, which the template now owns.
    ///
    /// # Errors
    /// The socket cannot be bound, or `/proc` cannot be read.
    pub fn listen(
        place: TemplateFolder,
        key: u128,
        lock: i32,
        observed: BootQueries,
        description: Description,
    ) -> io::Result<Self> {
        place.remove(key, KeyFile::Socket);
        let listener = UnixListener::bind(place.file(key, KeyFile::Socket))?;
        let terminal = Terminal::of_process()?;
        let leader = Pid::from_raw(terminal.session).filter(|_| terminal.is_there());
        let leader = leader.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let now = Instant::now();
        Ok(Self {
            place,
            key,
            listener,
            events: ChildEvents::new()?,
            _ended_by: DefaultActions::new(&[number::SIGTERM, number::SIGINT, number::SIGHUP])?,
            leader,
            lock,
            observed,
            description,
            children: Vec::new(),
            began: now,
            used: now,
            forks: 0,
            compared_us: 0,
        })
    }

    /// Waits for the next task.
    ///
    /// # Errors
    /// Polling failed.
    pub fn next_task(&mut self) -> io::Result<Task> {
        loop {
            let ready = self.wait()?;
            if ready.has_child_news {
                self.events.clear();
                self.reap();
            }
            if ready.has_ended_session {
                return Ok(Task::End);
            }
            if ready.has_lost_clients {
                self.kill_orphans();
            }
            if ready.has_client
                && let Some(next) = self.accept()
            {
                return Ok(next);
            }
            if self.is_over() {
                return Ok(Task::End);
            }
        }
    }

    fn wait(&self) -> io::Result<ReadySources> {
        let mut polled = vec![
            PollFd::new(&self.listener, PollFlags::IN),
            PollFd::new(&self.events, PollFlags::IN),
        ];
        polled.extend(self.leader.iter().map(|leader| PollFd::new(leader, PollFlags::IN)));
        let clients = polled.len();
        let with_client = self.children.iter().filter(|child| !child.is_orphan);
        polled.extend(with_client.map(|child| PollFd::new(&child.socket, PollFlags::RDHUP)));
        let pause = Timespec { tv_sec: LOOK_EVERY.as_secs().cast_signed(), tv_nsec: 0 };
        match poll(&mut polled, Some(&pause)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let is_ready = |one: &PollFd<'_>| !one.revents().is_empty();
        Ok(ReadySources {
            has_client: is_ready(&polled[0]),
            has_child_news: is_ready(&polled[1]),
            has_ended_session: polled[2..clients].iter().any(is_ready),
            has_lost_clients: polled[clients..].iter().any(is_ready),
        })
    }

    /// Reports to each client how its command has stopped or ended.
    fn reap(&mut self) {
        self.children.retain(|child| {
            while let Ok(Some((_, change))) = wait(Wait::News(child.process)) {
                let (message, has_ended) = match change {
                    Change::Exited(status) => {
                        (Message::new(Kind::Exited).with_number(status.into()), true)
                    }
                    Change::Killed(signal) => {
                        (Message::new(Kind::Killed).with_number(signal), true)
                    }
                    Change::Stopped { signal, .. } => {
                        (Message::new(Kind::Stopped).with_number(signal), false)
                    }
                    Change::Continued => continue,
                };
                // A client that has gone away needs no report.
                let _ = message.send(&child.socket, &[]);
                if has_ended {
                    return false;
                }
            }
            true
        });
    }

    /// Kills commands whose client was killed.
    fn kill_orphans(&mut self) {
        for child in self.children.iter_mut().filter(|child| !child.is_orphan) {
            let mut polled = [PollFd::new(&child.socket, PollFlags::RDHUP)];
            let is_gone =
                poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0);
            if is_gone {
                child.is_orphan = true;
                let _ = send_signal(child.process, number::SIGKILL);
            }
        }
    }

    fn accept(&mut self) -> Option<Task> {
        let (socket, _) = self.listener.accept().ok()?;
        let user = peer::of(socket.as_fd()).ok()?.uid;
        if user != rustix::process::geteuid().as_raw() {
            return None;
        }
        socket.set_read_timeout(Some(REQUEST_MAX)).ok()?;
        let (message, descriptors) = Message::receive(&socket).ok()??;
        match message.kind {
            Kind::Run => self.request(socket, &message, descriptors),
            Kind::Status => {
                let _ = self.report().send(&socket, &[]);
                None
            }
            Kind::Stop => Some(Task::End),
            _ => None,
        }
    }

    /// Returns the request if a fork would equal a fresh boot. On a changed file, refuses the request and
    /// ends the template, which is stale for all later commands too.
    fn request(
        &mut self,
        socket: UnixStream,
        message: &Message,
        descriptors: Vec<OwnedFd>,
    ) -> Option<Task> {
        let before = Instant::now();
        let change = self.observed.first_change(now_ns());
        self.compared_us = u64::try_from(before.elapsed().as_micros()).unwrap_or(u64::MAX);
        if let Some(path) = change {
            let reason = format!("{} has changed", printable::bytes(path));
            self.place.remove(self.key, KeyFile::Socket);
            self.unlock();
            let _ = Message::new(Kind::Refused).with(reason).send(&socket, &[]);
            return Some(Task::End);
        }
        let list = |place: usize| decoded(message.fields.get(place)?);
        let number = |bytes: &Vec<u8>| Some(i32::from_le_bytes(bytes.as_slice().try_into().ok()?));
        let numbers = list(2)?.iter().map(number).collect::<Option<Vec<_>>>()?;
        let request = Request {
            words: list(0)?,
            environment: list(1)?,
            numbers,
            descriptors,
            group: message.number(3)?,
            socket,
            template: self.name(),
        };
        if let Some(reason) = self.description.objection(&request.words, &request.environment) {
            self.refuse(&request, reason);
            return None;
        }
        (request.numbers.len() == request.descriptors.len()).then_some(Task::Fork(request))
    }

    fn name(&self) -> String {
        let (process, age) = (std::process::id(), self.began.elapsed().as_secs());
        match self.description.bare.as_str() {
            "" => format!("{process} ({age} s old)"),
            reason => format!("{process} ({age} s old), which loads nothing in advance: {reason}"),
        }
    }

    /// Records the child that was forked for a request. The child itself reports to the client that the command runs
    /// ([`Request::take_over`]). If the child ends before that report, it has not run the command.
    pub fn record_fork(&mut self, request: Request, process: i32) {
        request.join_group(process);
        self.children.push(Child { process, socket: request.socket, is_orphan: false });
        self.used = Instant::now();
        self.forks += 1;
    }

    /// Refuses a request that could not be forked.
    pub fn refuse(&self, request: &Request, reason: &str) {
        let _ = Message::new(Kind::Refused).with(reason).send(&request.socket, &[]);
    }

    /// Releases the key's lock, so that another process can start a new template.
    fn unlock(&mut self) {
        if self.lock >= 0 {
            descriptor::close(self.lock);
            self.lock = -1;
        }
    }

    /// Whether the template has been idle for too long, or its files have gone.
    fn is_over(&self) -> bool {
        let is_used = !self.children.is_empty() || self.used.elapsed() < IDLE_MAX;
        let has_socket = std::fs::metadata(self.place.file(self.key, KeyFile::Socket)).is_ok();
        !is_used || !has_socket || std::env::current_dir().is_err()
    }

    fn report(&self) -> Message {
        let memory = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let pages: u64 = memory.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
        let kib = pages * rustix::param::page_size() as u64 / 1024;
        [
            ("application", self.description.application.clone()),
            ("command", self.description.command.clone()),
            ("process", std::process::id().to_string()),
            ("age_seconds", self.began.elapsed().as_secs().to_string()),
            ("idle_seconds", self.used.elapsed().as_secs().to_string()),
            ("memory_kib", kib.to_string()),
            ("features", self.description.features.to_string()),
            ("questions", self.observed.len().to_string()),
            ("compared_us", self.compared_us.to_string()),
            ("forks", self.forks.to_string()),
            ("running", self.children.len().to_string()),
        ]
        .into_iter()
        .fold(Message::new(Kind::Report), |report, (name, value)| report.with(name).with(value))
    }

    /// Withdraws the socket, then waits until all running commands have ended.
    pub fn end(mut self) {
        self.withdraw();
        // The running commands still need their supervisor.
        while !self.children.is_empty() {
            let Ok(ready) = self.wait() else { break };
            if ready.has_client {
                // A client that connected just before the socket went away boots by itself when the
                // connection closes without an answer.
                let _ = self.listener.accept();
            }
            if ready.has_child_news {
                self.events.clear();
            }
            if ready.has_lost_clients {
                self.kill_orphans();
            }
            self.reap();
        }
    }

    fn withdraw(&mut self) {
        self.place.remove(self.key, KeyFile::Socket);
        self.unlock();
        // The descriptor of a leader that has ended stays readable and would wake `poll` at once, for ever.
        self.leader = None;
    }

    /// Releases the template's resources in a child.
    pub fn release_in_child(self) {
        if self.lock >= 0 {
            descriptor::close(self.lock);
        }
    }
}

/// The descriptors that `poll` found ready.
struct ReadySources {
    has_client: bool,
    has_child_news: bool,
    has_ended_session: bool,
    has_lost_clients: bool,
}

impl Request {
    /// Turns this process into the command's: joins its group or starts a session, installs its descriptors, and opens
    /// the boot's files again. The last step reports to the client that the command runs. Without the report, the
    /// client boots the command itself, so the command runs exactly once even if the template dies in between.
    ///
    /// # Errors
    /// A descriptor cannot be installed, or the client has gone.
    pub fn take_over(mut self) -> io::Result<()> {
        open_files::open_again(&Descriptors::of(self.descriptors.iter().map(AsFd::as_fd)))?;
        if self.group == 0 {
            let _ = rustix::process::setsid();
        } else {
            self.join_group(0);
        }
        let highest = self.numbers.iter().copied().max().unwrap_or(2) + 1;
        let socket = UnixStream::from(descriptor::copy_from(self.socket.as_fd(), highest)?);
        let process = i32::try_from(std::process::id()).unwrap_or(0);
        let template = std::mem::take(&mut self.template);
        self.place_descriptors(highest)?;
        Message::new(Kind::Started).with_number(process).with(template).send(&socket, &[])
    }

    fn place_descriptors(self, highest: i32) -> io::Result<()> {
        drop(self.socket);
        // The copies stay above all target numbers, so that installing a descriptor never overwrites another
        // one.
        let copies = self.descriptors.iter().map(|one| descriptor::copy_from(one.as_fd(), highest));
        let copies: Vec<_> = copies.collect::<io::Result<_>>()?;
        drop(self.descriptors);
        for (copy, number) in copies.iter().zip(&self.numbers) {
            descriptor::put(copy.as_fd(), *number)?;
        }
        // A standard stream that the client has closed is closed here too.
        (0..3).filter(|number| !self.numbers.contains(number)).for_each(descriptor::close);
        Ok(())
    }

    /// Puts a process into the command's group. Template and child both call this, since either may run
    /// first.
    fn join_group(&self, process: i32) {
        if self.group > 0 {
            let _ = rustix::process::setpgid(Pid::from_raw(process), Pid::from_raw(self.group));
        }
    }
}

/// Returns the current time in nanoseconds since 1970.
#[must_use]
pub fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_command_of_other_words_is_no_fork() {
        let words = |text: &str| text.split(' ').map(|word| word.into()).collect::<Vec<Vec<u8>>>();
        let mut description = Description {
            words: words("ruby -s a.rb x"),
            same_words: Some(3),
            ..Description::default()
        };
        for (command, is_other) in
            [("ruby -s a.rb y z", false), ("ruby -s a.rb", false), ("ruby -s b.rb x", true)]
        {
            assert_eq!(
                description.objection(&words(command), &[]).is_some(),
                is_other,
                "{command}"
            );
        }
        assert!(description.objection(&words("ruby -s"), &[]).is_some());
        description.same_words = None;
        assert!(description.objection(&words("ruby -s a.rb x"), &[]).is_none());
        assert!(description.objection(&words("ruby -s a.rb x y"), &[]).is_some());
    }

    #[test]
    fn a_command_with_another_value_of_a_variable_that_the_boot_read_is_no_fork() {
        let bytes =
            |all: &[&str]| all.iter().map(|one| one.as_bytes().to_vec()).collect::<Vec<_>>();
        let read = vec![(b"SHLVL".to_vec(), Some(b"1".to_vec())), (b"OLDPWD".to_vec(), None)];
        let description = Description { read, ..Description::default() };
        for (environment, is_same) in [
            (&["SHLVL", "1", "A", "2"][..], true),
            (&["SHLVL", "2"], false),
            (&[], false),
            (&["SHLVL", "1", "OLDPWD", "/"], false),
        ] {
            assert_eq!(description.objection(&[], &bytes(environment)).is_none(), is_same);
        }
    }

    #[test]
    fn a_session_that_has_ended_does_not_wake_a_template_that_ends() {
        let above = tempfile::tempdir().unwrap();
        let place = TemplateFolder::at(&above.path().join("a/b")).unwrap();
        let (observed, description) = (BootQueries::default(), Description::default());
        let mut template = Template::listen(place, 7, -1, observed, description).unwrap();
        let mut leader = Command::new("true").spawn().unwrap();
        let process = Pid::from_child(&leader);
        template.leader = Some(pidfd_open(process, PidfdFlags::empty()).unwrap());
        leader.wait().unwrap();
        let (client, socket) = UnixStream::pair().unwrap();
        template.children.push(Child { process: 0, socket, is_orphan: false });
        assert!(template.wait().unwrap().has_ended_session);
        template.withdraw();
        let going = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(client);
        });
        let mut ready = template.wait().unwrap();
        while !ready.has_lost_clients {
            // Another test's child has ended.
            assert!(ready.has_child_news && !ready.has_ended_session);
            template.events.clear();
            ready = template.wait().unwrap();
        }
        going.join().unwrap();
    }
}
