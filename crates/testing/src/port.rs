//! Ports for servers that cannot choose one themselves.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// The sockets that claim the ports of this process until the process ends.
static CLAIMS: Mutex<Vec<UdpSocket>> = Mutex::new(Vec::new());

/// Returns a TCP port of the loopback interface at which no process listens.
///
/// The system does not give the port to sockets that ask for any, such as those of clients. A UDP socket at the same
/// port claims it, so that no parallel test gets the port before the server listens. `gem/test/ports.rb` does the same.
#[must_use]
pub fn free_port() -> u16 {
    let ports = ports();
    let count = u64::from(ports.end - ports.start);
    loop {
        let random = RandomState::new().build_hasher().finish() % count;
        let port =
            ports.start + u16::try_from(random).expect("it is less than the number of ports");
        let address = (Ipv4Addr::LOCALHOST, port);
        let Ok(claim) = UdpSocket::bind(address) else { continue };
        if TcpListener::bind(address).is_ok() {
            CLAIMS.lock().unwrap_or_else(PoisonError::into_inner).push(claim);
            return port;
        }
    }
}

/// Returns the ports below those that the system gives to sockets that ask for any. If these are too few, all ports.
fn ports() -> Range<u16> {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let least = range.split_whitespace().next().and_then(|word| word.parse().ok());
    match least.unwrap_or(32_768) {
        least @ 12_001.. => 10_000..least,
        _ => 10_000..60_000,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_port_is_claimed_once_and_nothing_listens_there() {
        let mut claimed: Vec<_> = (0..100).map(|_| free_port()).collect();
        for port in &claimed {
            assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).is_err());
            assert!(UdpSocket::bind((Ipv4Addr::LOCALHOST, *port)).is_err());
        }
        claimed.sort_unstable();
        claimed.dedup();
        assert_eq!(claimed.len(), 100);
    }
}
