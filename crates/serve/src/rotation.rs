//! Who is served next: each connection in its turn.
//!
//! Two lists, after RFC 8290 (FlowQueue-CoDel). Whoever has something to do after a pause stands in
//! the list of *arrivals*, which goes first; after its turn it stands at the end of the *round*. It
//! leaves the round only by coming to its front with nothing to do. So a client that thinks between
//! its requests is served at once, and one that always wants more waits for everybody else in the
//! round, however it times its requests: to arrive again, it must first have waited a whole round.

/// No place.
const NONE: u32 = u32::MAX;

/// The places of connections that may have something to do, in the order of their turns.
#[derive(Debug)]
pub(crate) struct Rotation {
    links: Vec<Link>,
    arrivals: List,
    round: List,
}

#[derive(Debug, Clone, Copy)]
struct Link {
    before: u32,
    after: u32,
    queue: Queue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Queue {
    Nowhere,
    Arrivals,
    Round,
}

#[derive(Debug, Clone, Copy)]
struct List {
    first: u32,
    last: u32,
    length: usize,
}

impl List {
    const EMPTY: Self = Self { first: NONE, last: NONE, length: 0 };
}

impl Rotation {
    pub(crate) fn new() -> Self {
        Self { links: Vec::new(), arrivals: List::EMPTY, round: List::EMPTY }
    }

    /// Something came in for `place`: it keeps its turn, or gets one before the round.
    pub(crate) fn arrive(&mut self, place: u32) {
        self.append(place, Queue::Arrivals);
    }

    /// `place` has had its turn, and stands behind everybody else.
    pub(crate) fn served(&mut self, place: u32) {
        self.append(place, Queue::Round);
    }

    /// The place whose turn it is; it stands nowhere afterwards.
    pub(crate) fn next(&mut self) -> Option<u32> {
        let first =
            if self.arrivals.first == NONE { self.round.first } else { self.arrivals.first };
        if first == NONE {
            return None;
        }
        self.remove(first);
        Some(first)
    }

    /// Takes `place` out, wherever it stands.
    pub(crate) fn remove(&mut self, place: u32) {
        let Some(link) = self.links.get(place as usize).copied() else { return };
        if link.queue == Queue::Nowhere {
            return;
        }
        match link.before {
            NONE => self.list(link.queue).first = link.after,
            before => self.links[before as usize].after = link.after,
        }
        match link.after {
            NONE => self.list(link.queue).last = link.before,
            after => self.links[after as usize].before = link.before,
        }
        self.list(link.queue).length -= 1;
        self.links[place as usize].queue = Queue::Nowhere;
    }

    /// How many stand in line, some of them with nothing to do.
    pub(crate) fn len(&self) -> usize {
        self.arrivals.length + self.round.length
    }

    fn append(&mut self, place: u32, queue: Queue) {
        let at = place as usize;
        if at >= self.links.len() {
            let nowhere = Link { before: NONE, after: NONE, queue: Queue::Nowhere };
            self.links.resize(at + 1, nowhere);
        }
        if self.links[at].queue != Queue::Nowhere {
            return;
        }
        let list = self.list(queue);
        let before = std::mem::replace(&mut list.last, place);
        list.length += 1;
        match before {
            NONE => list.first = place,
            before => self.links[before as usize].after = place,
        }
        self.links[at] = Link { before, after: NONE, queue };
    }

    fn list(&mut self, queue: Queue) -> &mut List {
        match queue {
            Queue::Arrivals => &mut self.arrivals,
            Queue::Round | Queue::Nowhere => &mut self.round,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

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
            let (mut arrivals, mut round) = (VecDeque::new(), VecDeque::new());
            for (step, place) in steps {
                let stands = arrivals.contains(&place) || round.contains(&place);
                match step {
                    0 => {
                        rotation.arrive(place);
                        if !stands { arrivals.push_back(place) }
                    }
                    1 => {
                        rotation.served(place);
                        if !stands { round.push_back(place) }
                    }
                    2 => {
                        rotation.remove(place);
                        arrivals.retain(|other| *other != place);
                        round.retain(|other| *other != place);
                    }
                    _ => {
                        let expected = arrivals.pop_front().or_else(|| round.pop_front());
                        prop_assert_eq!(rotation.next(), expected);
                    }
                }
                prop_assert_eq!(rotation.len(), arrivals.len() + round.len());
            }
        }
    }
}
