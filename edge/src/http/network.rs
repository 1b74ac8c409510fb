//! IP networks: addresses with a common prefix, and the addresses that belong to one client.

use std::net::IpAddr;

/// A network, such as `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Any address in the network.
    pub address: IpAddr,
    /// Length of the prefix in bits.
    pub bits: u8,
}

impl Network {
    /// Whether the network contains the address. An IPv4 address mapped into IPv6 counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let bits = u32::from(self.bits);
        match (self.address.to_canonical(), address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let shift = 32_u32.saturating_sub(bits);
                let mask = u32::MAX.checked_shl(shift).unwrap_or(0);
                u32::from(own) & mask == u32::from(other) & mask
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let shift = 128_u32.saturating_sub(bits);
                let mask = u128::MAX.checked_shl(shift).unwrap_or(0);
                u128::from(own) & mask == u128::from(other) & mask
            }
            _ => false,
        }
    }
}

/// Identifies a client for limits: an IPv4 address, or the first 64 bits of an IPv6 address,
/// because a single customer has all addresses with this prefix (RFC 6177 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientId(u64);

impl ClientId {
    /// Returns a number that no other client has. The numbers follow from the addresses, so a hash
    /// table of them has to be seeded.
    #[inline]
    pub fn number(self) -> u64 {
        self.0
    }

    /// Returns the identity of the client with this address. An IPv4 address mapped into IPv6
    /// counts as IPv4.
    #[inline]
    pub fn of(address: IpAddr) -> ClientId {
        match address.to_canonical() {
            // The number for an IPv4 address never equals that of an IPv6 prefix in use: the first
            // sixteen bits are zero, and 0000::/8 is reserved (RFC 4291 2.4).
            IpAddr::V4(address) => ClientId(0xffff << 32 | u64::from(u32::from(address))),
            IpAddr::V6(address) => ClientId((u128::from(address) >> 64) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_distinguished_by_address_or_network() {
        let id = |text: &str| ClientId::of(text.parse().expect("an address"));
        assert_ne!(id("10.0.0.1"), id("10.0.0.2"));
        assert_eq!(id("10.0.0.1"), id("::ffff:10.0.0.1"));
        assert_eq!(id("2001:db8::1"), id("2001:db8::ffff:0:0:1"));
        assert_ne!(id("2001:db8::1"), id("2001:db8:0:1::1"));
        assert_ne!(id("0.0.0.0"), id("::"));
    }

    #[test]
    fn networks_contain_only_their_addresses() {
        let network = |text: &str, bits| Network {
            address: text.parse().expect("an address"),
            bits,
        };
        let holds = |net: Network, text: &str| net.contains(text.parse().expect("an address"));
        assert!(holds(network("10.0.0.0", 8), "10.255.0.1"));
        assert!(holds(network("10.0.0.0", 8), "::ffff:10.1.2.3"));
        assert!(!holds(network("10.0.0.0", 8), "11.0.0.1"));
        assert!(!holds(network("10.0.0.0", 8), "::1"));
        assert!(holds(network("10.1.2.3", 32), "10.1.2.3"));
        assert!(!holds(network("10.1.2.3", 32), "10.1.2.2"));
        assert!(holds(network("0.0.0.0", 0), "8.8.8.8"));
        assert!(holds(network("fe80::", 10), "fe80::1"));
        assert!(!holds(network("fe80::", 10), "fc80::1"));
        assert!(holds(network("::", 0), "2001::1"));
    }
}
