//! Serves a request after its arrival, for every transport.

use std::sync::Arc;

use rustix::io::Errno;
use thruway_fuse::{Frame, Reply, Request};

use super::handler::RequestHandler;
use super::pool::{Job, Pool};
use super::reply::{Outcome, ReplySender};
use crate::memory::Memory;
use crate::view::View;

/// The state that all threads that serve requests share.
#[derive(Debug, Clone)]
pub(crate) struct Services {
    pub(crate) view: Arc<View>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) pool: Arc<Pool>,
}

/// Dispatches the requests that a thread receives.
#[derive(Debug)]
pub(super) struct Dispatcher {
    handler: RequestHandler,
    memory: Arc<Memory>,
    pool: Arc<Pool>,
}

impl Dispatcher {
    /// Creates the dispatcher of the calling thread.
    pub(super) fn new(services: Services) -> Result<Self, Errno> {
        let Services { view, memory, pool } = services;
        Ok(Self { handler: RequestHandler::new(&view)?, memory, pool })
    }

    /// Serves a request, or leaves it to the pool if it is slow. The transport may refuse the request through `admit`.
    pub(super) fn dispatch(
        &mut self,
        frame: &Frame<'_>,
        sender: &Arc<dyn ReplySender>,
        admit: impl FnOnce(&Request<'_>) -> Result<(), Errno>,
    ) -> Outcome {
        self.memory.count_request(frame.opcode());
        let Ok(request) = frame.request() else { return self.handler.refuse(Errno::INVAL) };
        if let Err(errno) = admit(&request) {
            return self.handler.refuse(errno);
        }
        if self.handler.view().is_slow(&request) {
            self.pool.submit(Job { bytes: frame.to_bytes(), sender: Arc::clone(sender) });
            return Outcome::Later;
        }
        self.handler.serve(&request, sender)
    }

    /// Returns the reply to the last request, if its outcome was [`Outcome::Replied`].
    pub(super) fn reply(&mut self) -> &mut Reply {
        self.handler.reply()
    }
}
