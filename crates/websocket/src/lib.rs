//! WebSocket without I/O: bytes become messages and back (RFC 6455), with limits on everything.
//!
//! Reading order: `frame` has heads and masks, `decoder` the way from bytes to messages. `encode` is the way back.
//! `deflate` compresses messages (RFC 7692).
#![forbid(unsafe_code)]

mod close;
mod decoder;
mod deflate;
mod encode;
mod frame;

pub use close::{CloseCode, Fault};
pub use decoder::{Decoder, Input, Limits, Message};
pub use deflate::Deflater;
pub use encode::{close, frame, message};
pub use frame::Opcode;
