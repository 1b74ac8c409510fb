//! Sets of IP networks. Whether a set contains an address is found by binary search.

use std::net::IpAddr;

use crate::http::Network;

/// A set of IP addresses, stored as sorted disjoint ranges of first and last address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
}

impl Networks {
    /// Builds the set of all addresses in these networks.
    pub fn new(networks: &[Network]) -> Networks {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for network in networks {
            let bits = u32::from(network.bits);
            match network.address.to_canonical() {
                IpAddr::V4(address) => {
                    let rest = u32::MAX.checked_shr(bits).unwrap_or(0);
                    let first = u32::from(address) & !rest;
                    v4.push((first, first | rest));
                }
                IpAddr::V6(address) => {
                    let rest = u128::MAX.checked_shr(bits).unwrap_or(0);
                    let first = u128::from(address) & !rest;
                    v6.push((first, first | rest));
                }
            }
        }
        Networks {
            v4: joined(v4),
            v6: joined(v6),
        }
    }

    /// Whether the set contains an address. An IPv4 address mapped into IPv6 counts as IPv4.
    #[inline]
    pub fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => has(&self.v4, u32::from(address)),
            IpAddr::V6(address) => has(&self.v6, u128::from(address)),
        }
    }
}

/// Sorts ranges of addresses and merges those that overlap.
fn joined<T: Ord + Copy>(mut ranges: Vec<(T, T)>) -> Vec<(T, T)> {
    ranges.sort_unstable();
    let mut joined: Vec<(T, T)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match joined.last_mut() {
            Some((_, end)) if first <= *end => *end = last.max(*end),
            _ => joined.push((first, last)),
        }
    }
    joined
}

fn has<T: Ord + Copy>(ranges: &[(T, T)], address: T) -> bool {
    let behind = ranges.partition_point(|(first, _)| *first <= address);
    ranges[..behind]
        .last()
        .is_some_and(|(_, last)| address <= *last)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    /// Generates addresses, many of which have a prefix in common.
    fn addresses() -> impl Strategy<Value = IpAddr> {
        let near = prop::sample::select(vec![0_u32, 0x0a00_0000, 0x0a00_00ff, 0xffff_ffff]);
        let low = (near, 0..4_u32).prop_map(|(base, more)| base.wrapping_add(more));
        prop_oneof![
            low.clone().prop_map(|n| IpAddr::V4(Ipv4Addr::from(n))),
            low.clone()
                .prop_map(|n| IpAddr::V6(Ipv6Addr::from(u128::from(n) << 96))),
            low.prop_map(|n| IpAddr::V6(Ipv4Addr::from(n).to_ipv6_mapped())),
        ]
    }

    proptest! {
        #[test]
        fn a_set_contains_exactly_the_addresses_of_its_networks(
            networks in prop::collection::vec((addresses(), 0..=128_u8), 0..8),
            asked in prop::collection::vec(addresses(), 1..8),
        ) {
            let networks: Vec<Network> = networks
                .into_iter()
                .map(|(address, bits)| {
                    let address = address.to_canonical();
                    let most = if address.is_ipv4() { 32 } else { 128 };
                    Network { address, bits: bits.min(most) }
                })
                .collect();
            let set = Networks::new(&networks);
            for address in asked {
                let expected = networks.iter().any(|n| n.contains(address));
                prop_assert_eq!(set.contains(address), expected, "{} in {:?}", address, networks);
            }
        }
    }
}
