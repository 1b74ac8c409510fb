//! Plans `[upstream.NAME]`, and upstreams that routes define by a URL.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use toml::Spanned;

use super::paths;
use crate::config::checks::Checks;
use crate::config::file::{RetryFile, RouteFile, ServerFile, UpstreamFile};
use crate::config::plan::ListenerPlan;
use crate::config::report::Problem;
use crate::config::value::{Key, Named, OrFalse, Table};
use crate::http::Scheme;
use crate::upstream::{Options, Server};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);
const SERVERS_MAX: usize = 256;

/// Returns the options of all upstreams.
pub fn plan(
    files: &Named<UpstreamFile>,
    listeners: &[ListenerPlan],
    checks: &mut Checks,
) -> BTreeMap<String, Options> {
    let mut plans = BTreeMap::new();
    for (name, file) in files {
        is_name(name, checks);
        let servers = servers(name, file, listeners, checks);
        plans.insert(name.get_ref().clone(), options(file, servers, checks));
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

/// Whether a route's `proxy` is a URL instead of the name of an upstream.
pub fn is_url(proxy: &str) -> bool {
    proxy.contains("://")
}

/// Returns the name of the upstream that a URL in a route defines, or `None` if the URL is invalid.
pub fn name_of(url: &str) -> Option<String> {
    let (host, port) = origin(paths::split(url).0).ok()?;
    Some(match host.contains(':') {
        true => format!("http://[{host}]:{port}"),
        false => format!("http://{host}:{port}"),
    })
}

/// Adds an upstream for each URL in a route's `proxy`. Routes whose URLs have the same host and port
/// share one upstream.
pub fn of_routes<'a>(
    routes: impl Iterator<Item = &'a RouteFile>,
    listeners: &[ListenerPlan],
    plans: &mut BTreeMap<String, Options>,
    checks: &mut Checks,
) {
    for typed in routes.filter_map(|route| route.proxy.as_ref()) {
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
        };
        let server = server(&Spanned::new(typed.span(), entry), checks);
        if let (Some(server), Some(name)) = (server, name) {
            leads_back(&server, url, typed.span(), listeners, checks);
            plans.insert(name, Options::new(vec![server]));
        }
    }
}

fn options(file: &UpstreamFile, servers: Vec<Server>, checks: &mut Checks) -> Options {
    let d = Options::new(servers);
    let read_max = 24 * HOUR;
    let options = Options {
        balance: file.balance.unwrap_or(d.balance),
        keepalive: checks.count("keepalive", &file.keepalive, d.keepalive, 0..=65_536),
        keepalive_requests: checks.within(
            "keepalive_requests",
            &file.keepalive_requests,
            d.keepalive_requests,
            0..=u64::MAX,
        ),
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
        tries: tries(&file.retry, d.tries, checks),
        max_response_headers: checks.count(
            "max_response_headers",
            &file.max_response_headers,
            d.max_response_headers,
            8 << 10..=1 << 20,
        ),
        host: file.host.as_ref().and_then(|text| host_sent(text, checks)),
        via: file.via.unwrap_or(d.via),
        x_real_ip: file.x_real_ip.unwrap_or(d.x_real_ip),
        servers: d.servers,
    };
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
    options
}

/// Returns the number of servers that are tried, the first one included.
fn tries(key: &Key<OrFalse<Table<RetryFile>>>, default: u32, checks: &mut Checks) -> u32 {
    let Some(typed) = key else { return default };
    match typed.get_ref() {
        OrFalse::False => 1,
        OrFalse::On(Table(retry)) => {
            checks.within("tries", &retry.tries, u64::from(default), 1..=17) as u32
        }
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
        if servers
            .iter()
            .any(|s| (&s.host, s.port) == (&server.host, server.port))
        {
            checks.push(
                Problem::warning(format!("`{}:{}` is listed twice", server.host, server.port))
                    .at(entry.span())
                    .help("for a larger share of requests, write { url = \"…\", weight = 2 }"),
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
    servers
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
    match origin(url.get_ref()) {
        Ok((host, port)) => Some(Server {
            scheme: Scheme::Http,
            host,
            port,
            weight,
            backup: file.backup.unwrap_or(false),
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

/// Returns host and port of `http://host:port`. An error consists of a label and the advice.
fn origin(url: &str) -> Result<(String, u16), (&'static str, &'static str)> {
    const EXAMPLE: &str =
        "write a URL such as \"http://127.0.0.1:9000\" or \"http://origin.example.com\"";
    if url.starts_with("https://") {
        return Err((
            "this version can't connect to origins with TLS",
            "use the origin's http:// address",
        ));
    }
    let rest = url
        .strip_prefix("http://")
        .ok_or(("`http://` is missing", EXAMPLE))?;
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains(['/', '?', '#']) {
        return Err((
            "a server has no path",
            "leave the path out here, and write it in the route: proxy = \"NAME/base\"",
        ));
    }
    if authority.contains('@') {
        return Err(("a server has no user name", EXAMPLE));
    }
    let (host, port) =
        split_port(authority).ok_or(("the port is not a number from 1 to 65535", EXAMPLE))?;
    if !is_host(&host) {
        return Err(("the host is not a name or an IP address", EXAMPLE));
    }
    Ok((host, port.unwrap_or(80)))
}

/// Splits an authority into host (an IPv6 address without its brackets) and port.
fn split_port(authority: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            match rest.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if rest.is_empty() => (host, None),
                None => return None,
            }
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = match port {
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
            Some(digits.parse().ok().filter(|port| *port != 0)?)
        }
        Some(_) => return None,
        None => None,
    };
    Some((host.to_ascii_lowercase(), port))
}

/// Whether this is an address, or a name of letters, digits, `-`, `_` and dots. RFC 9110 4.2.1
/// allows more in a name, which is not used in practice.
pub fn is_host(host: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    host.parse::<IpAddr>().is_ok()
        || (host.len() <= 253
            && host
                .strip_suffix('.')
                .unwrap_or(host)
                .split('.')
                .all(is_label))
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

    #[test]
    fn an_origin_is_host_and_port() {
        assert_eq!(
            origin("http://A.example:81"),
            Ok(("a.example".to_owned(), 81))
        );
        assert_eq!(
            origin("http://a.example/"),
            Ok(("a.example".to_owned(), 80))
        );
        assert_eq!(origin("http://[::1]:9"), Ok(("::1".to_owned(), 9)));
        for bad in [
            "a.example",
            "https://a.example",
            "http://",
            "http://a:0",
            "http://a:65536",
            "http://a:+1",
            "http://a/x",
            "http://u@a",
            "http://a b",
            "http://[::1",
            "http://[::1]x",
            "http://a..b",
            "http://a\r\nb",
            "http://::1",
        ] {
            assert!(origin(bad).is_err(), "{bad:?} is no origin");
        }
    }

    #[test]
    fn our_own_listeners_are_known() {
        let at = |host: &str, port| Server {
            scheme: Scheme::Http,
            host: host.to_owned(),
            port,
            weight: 1,
            backup: false,
        };
        let listen = |a: &str| {
            let address: SocketAddr = a.parse().expect("an address");
            [ListenerPlan::at(address.into())]
        };
        assert!(asks_itself(&at("localhost", 80), &listen("0.0.0.0:80")));
        assert!(asks_itself(&at("10.0.0.1", 80), &listen("10.0.0.1:80")));
        assert!(!asks_itself(&at("10.0.0.1", 80), &listen("0.0.0.0:80")));
        assert!(!asks_itself(&at("127.0.0.1", 81), &listen("0.0.0.0:80")));
    }
}
