//! From the rings to events, in four steps.
//!
//! 1. `drain` takes the records of all rings.
//! 2. `merge` puts them into the order in which the calls ended.
//! 3. `clock` turns ticks into nanoseconds.
//! 4. `paths` makes names absolute.
//!
//! `events` joins the last two.

mod clock;
mod drain;
mod events;
mod merge;
mod paths;

pub(crate) use drain::Drain;
