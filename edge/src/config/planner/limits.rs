//! Plans `[limits]`.

use std::time::Duration;

use crate::config::checks::Checks;
use crate::config::file::LimitsFile;
use crate::downstream::Options;

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// Highest value of `max_streams`: the streams of a connection are searched one by one for the next one to send.
const STREAMS_MAX: usize = 1024;
/// Bounds of the limits of unfinished TLS handshakes.
const HANDSHAKES: std::ops::RangeInclusive<usize> = 0..=1_000_000;

/// Returns the limits, checked against their bounds and with defaults.
pub fn plan(file: &LimitsFile, checks: &mut Checks) -> Options {
    let mut options = Options::default();
    sizes(file, &mut options, checks);
    timeouts(file, &mut options, checks);
    options
}

/// Sets the limits of sizes, numbers and rates. `plan` holds the defaults.
fn sizes(file: &LimitsFile, plan: &mut Options, checks: &mut Checks) {
    let most = 0..=10_000_000;
    let request_line = &file.request_line;
    plan.request_line = checks.count("request_line", request_line, plan.request_line, 256..=MIB);
    plan.headers = checks.count("headers", &file.headers, plan.headers, KIB..=MIB);
    plan.body = checks.within("body", &file.body, plan.body, 0..=1 << 50);
    plan.keepalive_header = file.keepalive_header.unwrap_or(plan.keepalive_header);
    plan.keepalive_requests = checks.within(
        "keepalive_requests",
        &file.keepalive_requests,
        plan.keepalive_requests,
        0..=u64::MAX,
    );
    let streams = checks.count(
        "max_streams",
        &file.max_streams,
        plan.max_streams as usize,
        1..=STREAMS_MAX,
    );
    plan.max_streams = u32::try_from(streams).unwrap_or(plan.max_streams);
    let connections = &file.connections;
    plan.connections = checks.count("connections", connections, plan.connections, most.clone());
    plan.connections_per_ip = checks.count(
        "connections_per_ip",
        &file.connections_per_ip,
        plan.connections_per_ip,
        most,
    );
    plan.handshakes = checks.count("handshakes", &file.handshakes, plan.handshakes, HANDSHAKES);
    plan.handshakes_per_ip = checks.count(
        "handshakes_per_ip",
        &file.handshakes_per_ip,
        plan.handshakes_per_ip,
        HANDSHAKES,
    );
    plan.request_memory = checks.within(
        "request_memory",
        &file.request_memory,
        plan.request_memory,
        0..=1 << 50,
    );
    plan.min_rate = checks.within("min_rate", &file.min_rate, plan.min_rate, 0..=1 << 30);
}

/// Sets the limits of times. `plan` holds the defaults.
fn timeouts(file: &LimitsFile, plan: &mut Options, checks: &mut Checks) {
    let mut set = |name, key, value: &mut Duration, least, most| {
        *value = checks.within(name, key, *value, least..=most);
    };
    let none = Duration::ZERO;
    set(
        "header_timeout",
        &file.header_timeout,
        &mut plan.header_timeout,
        MS,
        HOUR,
    );
    set(
        "body_timeout",
        &file.body_timeout,
        &mut plan.body_timeout,
        MS,
        HOUR,
    );
    set(
        "send_timeout",
        &file.send_timeout,
        &mut plan.send_timeout,
        MS,
        HOUR,
    );
    let handshake_timeout = &mut plan.handshake_timeout;
    set(
        "handshake_timeout",
        &file.handshake_timeout,
        handshake_timeout,
        MS,
        HOUR,
    );
    let keepalive_timeout = &mut plan.keepalive_timeout;
    set(
        "keepalive_timeout",
        &file.keepalive_timeout,
        keepalive_timeout,
        none,
        DAY,
    );
    set(
        "min_rate_grace",
        &file.min_rate_grace,
        &mut plan.min_rate_grace,
        SECOND,
        HOUR,
    );
    set(
        "tunnel_timeout",
        &file.tunnel_timeout,
        &mut plan.tunnel_timeout,
        MS,
        DAY,
    );
    set(
        "shutdown_timeout",
        &file.shutdown_timeout,
        &mut plan.shutdown_timeout,
        none,
        DAY,
    );
}
