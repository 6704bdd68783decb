//! Detects whether this process is a fork of the server's process.
//!
//! An application may fork during a request. The child has the server's descriptors, but none of its other threads.
//! If the child returned to the server, it would take events and requests from the parent.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of forks between the first process and this one.
static DEPTH: AtomicU32 = AtomicU32::new(0);

static COUNTING: Once = Once::new();

/// The process in which a server was created.
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

    /// Whether the calling process is a fork of the home process.
    pub(super) fn is_left(&self) -> bool {
        DEPTH.load(Ordering::Relaxed) != self.depth
    }
}

/// Called in each child before its fork returns. A child of `vfork`, by which Ruby starts commands, is not counted.
unsafe extern "C" fn count() {
    DEPTH.fetch_add(1, Ordering::Relaxed);
}
