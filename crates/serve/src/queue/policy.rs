//! Decides which worker serves a waiting request, and in which order: pure functions of the workers' reports.

use super::mean_interval::MeanInterval;

/// The wait before a request may move: a short request is served sooner where it is.
pub(crate) const MOVE_AFTER_US: u64 = 300;

/// The divisor of a round that gives the lag of a worker: if a sibling's request is older than the worker's own next
/// one by more than the lag, the worker asks for it.
const LAG_PARTS: u64 = 5;

/// The rounds that must pass since a client's last request for the client to count as infrequent. A single round may
/// pass because a response was late. A credit for a late response would make the next client's response late, and so on
/// without end.
const SELDOM_ROUNDS: u64 = 2;

/// The divisor of a round that gives the minimum length of a rest, during which a client asks for nothing.
const PAUSE_PARTS: u64 = 4;

/// The minimum length of a rest: even a client that always asks seems to rest while its response is on its way.
pub(crate) const PAUSE_US_MIN: u64 = 1_000;

/// The multiple of the mean rest that gives the minimum length of a rest: if all clients rest, none goes first for
/// resting.
const PAUSE_TIMES: u64 = 2;

/// How many more requests in fibers a worker has than another one if a move makes their numbers more alike.
const UNEVEN_BY: u32 = 2;

/// The time for which a fiber computes until its worker counts as stalled.
const STALLED_AFTER_US: u64 = 10_000;

/// A worker's report of itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WorkerView {
    /// Whether the worker serves, is not about to stop, and takes the messages that it is sent.
    pub(crate) is_serving: bool,
    /// Threads without a request.
    pub(crate) free_threads: u32,
    /// Threads that hold the worker's interpreter lock, or wait for it.
    pub(crate) computing: u32,
    /// Requests that wait.
    pub(crate) waiting: u32,
    /// The lowest key of the waiting requests.
    pub(crate) oldest_us: u64,
    /// When the request with the lowest key began to wait in this worker.
    pub(crate) ready_us: u64,
    /// The requests that run in fibers and began lately; `None` if requests run in threads.
    pub(crate) in_fibers: Option<u32>,
    /// When the fiber that runs was continued; zero while none runs.
    pub(crate) slice_us: u64,
}

impl WorkerView {
    /// Whether the worker would serve another request at once.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_serving && self.free_threads > 0 && self.waiting == 0 && self.computing == 0
    }

    /// Whether the worker's oldest request has waited long enough to move.
    pub(crate) fn may_give(&self, now_us: u64) -> bool {
        self.waiting > 0 && self.waited_us(now_us) >= MOVE_AFTER_US
    }

    /// Whether a fiber has computed for so long that the requests behind it wait for an unknown time.
    fn is_stalled(&self, now_us: u64) -> bool {
        self.slice_us != 0 && now_us.saturating_sub(self.slice_us) >= STALLED_AFTER_US
    }

    fn waited_us(&self, now_us: u64) -> u64 {
        now_us.saturating_sub(self.ready_us)
    }
}

/// Whether a move from `giver` to `taker` is worth it. In threads each is: a free thread serves the request to its end.
/// In fibers a worker is often without work for a moment, while its own requests wait and will compute later. If it
/// took a request in each such moment, one worker after the other would have most of the requests, and they would wait
/// for each other there. So a request moves only to a worker that has fewer requests even afterwards, or away from a
/// fiber that computes for long, or if the request is behind those of `taker` by a round.
fn is_worth_it(giver: &WorkerView, taker: &WorkerView, now_us: u64, round_us: u64) -> bool {
    let (Some(given), Some(taken)) = (giver.in_fibers, taker.in_fibers) else { return true };
    let requests = |in_fibers: u32, view: &WorkerView| in_fibers.saturating_add(view.waiting);
    let lag_us = if taker.waiting == 0 {
        giver.waited_us(now_us)
    } else {
        taker.oldest_us.saturating_sub(giver.oldest_us)
    };
    requests(given, giver) >= requests(taken, taker).saturating_add(UNEVEN_BY)
        || giver.is_stalled(now_us) && taker.is_idle()
        || lag_us >= round_us
}

/// Whether a client is infrequent, so that its request gets a credit. The interval between two requests of an
/// infrequent client is at least two rounds, so each waiting request is overtaken by the client at most once. A client
/// is also infrequent if it pauses between a response and its next request for a quarter of a round, and far longer
/// than clients do on average: such a client gets at most four requests while a client without pauses gets one.
///
/// `interval_us` is the time since the client's last request was ready, `pause_us` the time since its last response.
/// Both are zero for the first request.
pub(crate) fn asks_seldom(
    interval_us: u64,
    pause_us: u64,
    round: &MeanInterval,
    pauses: &MeanInterval,
) -> bool {
    let round_us = round.us();
    let pause_us_min = (round_us / PAUSE_PARTS).max(PAUSE_US_MIN).max(PAUSE_TIMES * pauses.us());
    round.is_known() && (interval_us >= SELDOM_ROUNDS * round_us || pause_us >= pause_us_min)
}

/// A request's key in the run queue: the time at which it was ready, less the credit of a round.
pub(crate) fn key_us(ready_us: u64, has_credit: bool, round: &MeanInterval) -> u64 {
    if has_credit { ready_us.saturating_sub(round.us()) } else { ready_us }
}

/// The idle worker to which `me` sends its oldest request.
pub(crate) fn give_to(
    views: &[WorkerView],
    me: usize,
    now_us: u64,
    round_us: u64,
) -> Option<usize> {
    let mut idle = siblings(views, me)
        .filter(|(_, view)| view.is_idle() && is_worth_it(&views[me], view, now_us, round_us));
    if views[me].may_give(now_us) { idle.next().map(|(worker, _)| worker) } else { None }
}

/// The worker that `me` asks for its oldest request: `me` is idle, or that request is older by a part of a round than
/// the next one of `me`, whose key is `my_next_us`.
///
/// If `me` has work of its own, it takes none before the sibling has granted or refused the request. Otherwise, the
/// request that arrives would wait for a turn at `me`, siblings would ask for it in the meantime, and no worker would
/// serve it.
pub(crate) fn ask_from(
    views: &[WorkerView],
    me: usize,
    now_us: u64,
    my_next_us: Option<u64>,
    round_us: u64,
) -> Option<usize> {
    let givers = siblings(views, me).filter(|(_, view)| {
        view.may_give(now_us) && is_worth_it(view, &views[me], now_us, round_us)
    });
    let (giver, view) = givers.min_by_key(|(_, view)| view.oldest_us)?;
    let is_due = |next_us| {
        views[me].is_serving
            && views[me].free_threads > 0
            && view.oldest_us.saturating_add(round_us / LAG_PARTS) < next_us
    };
    my_next_us.map_or(views[me].is_idle(), is_due).then_some(giver)
}

/// Whether `me`, which is idle and has asked for nothing, should look again soon. It should if a sibling has a request
/// that may move shortly: the sibling may not have seen that `me` is idle, and nothing else would tell it.
pub(crate) fn looks_again(views: &[WorkerView], me: usize) -> bool {
    views[me].is_idle() && siblings(views, me).any(|(_, view)| view.waiting > 0)
}

/// Whether `giver` sends its oldest request to `asker`. The loads may have changed since `asker` has asked.
pub(crate) fn grants(
    views: &[WorkerView],
    giver: usize,
    asker: usize,
    now_us: u64,
    round_us: u64,
) -> bool {
    let (mine, its) = (&views[giver], &views[asker]);
    giver != asker
        && its.is_serving
        && mine.may_give(now_us)
        && is_worth_it(mine, its, now_us, round_us)
        && (its.waiting == 0 || mine.oldest_us < its.oldest_us)
}

fn siblings(views: &[WorkerView], me: usize) -> impl Iterator<Item = (usize, &WorkerView)> {
    views.iter().enumerate().filter(move |(worker, view)| *worker != me && view.is_serving)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::queue::run_queue::RunQueue;

    const NOW_US: u64 = 10_000;

    /// A worker with one free thread and no waiting request.
    const IDLE: WorkerView = WorkerView {
        is_serving: true,
        free_threads: 1,
        computing: 0,
        waiting: 0,
        oldest_us: 0,
        ready_us: 0,
        in_fibers: None,
        slice_us: 0,
    };

    /// A worker whose only thread computes, and whose oldest request has waited for the given time.
    fn busy(waited_us: u64) -> WorkerView {
        let ready_us = NOW_US - waited_us;
        WorkerView {
            free_threads: 0,
            computing: 1,
            waiting: 1,
            oldest_us: ready_us,
            ready_us,
            ..IDLE
        }
    }

    #[test]
    fn a_client_that_asks_seldom_has_a_credit_of_a_round() {
        let mut round = MeanInterval::default();
        (0..100).for_each(|_| round.note(500));
        let is_seldom = |interval_us| asks_seldom(interval_us, 0, &round, &MeanInterval::default());
        assert_eq!([0, 500, 999].map(is_seldom), [false; 3], "a response was late at most");
        assert_eq!([1_000, 2_000].map(is_seldom), [true; 2]);
        assert_eq!([false, true].map(|it| NOW_US - key_us(NOW_US, it, &round)), [0, 500]);
        assert_eq!(key_us(100, true, &round), 0, "keys are no less than zero");
    }

    #[test]
    fn there_is_no_credit_before_the_round_is_known() {
        let mut round = MeanInterval::default();
        assert!(!asks_seldom(2_000, 9_999, &round, &MeanInterval::default()));
        round.note(500);
        assert!(!asks_seldom(2_000, 9_999, &round, &MeanInterval::default()));
    }

    #[test]
    fn a_client_that_pauses_for_a_quarter_of_a_round_has_a_credit_of_one() {
        let mut round = MeanInterval::default();
        (0..32).for_each(|_| round.note(8_000));
        let pauses = |mean_us| {
            let mut pauses = MeanInterval::default();
            (0..32).for_each(|_| pauses.note(mean_us));
            pauses
        };
        let is_seldom = |pause_us| asks_seldom(3_000, pause_us, &round, &pauses(100));
        assert_eq!([0, 1_999, 2_000, 9_000].map(is_seldom), [false, false, true, true]);
        assert!(!asks_seldom(3_000, 2_000, &round, &pauses(1_001)), "all rest");
        let mut short = MeanInterval::default();
        (0..32).for_each(|_| short.note(100));
        assert!(!asks_seldom(120, 90, &short, &pauses(10)), "it is on its way");
    }

    #[test]
    fn a_request_is_given_to_an_idle_worker_once_it_has_waited() {
        assert_eq!(give_to(&[busy(300), busy(0), IDLE], 0, NOW_US, 1_000), Some(2));
        assert_eq!(give_to(&[busy(299), IDLE], 0, NOW_US, 1_000), None);
        let others = [
            WorkerView { waiting: 1, ..IDLE },
            WorkerView { computing: 1, ..IDLE },
            WorkerView { free_threads: 0, ..IDLE },
            WorkerView { is_serving: false, ..IDLE },
        ];
        for other in others {
            assert_eq!(give_to(&[busy(300), other], 0, NOW_US, 1_000), None, "{other:?}");
        }
    }

    #[test]
    fn credit_moves_no_request_sooner() {
        let rested = WorkerView { oldest_us: 0, ..busy(299) };
        assert_eq!(give_to(&[rested, IDLE], 0, NOW_US, 1_000), None);
        assert_eq!(ask_from(&[rested, IDLE], 1, NOW_US, None, 1_000), None);
    }

    #[test]
    fn an_idle_worker_asks_for_the_oldest() {
        let views = [IDLE, busy(400), busy(500), busy(200)];
        assert_eq!(ask_from(&views, 0, NOW_US, None, 1_000), Some(2));
        assert_eq!(ask_from(&[IDLE, busy(299)], 0, NOW_US, None, 1_000), None);
        let busy_one = WorkerView { computing: 1, ..IDLE };
        assert_eq!(ask_from(&[busy_one, busy(500)], 0, NOW_US, None, 1_000), None);
    }

    #[test]
    fn an_idle_worker_looks_again_for_what_is_not_to_be_moved_yet() {
        assert!(looks_again(&[IDLE, busy(0)], 0));
        assert!(!looks_again(&[IDLE, IDLE], 0), "nothing waits");
        assert!(!looks_again(&[busy(0), busy(0)], 0), "it has work");
        let gone = WorkerView { is_serving: false, ..busy(0) };
        assert!(!looks_again(&[IDLE, gone], 0));
    }

    #[test]
    fn a_worker_asks_for_a_request_older_than_its_own_by_a_part_of_a_round() {
        let me = WorkerView { waiting: 1, ..IDLE };
        let asks = |other, next_us| ask_from(&[me, other], 0, NOW_US, Some(next_us), 900);
        assert_eq!(asks(busy(1_000), NOW_US - 819), Some(1));
        assert_eq!(asks(busy(1_000), NOW_US - 820), None);
    }

    #[test]
    fn a_request_goes_to_a_worker_that_would_still_serve_it_sooner() {
        let waits = |key_us| WorkerView { waiting: 1, oldest_us: key_us, ..IDLE };
        assert!(grants(&[busy(400), IDLE], 0, 1, NOW_US, 1_000));
        assert!(grants(&[busy(400), waits(NOW_US - 399)], 0, 1, NOW_US, 1_000));
        assert!(!grants(&[busy(400), waits(NOW_US - 400)], 0, 1, NOW_US, 1_000));
        assert!(!grants(&[busy(299), IDLE], 0, 1, NOW_US, 1_000), "it has only just come");
        assert!(!grants(
            &[busy(400), WorkerView { is_serving: false, ..IDLE }],
            0,
            1,
            NOW_US,
            1_000
        ));
    }

    /// A worker with requests in fibers, of which one computes since 3 ms, and others that have waited for 1 ms.
    fn in_fibers(running: u32, waiting: u32) -> WorkerView {
        let slice_us = NOW_US - 3_000;
        WorkerView { waiting, in_fibers: Some(running), slice_us, ..busy(1_000) }
    }

    #[test]
    fn requests_in_fibers_move_to_a_worker_that_has_fewer_even_afterwards() {
        let idle = |running| WorkerView { in_fibers: Some(running), ..IDLE };
        let takes = |running, waiting, taken| {
            let views = [in_fibers(running, waiting), idle(taken)];
            let given = give_to(&views, 0, NOW_US, 5_000);
            assert_eq!(ask_from(&views, 1, NOW_US, None, 5_000).is_some(), given.is_some());
            assert_eq!(grants(&views, 0, 1, NOW_US, 5_000), given.is_some());
            given.is_some()
        };
        assert!(takes(1, 1, 0));
        assert!(!takes(1, 1, 1), "the fiber of the taker will compute as well");
        assert!(takes(7, 3, 8));
        assert!(!takes(7, 3, 9));
        let idle_in_threads = [in_fibers(7, 3), IDLE];
        assert_eq!(give_to(&idle_in_threads, 0, NOW_US, 5_000), Some(1));
    }

    #[test]
    fn requests_leave_a_fiber_that_computes_for_long_and_a_worker_that_is_a_round_behind() {
        let idle = WorkerView { in_fibers: Some(9), ..IDLE };
        let after = |slice_us| WorkerView { slice_us: NOW_US - slice_us, ..in_fibers(1, 1) };
        let gives = |view, round_us| give_to(&[view, idle], 0, NOW_US, round_us).is_some();
        assert!(!gives(after(STALLED_AFTER_US - 1), 5_000));
        let stalled = WorkerView { slice_us: 1, ..in_fibers(1, 1) };
        let late = [stalled, idle].map(|view| WorkerView { ready_us: STALLED_AFTER_US, ..view });
        assert_eq!(give_to(&late, 0, 1 + STALLED_AFTER_US + MOVE_AFTER_US, 5_000), Some(1));
        assert!(!gives(WorkerView { slice_us: 0, ..stalled }, 5_000), "no fiber runs");
        assert!(!gives(after(1), 1_001));
        assert!(gives(after(1), 1_000), "it has waited for a round");
        let busy_taker = WorkerView { oldest_us: NOW_US - 400, ..in_fibers(9, 1) };
        let views = [in_fibers(1, 1), WorkerView { free_threads: 1, ..busy_taker }];
        let asks = |round_us| ask_from(&views, 1, NOW_US, Some(NOW_US - 400), round_us);
        assert_eq!([601, 600].map(asks), [None, Some(0)]);
    }

    #[test]
    fn the_page_says_when_a_worker_is_stalled() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/explanation/design/queue.md");
        let page = std::fs::read_to_string(page).unwrap();
        assert!(page.contains(&format!("has computed for {} ms", STALLED_AFTER_US / 1_000)));
    }

    #[test]
    fn a_worker_without_a_free_thread_asks_for_nothing() {
        let full = WorkerView { waiting: 1, free_threads: 0, ..IDLE };
        assert_eq!(ask_from(&[full, busy(1_000)], 0, NOW_US, Some(NOW_US), 900), None);
    }

    proptest! {
        /// In each step, a client sends a request, or the next request is served at once. Whatever length the round is
        /// taken for, a client passes a waiting request at most once.
        #[test]
        fn no_client_passes_a_waiting_request_twice(
            steps in prop::collection::vec((any::<bool>(), 0_usize..6, 1_u64..300), 0..400),
        ) {
            let (mut queue, mut round, mut now_us) = (RunQueue::default(), MeanInterval::default(), 0);
            let mut ready_us: [Option<u64>; 6] = [None; 6];
            let mut passed = [[0; 6]; 6];
            for (asks, client, pause_us) in steps {
                now_us += pause_us;
                let slot = client as u32;
                if asks && !queue.contains(slot) {
                    let interval_us = ready_us[client].map_or(0, |last_us| now_us - last_us);
                    round.note(interval_us);
                    let has_credit = asks_seldom(interval_us, 0, &round, &MeanInterval::default());
                    queue.enqueue(slot, key_us(now_us, has_credit, &round));
                    ready_us[client] = Some(now_us);
                    passed[client] = [0; 6];
                } else if let Some((served, _)) = queue.next() {
                    let served = served as usize;
                    for waiting in queue.iter().map(|slot| slot as usize) {
                        passed[waiting][served] += usize::from(ready_us[served] > ready_us[waiting]);
                        prop_assert!(passed[waiting][served] <= 1, "{waiting} by {served}");
                    }
                }
            }
        }
    }
}
