//! Who is served next: each connection in its turn.
//!
//! Two lists, after RFC 8290 (FlowQueue-CoDel). Whoever has something to do after a pause stands in
//! the list of *arrivals*, which goes first; after its turn it stands at the end of the *round*. It
//! leaves the round by coming to its front with nothing to do, or by having had nothing to do while others
//! had a part of a round's turns. So a client that thinks between its requests is served at once, and one
//! that always wants more waits for everybody else. However a client times its requests, it gets no more
//! than [`PARTS`] turns in as many as there are clients; and whoever has stood in the round for so long that
//! everybody could have had [`ROUNDS_MAX`] turns goes before all arrivals, so they starve nobody.
//!
//! Whoever is *at work*, between its turn's beginning and its end, is still of the round: with eight of ten
//! clients in the hands of threads, the two in line are not all that one has to wait for.

/// No place.
const NONE: u32 = u32::MAX;

/// Whoever had nothing to do for one of so many parts of a round has paused.
const PARTS: u32 = 4;

/// It has not paused before the second turn of others begins, however short the round: even a client
/// that always wants more is found to have nothing to do while the first one lasts.
const PAUSE_TURNS_MIN: u32 = 2;

/// Whoever has stood in the round for the turns of so many rounds goes first.
const ROUNDS_MAX: u32 = 2;

/// The places of connections that may have something to do, in the order of their turns.
#[derive(Debug)]
pub(crate) struct Rotation {
    links: Vec<Link>,
    arrivals: List,
    round: List,
    /// Places whose turn has come and is not over.
    at_work: u32,
    /// Turns so far, counted round and round.
    turns: u32,
}

#[derive(Debug, Clone, Copy)]
struct Link {
    before: u32,
    after: u32,
    queue: Queue,
    /// The count of `turns` when it was put in line.
    since: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Queue {
    Nowhere,
    /// It has its turn.
    AtWork,
    Arrivals,
    Round,
}

#[derive(Debug, Clone, Copy)]
struct List {
    first: u32,
    last: u32,
    length: u32,
}

impl List {
    const EMPTY: Self = Self { first: NONE, last: NONE, length: 0 };
}

impl Rotation {
    pub(crate) fn new() -> Self {
        let (arrivals, round) = (List::EMPTY, List::EMPTY);
        Self { links: Vec::new(), arrivals, round, at_work: 0, turns: 0 }
    }

    /// Something came in for `place`: it keeps its turn, or gets one before the round.
    pub(crate) fn arrive(&mut self, place: u32) {
        if self.has_paused(place) {
            self.remove(place);
        }
        self.append(place, Queue::Arrivals);
    }

    /// `place` has had its turn, and stands behind everybody else.
    pub(crate) fn served(&mut self, place: u32) {
        self.append(place, Queue::Round);
    }

    /// The place whose turn it is. It is at work until it is served, or removed.
    pub(crate) fn next(&mut self) -> Option<u32> {
        let goes_by_arrival = self.arrivals.first != NONE && !self.round_is_due();
        let first = if goes_by_arrival { self.arrivals.first } else { self.round.first };
        if first == NONE {
            return None;
        }
        self.turns = self.turns.wrapping_add(1);
        self.remove(first);
        self.links[first as usize].queue = Queue::AtWork;
        self.at_work += 1;
        Some(first)
    }

    /// Takes `place` out, wherever it stands.
    pub(crate) fn remove(&mut self, place: u32) {
        let Some(link) = self.links.get_mut(place as usize) else { return };
        let link = std::mem::replace(link, Link { queue: Queue::Nowhere, ..*link });
        match link.queue {
            Queue::Nowhere => {}
            Queue::AtWork => self.at_work -= 1,
            Queue::Arrivals | Queue::Round => self.unlink(link),
        }
    }

    fn unlink(&mut self, link: Link) {
        match link.before {
            NONE => self.list(link.queue).first = link.after,
            before => self.links[before as usize].after = link.after,
        }
        match link.after {
            NONE => self.list(link.queue).last = link.before,
            after => self.links[after as usize].before = link.before,
        }
        self.list(link.queue).length -= 1;
    }

    /// How many stand in line, some of them with nothing to do.
    pub(crate) fn len(&self) -> usize {
        (self.arrivals.length + self.round.length) as usize
    }

    /// Everybody in line, from the end of the round to the first arrival.
    pub(crate) fn walk_back(&self) -> impl Iterator<Item = u32> + '_ {
        let walk = |start: u32| {
            let some = |place: u32| (place != NONE).then_some(place);
            std::iter::successors(some(start), move |place| {
                some(self.links[*place as usize].before)
            })
        };
        walk(self.round.last).chain(walk(self.arrivals.last))
    }

    /// Whether `place` stands in the round, and had nothing to do for a part of it.
    fn has_paused(&self, place: u32) -> bool {
        let pause_turns = self.clients().div_ceil(PARTS).max(PAUSE_TURNS_MIN);
        self.links
            .get(place as usize)
            .is_some_and(|link| link.queue == Queue::Round && self.turns_since(link) >= pause_turns)
    }

    /// Whether the first of the round has waited long enough to go before all arrivals.
    fn round_is_due(&self) -> bool {
        let first = self.links.get(self.round.first as usize);
        first.is_some_and(|first| self.turns_since(first) >= ROUNDS_MAX * self.clients())
    }

    fn turns_since(&self, link: &Link) -> u32 {
        self.turns.wrapping_sub(link.since)
    }

    /// Everybody in line or at work.
    fn clients(&self) -> u32 {
        self.arrivals.length + self.round.length + self.at_work
    }

    fn append(&mut self, place: u32, queue: Queue) {
        let at = place as usize;
        if at >= self.links.len() {
            let nowhere = Link { before: NONE, after: NONE, queue: Queue::Nowhere, since: 0 };
            self.links.resize(at + 1, nowhere);
        }
        if matches!(self.links[at].queue, Queue::Arrivals | Queue::Round) {
            return;
        }
        self.remove(place);
        let since = self.turns;
        let list = self.list(queue);
        let before = std::mem::replace(&mut list.last, place);
        list.length += 1;
        match before {
            NONE => list.first = place,
            before => self.links[before as usize].after = place,
        }
        self.links[at] = Link { before, after: NONE, queue, since };
    }

    fn list(&mut self, queue: Queue) -> &mut List {
        match queue {
            Queue::Arrivals => &mut self.arrivals,
            Queue::Round | Queue::Nowhere | Queue::AtWork => &mut self.round,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{HashSet, VecDeque};

    #[test]
    fn arrivals_go_before_the_round() {
        let mut rotation = Rotation::new();
        (0..3).for_each(|place| rotation.served(place));
        rotation.arrive(7);
        assert_eq!(rotation.next(), Some(7));
        assert_eq!(rotation.next(), Some(0));
    }

    #[test]
    fn whoever_was_just_served_cannot_arrive_before_the_others() {
        let mut rotation = Rotation::new();
        (0..3).for_each(|place| rotation.arrive(place));
        let mut turns = [0; 3];
        for _ in 0..30 {
            let place = rotation.next().unwrap();
            turns[place as usize] += 1;
            rotation.served(place);
            rotation.arrive(place);
        }
        assert_eq!(turns, [10, 10, 10]);
    }

    #[test]
    fn whoever_pauses_goes_before_the_round_but_not_more_than_four_times_in_it() {
        let mut rotation = Rotation::new();
        (0..9).for_each(|place| rotation.served(place));
        let mut turns = [0; 9];
        for _ in 0..900 {
            rotation.arrive(8);
            let place = rotation.next().unwrap();
            turns[place as usize] += 1;
            rotation.served(place);
        }
        assert!(turns[8] > 2 * turns[0] && turns[8] <= 4 * turns[0], "{turns:?}");
        assert!(turns[..8].iter().all(|count| *count >= turns[0] - 1), "{turns:?}");
    }

    #[test]
    fn whoever_is_at_work_is_of_the_round() {
        let mut rotation = Rotation::new();
        (0..10).for_each(|place| rotation.arrive(place));
        // Eight threads, and two clients that wait: whoever is served wants more at once.
        let mut at_work: VecDeque<_> = (0..8).filter_map(|_| rotation.next()).collect();
        for turn in 8..100 {
            let served = at_work.pop_front().unwrap();
            rotation.served(served);
            let next = rotation.next().unwrap();
            rotation.arrive(served);
            assert_eq!(next, turn % 10, "nobody is overtaken");
            at_work.push_back(next);
        }
    }

    #[test]
    fn arrivals_starve_nobody() {
        let mut rotation = Rotation::new();
        rotation.served(0);
        for _ in 0..1000 {
            (1..50).for_each(|place| rotation.arrive(place));
            let place = rotation.next().unwrap();
            if place == 0 {
                return;
            }
            rotation.served(place);
        }
        panic!("the first never had its turn");
    }

    #[test]
    fn a_place_stands_in_line_once() {
        let mut rotation = Rotation::new();
        rotation.arrive(1);
        rotation.served(1);
        rotation.arrive(1);
        assert_eq!(rotation.len(), 1);
        assert_eq!((rotation.next(), rotation.next()), (Some(1), None));
    }

    proptest! {
        #[test]
        fn it_is_two_queues(steps in prop::collection::vec((0..4, 0_u32..6), 0..200)) {
            let mut rotation = Rotation::new();
            let (mut arrivals, mut round) = (VecDeque::new(), VecDeque::<(u32, u32)>::new());
            let (mut turns, mut at_work) = (0, HashSet::new());
            for (step, place) in steps {
                let clients = (arrivals.len() + round.len() + at_work.len()) as u32;
                let pause = clients.div_ceil(PARTS).max(PAUSE_TURNS_MIN);
                let paused = |(other, since): &(u32, u32)| *other == place && turns - since >= pause;
                if step == 2 || step == 0 && round.iter().any(paused) {
                    round.retain(|other| other.0 != place);
                }
                let stands = arrivals.contains(&place) || round.iter().any(|one| one.0 == place);
                if step < 3 {
                    at_work.remove(&place);
                }
                match step {
                    0 => {
                        rotation.arrive(place);
                        if !stands { arrivals.push_back(place) }
                    }
                    1 => {
                        rotation.served(place);
                        if !stands { round.push_back((place, turns)) }
                    }
                    2 => {
                        rotation.remove(place);
                        arrivals.retain(|other| *other != place);
                    }
                    _ => {
                        let due = |(_, since): &(u32, u32)| turns - since >= ROUNDS_MAX * clients;
                        let round_is_due = round.front().is_some_and(due);
                        let arrival = if round_is_due { None } else { arrivals.pop_front() };
                        let expected = arrival.or_else(|| Some(round.pop_front()?.0));
                        turns += u32::from(expected.is_some());
                        at_work.extend(expected);
                        prop_assert_eq!(rotation.next(), expected);
                    }
                }
                prop_assert_eq!(rotation.len(), arrivals.len() + round.len());
                let in_round = round.iter().map(|(place, _)| place);
                let back: Vec<_> = in_round.rev().chain(arrivals.iter().rev()).copied().collect();
                prop_assert_eq!(rotation.walk_back().collect::<Vec<_>>(), back);
            }
        }
    }
}
