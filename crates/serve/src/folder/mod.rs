//! Serves the files of a folder; the kernel sends them.
//!
//! A request's path becomes a name, and the name an open file. All further facts come from the open file's stat: no
//! name is looked up twice.
//!
//! Reading order: this file, then `media` (types of files), `coding` (compressed copies), `validators` and `range`
//! (conditional and partial requests), and `listing` (the page of a folder without an index).

mod coding;
mod listing;
mod media;
mod validators;

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use thruway_http1::response::BadField;
use thruway_http1::{BodyPlan, KnownField, Request, ResponseHead, date};
use thruway_resolve::{Boundary, DenyList, Error, FileKind, Name, OpenFile, Refusal};

use crate::entry::Payload;
use crate::exchange::handler::{Exchange, Handler};
use crate::exchange::response::Response;
use crate::output::Part;
use crate::range::{self, RequestedRange};
use coding::ContentCoding;
use media::{Media, MediaTypes};
use validators::{Validators, Verdict};

/// The content security policy of a listing, which needs its own style and nothing else.
const LISTING_POLICY: &[u8] = b"default-src 'none'; style-src 'unsafe-inline'";

/// The index page of a folder.
const INDEX: &[u8] = b"index.html";

/// Serves the files of one folder. Names that begin with a dot are not served, except `.well-known`.
#[derive(Debug)]
pub struct Folder {
    boundary: Boundary,
    deny: DenyList,
    lists: bool,
    media_types: MediaTypes,
    /// The buffer in which heads are built; empty between two responses.
    scratch: Vec<u8>,
}

/// The file or folder that a path names.
enum Target {
    File(File),
    /// An open folder without an index page.
    Folder(OpenFile),
    /// A folder whose path lacks the final slash.
    NeedsSlash,
}

/// An open file, with the type and coding of its response.
struct File {
    file: OpenFile,
    media: Media,
    coding: ContentCoding,
}

impl Folder {
    /// Opens the folder at `path`. With `lists`, folders without an index page show their entries.
    ///
    /// # Errors
    /// The path is not a folder, or may not be opened.
    pub fn new(path: &std::path::Path, lists: bool) -> Result<Self, Error> {
        let deny = DenyList::new().hidden();
        let boundary = Boundary::new(path, deny.clone())?;
        let media_types = MediaTypes::default();
        Ok(Self { boundary, deny, lists, media_types, scratch: Vec::new() })
    }

    fn find(&mut self, request: &Request<'_>, name: &Name) -> Result<Target, Error> {
        if name.is_directory() {
            return self.find_in_folder(request, name);
        }
        match self.find_file(request, name) {
            Ok(file) => Ok(Target::File(file)),
            Err(error) if error.is_not_found() => match self.boundary.open(name)?.kind() {
                FileKind::Directory => Ok(Target::NeedsSlash),
                FileKind::Regular => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    fn find_in_folder(&mut self, request: &Request<'_>, name: &Name) -> Result<Target, Error> {
        let found = match name.join(INDEX) {
            Ok(index) => self.find_file(request, &index),
            Err(_) => return self.boundary.open(name).map(Target::Folder),
        };
        match found {
            Ok(file) => Ok(Target::File(file)),
            Err(error) if error.is_not_found() => self.boundary.open(name).map(Target::Folder),
            Err(error) => Err(error),
        }
    }

    /// The first variant of `name` that exists and that the client accepts.
    fn find_file(&mut self, request: &Request<'_>, name: &Name) -> Result<File, Error> {
        let media = self.media_types.of(name);
        let accept = request.known(KnownField::AcceptEncoding);
        let codings = coding::accepted(accept.filter(|_| media.is_compressible));
        let mut suffixes = [&b""[..]; coding::CODINGS_MAX];
        let all = codings.iter().map(|coding| coding.suffix.as_bytes());
        suffixes.iter_mut().zip(all).for_each(|(suffix, coding)| *suffix = coding);
        let found = self.boundary.search(name, &suffixes[..codings.len()])?;
        Ok(File { file: found.file, media, coding: codings[found.suffix] })
    }

    fn send_file(
        &mut self,
        request: &Request<'_>,
        exchange: &mut Exchange<'_>,
        found: File,
    ) -> Result<(), BadField> {
        let validators = Validators::of(&found.file, found.coding.name);
        let size = found.file.size_bytes();
        let wanted = match validators.verdict(request) {
            Verdict::NotModified => {
                return self.send_bare(exchange, 304, &found, &validators, None);
            }
            Verdict::Failed => return self.send_bare(exchange, 412, &found, &validators, Some(0)),
            Verdict::Send if request.is_head() || !validators.allows_range(request) => {
                RequestedRange::All
            }
            Verdict::Send => range::wanted(request.known(KnownField::Range), size),
        };
        match wanted {
            RequestedRange::All => self.send_range(exchange, found, &validators, 0..size, 200),
            RequestedRange::Nothing => self.send_bare(exchange, 416, &found, &validators, Some(0)),
            RequestedRange::Some(ranges) => match <[Range<u64>; 1]>::try_from(ranges) {
                Ok([range]) => self.send_range(exchange, found, &validators, range, 206),
                Err(ranges) => self.send_ranges(exchange, found, &validators, &ranges),
            },
        }
    }

    /// Sends a response without a body.
    fn send_bare(
        &mut self,
        exchange: &mut Exchange<'_>,
        status: u16,
        found: &File,
        validators: &Validators,
        body_bytes: Option<u64>,
    ) -> Result<(), BadField> {
        let mut head = ResponseHead::new(&mut self.scratch, status);
        describe(&mut head, found, validators)?;
        if status == 416 {
            let range = format!("bytes */{}", found.file.size_bytes());
            head.field(b"content-range", range.as_bytes())?;
        }
        let plan = head.finish(exchange.constraints(), body_bytes, &exchange.date());
        self.send(exchange, plan, Payload::Empty);
        Ok(())
    }

    /// Sends one range of the file, or all of it.
    fn send_range(
        &mut self,
        exchange: &mut Exchange<'_>,
        found: File,
        validators: &Validators,
        range: Range<u64>,
        status: u16,
    ) -> Result<(), BadField> {
        let length = range.end - range.start;
        let mut head = ResponseHead::new(&mut self.scratch, status);
        head.field(b"content-type", found.media.name.as_bytes())?;
        describe(&mut head, &found, validators)?;
        if status == 206 {
            head.field(
                b"content-range",
                content_range(&range, found.file.size_bytes()).as_bytes(),
            )?;
        }
        let plan = head.finish(exchange.constraints(), Some(length), &exchange.date());
        let file = OwnedFd::from(found.file.into_file());
        let payload = match length {
            0 => Payload::Empty,
            length => Payload::File { file, offset: range.start, length },
        };
        self.send(exchange, plan, payload);
        Ok(())
    }

    /// Sends several ranges as `multipart/byteranges`.
    fn send_ranges(
        &mut self,
        exchange: &mut Exchange<'_>,
        found: File,
        validators: &Validators,
        ranges: &[Range<u64>],
    ) -> Result<(), BadField> {
        let boundary = boundary();
        let mut head = ResponseHead::new(&mut self.scratch, 206);
        let media = format!("multipart/byteranges; boundary={boundary}");
        head.field(b"content-type", media.as_bytes())?;
        describe(&mut head, &found, validators)?;
        let size = found.file.size_bytes();
        let media = found.media.name;
        let file = Arc::new(OwnedFd::from(found.file.into_file()));
        let mut parts = Vec::with_capacity(2 * ranges.len() + 1);
        for range in ranges {
            let place = content_range(range, size);
            let start = format!(
                "\r\n--{boundary}\r\ncontent-type: {media}\r\ncontent-range: {place}\r\n\r\n"
            );
            let length = range.end - range.start;
            parts.push(Part::Bytes(start.into_bytes()));
            parts.push(Part::File { file: Arc::clone(&file), offset: range.start, length });
        }
        parts.push(Part::Bytes(format!("\r\n--{boundary}--\r\n").into_bytes()));
        let length = parts.iter().map(Part::left_bytes).sum();
        let plan = head.finish(exchange.constraints(), Some(length), &exchange.date());
        self.send(exchange, plan, Payload::Parts(parts));
        Ok(())
    }

    fn send_listing(
        &mut self,
        request: &Request<'_>,
        name: &Name,
        exchange: &mut Exchange<'_>,
        folder: &OpenFile,
    ) -> Result<(), BadField> {
        let page = match listing::page(folder, name, request.query(), &self.deny) {
            Ok(page) => page,
            Err(error) => {
                respond_error(exchange, &error, "this folder cannot be listed");
                return Ok(());
            }
        };
        let mut head = ResponseHead::new(&mut self.scratch, 200);
        head.field(b"content-type", b"text/html; charset=utf-8")?;
        head.field(b"cache-control", b"no-store")?;
        head.field(b"content-security-policy", LISTING_POLICY)?;
        let plan = head.finish(exchange.constraints(), Some(page.len() as u64), &exchange.date());
        self.send(exchange, plan, Payload::Slices(&[&page]));
        Ok(())
    }

    /// Redirects to the folder's canonical URL: normalized, with a slash at the end and with the query.
    fn send_redirect(
        &mut self,
        exchange: &mut Exchange<'_>,
        name: &Name,
        query: Option<&[u8]>,
    ) -> Result<(), BadField> {
        let components = name.components().map(listing::percent_encode);
        let mut location = format!("/{}/", components.collect::<Vec<_>>().join("/")).into_bytes();
        if let Some(query) = query {
            location.push(b'?');
            location.extend_from_slice(query);
        }
        let mut head = ResponseHead::new(&mut self.scratch, 301);
        head.field(b"location", &location)?;
        let plan = head.finish(exchange.constraints(), Some(0), &exchange.date());
        self.send(exchange, plan, Payload::Empty);
        Ok(())
    }

    fn send_options(&mut self, exchange: &mut Exchange<'_>) -> Result<(), BadField> {
        let mut head = ResponseHead::new(&mut self.scratch, 204);
        head.field(b"allow", b"GET, HEAD, OPTIONS")?;
        let plan = head.finish(exchange.constraints(), Some(0), &exchange.date());
        self.send(exchange, plan, Payload::Empty);
        Ok(())
    }

    fn send(&mut self, exchange: &mut Exchange<'_>, plan: BodyPlan, payload: Payload<'_>) {
        exchange.respond(Response { head: &self.scratch, plan, payload });
        self.scratch.clear();
    }

    fn serve(
        &mut self,
        request: &Request<'_>,
        exchange: &mut Exchange<'_>,
    ) -> Result<(), BadField> {
        match request.method() {
            b"GET" | b"HEAD" => {}
            b"OPTIONS" => return self.send_options(exchange),
            _ => {
                exchange.respond_text(405, "a folder is only read");
                return Ok(());
            }
        }
        let name = match Name::from_url_path(request.path()) {
            Ok(name) => name,
            Err(refusal) => {
                exchange.respond_text(refusal_status(refusal), "there is no such file");
                return Ok(());
            }
        };
        match self.find(request, &name) {
            Ok(Target::File(found)) => self.send_file(request, exchange, found),
            Ok(Target::Folder(folder)) if self.lists => {
                self.send_listing(request, &name, exchange, &folder)
            }
            Ok(Target::Folder(_)) => {
                exchange.respond_text(404, "there is no such file");
                Ok(())
            }
            Ok(Target::NeedsSlash) => self.send_redirect(exchange, &name, request.query()),
            Err(error) => {
                respond_error(exchange, &error, "it cannot be read");
                Ok(())
            }
        }
    }
}

impl Handler for Folder {
    fn handle(&mut self, request: &Request<'_>, exchange: &mut Exchange<'_>) {
        if self.serve(request, exchange).is_err() {
            self.scratch.clear();
            exchange.respond_text(500, "the response's head cannot be written");
        }
    }

    fn wants_body(&self) -> bool {
        false
    }
}

/// Writes the fields that describe the file itself.
fn describe(
    head: &mut ResponseHead<'_>,
    found: &File,
    validators: &Validators,
) -> Result<(), BadField> {
    head.field(b"last-modified", &date::format(validators.modified_seconds))?;
    head.field(b"etag", &validators.tag)?;
    head.field(b"accept-ranges", b"bytes")?;
    if !found.coding.name.is_empty() {
        head.field(b"content-encoding", found.coding.name.as_bytes())?;
    }
    // The response depends on `Accept-Encoding`.
    if found.media.is_compressible {
        head.field(b"vary", b"accept-encoding")?;
    }
    Ok(())
}

fn content_range(range: &Range<u64>, size: u64) -> String {
    format!("bytes {}-{}/{size}", range.start, range.end - 1)
}

/// A boundary that no file contains by chance.
fn boundary() -> String {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

fn refusal_status(refusal: Refusal) -> u16 {
    match refusal {
        Refusal::NotAbsolute | Refusal::BadEscape | Refusal::Nul => 400,
        _ => 404,
    }
}

/// Responds to a failure to open a file. A failure of the server (5xx) is also logged.
fn respond_error(exchange: &mut Exchange<'_>, error: &Error, text: &str) {
    let status = status_of(error);
    if status >= 500 {
        exchange.warn("read a requested file", io::Error::other(error.to_string()));
    }
    exchange.respond_text(status, if status == 404 { "there is no such file" } else { text });
}

fn status_of(error: &Error) -> u16 {
    use rustix::io::Errno;
    if let Some(refusal) = error.refusal() {
        return refusal_status(refusal);
    }
    match error.errno().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG) => 404,
        Some(Errno::ACCESS | Errno::PERM) => 403,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => 503,
        _ => 500,
    }
}
