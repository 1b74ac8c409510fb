//! IP networks: addresses with a common prefix.

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

#[cfg(test)]
mod tests {
    use super::*;

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
