//! The block of a body's `each`, which receives the pieces.

use std::ops::ControlFlow;

use rb_sys::VALUE;
use thruway_serve::{WriteOutcome, monotonic_us};

use super::context::{Context, Stage};
use super::rack_engine::{RackEngine, TYPE};
use super::response::Responder;
use super::sender::{self, too_long};
use crate::ruby::block::{Block, BlockType, Caller};
use crate::ruby::data_type::{Marker, ObjectData};
use crate::ruby::{NIL, ProtectedCall, RString, raise};

/// The total size up to which pieces of a body are gathered. Beyond that, each piece is sent when it arrives.
pub(super) const GATHERED_BYTES_MAX: usize = 64 << 10;

/// The time for which pieces are gathered. A body that computes longer is a stream.
const GATHERED_US_MAX: u64 = 5_000;

static BLOCK_TYPE: BlockType<BodyBlock> = BlockType::new(c"Thruway::Engine/block");

/// The block for the body of one thread's request. The block is open only while the body's `each` runs.
pub(super) struct BodyBlock {
    engine: VALUE,
    /// The thread's number.
    thread: usize,
}

impl BodyBlock {
    pub(super) fn new(engine: &RackEngine, context: &Context) -> Self {
        Self { engine: engine.this.get(), thread: context.number }
    }
}

impl ObjectData for BodyBlock {
    fn mark(&self, marker: Marker) {
        marker.mark(self.engine);
    }
}

impl Block for BodyBlock {
    fn block_type() -> &'static BlockType<Self> {
        &BLOCK_TYPE
    }

    fn call(&self, ruby: ProtectedCall, values: &[VALUE], caller: Caller) -> ControlFlow<()> {
        let engine = TYPE.get(ruby, &self.engine);
        let responder = Responder::new(engine, &engine.contexts[self.thread], ruby);
        responder.take_piece(values.first().copied().unwrap_or(NIL), caller)
    }
}

impl Responder<'_> {
    fn take_piece(self, piece: VALUE, caller: Caller) -> ControlFlow<()> {
        self.engine.check_fork(self.ruby);
        let Some(piece) = RString::of(self.ruby.gvl(), piece) else {
            self.raise_bad_body("a body consists of Strings");
        };
        if self.context.stage.get() == Stage::Gathering {
            if self.gather(piece, caller) {
                return ControlFlow::Continue(());
            }
            self.sender().begin_stream();
        }
        let Some(ticket) = self.context.ticket.get() else { return ControlFlow::Continue(()) };
        let engine = &*self.engine.engine;
        let write = |bytes: &[u8]| engine.lock().response(ticket).write(bytes);
        let written = piece.read(self.ruby.gvl(), write);
        if written == WriteOutcome::Excess {
            raise::runtime_error(self.ruby, too_long(self.ruby.gvl()));
        }
        if sender::wait_for_client(self.ruby, engine, ticket, written) {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }

    /// Keeps a piece until the next one. Returns false if the gathered pieces and `piece` should be sent now.
    fn gather(self, piece: RString, caller: Caller) -> bool {
        let (context, gvl) = (self.context, self.ruby.gvl());
        // SAFETY: no Ruby code runs while the bytes are used.
        let gathered = unsafe { context.gathered.get() };
        let total = gathered.len() + piece.len(gvl);
        let claimed = context.partial.get().and_then(|partial| partial.claimed_bytes());
        if let Some(claimed) = claimed.filter(|claimed| *claimed < total as u64) {
            self.raise_wrong_length(claimed, total);
        }
        // A piece from another thread or fiber may be followed by the next at any time.
        let may_wait = context.gathers.get() && caller == Caller::Method;
        if !may_wait || is_late(context, gathered.is_empty()) {
            return false;
        }
        // Without a successor, nothing would send the pieces while this thread blocks.
        let leadership = &self.engine.leadership;
        let has_successor = leadership.has_successor(context.server_thread.get());
        if total > GATHERED_BYTES_MAX || !has_successor {
            return false;
        }
        piece.read(gvl, |piece| gathered.extend_from_slice(piece));
        leadership.roles().note_gathering();
        self.engine.note_gathering();
        true
    }
}

/// Whether a piece comes long after the first gathered piece, because the body computes slowly.
fn is_late(context: &Context, is_first: bool) -> bool {
    let now_us = monotonic_us();
    if is_first {
        context.gathered_us.set(now_us);
    }
    now_us > context.gathered_us.get() + GATHERED_US_MAX
}
