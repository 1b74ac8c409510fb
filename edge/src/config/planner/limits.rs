//! Plans `[limits]`.

use std::time::Duration;

use crate::config::checks::Checks;
use crate::config::file::LimitsFile;
use crate::downstream::Options;

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Returns the limits, checked against their bounds and with defaults.
pub fn plan(file: &LimitsFile, checks: &mut Checks) -> Options {
    let d = Options::default();
    Options {
        request_line: checks.count(
            "request_line",
            &file.request_line,
            d.request_line,
            256..=MIB,
        ),
        headers: checks.count("headers", &file.headers, d.headers, KIB..=MIB),
        body: checks.within("body", &file.body, d.body, 0..=1 << 50),
        header_timeout: checks.within(
            "header_timeout",
            &file.header_timeout,
            d.header_timeout,
            MS..=HOUR,
        ),
        body_timeout: checks.within(
            "body_timeout",
            &file.body_timeout,
            d.body_timeout,
            MS..=HOUR,
        ),
        send_timeout: checks.within(
            "send_timeout",
            &file.send_timeout,
            d.send_timeout,
            MS..=HOUR,
        ),
        keepalive_timeout: checks.within(
            "keepalive_timeout",
            &file.keepalive_timeout,
            d.keepalive_timeout,
            Duration::ZERO..=24 * HOUR,
        ),
        keepalive_header: file.keepalive_header.unwrap_or(d.keepalive_header),
        keepalive_requests: checks.within(
            "keepalive_requests",
            &file.keepalive_requests,
            d.keepalive_requests,
            0..=u64::MAX,
        ),
        connections: checks.count(
            "connections",
            &file.connections,
            d.connections,
            0..=10_000_000,
        ),
        connections_per_ip: checks.count(
            "connections_per_ip",
            &file.connections_per_ip,
            d.connections_per_ip,
            0..=10_000_000,
        ),
        min_rate: checks.within("min_rate", &file.min_rate, d.min_rate, 0..=1 << 30),
        min_rate_grace: checks.within(
            "min_rate_grace",
            &file.min_rate_grace,
            d.min_rate_grace,
            SECOND..=HOUR,
        ),
        shutdown_timeout: checks.within(
            "shutdown_timeout",
            &file.shutdown_timeout,
            d.shutdown_timeout,
            Duration::ZERO..=24 * HOUR,
        ),
    }
}
