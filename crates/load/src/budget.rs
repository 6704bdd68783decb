//! The number of requests that a run may still make, which all threads share.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of requests that a run may still make.
#[derive(Debug)]
pub(crate) struct Budget {
    /// `None` without limit.
    left: Option<AtomicU64>,
}

impl Budget {
    pub(crate) fn new(requests: Option<u64>) -> Self {
        Self { left: requests.map(AtomicU64::new) }
    }

    /// Takes a request from the budget. Returns whether there was one.
    pub(crate) fn take(&self) -> bool {
        let Some(left) = &self.left else { return true };
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    /// Whether no request is left.
    pub(crate) fn is_spent(&self) -> bool {
        self.left.as_ref().is_some_and(|left| left.load(Ordering::Relaxed) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_requests_are_given_as_there_are() {
        let budget = Budget::new(Some(2));
        assert_eq!([(); 3].map(|()| budget.take()), [true, true, false]);
        assert!(budget.is_spent());
        assert!(Budget::new(None).take() && !Budget::new(None).is_spent());
    }
}
