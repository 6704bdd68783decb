//! Signals that are read from a descriptor instead of interrupting.

mod blocked;
mod child_events;
mod default_actions;
mod ignored;
mod mask;
mod signal_fd;

pub use blocked::BlockedSignals;
pub use child_events::ChildEvents;
pub use default_actions::DefaultActions;
pub use ignored::ignore;
pub use mask::Mask;
pub use signal_fd::{Received, SignalFd};

/// The numbers of signals, as the system has them.
pub mod number {
    pub use libc::{
        SIGBUS, SIGCHLD, SIGCONT, SIGFPE, SIGHUP, SIGILL, SIGINT, SIGKILL, SIGPIPE, SIGPWR,
        SIGQUIT, SIGSEGV, SIGSTOP, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGUSR1, SIGUSR2,
        SIGWINCH, SIGXFSZ,
    };
}
