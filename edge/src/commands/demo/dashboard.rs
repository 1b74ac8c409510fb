//! `sluice demo --dashboard`: runs origins, Sluice in front of them with several sites and routes, and clients, so that
//! the dashboard has something to show.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::Context;
use sluice_lab::origin::{Modified, Origin, OriginOptions, Resource, Seen, Tag};

use super::traffic::{MEDIA_BYTES, Traffic};
use crate::commands::output::{announce, log_messages, say};
use crate::config::{self, Level, LogOptions, Purpose};
use crate::sys::{Clock, ListenAddress};
use crate::telemetry::messages::MessageTarget;
use crate::wiring;

/// Size of the volume, which is in a temporary file.
const VOLUME: &str = "96MiB";
/// Longest time until a page is requested from the origin again.
const PAGE_MAX_AGE: &str = "max-age=20";
/// Time of one round, in which pages set cookies for a while, so that the hit ratio falls.
const ROUND: Duration = Duration::from_secs(360);
/// The part of a round in which pages set cookies.
const COOKIES_FROM: Duration = Duration::from_secs(120);
const COOKIES_TO: Duration = Duration::from_secs(240);
/// Time that the slower origin takes for each response.
const SLOW: Duration = Duration::from_millis(25);
const FAST: Duration = Duration::from_millis(4);

/// Runs the demo until Ctrl-C, with these addresses for clients and for the dashboard.
pub(super) fn run(listen: &str, admin: &str) -> anyhow::Result<()> {
    let log = LogOptions {
        level: Level::Warn,
        messages: MessageTarget::Stderr,
        access: None,
    };
    log_messages(&log)?;
    let origins = [origin(FAST)?, origin(SLOW)?];
    let folder = tempfile::Builder::new().prefix("sluice-").tempdir()?;
    let volume = folder.path().join("disk1.vol");
    let text = configuration(listen, admin, &origins, &volume.display().to_string())?;
    let plan = config::parse_here("the demo's configuration", &text, Purpose::Start)?.plan;
    let running = wiring::start(plan, None)?;
    announce(&running, &log)?;
    let edge = running.listeners.iter().find_map(ListenAddress::ip);
    let edge = edge.context("the demo needs an IP address to listen on")?;
    let admin = running.admin().map(|(_, address)| address.to_string());
    let admin = admin.context("the dashboard needs an admin address")?;
    let signals = wiring::Signals::take()?.catch_all()?;
    say(&invitation(edge, &admin))?;
    let traffic = Traffic::start(edge);
    let ended = running.wait_for_signals(signals);
    drop(traffic);
    ended
}

/// Starts an origin that takes this time for each response.
fn origin(delay: Duration) -> anyhow::Result<Origin> {
    let origin = Origin::start(OriginOptions {
        forget: true,
        ..OriginOptions::default()
    })?;
    let clock = Clock::system();
    let began_us = clock.monotonic_us();
    origin.serve_rest(Resource::dynamic(move |seen| {
        let elapsed = Duration::from_micros(clock.monotonic_us().saturating_sub(began_us));
        respond(seen, elapsed).delay_head(delay)
    }));
    Ok(origin)
}

/// Returns the response of an origin, which depends on the beginning of the path.
fn respond(seen: &Seen, elapsed: Duration) -> Resource {
    let path = seen.target.split('?').next().unwrap_or_default();
    let number = path.bytes().fold(7u64, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(u64::from(byte))
    });
    let sized = |least: u64, most: u64| Resource::noise(number, least + number % (most - least));
    let folder = path.split('/').nth(1).unwrap_or_default();
    match folder {
        "img" => sized(2 << 10, 40 << 10).cache_control("max-age=3600"),
        "video" => Resource::noise(number, MEDIA_BYTES).cache_control("max-age=86400"),
        "pages" => page(sized(4 << 10, 24 << 10), elapsed),
        "account" => sized(1 << 10, 4 << 10).cache_control("private"),
        "api" => sized(200, 2 << 10).cache_control("no-store"),
        _ => Resource::status(if number % 5 == 0 { 503 } else { 404 }),
    }
}

/// Returns a page, which sets a cookie during a part of each round.
fn page(page: Resource, elapsed: Duration) -> Resource {
    // Without a validator, an expired page can't be confirmed and is fetched again.
    let page = page
        .tag(Tag::None)
        .modified(Modified::None)
        .cache_control(PAGE_MAX_AGE)
        .header("Content-Type", "text/html");
    match sets_cookies(elapsed) {
        true => page.header("Set-Cookie", "visit=1"),
        false => page,
    }
}

fn sets_cookies(elapsed: Duration) -> bool {
    let position = Duration::from_secs(elapsed.as_secs() % ROUND.as_secs());
    (COOKIES_FROM..COOKIES_TO).contains(&position)
}

/// Returns an address at which nothing listens.
fn closed() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

fn configuration(
    listen: &str,
    admin: &str,
    origins: &[Origin; 2],
    volume: &str,
) -> anyhow::Result<String> {
    let [fast, slow] = origins;
    // Strings of TOML and of JSON are written in the same way.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    Ok(format!(
        "[[listener]]
address = {listen}
[admin]
address = {admin}
price_per_gb = 0.05
[volume.disk1]
path = {volume}
size = \"{VOLUME}\"
[cache.media]
memory = \"32MiB\"
volumes = \"disk1\"
[cache.pages]
memory = \"12MiB\"
[upstream.origin]
servers = [\"http://{fast}\", \"http://{slow}\"]
[upstream.legacy]
servers = [\"http://{closed}\"]
[[site]]
hosts = [\"media.example\"]
[[site.route]]
path = \"/img/**\"
proxy = \"origin\"
cache = \"media\"
[[site.route]]
path = \"/video/**\"
proxy = \"origin\"
cache = \"media\"
[[site]]
hosts = [\"www.example\"]
[[site.route]]
path = \"/pages/**\"
proxy = \"origin\"
cache = \"pages\"
[[site.route]]
path = \"/account/**\"
proxy = \"origin\"
cache = \"pages\"
[[site.route]]
path = \"/api/**\"
proxy = \"origin\"
[[site.route]]
path = \"/legacy/**\"
proxy = \"legacy\"
[[site.route]]
proxy = \"origin\"
cache = \"pages\"
",
        listen = quoted(listen),
        admin = quoted(admin),
        volume = quoted(volume),
        fast = fast.addr(),
        slow = slow.addr(),
        closed = closed()?,
    ))
}

fn invitation(edge: SocketAddr, admin: &str) -> String {
    format!(
        "
The dashboard: http://{admin}/dashboard/

Clients of this demo send about {rate} requests per second to http://{edge}: for images, parts of videos, pages, an API,
and some that fail. After two minutes, the pages set cookies for two minutes, so that they are not stored: find out on the
dashboard why the hit ratio fell. For the X-ray: http://media.example/img/1.jpg

Press Ctrl-C to end the demo.
",
        rate = Traffic::RATE,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_set_cookies_for_a_while() {
        let set = |s| sets_cookies(Duration::from_secs(s));
        assert!(!set(0) && !set(119) && set(120) && set(239) && !set(240));
        assert!(!set(360) && set(480));
    }
}
