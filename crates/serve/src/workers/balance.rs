//! Decides when connections move, and to which worker: pure functions of the workers' loads.
//!
//! The balance equalizes *service*, the turns that each connection gets, rather than the number of connections per
//! worker. Two rules run every [`PERIOD_MS`]:
//!
//! 1. A worker that serves its connections more slowly than another sends its least served connection to the fastest
//!    worker.
//! 2. The fast worker sends its most served connection back, unless the slow worker is overloaded and the fast one
//!    would still be no slower with one more connection: then the sizes change instead.
//!
//! Both rules compare rates divided by numbers of connections. Rates change slowly; a move changes the numbers at once.
//! So a worker sees the effect of a move before it decides on the next one, and the sizes settle. Where rates stay
//! unequal because the processors are, workers go on exchanging connections. Each connection has its time with the
//! faster worker, and over a second or two all get equal service.

use super::load_table::Load;

/// The time between two decisions of a worker.
pub(super) const PERIOD_MS: u64 = 20;

/// The difference, in thousandths, below which rates count as equal: noise moves no connection.
const TOLERANCE_PERMILLE: u64 = 100;

/// The idle time, in thousandths, below which a worker is overloaded.
const BUSY_IDLE_PERMILLE: u64 = 200;

/// The idle time, in thousandths, above which a worker is not slow: its clients demand little.
const CALM_IDLE_PERMILLE: u64 = 900;

/// The turns per second of all connections together below which there is nothing to equalize.
const TURNS_PER_SECOND_MIN: u64 = 20;

/// A worker's decision about its load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Move {
    /// No connection moves.
    Stay,
    /// The worker sends its least served connection to the worker with the index.
    SendLeastServed(usize),
    /// The worker sends its most served connection to the worker with the index.
    SendMostServed(usize),
}

/// The worker that gets a new connection: the one with the least load that is not full, and `me` among equals.
pub(super) fn placement(loads: &[Load], me: usize, connections_max: u64) -> usize {
    let burden = |load: &Load| load.active * 4 + load.connections;
    let mut best = me;
    let has_room = |load: &Load| load.is_serving && load.connections < connections_max;
    for (index, load) in loads.iter().enumerate().filter(|(_, load)| has_room(load)) {
        if burden(load) < burden(&loads[best]) || !loads[best].is_serving {
            best = index;
        }
    }
    best
}

/// Decides the next move of worker `me`.
pub(super) fn decide(loads: &[Load], me: usize) -> Move {
    let my_pace = pace(&loads[me]);
    let others = loads.iter().enumerate().filter(|(index, load)| *index != me && load.is_serving);
    let counted: Vec<_> = others.filter_map(|(index, load)| Some((index, pace(load)?))).collect();
    let (Some(mine), true) = (my_pace, loads[me].is_serving) else { return Move::Stay };
    let fastest = counted.iter().max_by(|one, other| one.1.total_cmp(&other.1));
    let slowest = counted.iter().min_by(|one, other| one.1.total_cmp(&other.1));
    match (fastest, slowest) {
        (Some((index, pace)), _) if is_slower(mine, *pace) => {
            if is_calm(&loads[me]) {
                Move::Stay
            } else {
                Move::SendLeastServed(*index)
            }
        }
        (_, Some((index, pace))) if is_slower(*pace, mine) => {
            let other = &loads[*index];
            if is_calm(other) || keeps_connection(&loads[me], other) {
                Move::Stay
            } else {
                Move::SendMostServed(*index)
            }
        }
        _ => Move::Stay,
    }
}

/// Turns per second of one connection; none if there are too few to compare.
fn pace(load: &Load) -> Option<f64> {
    let enough = load.active > 0 && load.turns_per_second >= TURNS_PER_SECOND_MIN;
    enough.then(|| load.turns_per_second as f64 / load.active as f64)
}

fn is_slower(one: f64, other: f64) -> bool {
    one * (1000 + TOLERANCE_PERMILLE) as f64 <= other * 1000.0
}

fn is_calm(load: &Load) -> bool {
    load.idle_permille > CALM_IDLE_PERMILLE
}

/// Whether the fast worker should keep the connection that the slow worker has sent: with one more connection, the fast
/// worker still serves each of its connections at least as fast as the slow worker with one less.
fn keeps_connection(fast: &Load, slow: &Load) -> bool {
    if slow.idle_permille > BUSY_IDLE_PERMILLE || slow.active < 2 {
        return false;
    }
    let with_one_more = fast.turns_per_second as f64 / (fast.active + 1) as f64;
    let with_one_less = slow.turns_per_second as f64 / (slow.active - 1) as f64;
    with_one_more >= with_one_less
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn load(active: u64, turns_per_second: u64, idle_permille: u64) -> Load {
        Load { is_serving: true, connections: active, active, turns_per_second, idle_permille }
    }

    #[test]
    fn a_new_connection_goes_where_least_is_to_be_done() {
        let loads = [load(2, 0, 0), load(1, 0, 0), load(1, 0, 0)];
        assert_eq!(placement(&loads, 0, 9), 1);
        assert_eq!(placement(&loads, 2, 9), 2, "a move that gains nothing is not made");
        assert_eq!(placement(&loads, 0, 1), 0, "the others are full");
        let mut loads = [load(2, 0, 0), load(0, 0, 0)];
        loads[1].is_serving = false;
        assert_eq!(placement(&loads, 0, 9), 0);
        loads[0].is_serving = false;
        loads[1].is_serving = true;
        assert_eq!(placement(&loads, 0, 9), 1, "a worker that drains keeps nothing");
    }

    #[test]
    fn equal_service_moves_no_connection() {
        assert_eq!(decide(&[load(5, 1000, 0), load(5, 1020, 0)], 0), Move::Stay);
        assert_eq!(decide(&[load(1, 5, 0), load(5, 15, 0)], 0), Move::Stay, "too little to tell");
        assert_eq!(decide(&[load(5, 1000, 0), load(0, 0, 1000)], 0), Move::Stay);
    }

    #[test]
    fn sizes_change_where_one_has_too_much() {
        let loads = [load(7, 200, 0), load(3, 200, 0)];
        assert_eq!(decide(&loads, 0), Move::SendLeastServed(1));
        assert_eq!(decide(&loads, 1), Move::Stay);
    }

    #[test]
    fn connections_are_exchanged_where_processors_are_unequal() {
        let loads = [load(5, 600, 0), load(5, 500, 0)];
        assert_eq!(decide(&loads, 0), Move::SendMostServed(1));
        assert_eq!(decide(&loads, 1), Move::SendLeastServed(0));
    }

    #[test]
    fn clients_that_ask_for_little_are_no_sign_of_a_slow_worker() {
        let loads = [load(5, 1000, 0), load(5, 100, 950)];
        assert_eq!(decide(&loads, 0), Move::Stay);
        assert_eq!(decide(&loads, 1), Move::Stay);
    }

    /// Jain's index of the service of ten connections in four seconds by two workers of the given speeds.
    fn simulate(speeds: impl Fn(u64) -> [f64; 2], first: usize, reaction_ms: f64) -> (f64, usize) {
        let mut served = [0.0_f64; 10];
        let mut at: Vec<usize> = (0..10).map(|index| usize::from(index >= first)).collect();
        let mut rates = [0.0_f64; 2];
        let mut moves = 0;
        for step in 0..(4_000 / PERIOD_MS) {
            let speeds = speeds(step * PERIOD_MS);
            let members = |worker: usize| at.iter().filter(|place| **place == worker).count();
            let sizes = [members(0), members(1)];
            for (connection, worker) in at.iter().enumerate() {
                served[connection] += speeds[*worker] / sizes[*worker].max(1) as f64;
            }
            for worker in 0..2 {
                let now = if sizes[worker] > 0 { speeds[worker] } else { 0.0 };
                rates[worker] += (now - rates[worker]) * PERIOD_MS as f64 / reaction_ms;
            }
            let loads = [0, 1].map(|worker| {
                let per_second = rates[worker] * 1000.0 / PERIOD_MS as f64;
                load(sizes[worker] as u64, per_second as u64, 0)
            });
            let decisions = [decide(&loads, 0), decide(&loads, 1)];
            for (worker, decision) in decisions.into_iter().enumerate() {
                let own = (0..10).filter(|connection| at[*connection] == worker);
                let by_service =
                    |one: &usize, other: &usize| served[*one].total_cmp(&served[*other]);
                let (chosen, target) = match decision {
                    Move::Stay => continue,
                    Move::SendLeastServed(target) => (own.min_by(by_service), target),
                    Move::SendMostServed(target) => (own.max_by(by_service), target),
                };
                if let Some(chosen) = chosen {
                    at[chosen] = target;
                    moves += 1;
                }
            }
        }
        let (sum, squares) = served
            .iter()
            .fold((0.0, 0.0), |(sum, squares), turns| (sum + turns, squares + turns * turns));
        (sum * sum / (10.0 * squares), moves)
    }

    #[test]
    fn equal_workers_settle_and_stop() {
        let (jain, moves) = simulate(|_| [100.0, 100.0], 9, 160.0);
        assert!(jain > 0.98, "{jain}");
        assert!(moves <= 6, "{moves} moves");
    }

    proptest! {
        #[test]
        fn service_becomes_equal_whatever_the_workers_get(
            fast in 20.0_f64..200.0, share in 0.2_f64..1.0, first in 0_usize..=10,
            swing_ms in 50_u64..3000, depth in 0.0_f64..0.8,
        ) {
            let speeds = |now_ms: u64| {
                let slow = fast * share * if (now_ms / swing_ms).is_multiple_of(2) { 1.0 } else { 1.0 - depth };
                [fast, slow]
            };
            let (jain, _) = simulate(speeds, first, 160.0);
            prop_assert!(jain > 0.97, "{jain}");
        }
    }
}
