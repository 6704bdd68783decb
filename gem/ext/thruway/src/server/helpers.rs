//! The parts of a server that run beside Ruby's threads.

use std::sync::Arc;
use std::thread::JoinHandle;

use super::gvl_events::{self, GvlHook};
use super::herald::Herald;
use super::roles::Roles;
use super::shared_engine::SharedEngine;
use super::standby;
use crate::ruby::{Gvl, event};

/// The standby, and the subscription to Ruby's events.
pub(super) struct Helpers {
    standby: JoinHandle<()>,
    suspensions: Option<GvlHook>,
    /// `None` where requests run in threads.
    herald: Option<Herald>,
    pauses: Option<[event::TracePoint; 2]>,
}

impl Helpers {
    /// # Errors
    /// The system cannot create a thread.
    pub(super) fn start(
        engine: &Arc<SharedEngine>,
        roles: &Arc<Roles>,
        pauses: Option<[event::TracePoint; 2]>,
        herald: Option<Herald>,
    ) -> std::io::Result<Self> {
        let suspensions = gvl_events::subscribe(roles);
        if suspensions.is_some() {
            roles.load.set_reported();
        }
        let standby = standby::start(Arc::clone(engine), Arc::clone(roles))?;
        Ok(Self { standby, suspensions, herald, pauses })
    }

    /// Waits for the standby to end, after its duty has ended. The standby never takes the interpreter lock.
    pub(super) fn end(self, gvl: Gvl) {
        // A panic of the standby can have no further consequences.
        let _ = self.standby.join();
        if let Some(suspensions) = self.suspensions {
            suspensions.end();
        }
        if let Some(herald) = self.herald {
            herald.end();
        }
        for pauses in self.pauses.into_iter().flatten() {
            pauses.end(gvl);
        }
    }
}
