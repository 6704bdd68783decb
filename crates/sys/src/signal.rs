//! Signals: masks, actions, and descriptors that deliver signals without interrupting the program.

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
pub use signal_fd::{ReceivedSignal, SignalFd};

/// Numbers of signals on this system.
pub mod number {
    pub use libc::{
        SIGBUS, SIGCHLD, SIGCONT, SIGFPE, SIGHUP, SIGILL, SIGINT, SIGIO, SIGKILL, SIGPIPE, SIGPWR,
        SIGQUIT, SIGSEGV, SIGSTOP, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGUSR1, SIGUSR2,
        SIGWINCH, SIGXFSZ,
    };
}
