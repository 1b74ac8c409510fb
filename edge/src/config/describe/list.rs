//! Formats lists for descriptions.

use std::fmt::Display;

use crate::http::Network;

/// Formats networks as in the configuration file.
pub fn networks(networks: &[Network]) -> String {
    let all = networks.iter().map(|network| {
        let whole = if network.address.is_ipv4() { 32 } else { 128 };
        match network.bits == whole {
            true => network.address.to_string(),
            false => format!("{}/{}", network.address, network.bits),
        }
    });
    list(&all.collect::<Vec<_>>())
}

/// Formats entries with commas between them.
pub fn list(entries: &[impl Display]) -> String {
    let texts: Vec<String> = entries.iter().map(ToString::to_string).collect();
    texts.join(", ")
}
