//! The priority of a response among the client's other responses (RFC 9218).

use http::HeaderMap;

/// The urgency of requests that specify none; 0 is the most urgent, 7 the least.
const URGENCY: u8 = 3;
const URGENCY_MAX: u8 = 7;

/// The `priority` of a request. Responses with lower values are sent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Priority {
    urgency: u8,
    /// Whether the response is useful in parts (`incremental`), so that it shares the connection with others of its
    /// urgency. Requests that specify nothing, such as those of clients without priorities, share as well. Other
    /// responses of an urgency are sent in succession.
    shares: bool,
    /// The stream's number; zero if the response shares.
    number: u32,
}

impl Priority {
    /// Reads the priority of stream `number` from the fields of its request.
    pub(crate) fn of(fields: &HeaderMap, number: u32) -> Self {
        let mut lists = fields.get_all("priority").iter();
        let (urgency, shares) = match (lists.next(), lists.next()) {
            (Some(list), None) => list.to_str().map_or((URGENCY, true), parsed),
            _ => (URGENCY, true),
        };
        Self { urgency, shares, number: if shares { 0 } else { number } }
    }
}

/// Parses the urgency, and whether the response shares. Of duplicate members the last counts. Unknown or malformed
/// members are ignored.
fn parsed(list: &str) -> (u8, bool) {
    let (mut urgency, mut shares) = (URGENCY, false);
    for member in list.split(',') {
        let member = member.split(';').next().unwrap_or_default().trim();
        match member.split_once('=') {
            Some(("u", value)) => {
                let value = value.parse().ok().filter(|value| *value <= URGENCY_MAX);
                urgency = value.unwrap_or(urgency);
            }
            None if member == "i" => shares = true,
            Some(("i", "?1")) => shares = true,
            Some(("i", "?0")) => shares = false,
            _ => {}
        }
    }
    (urgency, shares)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn priority(list: &str) -> (u8, bool) {
        let mut fields = HeaderMap::new();
        fields.insert("priority", list.parse().unwrap());
        let priority = Priority::of(&fields, 5);
        assert_eq!(priority.number, if priority.shares { 0 } else { 5 });
        (priority.urgency, priority.shares)
    }

    #[test]
    fn a_list_says_urgency_and_whether_it_shares() {
        assert_eq!(priority("u=0"), (0, false));
        assert_eq!(priority("u=1, i"), (1, true));
        assert_eq!(priority("i=?1,u=7;x=1"), (7, true));
        assert_eq!(priority("i, i=?0"), (3, false));
        assert_eq!(priority("u=2, u=4"), (4, false));
        assert_eq!(priority("u=8, foo, bar=\"x\""), (3, false), "what is not known counts nothing");
    }

    #[test]
    fn a_request_without_a_priority_shares_at_the_default_urgency() {
        let priority = Priority::of(&HeaderMap::new(), 5);
        assert_eq!((priority.urgency, priority.shares), (3, true));
    }

    #[test]
    fn the_most_urgent_comes_first_and_whole_ones_before_those_that_share() {
        let of = |urgency, shares, number| Priority { urgency, shares, number };
        let order =
            [of(0, false, 9), of(0, true, 0), of(3, false, 3), of(3, false, 7), of(3, true, 0)];
        assert!(order.is_sorted());
    }
}
