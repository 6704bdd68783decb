//! The sockets that a server listens on.

use std::ffi::OsString;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, open};
use rustix::io::{Errno, dup2, fcntl_dupfd_cloexec};
use rustix::net::sockopt::{set_socket_reuseaddr, set_tcp_congestion, set_tcp_nodelay};
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType,
    acceptfrom_with, bind, connect, getsockname, listen, shutdown, socket_with,
};

use thruway_tls::{Options as TlsOptions, ServerContext, TicketKeys};

use crate::error::Error;
use crate::listen::address::Address;
use crate::listen::bind::Bind;
use crate::listen::secure_site::SecureSite;

/// The congestion control between two programs on one machine. Every kernel has `reno`, which sets no timers. Others,
/// such as BBR, pace their packets, and a timer per packet costs more than its bytes.
const LOCAL_CONGESTION_CONTROL: &str = "reno";

/// The peer of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A process on this machine.
    Unix,
}

impl fmt::Display for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(formatter),
            Self::Unix => formatter.write_str("a process of this machine"),
        }
    }
}

/// A socket that accepts connections, without blocking.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    address: Address,
    tls: Option<Arc<TlsOptions>>,
    hsts_s: Option<u64>,
    site: Option<Arc<SecureSite>>,
}

impl Listener {
    /// Listens as `bind` says, after the removal of a stale socket file.
    ///
    /// # Errors
    /// The host is not found, or `bind` or `listen` failed; [`Error::is_in_use`] if another process listens on the
    /// address.
    pub fn new(bind: &Bind) -> Result<Self, Error> {
        match &bind.address {
            Address::Tcp { host, port } => Self::tcp(bind, host, *port),
            Address::Unix { path } => Self::unix(bind, path),
        }
    }

    /// Listens as `bind` says; for `localhost`, on each loopback address that the system has, as Puma does.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn all(bind: &Bind) -> Result<Vec<Self>, Error> {
        let Address::Tcp { host, port } = &bind.address else { return Ok(vec![Self::new(bind)?]) };
        if host != "localhost" {
            return Ok(vec![Self::new(bind)?]);
        }
        let at = |ip: IpAddr, port| {
            let address = Address::Tcp { host: ip.to_string(), port };
            Self::new(&Bind { address, ..bind.clone() })
        };
        let first = at(Ipv4Addr::LOCALHOST.into(), *port)?;
        let chosen = first.port().unwrap_or(*port);
        match at(Ipv6Addr::LOCALHOST.into(), chosen) {
            Ok(second) => Ok(vec![first, second]),
            // The system chose the port for the first address alone: another program may have it on the second.
            Err(error) if error.is_in_use() && *port == 0 => Ok(vec![first]),
            Err(error) if error.is_missing() => Ok(vec![first]),
            Err(error) => Err(error),
        }
    }

    fn port(&self) -> Option<u16> {
        match self.address {
            Address::Tcp { port, .. } => Some(port),
            Address::Unix { .. } => None,
        }
    }

    /// Takes over a socket that is already bound, such as an inherited socket.
    ///
    /// # Errors
    /// The descriptor is not a socket, or of a kind that cannot be served.
    pub fn from_socket(socket: OwnedFd) -> Result<Self, Error> {
        let failed = |errno: Errno| Error::system("take over a socket", errno);
        let bound = getsockname(&socket).map_err(failed)?;
        rustix::io::ioctl_fionbio(&socket, true).map_err(failed)?;
        let address = match SocketAddr::try_from(bound.clone()) {
            Ok(address) => Address::Tcp { host: address.ip().to_string(), port: address.port() },
            Err(_) => unix_address(bound).ok_or_else(|| failed(Errno::AFNOSUPPORT))?,
        };
        Ok(Self { socket, address, tls: None, hsts_s: None, site: None })
    }

    /// Returns the listener with the TLS options and the site of `bind`.
    #[must_use]
    pub fn with_rules_of(self, bind: &Bind) -> Self {
        Self { tls: bind.tls.clone(), hsts_s: bind.hsts_s, site: bind.site.clone(), ..self }
    }

    /// How long browsers are to use only TLS, in seconds.
    pub(crate) fn hsts_s(&self) -> Option<u64> {
        self.hsts_s
    }

    /// The rules for plain HTTP requests of a site that TLS serves.
    pub(crate) fn site(&self) -> Option<&Arc<SecureSite>> {
        self.site.as_ref()
    }

    /// The TLS options of the connections, if they speak TLS.
    pub(crate) fn tls(&self) -> Option<&Arc<TlsOptions>> {
        self.tls.as_ref()
    }

    /// The address, with the port that the system chose.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Duplicates the listener for another thread or process.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn try_clone(&self) -> Result<Self, Error> {
        let socket = self.socket.try_clone().map_err(|error| Error::listen(self, error))?;
        let (address, tls, site) = (self.address.clone(), self.tls.clone(), self.site.clone());
        Ok(Self { socket, address, tls, hsts_s: self.hsts_s, site })
    }

    /// Accepts the next waiting connection; none if no connection waits.
    pub(crate) fn accept(&self) -> Result<Option<(OwnedFd, Peer)>, Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        match acceptfrom_with(&self.socket, flags) {
            Ok((socket, peer)) => Ok(Some((above_standard(socket)?, self.peer(peer)))),
            // A client that gave up while it waited is no connection.
            Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR | Errno::PROTO) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Makes the system refuse connections from now on, in every process that has the listener.
    pub(crate) fn close_for_all(&self) {
        // The call fails only if another process has already closed the listener.
        let _ = shutdown(&self.socket, Shutdown::Read);
    }

    fn peer(&self, address: Option<SocketAddrAny>) -> Peer {
        let tcp = address.and_then(|address| SocketAddr::try_from(address).ok());
        // A dual-stack socket shows IPv4 clients as `::ffff:127.0.0.1`.
        let plain = |peer: SocketAddr| SocketAddr::new(peer.ip().to_canonical(), peer.port());
        tcp.map_or(Peer::Unix, |peer| Peer::Tcp(plain(peer)))
    }

    fn tcp(options: &Bind, host: &str, port: u16) -> Result<Self, Error> {
        if let Some(tls) = &options.tls {
            check_certificates(tls)?;
        }
        let failed =
            |errno: Errno| Error::listen(shown(&options.address, options.tls.is_some()), errno);
        let mut found =
            (host, port).to_socket_addrs().map_err(|error| Error::resolve(host, error))?;
        let first = found.next().ok_or_else(|| failed(Errno::ADDRNOTAVAIL))?;
        let family = if first.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = stream(family).map_err(failed)?;
        set_socket_reuseaddr(&socket, true).map_err(failed)?;
        // Accepted sockets inherit the option: responses are sent without delay.
        set_tcp_nodelay(&socket, options.low_latency).map_err(failed)?;
        if first.ip().is_loopback() {
            // A system that forbids the choice keeps its own.
            let _ = set_tcp_congestion(&socket, LOCAL_CONGESTION_CONTROL);
        }
        bind(&socket, &first).map_err(failed)?;
        listen(&socket, options.backlog).map_err(failed)?;
        let bound = getsockname(&socket).ok().and_then(|bound| SocketAddr::try_from(bound).ok());
        let port = bound.map_or(port, |bound| bound.port());
        let address = Address::Tcp { host: host.to_owned(), port };
        let listener = Self { socket, address, tls: None, hsts_s: None, site: None };
        Ok(listener.with_rules_of(options))
    }

    fn unix(options: &Bind, path: &Path) -> Result<Self, Error> {
        let address = &options.address;
        let failed = |errno: Errno| Error::listen(address, errno);
        let abstract_name = path.as_os_str().as_bytes().strip_prefix(b"@");
        let name = match abstract_name {
            Some(name) => SocketAddrUnix::new_abstract_name(name),
            None => SocketAddrUnix::new(path),
        };
        let name = name.map_err(failed)?;
        let socket = stream(AddressFamily::UNIX).map_err(failed)?;
        match bind(&socket, &name) {
            Err(Errno::ADDRINUSE) if abstract_name.is_none() && is_stale(path, &name) => {
                std::fs::remove_file(path).map_err(|error| Error::listen(address, error))?;
                bind(&socket, &name).map_err(failed)?;
            }
            bound => bound.map_err(failed)?,
        }
        if abstract_name.is_none() {
            // The permissions are set before `listen`, so no connection is made under those of `bind`.
            std::fs::set_permissions(path, PermissionsExt::from_mode(options.permissions()))
                .map_err(|error| Error::listen(address, error))?;
        }
        listen(&socket, options.backlog).map_err(failed)?;
        Ok(Self { socket, address: address.clone(), tls: None, hsts_s: None, site: None })
    }
}

/// Displays the address in the form that clients use.
impl fmt::Display for Listener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&shown(&self.address, self.tls.is_some()))
    }
}

fn shown(address: &Address, has_tls: bool) -> String {
    let text = address.to_string();
    match text.strip_prefix("http://") {
        Some(rest) if has_tls => format!("https://{rest}"),
        _ => text,
    }
}

impl IntoRawFd for Listener {
    fn into_raw_fd(self) -> RawFd {
        self.socket.into_raw_fd()
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Loads the certificates and keys, so that a mistake is reported before any request is served.
fn check_certificates(options: &TlsOptions) -> Result<(), Error> {
    let keys = TicketKeys::new().map_err(|error| Error::system("make keys", error))?;
    ServerContext::new(options.clone(), Arc::new(keys), false).map(drop).map_err(Error::tls)
}

fn stream(family: AddressFamily) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(family, SocketType::STREAM, flags, None)
}

/// Whether a socket file is stale: connections to it are refused. A connection to any other file is refused too, hence
/// the check of the type.
fn is_stale(path: &Path, name: &SocketAddrUnix) -> bool {
    let is_socket = rustix::fs::lstat(path)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket);
    let socket = stream(AddressFamily::UNIX);
    is_socket && socket.is_ok_and(|socket| connect(&socket, name) == Err(Errno::CONNREFUSED))
}

fn unix_address(bound: SocketAddrAny) -> Option<Address> {
    let bound = SocketAddrUnix::try_from(bound).ok()?;
    let path = match bound.abstract_name() {
        Some(name) => [b"@", name].concat(),
        None => bound.path_bytes().unwrap_or_default().to_vec(),
    };
    Some(Address::Unix { path: PathBuf::from(OsString::from_vec(path)) })
}

/// Moves the socket to a descriptor above those of the standard streams. An application that closes stdout, or fails to
/// reopen it, would otherwise write its lines to the next client. `/dev/null` takes the freed descriptor for good.
fn above_standard(socket: OwnedFd) -> Result<OwnedFd, Errno> {
    const FIRST: RawFd = 3;
    if socket.as_raw_fd() >= FIRST {
        return Ok(socket);
    }
    let moved = fcntl_dupfd_cloexec(&socket, FIRST)?;
    let nothing = open("/dev/null", OFlags::RDWR, Mode::empty())?;
    let mut standard = socket;
    dup2(&nothing, &mut standard)?;
    let _stays_open = standard.into_raw_fd();
    Ok(moved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;

    fn local() -> Bind {
        Address::Tcp { host: "127.0.0.1".into(), port: 0 }.into()
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn connections_of_a_local_listener_are_not_paced() {
        use rustix::net::sockopt::{tcp_congestion, tcp_nodelay};
        let listener = Listener::new(&local()).unwrap();
        let Address::Tcp { port, .. } = *listener.address() else { panic!("it is TCP") };
        let _client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (socket, _) = listener.accept().unwrap().unwrap();
        assert_eq!(tcp_congestion(&socket).unwrap(), LOCAL_CONGESTION_CONTROL);
        assert!(tcp_nodelay(&socket).unwrap());
    }

    #[test]
    fn the_system_chooses_a_port_and_a_second_listener_on_it_is_refused() {
        let listener = Listener::new(&local()).unwrap();
        let error = Listener::new(&listener.address().clone().into()).unwrap_err();
        assert!(error.is_in_use());
        assert!(error.to_string().starts_with("cannot listen on http://127.0.0.1:"), "{error}");
    }

    #[test]
    fn a_connection_comes_with_its_peer() {
        let listener = Listener::new(&local()).unwrap();
        assert!(listener.accept().unwrap().is_none());
        let Address::Tcp { port, .. } = *listener.address() else { panic!("it is TCP") };
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (_socket, peer) = listener.accept().unwrap().unwrap();
        assert_eq!(peer, Peer::Tcp(client.local_addr().unwrap()));
    }

    #[test]
    fn a_client_of_ipv4_has_its_own_address_on_a_socket_of_both_families() {
        let bind: Bind = "tcp://[::]:0".parse().unwrap();
        let listener = Listener::new(&bind).unwrap();
        let Address::Tcp { port, .. } = *listener.address() else { panic!("it is TCP") };
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (_socket, peer) = listener.accept().unwrap().unwrap();
        assert_eq!(peer, Peer::Tcp(client.local_addr().unwrap()));
    }

    #[test]
    fn a_stale_socket_file_is_replaced_and_a_live_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let mut address = Bind::from(Address::Unix { path: path.clone() });
        address.mode = Some(0o600);
        let live = Listener::new(&address).unwrap();
        assert!(Listener::new(&address).unwrap_err().is_in_use());
        drop(live);
        let listener = Listener::new(&address).unwrap();
        assert_eq!(mode(&path), 0o600);
        let _client = UnixStream::connect(&path).unwrap();
        // The two attempts above have left connections of their own.
        assert!(listener.accept().unwrap().is_some_and(|(_, peer)| peer == Peer::Unix));
    }

    #[test]
    fn a_plain_file_is_never_removed_for_a_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        std::fs::write(&path, "precious").unwrap();
        let error = Listener::new(&Address::Unix { path: path.clone() }.into()).unwrap_err();
        assert!(error.is_in_use());
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn an_inherited_socket_tells_its_address() {
        let listener = Listener::new(&local()).unwrap();
        let address = listener.address().clone();
        assert_eq!(Listener::from_socket(listener.socket).unwrap().address(), &address);
    }

    #[test]
    fn the_umask_and_the_mode_of_a_bind_decide_which_users_may_connect() {
        let folder = tempfile::tempdir().unwrap();
        let listen = |name: &str| {
            let path = folder.path().join(name.split('?').next().unwrap());
            let bind: Bind = format!("unix://{}/{name}", folder.path().display()).parse().unwrap();
            let _listener = Listener::new(&bind).unwrap();
            mode(&path)
        };
        assert_eq!(listen("all_users"), 0o777);
        assert_eq!(listen("group?umask=0117"), 0o660);
        assert_eq!(listen("own?umask=0117&mode=600"), 0o600);
    }

    #[test]
    fn a_name_without_a_file_is_listened_on() {
        let name = format!("@thruway-test-{}", std::process::id());
        let bind: Bind = format!("unix://{name}").parse().unwrap();
        let listener = Listener::new(&bind).unwrap();
        assert!(Listener::new(&bind).unwrap_err().is_in_use());
        let address = listener.address().clone();
        assert_eq!(address.to_string(), format!("unix://{name}"));
        assert_eq!(Listener::from_socket(listener.socket).unwrap().address(), &address);
        assert!(std::fs::metadata(&name).is_err());
    }

    #[test]
    fn localhost_is_every_loopback_address_at_one_port() {
        let listeners = Listener::all(&"tcp://localhost:0".parse().unwrap()).unwrap();
        let ports: Vec<_> = listeners.iter().filter_map(Listener::port).collect();
        assert!(ports.iter().all(|port| *port == ports[0]), "{ports:?}");
        let has_both = std::net::TcpListener::bind(("::1", 0)).is_ok();
        assert_eq!(listeners.len(), if has_both { 2 } else { 1 });
        for (listener, host) in listeners.iter().zip(["127.0.0.1", "::1"]) {
            let _client = TcpStream::connect((host, ports[0])).unwrap();
            assert!(listener.accept().unwrap().is_some(), "{host}");
        }
        assert_eq!(Listener::all(&local()).unwrap().len(), 1);
    }

    #[test]
    fn low_latency_is_a_matter_of_the_bind() {
        use rustix::net::sockopt::tcp_nodelay;
        let nodelay = |text: &str| {
            let listener = Listener::new(&text.parse().unwrap()).unwrap();
            tcp_nodelay(&listener.socket).unwrap()
        };
        assert!(nodelay("tcp://127.0.0.1:0"));
        assert!(nodelay("tcp://127.0.0.1:0?low_latency=true"));
        assert!(!nodelay("tcp://127.0.0.1:0?low_latency=false"));
    }
}
