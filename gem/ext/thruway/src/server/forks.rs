//! Whether this process is a fork of the server's.
//!
//! An application may fork in a request. The child has the server's descriptors and none of its other threads. If it
//! returned to the server, it would take events and requests that are the parent's.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many forks this process is away from the first one.
static DEPTH: AtomicU32 = AtomicU32::new(0);

static COUNTING: Once = Once::new();

/// The process that a server was made in.
pub(super) struct HomeProcess {
    depth: u32,
}

impl HomeProcess {
    /// The calling process.
    pub(super) fn current() -> Self {
        COUNTING.call_once(|| {
            // SAFETY: the handler is a function of this library, which is never unloaded.
            let _ = unsafe { libc::pthread_atfork(None, None, Some(count)) };
        });
        Self { depth: DEPTH.load(Ordering::Relaxed) }
    }

    /// Whether the calling process is a fork of this one.
    pub(super) fn is_left(&self) -> bool {
        DEPTH.load(Ordering::Relaxed) != self.depth
    }
}

/// Called in each child, before its fork returns. A child of `vfork`, which Ruby starts commands with, is not counted.
unsafe extern "C" fn count() {
    DEPTH.fetch_add(1, Ordering::Relaxed);
}
