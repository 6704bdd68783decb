//! Derives the plan of a run from the arguments.

use std::path::Path;
use std::time::Duration;

use thruway_load::{
    Address, Arrivals, Class, ClientContext, Error, Messages, Plan, Protocol, Request, Url,
    WeightedRequest,
};

use super::arguments::Load;
use super::class::{ClassText, Defaults, PAUSE_DEFAULT};
use super::source;
use super::variables::{self, REQUESTS_MAX, Variable};
use crate::output::Failure;

/// The default message over WebSockets.
const MESSAGE_DEFAULT: &str = "load: 32 bytes, that come back.\n";
/// The most bytes of a body or a message. Each URL keeps a whole copy, and several copies if several requests are
/// pending.
const TEXT_BYTES_MAX: u64 = 256 << 20;
/// The most bytes of the requests of a URL with several requests.
const REQUESTS_BYTES_MAX: usize = 64 << 20;
/// The duration of a run without other limits.
const DURATION_DEFAULT: Duration = Duration::from_secs(10);

impl Load {
    /// Parses the URLs, which must belong to one server. The URLs of a file come in random order.
    pub(super) fn parsed_urls(&self) -> Result<Vec<Url>, Failure> {
        let mut texts = self.urls.clone();
        if let Some(file) = &self.url_file {
            texts = variables::lines(file)?;
            texts.retain(|line| !line.starts_with('#'));
            if texts.is_empty() || texts.len() > REQUESTS_MAX {
                let count = texts.len();
                return Err(Failure::new(format_args!("{file} has {count} URLs"))
                    .hint(format_args!("a file has 1 to {REQUESTS_MAX}, one a line")));
            }
            variables::shuffle(&mut texts, 0);
        }
        // A variable may stand where a URL permits no braces, so URLs are parsed with values in place of variables.
        let filled = variables::read(&self.variables)?;
        let parsed = texts.iter().enumerate().map(|(place, text)| {
            let number = if self.url_file.is_some() { place } else { 0 };
            Url::parse(&variables::filled(&filled, text, number)).map_err(failure)
        });
        let urls = parsed.collect::<Result<Vec<_>, _>>()?;
        let is_other = |url: &&Url| !url.has_same_server(&urls[0]);
        match urls.iter().find(is_other).filter(|_| self.unix_socket.is_none()) {
            Some(other) => Err(Failure::new(format_args!(
                "{other} and {} are of different servers",
                urls[0]
            ))
            .hint("a run loads one server: give URLs of one host and port, or run load for each")),
            None => Ok(urls),
        }
    }

    /// Returns the plan of a run on `urls`, whose texts as written are `texts`.
    pub(super) fn plan(&self, urls: &[Url], texts: &[String]) -> Result<Plan, Failure> {
        let protocol = self.protocol(urls)?;
        Ok(Plan {
            address: self.address(&urls[0])?,
            tls: self.client_context(&urls[0], protocol.alpn())?,
            protocol,
            urls: self.requests(urls, texts)?,
            classes: self.classes(if self.url_file.is_some() { 1 } else { urls.len() })?,
            duration: self.duration.or(self.requests.is_none().then_some(DURATION_DEFAULT)),
            requests: self.requests,
            timeout: self.timeout,
            warm_up: self.warm_up.unwrap_or_default(),
            ramp: self.ramp.unwrap_or_default(),
            threads: self.threads,
        })
    }

    /// Returns the request for each URL. The URLs of a file count as one, and are requested in turn.
    fn requests(&self, urls: &[Url], texts: &[String]) -> Result<Vec<WeightedRequest>, Failure> {
        let (weights, count) = (self.weights.len(), urls.len());
        if weights > 0 && weights != count {
            return Err(Failure::new(format_args!(
                "--weights has {weights} numbers for {count} URLs"
            ))
            .hint("give one for each URL, in their order"));
        }
        let body = self.body.as_deref().map(text_or_file).transpose()?;
        let variables = variables::read(&self.variables)?;
        self.check_variables(&variables, body.as_deref())?;
        if self.url_file.is_some() {
            let requests = urls
                .iter()
                .enumerate()
                .map(|(place, url)| self.request(url, body.as_deref(), &variables, place));
            return weighted(requests.collect::<Result<Vec<_>, _>>()?, 1).map(|one| vec![one]);
        }
        let of_url = |(place, text): (usize, &String)| {
            let requests = (0..variables::count(&variables)).map(|number| {
                let url =
                    Url::parse(&variables::filled(&variables, text, number)).map_err(failure)?;
                if !url.has_same_server(&urls[0]) && self.unix_socket.is_none() {
                    return Err(Failure::new("a variable stands in the server's name")
                        .hint("a run loads one server: variables are for paths"));
                }
                self.request(&url, body.as_deref(), &variables, number)
            });
            let weight = self.weights.get(place).copied().unwrap_or(1);
            weighted(requests.collect::<Result<Vec<_>, _>>()?, weight)
        };
        texts.iter().enumerate().map(of_url).collect()
    }

    /// Refuses variables that no URL, header or body contains.
    fn check_variables(&self, variables: &[Variable], body: Option<&[u8]>) -> Result<(), Failure> {
        let body = body.map(String::from_utf8_lossy).unwrap_or_default();
        let mut texts: Vec<_> = self.urls.iter().chain(&self.headers).map(String::as_str).collect();
        let lines = self.url_file.as_deref().map(variables::lines).transpose()?.unwrap_or_default();
        texts.extend(lines.iter().map(String::as_str).chain([&*body]));
        if variables::are_used(variables, &texts) {
            return Ok(());
        }
        Err(Failure::new("--var has no effect in this run")
            .hint("write {NAME} in a URL, in a header (-H) or in the body"))
    }

    fn address(&self, url: &Url) -> Result<Address, Failure> {
        match (&self.unix_socket, &self.connect_to) {
            (Some(path), _) => Ok(Address::Unix(path.clone())),
            (None, Some(address)) if address.contains(['/', '@', '?', '#']) => {
                Err(Failure::new(format_args!("--connect-to {address} is not HOST:PORT"))
                    .hint("write it as in localhost:9292"))
            }
            (None, Some(address)) => {
                let url = Url::parse(&format!(
                    "{}://{address}",
                    if url.is_tls() { "https" } else { "http" }
                ));
                url.and_then(|url| url.address(self.allow_remote)).map_err(failure)
            }
            (None, None) => url.address(self.allow_remote).map_err(failure),
        }
    }

    fn client_context(&self, url: &Url, protocol: &[u8]) -> Result<Option<ClientContext>, Failure> {
        self.tls.check(url)?;
        url.tls(protocol, self.tls.name(), &self.tls.client()).map_err(failure)
    }

    /// Returns the protocol of the run.
    fn protocol(&self, urls: &[Url]) -> Result<Protocol, Failure> {
        let given = [
            (self.message.is_some(), "--message"),
            (self.broadcast, "--broadcast"),
            (self.subscribe.is_some(), "--subscribe"),
            (self.confirmed.is_some(), "--confirmed"),
        ];
        let of_sockets = given.iter().find(|(is_given, _)| *is_given).map(|(_, name)| *name);
        let of_requests = [
            (self.http2, "--http2"),
            (self.body.is_some(), "--body"),
            (self.method.is_some(), "--method"),
            (self.no_keep_alive, "--no-keep-alive"),
            (urls.len() > 1, "a second URL"),
            (!self.variables.is_empty(), "--var"),
        ];
        let of_requests = of_requests.iter().find(|(is_given, _)| *is_given).map(|(_, name)| *name);
        match (urls[0].is_websocket(), of_sockets, of_requests) {
            (true, _, Some(name)) => {
                Err(Failure::new(format_args!("{name} is not for WebSockets"))
                    .hint("the handshake is a GET of one URL, over HTTP/1; -H adds headers to it"))
            }
            (true, ..) => self.messages().map(Protocol::WebSocket),
            (false, Some(name), _) => Err(Failure::new(format_args!("{name} is for WebSockets"))
                .hint("write the URL with ws:// or wss://")),
            (false, None, _) if self.http2 => Ok(Protocol::Http2),
            (false, ..) => Ok(Protocol::Http1),
        }
    }

    fn messages(&self) -> Result<Messages, Failure> {
        let default = if self.broadcast { "{id}" } else { MESSAGE_DEFAULT };
        let message = text_or_file(self.message.as_deref().unwrap_or(default))?;
        if self.broadcast && !message.windows(4).any(|part| part == b"{id}") {
            return Err(Failure::new("the message of a broadcast lacks {id}")
                .hint("{id} becomes the message's number, by which each connection recognizes the message"));
        }
        let subscribe = self.subscribe.as_deref().map(text_or_file).transpose()?;
        for (name, text) in [("--message", Some(&message)), ("--subscribe", subscribe.as_ref())] {
            if text.is_some_and(|text| std::str::from_utf8(text).is_err()) {
                return Err(Failure::new(format_args!("the text of {name} is not UTF-8")).hint(
                    "messages are sent as text frames, in which a server refuses other bytes",
                ));
            }
        }
        let confirmed = self.confirmed.as_ref().map(|text| text.as_bytes().to_vec());
        Ok(Messages { message, subscribe, confirmed, is_broadcast: self.broadcast })
    }

    /// Returns request number `number` of a URL. Each request has its own values of the variables.
    fn request(
        &self,
        url: &Url,
        body: Option<&[u8]>,
        variables: &[Variable],
        number: usize,
    ) -> Result<Request, Failure> {
        let filled = |text: &String| variables::filled(variables, text, number);
        let headers: Vec<_> = self.all_headers(url)?.iter().map(filled).collect();
        let filled_body =
            body.filter(|_| !variables.is_empty()).map(|body| match std::str::from_utf8(body) {
                Ok(text) => filled(&text.to_owned()).into_bytes(),
                // Bytes that are not UTF-8 contain no variables.
                Err(_) => body.to_vec(),
            });
        let body = filled_body.as_deref().or(body);
        if url.is_websocket() {
            return Request::websocket(url, &headers).map_err(failure);
        }
        let default = if self.body.is_some() { "POST" } else { "GET" };
        let method = self.method.as_deref().unwrap_or(default);
        let request =
            Request::new(url, method, &headers, body, !self.no_keep_alive).map_err(failure)?;
        Ok(match self.chunked {
            Some(bytes) => request.in_chunks(bytes as usize),
            None => request,
        })
    }

    /// Returns the headers of `-H`, and the headers of the options that set one.
    fn all_headers(&self, url: &Url) -> Result<Vec<String>, Failure> {
        let mut headers = self.headers.clone();
        let user = self.auth.clone().map(|user| (user, "-a"));
        let user = user.or(url.user().map(|user| (user.to_owned(), "the user name in the URL")));
        let own = [
            (self.user_agent.clone(), "User-Agent", "-A"),
            (
                user.as_ref().map(|(user, _)| format!("Basic {}", base64(user.as_bytes()))),
                "Authorization",
                user.as_ref().map_or("-a", |(_, option)| option),
            ),
            (
                self.compressed.then(|| "gzip, deflate, br, zstd".to_owned()),
                "Accept-Encoding",
                "--compressed",
            ),
        ];
        for (value, name, option) in own {
            let Some(value) = value else { continue };
            let is_it = |header: &String| {
                header.split(':').next().is_some_and(|own| own.trim().eq_ignore_ascii_case(name))
            };
            if self.headers.iter().any(is_it) {
                return Err(Failure::new(format_args!("{option} and -H both set {name}"))
                    .hint("leave one of them out"));
            }
            headers.push(format!("{name}: {value}"));
        }
        Ok(headers)
    }

    fn classes(&self, urls: usize) -> Result<Vec<Class>, Failure> {
        let given = [self.mix.as_slice(), &self.class].concat();
        let plain = [ClassText::plain(self.connections, self.rate)];
        let texts = if given.is_empty() { &plain[..] } else { given.as_slice() };
        let beyond = texts.iter().filter_map(|class| class.url).find(|url| *url as usize > urls);
        if let Some(url) = beyond {
            return Err(Failure::new(format_args!("--class names URL {url} of {urls}"))
                .hint("url=K is the position of a URL among the arguments, counted from 1"));
        }
        let defaults = Defaults {
            depth: self.streams.or(self.pipeline).unwrap_or(1),
            pause: self.pause.unwrap_or(PAUSE_DEFAULT),
            arrivals: self.arrivals.unwrap_or(Arrivals::Even),
            burst: self.burst.unwrap_or(1),
        };
        let classes: Vec<_> = texts.iter().map(|class| class.resolved(defaults)).collect();
        self.refuse_unused(texts, &classes)?;
        Ok(classes)
    }
}

/// Combines requests that clients send in turn, and that share a row of the report: those of a URL with variables, or
/// of a file of URLs. `weight` is their common weight among all URLs.
fn weighted(requests: Vec<Request>, weight: u32) -> Result<WeightedRequest, Failure> {
    let bytes: usize = requests.iter().map(|request| request.bytes().len()).sum();
    if requests.len() > 1 && bytes > REQUESTS_BYTES_MAX {
        return Err(Failure::new(format_args!("the requests have {bytes} bytes in all"))
            .hint(format_args!("they are kept in memory: {REQUESTS_BYTES_MAX} at most")));
    }
    let mut requests = requests.into_iter();
    let request = requests.next().ok_or_else(|| Failure::new("there is no URL"))?;
    Ok(WeightedRequest { request, others: requests.collect(), weight })
}

/// Returns a text, or the contents of the file that the text names.
fn text_or_file(text: &str) -> Result<Vec<u8>, Failure> {
    match text.strip_prefix('@') {
        None => Ok(text.as_bytes().to_vec()),
        Some("-") => source::read(Path::new("/dev/stdin"), TEXT_BYTES_MAX)
            .map_err(|error| Failure::new(format_args!("cannot read stdin: {error}"))),
        Some(file) => source::read(Path::new(file), TEXT_BYTES_MAX)
            .map_err(|error| Failure::new(format_args!("cannot read {file}: {error}"))),
    }
}

pub(super) fn failure(error: Error) -> Failure {
    let failure = Failure::new(&error);
    if error.is_remote() {
        return failure
            .hint("use --allow-remote to load another machine, only with its owner's permission");
    }
    if error.is_too_many() {
        return failure.hint("ask for fewer connections, or raise the hard limit (ulimit -Hn)");
    }
    failure
}

/// Encodes bytes in Base64 (RFC 4648, section 4).
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let byte = |place: usize| u32::from(three.get(place).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place)) as usize & 63];
            text.push(if place > three.len() { '=' } else { char::from(letter) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_rfc_4648() {
        for (text, expected) in [("", ""), ("M", "TQ=="), ("Ma", "TWE="), ("Man", "TWFu")] {
            assert_eq!(base64(text.as_bytes()), expected);
        }
        assert_eq!(base64("Aladdin:open sesame".as_bytes()), "QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    }
}
