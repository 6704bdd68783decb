//! The pipeline from rings to events, in four steps:
//!
//! 1. `drain` reads the records of all rings.
//! 2. `merge` puts them into the order in which the calls ended.
//! 3. `clock` converts ticks to nanoseconds.
//! 4. `paths` makes names absolute.
//!
//! `events` joins the last two steps, and adds the stacks of calls from `stacks`.

mod clock;
mod drain;
mod events;
mod merge;
mod paths;
mod stacks;

pub(crate) use drain::Drain;
