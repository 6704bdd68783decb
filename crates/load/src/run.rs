//! Runs a plan: its threads, from the start to the report.

use std::os::fd::BorrowedFd;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::budget::Budget;
use crate::client::Client;
use crate::engine::{Engine, RunState, ThreadResults};
use crate::failures::Failures;
use crate::plan::Plan;
use crate::progress::{Board, Progress, Snapshot};
use crate::report::{self, Outcome, Report};
use crate::timeline::Timeline;
use crate::{Error, Protocol};

/// Descriptors that a process needs besides its connections.
const OTHER_DESCRIPTORS: u64 = 16;

/// Runs the plan and returns the report. The run ends as planned, when `stop` becomes readable, or when no
/// connection can be made at all. `watch` is called ten times a second.
///
/// The calling thread is the first of the plan's threads. Raises the process's soft limit of descriptors if
/// necessary, and lowers the threads' timer slack so that requests of an open loop leave on time.
///
/// # Errors
/// More connections than the process may have descriptors, or a kernel without epoll.
pub fn run(
    plan: &Plan,
    stop: Option<BorrowedFd<'_>>,
    watch: &mut dyn FnMut(&Progress),
) -> Result<Report, Error> {
    let connections = plan.classes.iter().map(|class| u64::from(class.connections)).sum();
    let threads = threads(plan, connections);
    let plan = &Plan { threads, ..plan.clone() };
    let threads = threads as usize;
    allow_descriptors(connections + threads as u64)?;
    let shared = RunState { budget: Budget::new(plan.requests), timeline: Timeline::default() };
    let board = Board::new(threads);
    let barrier = Barrier::new(threads);
    let engine = |thread: usize, watch: &mut dyn FnMut(&Snapshot)| {
        let engine = Engine::new(plan, &shared, thread, stop);
        barrier.wait();
        engine?.run(Instant::now(), watch)
    };
    let results = thread::scope(|scope| {
        let (board, engine) = (&board, &engine);
        let other = |thread| {
            scope.spawn(move || engine(thread, &mut |snapshot| board.post(thread, snapshot)))
        };
        let others: Vec<_> = (1..threads).map(other).collect();
        let first = engine(0, &mut |snapshot| {
            board.post(0, snapshot);
            watch(&board.collect());
        });
        let others =
            others.into_iter().map(|other| other.join().unwrap_or(Err(Error::no_thread())));
        std::iter::once(first).chain(others).collect::<Result<Vec<_>, _>>()
    })?;
    Ok(finish(plan, results, &shared))
}

/// Returns the number of threads: none is without a client, and a broadcast has one.
fn threads(plan: &Plan, connections: u64) -> u32 {
    let most = u32::try_from(connections).unwrap_or(u32::MAX).max(1);
    match &plan.protocol {
        Protocol::WebSocket(messages) if messages.is_broadcast => 1,
        _ => plan.threads.clamp(1, most),
    }
}

/// Puts the clients of all threads in the plan's order again, and reports on them.
fn finish(plan: &Plan, results: Vec<ThreadResults>, shared: &RunState) -> Report {
    let elapsed = results.iter().map(|one| one.elapsed).max().unwrap_or_default();
    let end_ns = results.iter().map(|one| one.end_ns).max().unwrap_or(0);
    let mut outcome = Outcome {
        elapsed,
        end_ns,
        failures: Failures::default(),
        broadcasts: None,
        timeline: shared.timeline.rows(elapsed),
    };
    let mut dealt = Vec::new();
    for one in results {
        outcome.failures.merge(one.failures);
        outcome.broadcasts = outcome.broadcasts.or(one.broadcasts);
        dealt.push(one.clients.into_iter());
    }
    let mut clients: Vec<Client> = Vec::new();
    loop {
        let before = clients.len();
        clients.extend(dealt.iter_mut().filter_map(Iterator::next));
        if clients.len() == before {
            break;
        }
    }
    report::report(plan, &clients, &outcome)
}

/// Raises the soft limit of descriptors if it is too low for `connections`.
fn allow_descriptors(connections: u64) -> Result<(), Error> {
    let needed = connections + OTHER_DESCRIPTORS;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if let Some(allowed) = limit.maximum.filter(|maximum| *maximum < needed) {
        return Err(Error::descriptors(needed, allowed));
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limit.maximum })
        .map_err(|errno| Error::system("raise the limit of descriptors", errno))
}
