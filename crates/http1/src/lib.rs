//! HTTP/1 without sockets: bytes in, bytes out.
//!
//! A request's head becomes a [`Head`], by rules of which none is weaker than nginx's. Each way to
//! break a rule is one [`ParseError`]. What follows the head goes through a [`BodyDecoder`].
//! Responses start with a [`ResponseHead`], which no input can make hold a line break.
//!
//! Nothing here allocates once its buffers have grown, reads a clock, or knows a descriptor.
//!
//! Reading order: [`limits`], [`parse_error`], [`field`] (the fields with rules of their own), [`head`], [`Request`],
//! [`body`], then [`response`]. [`decimal`] and [`date`] are leaves. [`proxy`] is what may come before a connection's
//! first request.
#![forbid(unsafe_code)]

pub mod body;
pub mod date;
pub mod decimal;
pub mod field;
pub mod head;
mod host;
pub mod limits;
pub mod parse_error;
mod path;
pub mod proxy;
mod request;
pub mod response;
mod token;

pub use body::{BodyDecoder, Piece, RequestFraming};
pub use date::Date;
pub use field::KnownField;
pub use head::{Head, Version};
pub use limits::Limits;
pub use parse_error::ParseError;
pub use request::Request;
pub use response::{BodyPlan, ResponseConstraints, ResponseFraming, ResponseHead};
