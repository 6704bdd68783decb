//! Decodes a client's bytes to messages.

use crate::close::{CloseCode, Fault};
use crate::deflate::Deflater;
use crate::frame::{FrameHead, Opcode, unmask};

/// Limits on a client's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The maximum size of a message in bytes, before and after decompression.
    pub message_bytes_max: usize,
    /// The maximum number of empty frames in a message.
    pub empty_frames_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { message_bytes_max: 1 << 20, empty_frames_max: 128 }
    }
}

/// A message of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Whether the message is text, which is then known to be UTF-8.
    pub is_text: bool,
    /// The content of the message.
    pub bytes: Vec<u8>,
}

/// The result of a decoding step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// More bytes are needed.
    More,
    /// A whole message.
    Message(Message),
    /// A ping, which must be answered with the same bytes.
    Ping(Vec<u8>),
    /// A pong.
    Pong,
    /// The client's last frame, with its code.
    Close(CloseCode),
}

/// Decodes the frames of a client.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The incomplete message.
    message: Option<PartialMessage>,
    /// The frame of the message whose payload is incomplete.
    frame: Option<PartialFrame>,
}

/// An incomplete message.
#[derive(Debug)]
struct PartialMessage {
    is_text: bool,
    is_compressed: bool,
    bytes: Vec<u8>,
    /// The number of bytes that are known to be UTF-8.
    checked: usize,
    empty_frames: u32,
}

/// An incomplete frame.
#[derive(Debug, Clone, Copy)]
struct PartialFrame {
    is_last: bool,
    mask: [u8; 4],
    /// The number of payload bytes that were received.
    offset: u64,
    left: u64,
}

impl Decoder {
    /// Consumes bytes from the start of `bytes`. Returns the number of consumed bytes, and the result. Bytes that are
    /// not consumed must be passed again, followed by further bytes. Pass a `deflater` if compression was negotiated.
    ///
    /// # Errors
    /// The client violates a rule or a limit. The decoder cannot continue.
    pub fn next(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        deflater: Option<&mut Deflater>,
    ) -> Result<(usize, Input), Fault> {
        let mut used = 0;
        if self.frame.is_none() {
            let Some((head, head_bytes)) = FrameHead::parse(bytes)? else {
                return Ok((0, Input::More));
            };
            if head.opcode.is_control() {
                return take_control(head, head_bytes, bytes);
            }
            self.begin_frame(head, limits, deflater.is_some())?;
            used = head_bytes;
        }
        let (taken, is_whole) = self.take_payload(&bytes[used..])?;
        let input = if is_whole { self.finish(limits, deflater)? } else { Input::More };
        Ok((used + taken, input))
    }

    /// Whether no message is partially received.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.message.is_none()
    }

    fn begin_frame(
        &mut self,
        head: FrameHead,
        limits: &Limits,
        deflates: bool,
    ) -> Result<(), Fault> {
        let is_first = head.opcode != Opcode::Continuation;
        if head.is_compressed && !(deflates && is_first) {
            return Err(Fault::protocol("a reserved bit is set"));
        }
        if is_first && self.message.is_some() {
            return Err(Fault::protocol("a message begins within another one"));
        }
        if is_first {
            self.message = Some(PartialMessage::new(head));
        }
        let Some(message) = &mut self.message else {
            return Err(Fault::protocol("a continuation frame continues no message"));
        };
        let room = limits.message_bytes_max.saturating_sub(message.bytes.len());
        if head.length > room as u64 {
            return Err(Fault::too_big());
        }
        message.empty_frames += u32::from(head.length == 0);
        if message.empty_frames > limits.empty_frames_max {
            return Err(Fault::protocol("a message has too many empty frames"));
        }
        let FrameHead { is_last, mask, length, .. } = head;
        self.frame = Some(PartialFrame { is_last, mask, offset: 0, left: length });
        Ok(())
    }

    /// Consumes payload bytes of the current frame. Returns their number, and whether the message is complete.
    fn take_payload(&mut self, bytes: &[u8]) -> Result<(usize, bool), Fault> {
        let (Some(frame), Some(message)) = (&mut self.frame, &mut self.message) else {
            return Ok((0, false));
        };
        let taken = usize::try_from(frame.left).map_or(bytes.len(), |left| left.min(bytes.len()));
        let start = message.bytes.len();
        message.bytes.extend_from_slice(&bytes[..taken]);
        unmask(&mut message.bytes[start..], frame.mask, frame.offset);
        frame.offset += taken as u64;
        frame.left -= taken as u64;
        message.check_text()?;
        let is_over = frame.left == 0;
        let is_whole = is_over && frame.is_last;
        if is_over {
            self.frame = None;
        }
        Ok((taken, is_whole))
    }

    fn finish(&mut self, limits: &Limits, deflater: Option<&mut Deflater>) -> Result<Input, Fault> {
        let Some(mut message) = self.message.take() else { return Ok(Input::More) };
        if let Some(deflater) = deflater.filter(|_| message.is_compressed) {
            message.bytes = deflater.inflate(&message.bytes, limits.message_bytes_max)?;
            message.is_compressed = false;
            message.check_text()?;
        }
        if message.is_text && message.checked < message.bytes.len() {
            return Err(Fault::invalid("a text ends within a character"));
        }
        Ok(Input::Message(Message { is_text: message.is_text, bytes: message.bytes }))
    }
}

impl PartialMessage {
    fn new(head: FrameHead) -> Self {
        Self {
            is_text: head.opcode == Opcode::Text,
            is_compressed: head.is_compressed,
            bytes: Vec::new(),
            checked: 0,
            empty_frames: 0,
        }
    }

    /// Checks the received part of a text, so that an invalid byte ends the socket at once.
    fn check_text(&mut self) -> Result<(), Fault> {
        if !self.is_text || self.is_compressed {
            return Ok(());
        }
        match std::str::from_utf8(&self.bytes[self.checked..]) {
            Ok(_) => self.checked = self.bytes.len(),
            Err(error) if error.error_len().is_none() => self.checked += error.valid_up_to(),
            Err(_) => return Err(Fault::invalid("a text is not UTF-8")),
        }
        Ok(())
    }
}

/// Decodes a control frame, if it is complete.
fn take_control(head: FrameHead, start: usize, bytes: &[u8]) -> Result<(usize, Input), Fault> {
    // Control frames have at most 125 bytes.
    let end = start + usize::try_from(head.length).unwrap_or(0);
    let Some(payload) = bytes.get(start..end) else { return Ok((0, Input::More)) };
    let mut payload = payload.to_vec();
    unmask(&mut payload, head.mask, 0);
    let input = match head.opcode {
        Opcode::Close => Input::Close(close_code(&payload)?),
        Opcode::Ping => Input::Ping(payload),
        _ => Input::Pong,
    };
    Ok((end, input))
}

/// Returns the code of a close frame, and checks that its reason is UTF-8.
fn close_code(payload: &[u8]) -> Result<CloseCode, Fault> {
    let Some((code, reason)) = payload.split_first_chunk::<2>() else {
        return match payload {
            [] => Ok(CloseCode::NONE),
            _ => Err(Fault::protocol("the code of a close frame is incomplete")),
        };
    };
    let code = CloseCode::new(u16::from_be_bytes(*code));
    if !code.may_be_sent() {
        return Err(Fault::protocol("a close frame has a reserved code"));
    }
    match std::str::from_utf8(reason) {
        Ok(_) => Ok(code),
        Err(_) => Err(Fault::invalid("the reason of a close frame is not UTF-8")),
    }
}
