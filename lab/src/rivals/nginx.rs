//! nginx as a rival: one worker without logs, configured for the best results in each comparison.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;

use super::running::{RivalLaunch, RunningRival};
use crate::certificates::PairFiles;

const START_TIMEOUT: Duration = Duration::from_secs(10);

/// The task of nginx.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NginxMode {
    /// Proxy with a cache, on tmpfs if available.
    Cached,
    /// Proxy with a cache and `proxy_cache_lock`. While one request fills the cache, others for the same file go to
    /// the origin.
    Locked,
    /// Proxy with a cache in slices of this many bytes.
    Sliced(u64),
    /// Like `Sliced`, with `proxy_cache_lock`: requests wait for a slice that another request is fetching.
    SlicedLocked(u64),
    /// Proxy with a cache in which responses without a lifetime live for one second, concurrent requests share a
    /// fetch, and stale responses are served during revalidation and when the origin fails. A silent origin counts as
    /// failed after this many milliseconds.
    Graceful(u64),
    /// Proxy without a cache.
    Proxy,
    /// Serves the files of a folder.
    Static(PathBuf),
}

/// Options of nginx.
#[derive(Debug, Clone)]
pub struct NginxOptions {
    /// The task.
    pub mode: NginxMode,
    /// The origin; `None` for static files.
    pub origin: Option<SocketAddr>,
    /// Further servers beside the origin.
    pub more_origins: Vec<SocketAddr>,
    /// Whether sendfile is on.
    pub sendfile: bool,
    /// Whether tcp_nopush is on. Full packets take less CPU time, but the last bytes that have arrived from the
    /// origin are delayed by up to 200 ms.
    pub nopush: bool,
    /// Core to which nginx is pinned.
    pub core: Option<usize>,
    /// Number of worker processes.
    pub workers: usize,
    /// Folders of the caches; if empty, one folder on tmpfs if available. Several folders share the URLs evenly.
    pub stores: Vec<PathBuf>,
    /// Size limit in bytes of each cache.
    pub max_size: u64,
    /// Whether threads write to the cache (`aio threads`) instead of the worker.
    pub threads: bool,
    /// Whether connections to the origin are kept open and reused (`keepalive` in the upstream block).
    pub keepalive: bool,
    /// Whether requests to the origin have `Connection: close`.
    pub close: bool,
    /// Access log: its path, and the format of its lines. `None`: no access log.
    pub access_log: Option<(PathBuf, String)>,
    /// Path prefix that is proxied without the cache.
    pub plain: Option<String>,
    /// Certificate of the server; `None`: clear text.
    pub tls: Option<PairFiles>,
    /// Whether clients use HTTP/2. In clear text, nginx then speaks nothing else.
    pub http2: bool,
    /// Additional directives of the server block (name, value). They take precedence over the defaults.
    pub directives: Vec<(String, String)>,
}

impl NginxOptions {
    /// Returns options for one worker with sendfile on.
    pub fn new(mode: NginxMode, origin: Option<SocketAddr>) -> NginxOptions {
        NginxOptions {
            mode,
            origin,
            more_origins: Vec::new(),
            sendfile: true,
            nopush: true,
            core: None,
            workers: 1,
            stores: Vec::new(),
            max_size: 8 << 30,
            threads: false,
            keepalive: true,
            close: false,
            access_log: None,
            plain: None,
            tls: None,
            http2: false,
            directives: Vec::new(),
        }
    }

    /// Adds a directive to the server block.
    pub fn directive(mut self, name: &str, value: &str) -> NginxOptions {
        self.directives.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts nginx on a free port.
    pub fn start(&self) -> anyhow::Result<RunningRival> {
        let mut rival = RivalLaunch::new(&super::NGINX, "lab-nginx-", self.core)?;
        let cache = rival.cache_folder("lab-nginx-cache-")?;
        let folder = rival.launch.folder.clone();
        let text = configuration(self, rival.address, &folder, &cache)?;
        let file = rival.write("nginx.conf", text)?;
        let log = folder.join("error.log").display().to_string();
        let folder = folder.display().to_string();
        rival.start(["-p", &folder, "-c", &file, "-e", &log], START_TIMEOUT)
    }

    fn caches(&self) -> bool {
        !matches!(self.mode, NginxMode::Proxy | NginxMode::Static(_))
    }
}

/// Returns the version of the nginx at this path, which prints it to standard error.
pub(super) fn version(program: &Path) -> anyhow::Result<String> {
    let output = Command::new(program).arg("-v").output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let (_, version) = text.trim().rsplit_once('/').context("nginx -v")?;
    Ok(version.to_owned())
}

fn configuration(
    options: &NginxOptions,
    address: SocketAddr,
    folder: &Path,
    cache: &Path,
) -> anyhow::Result<String> {
    let user = match super::is_root() {
        true => "user root;\n",
        false => "",
    };
    let sendfile = if options.sendfile { "on" } else { "off" };
    let nopush = if options.nopush { "on" } else { "off" };
    let folder = folder.display();
    let mut text = format!(
        "{user}daemon off;
worker_processes {workers};
worker_rlimit_nofile 20000;
pid {folder}/nginx.pid;
error_log {folder}/error.log error;
events {{ worker_connections 19000; multi_accept on; }}
http {{
{log}  sendfile {sendfile};
  tcp_nopush {nopush};
  tcp_nodelay on;
  keepalive_timeout 3600s;
  keepalive_requests 1000000000;
  open_file_cache max=20000 inactive=3600s;
  open_file_cache_valid 3600s;
  default_type application/octet-stream;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
",
        workers = options.workers,
        log = access_log(options),
    );
    if options.caches() {
        text.push_str(&stores(options, cache));
    }
    if let Some(origin) = options.origin {
        let more = options.more_origins.iter();
        let more: String = more.map(|one| format!("    server {one};\n")).collect();
        let keepalive = if options.keepalive { KEEPALIVE } else { "" };
        text.push_str(&format!(
            "  upstream origin {{\n    server {origin};\n{more}{keepalive}  }}\n"
        ));
    }
    text.push_str(&server(options, address)?);
    text.push_str("}\n");
    Ok(text)
}

/// Returns the block of the server.
fn server(options: &NginxOptions, address: SocketAddr) -> anyhow::Result<String> {
    let location = match options.stores.len() > 1 {
        true => location(options)?,
        false => location(options)?.replace("$lab", "lab0"),
    };
    let plain = options.plain.as_ref().map_or(String::new(), |plain| {
        let proxy = proxy(options);
        format!("    location {plain} {{\n{proxy}{UNBUFFERED}    }}\n")
    });
    let (ssl, certificate) = match &options.tls {
        None => ("", String::new()),
        Some(pair) => (" ssl", certificate(pair)),
    };
    let http2 = if options.http2 { " http2" } else { "" };
    let directives: String = options
        .directives
        .iter()
        .map(|(name, value)| format!("    {name} {value};\n"))
        .collect();
    Ok(format!(
        "  server {{\n    listen {address}{ssl}{http2} backlog=4096;\n{certificate}{directives}{plain}    location / {{
{location}    }}\n  }}\n"
    ))
}

/// Returns the directives of TLS.
fn certificate(pair: &PairFiles) -> String {
    format!(
        "    ssl_certificate {};\n    ssl_certificate_key {};\n    ssl_session_cache shared:lab:10m;\n",
        pair.certificate.display(),
        pair.key.display()
    )
}

/// Returns the directives of the caches, and of the distribution of URLs among several caches.
fn stores(options: &NginxOptions, own: &Path) -> String {
    let own = [own.to_owned()];
    let folders = match options.stores.is_empty() {
        true => &own[..],
        false => &options.stores,
    };
    let mut text = String::new();
    for (number, folder) in folders.iter().enumerate() {
        text.push_str(&format!(
            "  proxy_cache_path {} levels=1:2 keys_zone=lab{number}:64m max_size={} inactive=24h use_temp_path=off;\n",
            folder.display(),
            options.max_size,
        ));
    }
    if folders.len() > 1 {
        text.push_str("  split_clients $request_uri $lab {\n");
        for number in 1..folders.len() {
            let percent = 100.0 / folders.len() as f64;
            text.push_str(&format!("    {percent:.2}% lab{number};\n"));
        }
        text.push_str("    * lab0;\n  }\n");
    }
    if options.threads {
        text.push_str("  aio threads;\n  aio_write on;\n");
    }
    text
}

const KEEPALIVE: &str = "    keepalive 256;
    keepalive_requests 1000000000;
    keepalive_timeout 3600s;
";

/// Returns the directives of the access log.
fn access_log(options: &NginxOptions) -> String {
    match &options.access_log {
        None => "  access_log off;\n".to_owned(),
        Some((path, format)) => format!(
            "  log_format lab '{format}';\n  access_log {} lab;\n",
            path.display()
        ),
    }
}

/// Returns the directives of requests to the origin.
fn proxy(options: &NginxOptions) -> String {
    let connection = if options.close { "close" } else { "\"\"" };
    format!(
        "      proxy_pass http://origin;
      proxy_http_version 1.1;
      proxy_set_header Connection {connection};
"
    )
}

/// Buffers larger than the default are faster here. `proxy_max_temp_file_size 0` keeps nginx from writing to a file
/// what a client does not read at once.
const UNBUFFERED: &str = "      proxy_buffers 32 32k;
      proxy_busy_buffers_size 256k;
      proxy_buffer_size 32k;
      proxy_max_temp_file_size 0;
";

fn location(options: &NginxOptions) -> anyhow::Result<String> {
    if let NginxMode::Static(root) = &options.mode {
        return Ok(format!("      root {};\n", root.display()));
    }
    anyhow::ensure!(options.origin.is_some(), "a proxy needs an origin");
    let mut text = proxy(options);
    match options.mode {
        NginxMode::Cached => {
            text.push_str("      proxy_cache $lab;\n      proxy_cache_valid 200 24h;\n")
        }
        // Requests do not wait for the lock (timeout 0), and the lock lasts longer than the fetch.
        NginxMode::Locked => text.push_str(
            "      proxy_cache $lab;
      proxy_cache_valid 200 24h;
      proxy_cache_lock on;
      proxy_cache_lock_timeout 0s;
      proxy_cache_lock_age 200s;
      proxy_cache_use_stale updating;
",
        ),
        NginxMode::Graceful(timeout_ms) => text.push_str(&format!(
            "      proxy_cache $lab;
      proxy_cache_valid 200 1s;
      proxy_cache_lock on;
      proxy_cache_use_stale error timeout updating http_500 http_502 http_503 http_504;
      proxy_cache_background_update on;
      proxy_connect_timeout {timeout_ms}ms;
      proxy_read_timeout {timeout_ms}ms;
"
        )),
        NginxMode::Sliced(bytes) => text.push_str(&slices(bytes)),
        // Timeout and age are nginx's defaults of 5 s.
        NginxMode::SlicedLocked(bytes) => {
            text.push_str(&slices(bytes));
            text.push_str("      proxy_cache_lock on;\n");
        }
        _ => text.push_str(UNBUFFERED),
    }
    Ok(text)
}

fn slices(bytes: u64) -> String {
    format!(
        "      slice {bytes};
      proxy_cache $lab;
      proxy_cache_key $host$uri$is_args$args$slice_range;
      proxy_set_header Range $slice_range;
      proxy_cache_valid 200 206 24h;
"
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::client;
    use crate::origin::{Origin, OriginOptions};
    use crate::rivals::NGINX;
    use crate::rivals::tests::is_missing;

    #[test]
    fn with_a_cache_the_origin_gets_one_request_and_without_one_each() {
        if is_missing(&NGINX) {
            return;
        }
        for (mode, requests) in [
            (NginxMode::Cached, 1),
            (NginxMode::Locked, 1),
            (NginxMode::Graceful(1000), 1),
            (NginxMode::Sliced(20_000), 3),
            (NginxMode::SlicedLocked(20_000), 3),
            (NginxMode::Proxy, 3),
        ] {
            let origin = Origin::start(OriginOptions::default()).expect("a free port");
            let options = NginxOptions::new(mode, Some(origin.addr()));
            let nginx = options.start().expect("nginx starts");
            for _ in 0..3 {
                let reply = client::get(nginx.addr(), "/offset/50000", &[]).expect("a reply");
                reply.verify_whole(50_000).expect("whole");
            }
            assert_eq!(origin.requests().len(), requests);
            assert!(nginx.process().cpu().expect("alive") > Duration::ZERO);
        }
    }

    #[test]
    fn several_cache_folders_share_the_urls() {
        if is_missing(&NGINX) {
            return;
        }
        let origin = Origin::start(OriginOptions::default()).expect("a free port");
        let (one, other) = (tempfile::tempdir(), tempfile::tempdir());
        let (one, other) = (one.expect("a folder"), other.expect("a folder"));
        let mut options = NginxOptions::new(NginxMode::Cached, Some(origin.addr()));
        options.stores = vec![one.path().to_owned(), other.path().to_owned()];
        options.threads = true;
        options.plain = Some("/offset/1000".to_owned());
        let nginx = options.start().expect("nginx starts");
        for number in 0..20 {
            for _ in 0..2 {
                let path = format!("/offset/2000?{number}");
                let reply = client::get(nginx.addr(), &path, &[]).expect("a reply");
                reply.verify_whole(2000).expect("whole");
            }
            let reply = client::get(nginx.addr(), "/offset/1000", &[]).expect("a reply");
            reply.verify_whole(1000).expect("whole");
        }
        assert_eq!(origin.requests().len(), 40);
        for folder in [one, other] {
            let filled = fs::read_dir(folder.path()).expect("a folder").next();
            assert!(filled.is_some(), "each of them is used");
        }
    }

    #[test]
    fn files_are_served() {
        if is_missing(&NGINX) {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("file"), b"hello").expect("written");
        fs::write(folder.path().join("file.gz"), b"beside").expect("written");
        let mode = NginxMode::Static(folder.path().to_owned());
        let options = NginxOptions::new(mode, None).directive("keepalive_timeout", "75s");
        let nginx = options.start().expect("nginx starts");
        let accepts = [("Accept-Encoding", "gzip")];
        let reply = client::get(nginx.addr(), "/file", &accepts).expect("a reply");
        assert_eq!(reply.body, b"hello");
        let options = options.directive("gzip_static", "on");
        let nginx = options.start().expect("nginx starts");
        let reply = client::get(nginx.addr(), "/file", &accepts).expect("a reply");
        assert_eq!(reply.body, b"beside");
    }
}
