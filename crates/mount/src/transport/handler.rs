//! Serves requests on a thread.

use std::sync::Arc;

use rustix::io::Errno;
use thruway_fuse::{Reply, Request};

use super::reply::{Outcome, ReplySender};
use crate::actor::Actor;
use crate::view::View;

/// The view, and the state that a thread reuses for each request: its credentials and the buffer of its replies.
#[derive(Debug)]
pub(super) struct RequestHandler {
    view: Arc<View>,
    actor: Actor,
    reply: Reply,
}

impl RequestHandler {
    /// Creates the handler of the calling thread.
    pub(super) fn new(view: &Arc<View>) -> Result<Self, Errno> {
        Ok(Self { view: Arc::clone(view), actor: Actor::new()?, reply: Reply::default() })
    }

    pub(super) fn view(&self) -> &View {
        &self.view
    }

    /// Serves the request, however long that takes. If the reply is sent later, it goes to `sender`.
    pub(super) fn serve(
        &mut self,
        request: &Request<'_>,
        sender: &Arc<dyn ReplySender>,
    ) -> Outcome {
        self.view.serve(&mut self.actor, sender, request, &mut self.reply)
    }

    /// Replies with an error.
    pub(super) fn refuse(&mut self, errno: Errno) -> Outcome {
        self.reply.fail(errno.raw_os_error());
        Outcome::Replied
    }

    /// Returns the reply to the last request, if its outcome was [`Outcome::Replied`].
    pub(super) fn reply(&mut self) -> &mut Reply {
        &mut self.reply
    }
}
