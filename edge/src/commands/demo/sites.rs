//! The example sites of the demo: their origins, and the configuration of their routes, so that the dashboard has
//! something to show.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use sluice_lab::origin::{Modified, Origin, OriginOptions, Resource, Seen, Tag};

use tempfile::TempDir;

use super::traffic::{MEDIA_BYTES, Traffic};
use crate::config::{self, Plan, Purpose};
use crate::sys::Clock;

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

/// The origins of the demo's example sites, and the folder of their volume.
pub(super) struct Sites {
    origins: [Origin; 2],
    folder: TempDir,
}

impl Sites {
    /// Starts the origins.
    pub(super) fn start() -> anyhow::Result<Sites> {
        Ok(Sites {
            origins: [origin(FAST)?, origin(SLOW)?],
            folder: tempfile::Builder::new().prefix("sluice-").tempdir()?,
        })
    }

    /// Returns the plan of the example sites. `other`: the origin of all other hosts.
    pub(super) fn plan(&self, listen: &str, admin: &str, other: &Origin) -> anyhow::Result<Plan> {
        let text = self.configuration(listen, admin, other)?;
        Ok(config::parse_here("the demo's configuration", &text, Purpose::Start)?.plan)
    }

    fn configuration(&self, listen: &str, admin: &str, other: &Origin) -> anyhow::Result<String> {
        let [fast, slow] = &self.origins;
        let volume = self.folder.path().join("disk1.vol");
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
[cache.slow]
memory = \"64MiB\"
[upstream.example]
servers = [\"http://{other}\"]
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
[[site]]
[[site.route]]
proxy = \"example\"
cache = \"slow\"
",
            listen = quoted(listen),
            admin = quoted(admin),
            volume = quoted(&volume.display().to_string()),
            fast = fast.addr(),
            slow = slow.addr(),
            other = other.addr(),
            closed = closed()?,
        ))
    }
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

/// Returns the text about the dashboard and the example sites, which have this address.
pub(super) fn invitation(edge: SocketAddr) -> String {
    format!(
        "To give it something to show, clients of this demo send about {rate} requests per second to {edge}, for images, parts
of videos, pages and an API; some fail. After two minutes, the pages set cookies for two minutes, so that they are not
stored: find out on the dashboard why the hit ratio fell. For the X-ray: http://media.example/img/1.jpg
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
