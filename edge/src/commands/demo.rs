//! `sluice demo`: runs a slow origin and Sluice in front of it, with three requests to try, and example sites with clients
//! for the dashboard.

mod browser;
mod sites;
mod traffic;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use sluice_lab::client::{self, Client, ClientTls, Reply};
use sluice_lab::origin::{Origin, OriginOptions, Resource};

use self::sites::Sites;
use self::traffic::Traffic;
use super::output::{announce, log_messages, say};
use crate::acme::{self, Root};
use crate::config::{self, Level, LogOptions, Plan, SitePlan, show_count, show_size};
use crate::sys::{ListenAddress, user};
use crate::telemetry::messages::MessageTarget;
use crate::tls::{ListenerTls, Management, SiteTls};
use crate::wiring;

/// Path of the demo's file. The file contains its own offset every ten bytes, so that the bytes of
/// any range show their position.
const PATH: &str = "/offset.bin";
const LENGTH: u64 = 10 << 20;
/// The page at `/`, for browsers.
const PAGE: &str = "<!DOCTYPE html>
<html lang=\"en\"><meta charset=\"utf-8\"><title>Sluice demo</title>
<h1>Sluice demo</h1>
<p>Sluice sent this page, and keeps it for an hour: <a href=\"/\">load it again</a>.
The response header Cache-Status says whether it was stored.</p>
<p><a href=\"/offset.bin\">/offset.bin</a> is a file of 10 MiB from a slow origin.
The terminal shows requests for parts of it.</p>
</html>
";
/// Ranges requested by the demo: ten bytes in the middle, ten bytes 1 MB later, and ten bytes near
/// the end.
const RANGES: [(u64, u64); 3] = [
    (5_000_000, 5_000_009),
    (6_000_000, 6_000_009),
    (10_000_000, 10_000_009),
];

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Make the requests, print the results, and end
    #[arg(long = "try")]
    try_it: bool,
    /// Bytes per second that the origin sends on each connection
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = rate)]
    rate: u64,
    /// Address to listen on [default: 127.0.0.1:8080, or a free port if that is in use]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Admin address [default: 127.0.0.1:9901, or a free port if that is in use]
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<String>,
    /// Cache on disk: a file and its size, as in /tmp/sluice.vol:128MiB; may be given several times
    #[arg(long, value_name = "PATH:SIZE")]
    volume: Vec<String>,
    /// How objects are distributed over several volumes: hash, stripe or mirror [default: hash]
    #[arg(long, value_name = "P")]
    placement: Option<String>,
    /// Use TLS, and HTTP/2 with it, with a certificate of the local authority (`sluice trust`)
    #[arg(long)]
    tls: bool,
    /// Run no example sites, whose clients send requests for the dashboard; with --try, --tls and --volume there are none
    #[arg(long)]
    no_traffic: bool,
}

impl DemoArgs {
    /// Whether the demo also runs the example sites.
    fn has_sites(&self) -> bool {
        !(self.no_traffic || self.try_it || self.tls || !self.volume.is_empty())
    }
}

/// Hosts of the demo's certificate.
const HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// The folder of the local authority's root.
struct Authority {
    folder: PathBuf,
    /// The folder, if it is only for this demo.
    temporary: Option<tempfile::TempDir>,
}

impl Authority {
    /// Chooses the folder: that of `sluice serve`, so that a root which this user trusts already is used. Root's demo
    /// gets a temporary folder, since services have the other one, and so does a demo that soon ends.
    fn new(ends_soon: bool) -> anyhow::Result<Authority> {
        let usual = acme::state_folder();
        // While another Sluice uses the folder, this one gets a temporary folder, too.
        if !ends_soon && !user::is_root() && acme::in_folder(usual).is_ok() {
            return Ok(Authority {
                folder: usual.to_owned(),
                temporary: None,
            });
        }
        let temporary = tempfile::Builder::new().prefix("sluice-").tempdir()?;
        Ok(Authority {
            folder: temporary.path().to_owned(),
            temporary: Some(temporary),
        })
    }

    /// Makes all listeners of a plan use TLS. The demo also answers other hosts, with the same certificate.
    fn encrypt(&self, plan: &mut Plan) {
        plan.acme.state.clone_from(&self.folder);
        for listener in &mut plan.listeners {
            listener.encrypt(ListenerTls::default());
        }
        let named = plan.sites.first().map(|site| SitePlan {
            hosts: HOSTS.map(str::to_owned).to_vec(),
            tls: Some(SiteTls {
                managed: Some(Management::Internal),
                ..SiteTls::default()
            }),
            ..site.clone()
        });
        plan.sites.extend(named);
    }

    /// Returns the root, which the demo has made.
    fn root(&self) -> anyhow::Result<Root> {
        let root = Root::read(&*acme::read_only(&self.folder))?;
        root.context("the local authority has no root")
    }
}

/// Slowest rate, in bytes per second, at which the demo's requests complete within their timeout.
const RATE_MIN: u64 = 64 << 10;

fn rate(text: &str) -> Result<u64, String> {
    match text.parse::<bytesize::ByteSize>().map(|size| size.0) {
        Err(_) => Err("write a size, as in 1MiB".to_owned()),
        Ok(rate) if rate < RATE_MIN => Err(format!("at least {}", show_size(RATE_MIN))),
        Ok(rate) => Ok(rate),
    }
}

pub fn run(args: &DemoArgs) -> anyhow::Result<()> {
    let log = LogOptions {
        level: Level::Warn,
        messages: MessageTarget::Stderr,
        access: None,
    };
    log_messages(&log)?;
    let origin = origin(args.rate)?;
    let authority = args.tls.then(|| Authority::new(args.try_it)).transpose()?;
    let sites = args.has_sites().then(Sites::start).transpose()?;
    let running = wiring::start(
        plan(args, &origin, authority.as_ref(), sites.as_ref())?,
        None,
    )?;
    announce(&running, &log)?;
    let edge = running.listeners.iter().find_map(ListenAddress::ip);
    let edge = edge.context("the demo needs an IP address to listen on")?;
    if let Some(authority) = &authority {
        let tls = ClientTls::trusting(authority.root()?.der(), "localhost");
        client::encrypt_all_to(edge, tls);
    }
    if args.try_it {
        let tried = try_all(edge, &origin, args.rate);
        running.stop();
        return tried;
    }
    let signals = wiring::Signals::take()?.catch_all()?;
    let admin = running.admin().map(|(_, address)| address);
    let fed = sites.as_ref().map(|_| sites::invitation(edge));
    let dashboard = admin.map_or(String::new(), |admin| dashboard(admin, fed));
    let text = invitation(edge, authority.as_ref(), admin, &origin, args.rate);
    say(&format!(
        "{text}{dashboard}\nPress Ctrl-C to end the demo.\n"
    ))?;
    if let (Some(_), Some(admin)) = (&sites, admin) {
        browser::open(&dashboard_url(admin));
    }
    let traffic = sites.as_ref().map(|_| Traffic::start(edge));
    let ended = running.wait_for_signals(signals);
    drop(traffic);
    ended
}

fn origin(rate: u64) -> anyhow::Result<Origin> {
    let origin = Origin::start(OriginOptions::default())?;
    let file = Resource::offset(LENGTH)
        .rate(rate)
        .vary("Accept-Encoding")
        .header("Cache-Control", "max-age=3600");
    origin.serve(PATH, file);
    let page = Resource::bytes(PAGE)
        .header("Content-Type", "text/html; charset=utf-8")
        .header("Cache-Control", "max-age=3600");
    origin.serve("/", page);
    Ok(origin)
}

/// Returns the plan of the demo, with or without the example sites.
fn plan(
    args: &DemoArgs,
    origin: &Origin,
    authority: Option<&Authority>,
    sites: Option<&Sites>,
) -> anyhow::Result<Plan> {
    let [listen, admin] = addresses(args);
    if let Some(sites) = sites {
        return sites.plan(&listen, &admin, origin);
    }
    let options = config::Options {
        origins: vec![format!("http://{}", origin.addr())],
        listen: vec![listen],
        admin: Some(admin),
        memory: Some("64MiB".to_owned()),
        volumes: args.volume.clone(),
        placement: args.placement.clone(),
        ..config::Options::default()
    };
    let mut plan = options.load()?.plan;
    if let Some(authority) = authority {
        authority.encrypt(&mut plan);
    }
    Ok(plan)
}

/// Returns the addresses for clients and for the admin API.
fn addresses(args: &DemoArgs) -> [String; 2] {
    let address = |typed: &Option<String>, port| typed.clone().unwrap_or_else(|| free(port));
    [address(&args.listen, 8080), address(&args.admin, 9901)]
}

/// Returns the loopback address with this port, or with a free port if this one is in use.
fn free(port: u16) -> String {
    let wanted = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    match TcpListener::bind(wanted) {
        Ok(_) => wanted.to_string(),
        Err(_) => "127.0.0.1:0".to_owned(),
    }
}

/// Returns the host and port of URLs for this address. The certificate is not for the address of all interfaces.
fn host(edge: SocketAddr) -> String {
    match edge.ip().is_unspecified() {
        true => format!("localhost:{}", edge.port()),
        false => edge.to_string(),
    }
}

/// Returns the part of the text about TLS. `program` is the path with which this program was started.
fn encryption(host: &str, authority: &Authority, program: &str) -> String {
    let ca = Root::file(&authority.folder);
    let ca = ca.display();
    let browsers = match authority.temporary {
        Some(_) => {
            format!("Browsers warn unless they trust {ca}, which is removed when the demo ends.")
        }
        None => format!(
            "Browsers warn unless they trust {ca}.\nHow to do that, for all sites with `tls = \"internal\"`:\n  {program} trust"
        ),
    };
    format!(
        "{browsers}
Version and cipher suite of TLS, and the protocol (h2 is HTTP/2):
  curl --cacert {ca} -sv -o /dev/null https://{host}/ 2>&1 | grep -E 'SSL connection|ALPN'
"
    )
}

fn dashboard_url(admin: &ListenAddress) -> String {
    format!("http://{admin}/dashboard/")
}

/// Returns the text about the dashboard. `fed`: the text about the example sites.
fn dashboard(admin: &ListenAddress, fed: Option<String>) -> String {
    format!(
        "\nThe dashboard: {}\n{}",
        dashboard_url(admin),
        fed.unwrap_or_default()
    )
}

fn invitation(
    edge: SocketAddr,
    authority: Option<&Authority>,
    admin: Option<&ListenAddress>,
    origin: &Origin,
    rate: u64,
) -> String {
    let host = host(edge);
    // The printed commands use the path with which this program was started, since it may not be in
    // PATH.
    let program = std::env::args().next();
    let program = program.as_deref().unwrap_or("sluice");
    let (scheme, curl) = match authority {
        None => ("http", "curl".to_owned()),
        Some(authority) => {
            let file = Root::file(&authority.folder);
            ("https", format!("curl --cacert {}", file.display()))
        }
    };
    let (times, handshake) = match authority {
        None => ("%{time_total} s", ""),
        Some(_) => (
            "handshake %{time_appconnect} s, all %{time_total} s",
            " after the handshake",
        ),
    };
    let encryption = authority.map_or(String::new(), |its| encryption(&host, its, program));
    let url = format!("{scheme}://{host}{PATH}");
    let (first, last) = RANGES[0];
    let status = admin.map_or(String::new(), |admin| {
        format!(
            "\nDuring a fetch, show which bytes are stored, which are being fetched, and why:\n  \
             {program} inspect {url} --admin {admin}\n"
        )
    });
    format!(
        "origin on http://{origin}, {rate}/s on each connection

{url} is a file of {size} that holds its own offset every ten bytes.
In a browser: {scheme}://{host}/
{encryption}
1. Ten bytes from the middle of the uncached file. A fetch from the beginning would reach them after
   {seconds:.1} s, so Sluice fetches these bytes first, and the rest of their block afterwards.
  {curl} -w '{times}\\n' -r {first}-{last} {url}

2. The whole file. Sluice fetches the missing bytes over several connections, as long as more of them
   make it faster. Over one connection the file would take {whole:.1} s.
  {curl} -w 'first byte %{{time_starttransfer}} s, all %{{time_total}} s\\n' -o /dev/null {url}

3. The first range again. Its bytes are stored: the response is a hit (see its Cache-Status header) and
   takes less than a millisecond{handshake}.
  {curl} -si -w '{times}\\n' -r {first}-{last} {url}
{status}",
        origin = origin.addr(),
        rate = show_size(rate),
        size = show_size(LENGTH),
        seconds = first as f64 / rate as f64,
        whole = LENGTH as f64 / rate as f64,
    )
}

fn try_all(edge: SocketAddr, origin: &Origin, rate: u64) -> anyhow::Result<()> {
    let patience = Duration::from_secs(30 + LENGTH / rate);
    say(&format!(
        "\n1. Three ranges of an uncached file, at the same time (origin: {}/s per connection):\n",
        show_size(rate)
    ))?;
    try_cold(edge, patience)?;

    say("\n2. The first range again:\n")?;
    let reply = ask(edge, Some(RANGES[0]), patience)?;
    say(&describe(&reply, RANGES[0]))?;

    say("\n3. The whole file:\n")?;
    let whole = ask(edge, None, patience)?;
    whole.verify_whole(LENGTH).map_err(anyhow::Error::msg)?;
    say(&format!(
        "   {} in {:.1} ms, every byte correct; {}\n",
        show_size(LENGTH),
        ms(&whole),
        cache_status(&whole)
    ))?;

    let seen = origin.requests();
    let sent: u64 = seen.iter().map(|s| s.sent).sum();
    say(&format!(
        "\nIn total the origin received {} and sent {}.\n",
        show_count(seen.len() as u64, "request"),
        show_size(sent)
    ))?;
    ensure!(sent <= LENGTH, "the origin sent some bytes more than once");
    Ok(())
}

/// Lets three clients request ranges at the same time while nothing is stored.
fn try_cold(edge: SocketAddr, patience: Duration) -> anyhow::Result<()> {
    thread::scope(|scope| {
        let clients =
            RANGES.map(|range| (range, scope.spawn(move || ask(edge, Some(range), patience))));
        for (range, client) in clients {
            let Ok(reply) = client.join() else {
                bail!("a client panicked");
            };
            say(&describe(&reply?, range))?;
        }
        Ok(())
    })
}

fn ask(edge: SocketAddr, range: Option<(u64, u64)>, patience: Duration) -> anyhow::Result<Reply> {
    let mut client = Client::connect(edge).context("Sluice can't be reached")?;
    client.set_timeout(patience)?;
    let host = edge.to_string();
    let range_field = range.map(|(first, last)| format!("bytes={first}-{last}"));
    let mut fields = vec![("Host", host.as_str()), ("Connection", "close")];
    fields.extend(range_field.as_deref().map(|value| ("Range", value)));
    let reply = client.get(PATH, &fields)?;
    if let Some((first, last)) = range {
        reply
            .verify_range(first, last, LENGTH)
            .map_err(anyhow::Error::msg)?;
    }
    Ok(reply)
}

fn describe(reply: &Reply, (first, last): (u64, u64)) -> String {
    format!(
        "   bytes {first}-{last} in {:.1} ms: {:?}; {}\n",
        ms(reply),
        reply.text(),
        cache_status(reply)
    )
}

fn ms(reply: &Reply) -> f64 {
    reply.total.as_secs_f64() * 1000.0
}

fn cache_status(reply: &Reply) -> String {
    format!(
        "Cache-Status: {}",
        reply.header("cache-status").unwrap_or("(none)")
    )
}
