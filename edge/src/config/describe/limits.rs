//! Describes limits that differ from the defaults.

use crate::config::value::{show_count, show_size, show_time};
use crate::downstream::Options;

/// Returns one line about each of these limits.
pub fn describe(limits: &Options) -> impl Iterator<Item = String> {
    let default = Options::default();
    let per_ip = limits.connections_per_ip;
    let per_ip = (per_ip != default.connections_per_ip)
        .then(|| format!("up to {} per IP", show_count(per_ip as u64, "connection")));
    let streams = (limits.max_streams != default.max_streams).then(|| {
        let streams = u64::from(limits.max_streams);
        format!(
            "up to {} at a time per connection of HTTP/2",
            show_count(streams, "request")
        )
    });
    let memory = match limits.request_memory {
        bytes if bytes == default.request_memory => None,
        0 => Some("waiting requests take any amount of memory".to_owned()),
        bytes => Some(format!(
            "waiting requests take up to {} of memory",
            show_size(bytes)
        )),
    };
    let tunnels = limits.tunnel_timeout;
    let tunnels = (tunnels != default.tunnel_timeout)
        .then(|| format!("idle tunnels are closed after {}", show_time(tunnels)));
    [per_ip, streams, memory, tunnels].into_iter().flatten()
}
