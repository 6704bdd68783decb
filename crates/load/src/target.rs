//! The target of a run: a URL and its address.

use std::fmt;
use std::io;
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpStream, ToSocketAddrs, UdpSocket,
};
use std::path::PathBuf;

use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType};
use thruway_tls::{ClientContext, ClientOptions};

use crate::Error;

/// The parts of an HTTP or WebSocket URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    host: String,
    /// The interface of a link-local address, by name or by number (RFC 6874). It has a meaning on this machine only,
    /// so it is never sent.
    zone: Option<String>,
    port: u16,
    path: String,
    is_tls: bool,
    is_websocket: bool,
    /// The user name and password before the host.
    user: Option<String>,
}

/// The address that clients connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl Url {
    /// Parses `http://[USER:PASSWORD@]HOST[:PORT][/PATH][?QUERY]`, or the same with `https`, `ws` or `wss`.
    /// The scheme may be left out. An IPv6 address may have a zone, as in `[fe80::1%25eth0]` or `[fe80::1%eth0]`.
    ///
    /// # Errors
    /// Another scheme, an empty host, an invalid port, or a byte that cannot appear in a request
    /// line.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let refuse = |why| Err(Error::url(text, why));
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let (is_tls, is_websocket) = match scheme.to_ascii_lowercase().as_str() {
            "http" => (false, false),
            "https" => (true, false),
            "ws" => (false, true),
            "wss" => (true, true),
            _ => return refuse("only http, https, ws and wss are supported"),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let authority_end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(authority_end);
        let (user, authority) = match authority.rsplit_once('@') {
            Some((user, authority)) => (Some(percent_decoded(user)), authority),
            None => (None, authority),
        };
        let (host, port) = match split_port(authority, usual_port(is_tls)) {
            Some((host, port)) if !host.is_empty() => (host, port),
            _ => return refuse("the host is missing or the port is invalid"),
        };
        if !is_bracketed_properly(host) {
            return refuse("an IPv6 address is written in brackets, as in http://[::1]:8080/");
        }
        if !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
            return refuse("spaces and non-ASCII characters must be percent-encoded");
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let (host, zone) = split_zone(host);
        Ok(Self { host, zone, port, path, is_tls, is_websocket, user })
    }

    /// The user name and password, as in `user:password`.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The path with its query, as in a request line.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The value of the `Host` header.
    #[must_use]
    pub fn authority(&self) -> String {
        if self.port == usual_port(self.is_tls) {
            self.host.clone()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// The scheme and the authority.
    #[must_use]
    pub fn origin(&self) -> String {
        format!("{}://{}", self.scheme(), self.authority())
    }

    fn scheme(&self) -> &'static str {
        match (self.is_websocket, self.is_tls) {
            (false, false) => "http",
            (false, true) => "https",
            (true, false) => "ws",
            (true, true) => "wss",
        }
    }

    /// Whether the scheme uses TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Whether the scheme is `ws` or `wss`.
    #[must_use]
    pub fn is_websocket(&self) -> bool {
        self.is_websocket
    }

    /// Returns the TLS settings that offer `protocol` by ALPN; `None` for `http` and `ws`.
    ///
    /// # Errors
    /// The host or `name`, which replaces it, is not a valid server name, or a file cannot be used.
    pub fn tls(
        &self,
        protocol: &[u8],
        name: Option<&str>,
        options: &ClientOptions,
    ) -> Result<Option<ClientContext>, Error> {
        let name = name.unwrap_or_else(|| self.plain_host());
        let context = self.is_tls.then(|| ClientContext::new(name, protocol, options));
        let failed = |error| Error::system("speak TLS", io::Error::other(error));
        context.transpose().map_err(failed)
    }

    /// Whether another URL has the same server and scheme.
    #[must_use]
    pub fn has_same_server(&self, other: &Self) -> bool {
        let parts = |url: &Self| (url.is_tls, url.is_websocket, url.authority(), url.zone.clone());
        parts(self) == parts(other)
    }

    fn plain_host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    /// Resolves the address. If the host has several, returns the first that accepts a connection.
    ///
    /// # Errors
    /// The host is unknown, or is another machine and `allow_remote` is false.
    pub fn address(&self, allow_remote: bool) -> Result<Address, Error> {
        let host = self.plain_host();
        let found = match &self.zone {
            Some(zone) => zoned_address(host, zone, self.port).map(|address| vec![address]),
            None => addresses(host, self.port),
        };
        let name = self.zone.as_ref().map_or_else(String::new, |zone| format!("%{zone}"));
        let addresses =
            found.map_err(|error| Error::system(format!("find {host}{name}"), error))?;
        for address in &addresses {
            if !allow_remote && !is_here(*address) {
                return Err(Error::remote(host, address.ip()));
            }
        }
        let responses = |address: &&SocketAddr| TcpStream::connect(address).is_ok();
        let first = match addresses.as_slice() {
            [only] => Some(only),
            several => several.iter().find(responses).or(several.first()),
        };
        first.map(|address| Address::Tcp(*address)).ok_or_else(|| {
            Error::system(format!("find {host}"), io::Error::other("the host has no address"))
        })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}{}", self.origin(), self.path)
    }
}

/// Replaces `%40` and the like. A text whose result is not UTF-8 stays unchanged.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

fn usual_port(is_tls: bool) -> u16 {
    if is_tls { 443 } else { 80 }
}

fn split_port(authority: &str, usual: u16) -> Option<(&str, u16)> {
    let after_host = authority.rfind(']').unwrap_or(0);
    match authority[after_host..].rfind(':') {
        Some(colon) => {
            let (host, port) = authority.split_at(after_host + colon);
            Some((host, port[1..].parse().ok().filter(|port| *port > 0)?))
        }
        None => Some((authority, usual)),
    }
}

/// Whether colons and brackets of a host are those of one address in brackets.
fn is_bracketed_properly(host: &str) -> bool {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match inner {
        Some(address) => !address.contains(['[', ']']),
        None => !host.contains(['[', ']', ':']),
    }
}

/// Splits the zone off an IPv6 address in brackets.
fn split_zone(host: &str) -> (String, Option<String>) {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match inner.and_then(|inner| inner.split_once('%')) {
        Some((address, zone)) => {
            // "%25" alone is interface 25, of a user who has not encoded the percent sign.
            let zone = zone.strip_prefix("25").filter(|rest| !rest.is_empty()).unwrap_or(zone);
            (format!("[{address}]"), Some(zone.to_owned()))
        }
        None => (host.to_owned(), None),
    }
}

/// Returns the address with the number of its interface.
fn zoned_address(host: &str, zone: &str, port: u16) -> io::Result<SocketAddr> {
    let address: Ipv6Addr = host.parse().map_err(io::Error::other)?;
    let index = match zone.parse() {
        Ok(index) => index,
        Err(_) => {
            let socket = rustix::net::socket(AddressFamily::INET6, SocketType::DGRAM, None)?;
            name_to_index(socket, zone)?
        }
    };
    Ok(SocketAddrV6::new(address, port, 0, index).into())
}

/// Resolves a host. `localhost` is this machine, whatever a resolver says (RFC 6761, section 6.3) and even
/// without one.
fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if host.eq_ignore_ascii_case("localhost") {
        let here = [IpAddr::from(Ipv6Addr::LOCALHOST), IpAddr::from(Ipv4Addr::LOCALHOST)];
        return Ok(here.map(|address| SocketAddr::new(address, port)).to_vec());
    }
    Ok((host, port).to_socket_addrs()?.collect())
}

/// Whether the address leads to this machine.
fn is_here(address: SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    // Linux connects 0.0.0.0 and [::] to this machine, and servers that listen on all interfaces print these
    // addresses.
    ip.is_loopback() || ip.is_unspecified() || is_own(canonical(address))
}

/// Returns the IPv4 address that an IPv6 address stands for, if it does. Other addresses keep their zone.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

/// Whether an interface of this machine has the address, in which case the kernel chooses the address itself
/// as the source. Nothing is sent.
fn is_own(address: SocketAddr) -> bool {
    let any: IpAddr = match address.ip() {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect(address)?;
        socket.local_addr()
    });
    source.is_ok_and(|source| source.ip() == address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn parts(text: &str) -> Option<(String, String)> {
        Url::parse(text).ok().map(|url| (url.authority(), url.path().to_owned()))
    }

    #[test]
    fn a_url_has_a_host_and_a_path() {
        let cases = [
            ("http://localhost:9292/a/b?c=d#e", "localhost:9292", "/a/b?c=d"),
            ("HTTP://127.0.0.1", "127.0.0.1", "/"),
            ("127.0.0.1:80/x", "127.0.0.1", "/x"),
            ("localhost:3000?q", "localhost:3000", "/?q"),
            ("http://[::1]:8080/", "[::1]:8080", "/"),
            ("http://[::1]/", "[::1]", "/"),
            ("https://localhost/", "localhost", "/"),
            ("HTTPS://localhost:80/", "localhost:80", "/"),
        ];
        for (text, authority, path) in cases {
            assert_eq!(parts(text), Some((authority.to_owned(), path.to_owned())), "{text}");
        }
    }

    #[test]
    fn a_user_stands_before_the_host_and_is_not_shown() {
        let url = Url::parse("http://me:p%40ss%2@localhost:80/x").unwrap();
        assert_eq!((url.user(), url.to_string()), (Some("me:p@ss%2"), "http://localhost/x".into()));
        assert_eq!(Url::parse("http://localhost/a@b").unwrap().user(), None);
    }

    #[test]
    fn a_zone_chooses_the_interface_and_is_not_sent() {
        for (text, address) in [
            ("http://[fe80::1%2525]:80/x", "[fe80::1%25]:80"),
            ("http://[fe80::1%257]:80/x", "[fe80::1%7]:80"),
            ("http://[fe80::1%25]:80/x", "[fe80::1%25]:80"),
            ("http://[::1%25lo]:8080/x", "[::1%1]:8080"),
            ("http://[::1%lo]:8080/x", "[::1%1]:8080"),
        ] {
            let url = Url::parse(text).unwrap();
            assert!(!url.authority().contains('%'), "{text}");
            assert_eq!(
                url.address(true).unwrap(),
                Address::Tcp(address.parse().unwrap()),
                "{text}"
            );
        }
        let none = Url::parse("http://[::1%25no-such-interface]/").unwrap().address(true);
        assert!(none.unwrap_err().to_string().starts_with("cannot find ::1%no-such-interface: "));
        let same =
            |one, other| Url::parse(one).unwrap().has_same_server(&Url::parse(other).unwrap());
        assert!(same("[fe80::1%1]/a", "[fe80::1%251]/b") && !same("[fe80::1%1]/", "[fe80::1%2]/"));
    }

    #[test]
    fn unsupported_urls_are_refused() {
        for text in [
            "ftp://localhost/",
            "http://",
            "http://:80/",
            "http://[::1",
            "http://::1/",
            "http://[::1]x:80/",
            "http://localhost:0/",
            "http://localhost:x/",
            "http://localhost:70000/",
            "http://me@/",
            "http://localhost/a b",
            "http://localhost/ä",
            "http://localhost/a\r\nX: y",
        ] {
            assert!(Url::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn only_this_machine_is_asked_unless_allowed() {
        let remote = Url::parse("http://192.0.2.1/").unwrap();
        assert!(remote.address(false).unwrap_err().is_remote());
        assert!(remote.address(true).is_ok());
        for here in [
            "127.0.0.1",
            "127.9.9.9",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "localhost",
            "0.0.0.0",
            "[::]",
        ] {
            assert!(Url::parse(here).unwrap().address(false).is_ok(), "{here}");
        }
    }

    #[test]
    fn of_several_addresses_the_first_to_answer_is_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let url = Url::parse(&format!("localhost:{}", address.port())).unwrap();
        assert_eq!(url.address(false).unwrap(), Address::Tcp(address));
    }
}
