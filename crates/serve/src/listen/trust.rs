//! The addresses that are trusted as proxies.

use std::net::IpAddr;
use std::str::FromStr;

use crate::listen::listener::Peer;

/// The addresses that are trusted as proxies: by default, processes on this machine and addresses of private networks,
/// as in Rack.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trust {
    networks: Option<Vec<Network>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    /// The number of significant bits.
    bits: u32,
}

impl Trust {
    /// Whether the peer's statements about its client are trusted. A unix socket always is: its permissions guard it.
    #[must_use]
    pub fn includes(&self, peer: Peer) -> bool {
        match peer {
            Peer::Unix => true,
            Peer::Tcp(address) => self.includes_address(address.ip()),
        }
    }

    pub(crate) fn includes_address(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        match &self.networks {
            Some(networks) => networks.iter().any(|network| network.includes(address)),
            None => is_private(address),
        }
    }
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_private(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local(),
    }
}

/// Parses addresses and networks separated by commas; an empty list is the default.
impl FromStr for Trust {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        let networks: Vec<_> = words.map(str::parse).collect::<Result<_, _>>()?;
        Ok(Self { networks: Some(networks).filter(|networks| !networks.is_empty()) })
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is neither an address nor a network");
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(a, bits)| (a, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse).map_err(|_| wrong())?;
        if bits > most {
            return Err(wrong());
        }
        Ok(Self { address, bits })
    }
}

impl Network {
    fn includes(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differ = u32::from(own) ^ u32::from(other);
                differ.leading_zeros() >= self.bits
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differ = u128::from(own) ^ u128::from(other);
                differ.leading_zeros() >= self.bits
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn includes(trust: &str, address: &str) -> bool {
        trust.parse::<Trust>().unwrap().includes_address(address.parse().unwrap())
    }

    #[test]
    fn private_addresses_are_trusted_where_nothing_is_said() {
        for address in ["127.0.0.1", "10.1.2.3", "192.168.0.1", "::1", "fd00::1", "::ffff:10.0.0.1"]
        {
            assert!(includes("", address), "{address}");
        }
        for address in ["192.0.2.1", "11.0.0.1", "2001:db8::1", "::ffff:192.0.2.1"] {
            assert!(!includes("", address), "{address}");
        }
        assert!(Trust::default().includes(Peer::Unix));
    }

    #[test]
    fn a_list_takes_the_place_of_the_default() {
        let list = "192.0.2.0/25, 2001:db8::/32,198.51.100.7";
        for address in ["192.0.2.127", "2001:db8:9::1", "198.51.100.7", "::ffff:192.0.2.1"] {
            assert!(includes(list, address), "{address}");
        }
        for address in ["192.0.2.128", "2001:db9::1", "198.51.100.8", "127.0.0.1"] {
            assert!(!includes(list, address), "{address}");
        }
        assert!(includes("0.0.0.0/0", "8.8.8.8") && !includes("0.0.0.0/0", "2001:db8::1"));
        for wrong in ["10.0.0.0/33", "host", "10.0.0.0/", "::/129", "10.0.0/8"] {
            assert!(wrong.parse::<Trust>().is_err(), "{wrong}");
        }
    }
}
