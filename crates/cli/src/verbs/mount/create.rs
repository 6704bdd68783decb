//! The create policies of a mount, by name.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use thruway_mount::{CreateOrder, CreatePolicy, CreateReach};

/// The orders of sources.
const ORDERS: [(&str, CreateOrder); 7] = [
    ("first", CreateOrder::First),
    ("most-free", CreateOrder::MostFree),
    ("least-free", CreateOrder::LeastFree),
    ("least-used", CreateOrder::LeastUsed),
    ("least-filled", CreateOrder::LeastFilled),
    ("random", CreateOrder::Random),
    ("random-by-free", CreateOrder::RandomByFree),
];

/// The prefixes that restrict or reorder the sources.
const REACHES: [(&str, CreateReach); 3] =
    [("", CreateReach::All), ("parent-", CreateReach::Parent), ("near-", CreateReach::Near)];

/// Policies whose names have no prefix and no order.
const NAMED: [(&str, CreatePolicy); 2] = [
    ("parent", CreatePolicy { reach: CreateReach::Parent, order: CreateOrder::First }),
    ("none", CreatePolicy { reach: CreateReach::None, order: CreateOrder::First }),
];

/// Returns the parser of a create policy.
pub(super) fn policy() -> impl TypedValueParser<Value = CreatePolicy> {
    let names = all().into_iter().map(|(name, _)| name);
    PossibleValuesParser::new(names).try_map(|name| {
        let found = all().into_iter().find(|(known, _)| *known == name);
        found.map(|(_, policy)| policy).ok_or("unknown policy")
    })
}

fn all() -> Vec<(String, CreatePolicy)> {
    let named = NAMED.iter().map(|(name, policy)| ((*name).to_owned(), *policy));
    let combined = REACHES.iter().flat_map(|&(prefix, reach)| {
        ORDERS.map(|(name, order)| (format!("{prefix}{name}"), CreatePolicy { reach, order }))
    });
    named.chain(combined).collect()
}
