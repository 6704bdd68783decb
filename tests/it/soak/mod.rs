//! Bad company for a while, a file a verb.

mod serve;
