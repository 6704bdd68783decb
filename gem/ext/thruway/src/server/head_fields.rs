//! Writes the header fields of a response from the headers that the application returned.

use rb_sys::VALUE;
use thruway_http1::response::PartialHead;
use thruway_http1::{ResponseHead, decimal};

use super::files::DeclaredFolders;
use super::rack_engine::RackEngine;
use crate::ruby::{NIL, ProtectedCall, RArray, RHash, RString, raise, read_all};

/// Values of fields that are meant for the server, not for the client.
#[derive(Clone, Copy)]
pub(super) struct Special {
    /// The value of `X-Sendfile` or `X-Accel-Redirect`, if folders are declared for the field.
    pub(super) file: Option<RString>,
    /// The value of `rack.hijack`, or nil.
    pub(super) hijack: VALUE,
}

/// A writer of fields into a head.
pub(super) struct HeadFields<'a, 'b> {
    engine: &'a RackEngine,
    ruby: ProtectedCall,
    head: ResponseHead<'b>,
    special: Special,
}

impl<'a, 'b> HeadFields<'a, 'b> {
    pub(super) fn new(engine: &'a RackEngine, ruby: ProtectedCall, head: ResponseHead<'b>) -> Self {
        Self { engine, ruby, head, special: Special { file: None, hijack: NIL } }
    }

    /// Writes all fields. Returns the unfinished head, and the values that are not for the client.
    pub(super) fn write(mut self, headers: VALUE) -> (PartialHead, Special) {
        let (ruby, gvl) = (self.ruby, self.ruby.gvl());
        if let Some(hash) = RHash::of(gvl, headers) {
            hash.each_pair(ruby, |name, value| self.write_checked(name, value));
        } else if headers != NIL {
            let fields = self.engine.callbacks.fields(ruby, headers);
            let fields = RArray::of(gvl, fields).unwrap_or_else(|| RArray::with_room(gvl, 0));
            let part = |at| fields.get(gvl, at).unwrap_or(NIL);
            for at in (0..fields.len(gvl)).step_by(2) {
                self.write_checked(part(at), part(at + 1));
            }
        }
        (self.head.partial(), self.special)
    }

    fn write_checked(&mut self, name: VALUE, value: VALUE) {
        let name = self.text(name);
        if !self.write_field(name, value) {
            self.engine.callbacks.bad_field(self.ruby, name);
            let text = b"a header holds a control character";
            raise::argument_error(self.ruby, RString::binary(self.ruby.gvl(), text));
        }
    }

    /// Writes one field. Returns false if the field would break the head.
    fn write_field(&mut self, name: RString, value: VALUE) -> bool {
        let (gvl, files) = (self.ruby.gvl(), &self.engine.files);
        match name.read(gvl, |name| Kind::of(name, files)) {
            Kind::Internal => return true,
            Kind::Hijack => self.special.hijack = value,
            Kind::File => self.special.file = Some(self.text(value)),
            Kind::Field => {
                let Some(values) = RArray::of(gvl, value) else {
                    return self.write_lines(name, value);
                };
                let at = |index| values.get(gvl, index).unwrap_or(NIL);
                return (0..values.len(gvl)).all(|index| self.write_lines(name, at(index)));
            }
        }
        true
    }

    /// Writes a value. If the value has several lines (Rack 2), each line becomes a field.
    fn write_lines(&mut self, name: RString, value: VALUE) -> bool {
        // The conversion may run Ruby code, which may change the name, too.
        let text = self.text(value);
        let head = &mut self.head;
        let is_written = read_all(self.ruby.gvl(), [name, text], |[name, text]| {
            if name.eq_ignore_ascii_case(b"content-length") && !is_length(text, head.partial()) {
                return None;
            }
            let lines = || text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            // A field cannot contain a line break.
            let is_written = head.field(name, text).is_ok()
                || text.contains(&b'\n') && lines().all(|line| head.field(name, line).is_ok());
            Some(is_written)
        });
        is_written.unwrap_or_else(|| {
            let text = b"content-length is not a number of bytes, or not the same twice";
            raise::argument_error(self.ruby, RString::binary(self.ruby.gvl(), text));
        })
    }

    fn text(&self, value: VALUE) -> RString {
        let string = RString::of(self.ruby.gvl(), value);
        string.unwrap_or_else(|| RString::convert(self.ruby, value))
    }
}

/// The recipient of a field.
enum Kind {
    /// A field for the client.
    Field,
    /// A field for the server that names the file to send.
    File,
    /// A field for the server whose value takes over the connection.
    Hijack,
    /// A field that is not sent and has no effect.
    Internal,
}

impl Kind {
    fn of(name: &[u8], files: &DeclaredFolders) -> Self {
        if name.starts_with(b"rack.") {
            if name == b"rack.hijack" { Self::Hijack } else { Self::Internal }
        } else if files.is_field(name) {
            Self::File
        } else {
            Self::Field
        }
    }
}

/// Whether a value is a length in bytes, equal to that of an earlier field.
fn is_length(value: &[u8], partial: PartialHead) -> bool {
    let length = decimal::parse(value);
    length.is_some() && partial.claimed_bytes().is_none_or(|other| length == Some(other))
}
