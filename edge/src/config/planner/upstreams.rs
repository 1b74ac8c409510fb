//! Plans `[upstream.NAME]`, and upstreams that routes define by a URL.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use toml::Spanned;

use super::edit::ReadPage;
use super::server_url::{ServerUrl, is_host, is_url, split_port};
use super::{
    balance, eject, health, paths, redirect_hosts, retry, server_tcp, server_tls, server_url,
    signing, sticky,
};
use crate::config::checks::Checks;
use crate::config::file::{HttpVersion, RouteFile, ServerFile, UpstreamFile};
use crate::config::plan::ListenerPlan;
use crate::config::report::Problem;
use crate::config::value::{Key, Named, OrFalse};
use crate::http::Version;
use crate::sys::ListenAddress;
use crate::upstream::{Http2, Options, Server};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);
const SERVERS_MAX: usize = 256;

/// Returns the options of all upstreams. `read` reads files that they name.
pub fn plan(
    files: &Named<UpstreamFile>,
    listeners: &[ListenerPlan],
    read: ReadPage<'_>,
    checks: &mut Checks,
) -> BTreeMap<String, Options> {
    let mut plans = BTreeMap::new();
    for (name, file) in files {
        is_name(name, checks);
        let servers = servers(name, file, listeners, checks);
        plans.insert(name.get_ref().clone(), options(file, servers, read, checks));
    }
    plans
}

/// Refuses a URL as the name of an upstream: a route's `proxy` with this URL would reach the servers
/// of the section instead.
fn is_name(name: &Spanned<String>, checks: &mut Checks) {
    if is_url(name.get_ref()) {
        let problem = Problem::error("the name of an upstream can't be a URL").at(name.span());
        checks
            .push(problem.help("write a name, as in [upstream.origin], and the URL in `servers`"));
    }
}

/// Returns the name of the upstream that a URL in a route defines, or `None` if the URL is invalid.
pub fn name_of(url: &str) -> Option<String> {
    let url = server_url::parse(paths::split(url).0).ok()?;
    Some(listed(url, 1, false).url())
}

/// Returns the server with this URL.
fn listed(url: ServerUrl, weight: u32, backup: bool) -> Server {
    Server {
        scheme: url.scheme,
        h2c: url.h2c,
        host: url.host,
        port: url.port,
        srv: url.srv,
        unix: url.unix,
        weight,
        backup,
        down: false,
        max_connections: None,
    }
}

/// Adds an upstream for each URL in `proxy` and `follow_redirects` of a route. Routes whose URLs have the same host and port
/// share one upstream.
pub fn of_routes<'a>(
    routes: impl Iterator<Item = &'a RouteFile>,
    listeners: &[ListenerPlan],
    plans: &mut BTreeMap<String, Options>,
    checks: &mut Checks,
) {
    let urls = routes.flat_map(|route| {
        route
            .proxy
            .iter()
            .cloned()
            .chain(redirect_hosts::urls(route))
    });
    for typed in urls {
        let url = typed.get_ref();
        let name = name_of(url);
        let is_planned = |name: &String| plans.contains_key(name);
        if !is_url(url) || name.as_ref().is_some_and(is_planned) {
            continue;
        }
        let entry = ServerFile {
            url: Some(Spanned::new(typed.span(), paths::split(url).0.to_owned())),
            weight: None,
            backup: None,
            down: None,
            max_connections: None,
        };
        let server = server(&Spanned::new(typed.span(), entry), checks);
        if let (Some(server), Some(name)) = (server, name) {
            leads_back(&server, url, typed.span(), listeners, checks);
            plans.insert(name, Options::new(vec![server]));
        }
    }
}

fn options(
    file: &UpstreamFile,
    servers: Vec<Server>,
    read: ReadPage<'_>,
    checks: &mut Checks,
) -> Options {
    let d = Options::new(servers);
    let read_max = 24 * HOUR;
    let (balance, hash) = balance::plan(&file.balance, checks);
    let (http, http2) = http(file, &d.servers, checks);
    let mut options = Options {
        balance,
        hash,
        sticky: sticky::plan(&file.sticky, checks),
        health: health::plan(&file.health, checks),
        eject: eject::plan(&file.eject, checks),
        slow_start: eject::slow_start(&file.slow_start, checks),
        keepalive: keepalive(file, d.keepalive, checks),
        keepalive_requests: keepalive_requests(file, d.keepalive_requests, checks),
        keepalive_timeout: checks.within(
            "keepalive_timeout",
            &file.keepalive_timeout,
            d.keepalive_timeout,
            MS..=24 * HOUR,
        ),
        connect_timeout: checks.within(
            "connect_timeout",
            &file.connect_timeout,
            d.connect_timeout,
            MS..=HOUR,
        ),
        read_timeout: checks.within(
            "read_timeout",
            &file.read_timeout,
            d.read_timeout,
            MS..=read_max,
        ),
        min_rate: checks.within("min_rate", &file.min_rate, d.min_rate, 0..=1 << 30),
        send_timeout: checks.within(
            "send_timeout",
            &file.send_timeout,
            d.send_timeout,
            MS..=read_max,
        ),
        max_connections: checks.count(
            "max_connections",
            &file.max_connections,
            d.max_connections,
            0..=65_536,
        ),
        queue: checks.count("queue", &file.queue, d.queue, 0..=1_000_000),
        queue_timeout: queue_timeout(file, checks),
        tcp: server_tcp::options(&file.tcp, checks),
        http,
        retry: retry::plan(&file.retry, checks),
        hedge: retry::hedge(&file.hedge, checks),
        max_response_headers: max_response_headers(file, d.max_response_headers, checks),
        host: file.host.as_ref().and_then(|text| host_sent(text, checks)),
        tls: server_tls::options(file, &d.servers, d.tls, checks),
        via: file.via.unwrap_or(d.via),
        x_real_ip: file.x_real_ip.unwrap_or(d.x_real_ip),
        sign: signing::plan(&file.sign, read, checks),
        ..d
    };
    options.set_http2(http2);
    keeps_too_many(file, &options, checks);
    options
}

fn keepalive_requests(file: &UpstreamFile, default: u64, checks: &mut Checks) -> u64 {
    let requests = or_zero(&file.keepalive_requests);
    checks.within("keepalive_requests", &requests, default, 0..=u64::MAX)
}

fn max_response_headers(file: &UpstreamFile, default: usize, checks: &mut Checks) -> usize {
    let (name, key) = ("max_response_headers", &file.max_response_headers);
    checks.count(name, key, default, 8 << 10..=1 << 20)
}

/// Returns the number, which is 0 if `false` was written.
fn or_zero(key: &Key<OrFalse<u64>>) -> Key<u64> {
    let typed = key.as_ref()?;
    let number = typed.get_ref().on().copied().unwrap_or(0);
    Some(Spanned::new(typed.span(), number))
}

fn keepalive(file: &UpstreamFile, default: usize, checks: &mut Checks) -> usize {
    checks.count("keepalive", &or_zero(&file.keepalive), default, 0..=65_536)
}

fn queue_timeout(file: &UpstreamFile, checks: &mut Checks) -> Option<Duration> {
    let key = &file.queue_timeout;
    key.as_ref()?;
    Some(checks.within("queue_timeout", key, HOUR, MS..=HOUR))
}

/// Returns the version of HTTP/1, and the use of HTTP/2.
fn http(file: &UpstreamFile, servers: &[Server], checks: &mut Checks) -> (Version, Http2) {
    let Some(typed) = &file.http else {
        return (Version::Http11, Http2::Negotiated);
    };
    let written = typed.get_ref().0;
    if written != HttpVersion::Http2 && servers.iter().any(|server| server.h2c) {
        checks.push(
            Problem::error("a server of `h2c://` needs HTTP/2")
                .at(typed.span())
                .label("not with this version")
                .help("write `http://` in the URLs of the servers, or leave `http` out"),
        );
    }
    match written {
        HttpVersion::Http10 => (Version::Http10, Http2::Never),
        HttpVersion::Http11 => (Version::Http11, Http2::Never),
        HttpVersion::Http2 => (Version::Http11, Http2::Always),
    }
}

/// Warns if more connections may be kept than may be open.
fn keeps_too_many(file: &UpstreamFile, options: &Options, checks: &mut Checks) {
    if let Some(typed) = &file.keepalive
        && options.max_connections != 0
        && options.keepalive > options.max_connections
    {
        checks.push(
            Problem::warning("`keepalive` keeps more connections than `max_connections` allows")
                .at(typed.span())
                .label(format!("only {} may be open", options.max_connections)),
        );
    }
}

fn servers(
    name: &Spanned<String>,
    file: &UpstreamFile,
    listeners: &[ListenerPlan],
    checks: &mut Checks,
) -> Vec<Server> {
    let no_servers = || Problem::error(format!("upstream `{}` has no servers", name.get_ref()));
    let Some(list) = &file.servers else {
        let help = "add `servers = [\"http://127.0.0.1:9000\"]`";
        checks.push(no_servers().at(name.span()).help(help));
        return Vec::new();
    };
    if list.get_ref().is_empty() {
        let help = "put at least one URL into the list, as in [\"http://127.0.0.1:9000\"]";
        checks.push(no_servers().at(list.span()).help(help));
    }
    if list.get_ref().len() > SERVERS_MAX {
        checks.push(Problem::error(format!("more than {SERVERS_MAX} servers")).at(list.span()));
    }
    let mut servers: Vec<Server> = Vec::new();
    for entry in list.get_ref().iter().take(SERVERS_MAX) {
        let Some(server) = server(entry, checks) else {
            continue;
        };
        leads_back(&server, name.get_ref(), entry.span(), listeners, checks);
        if servers.iter().any(|s| s.address() == server.address()) {
            // Health, ejections and orders of operators belong to an address.
            checks.push(
                Problem::error(format!("`{}` is listed twice", server.address()))
                    .at(entry.span())
                    .label("an upstream has each address once")
                    .help("remove one of the two; for a larger share of requests, write { url = \"…\", weight = 2 }"),
            );
        }
        servers.push(server);
    }
    if !servers.is_empty() && servers.iter().all(|s| s.backup) {
        checks.push(
            Problem::error(format!("upstream `{}` has only backups", name.get_ref()))
                .at(list.span())
                .help("leave `backup` out for at least one server"),
        );
    }
    all_down(name.get_ref(), &servers, list.span(), checks);
    servers
}

/// Warns about an upstream without a server that gets requests.
fn all_down(name: &str, servers: &[Server], at: Range<usize>, checks: &mut Checks) {
    if servers.is_empty() || !servers.iter().all(|server| server.down) {
        return;
    }
    checks.push(
        Problem::warning(format!("all servers of upstream `{name}` are down"))
            .at(at)
            .label("its requests get 503")
            .help(format!(
                "leave `down` out for at least one server, or bring one up: `sluice servers {name} ADDRESS --set up`"
            )),
    );
}

fn server(entry: &Spanned<ServerFile>, checks: &mut Checks) -> Option<Server> {
    let file = entry.get_ref();
    let Some(url) = &file.url else {
        checks.push(
            Problem::error("a server without `url`")
                .at(entry.span())
                .help("write { url = \"http://127.0.0.1:9000\" }"),
        );
        return None;
    };
    let weight = checks.within("weight", &file.weight, 1, 1..=1000) as u32;
    let max_connections = file
        .max_connections
        .as_ref()
        .map(|_| checks.count("max_connections", &file.max_connections, 0, 0..=65_536));
    match server_url::parse(url.get_ref()) {
        Ok(parsed) => Some(Server {
            max_connections,
            down: file.down.unwrap_or(false),
            ..listed(parsed, weight, file.backup.unwrap_or(false))
        }),
        Err((label, help)) => {
            checks.push(
                Problem::error("this is not an origin server")
                    .at(place(url, entry.span()))
                    .label(label)
                    .help(help),
            );
            None
        }
    }
}

/// Returns the position of a server's URL in the file: the URL's own, or that of the entry if the
/// entry is a string.
fn place(url: &Spanned<String>, entry: Range<usize>) -> Range<usize> {
    match url.span() {
        span if span.is_empty() => entry,
        span => span,
    }
}

fn host_sent(text: &Spanned<String>, checks: &mut Checks) -> Option<String> {
    let host = text.get_ref();
    if split_port(host).is_some_and(|(name, _)| is_host(&name)) {
        return Some(host.to_ascii_lowercase());
    }
    checks.push(
        Problem::error("`host` is not a host")
            .at(text.span())
            .help("write the name that the origin expects, as in \"www.example.com\"; without it the client's Host is sent"),
    );
    None
}

/// Reports a server whose address is that of a listener in this configuration.
fn leads_back(
    server: &Server,
    name: &str,
    at: Range<usize>,
    listeners: &[ListenerPlan],
    checks: &mut Checks,
) {
    if asks_itself(server, listeners) {
        checks.push(
            Problem::error(format!("upstream `{name}` points to this server itself"))
                .at(at)
                .label("a listener of this configuration has this address")
                .help("name the origin's address, or listen on another port"),
        );
    }
}

/// Whether connecting to this server would reach one of these listeners.
fn asks_itself(server: &Server, listeners: &[ListenerPlan]) -> bool {
    if let Some(path) = &server.unix {
        let own = ListenAddress::Unix(path.clone());
        return listeners.iter().any(|listener| listener.address == own);
    }
    let ip = match server.host.as_str() {
        "localhost" => "127.0.0.1",
        host => host,
    };
    let Ok(ip) = ip.parse::<IpAddr>() else {
        return false;
    };
    let here = SocketAddr::new(ip, server.port);
    listeners.iter().filter_map(|l| l.address.ip()).any(|own| {
        let everywhere = own.ip().is_unspecified() && (ip.is_loopback() || ip.is_unspecified());
        own == here || (everywhere && own.port() == server.port)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Scheme;

    #[test]
    fn our_own_listeners_are_known() {
        let at = |host: &str, port| Server {
            scheme: Scheme::Http,
            h2c: false,
            host: host.to_owned(),
            port,
            srv: false,
            unix: None,
            weight: 1,
            backup: false,
            down: false,
            max_connections: None,
        };
        let listen = |a: &str| {
            let address: SocketAddr = a.parse().expect("an address");
            [ListenerPlan::at(address.into())]
        };
        assert!(asks_itself(&at("localhost", 80), &listen("0.0.0.0:80")));
        assert!(asks_itself(&at("10.0.0.1", 80), &listen("10.0.0.1:80")));
        assert!(!asks_itself(&at("10.0.0.1", 80), &listen("0.0.0.0:80")));
        assert!(!asks_itself(&at("127.0.0.1", 81), &listen("0.0.0.0:80")));
        let mut socket = at("localhost", 80);
        socket.unix = Some("/run/a.sock".into());
        assert!(!asks_itself(&socket, &listen("0.0.0.0:80")));
        let own = ListenAddress::Unix("/run/a.sock".into());
        assert!(asks_itself(&socket, &[ListenerPlan::at(own)]));
    }
}
