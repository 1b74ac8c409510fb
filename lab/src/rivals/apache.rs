//! Apache's httpd as a rival: one process with the module `mpm_event`, without access log, as a server of static files or
//! a proxy with a cache.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;

use super::running::{RivalLaunch, RunningRival};

/// Folders with Apache's modules: Debian, Red Hat, built from source.
const MODULES: [&str; 4] = [
    "/usr/lib/apache2/modules",
    "/usr/lib64/httpd/modules",
    "/usr/lib/httpd/modules",
    "/usr/local/apache2/modules",
];

const START_TIMEOUT: Duration = Duration::from_secs(10);

/// User (nobody) and group to which Apache changes if the lab runs as root.
const NOBODY: u32 = 65534;

/// The task of Apache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApacheMode {
    /// Proxy of this origin with a cache (`mod_cache_disk`), on tmpfs if available. The size of the cache has no limit.
    Cached(SocketAddr),
    /// Serves the files of a folder. If the lab runs as root, [`ApacheOptions::start`] makes the folder readable for all
    /// users, since Apache refuses to serve files as root.
    Static(PathBuf),
}

/// Options of Apache.
#[derive(Debug, Clone)]
pub struct ApacheOptions {
    /// The task.
    pub mode: ApacheMode,
    /// Whether sendfile is on.
    pub sendfile: bool,
    /// Core to which Apache is pinned.
    pub core: Option<usize>,
}

impl ApacheOptions {
    /// Returns options with sendfile on.
    pub fn new(mode: ApacheMode) -> ApacheOptions {
        ApacheOptions {
            mode,
            sendfile: true,
            core: None,
        }
    }

    /// Starts Apache on a free port.
    pub fn start(&self) -> anyhow::Result<RunningRival> {
        let mut rival = RivalLaunch::new(&super::APACHE, "lab-apache-", self.core)?;
        let cache = match &self.mode {
            ApacheMode::Cached(_) => Some(rival.cache_folder("lab-apache-cache-")?),
            ApacheMode::Static(_) => None,
        };
        let folder = &rival.launch.folder;
        let text = configuration(self, rival.address, folder, cache.as_deref())?;
        if super::is_root() {
            permit(&self.mode, cache.as_deref())?;
        }
        let file = rival.write("httpd.conf", text)?;
        rival.start(["-D", "FOREGROUND", "-f", &file], START_TIMEOUT)
    }
}

/// Gives the user nobody the rights on the folders that Apache uses as that user.
fn permit(mode: &ApacheMode, cache: Option<&Path>) -> anyhow::Result<()> {
    if let Some(cache) = cache {
        chown(cache, Some(NOBODY), Some(NOBODY))?;
    }
    if let ApacheMode::Static(root) = mode {
        let mut permissions = fs::metadata(root)?.permissions();
        permissions.set_mode(permissions.mode() | 0o555);
        fs::set_permissions(root, permissions)?;
    }
    Ok(())
}

/// Returns the configuration file. The one process has as many threads as all processes have by default. While all
/// threads are busy, Apache closes connections on which it waits for the next request.
fn configuration(
    options: &ApacheOptions,
    address: SocketAddr,
    folder: &Path,
    cache: Option<&Path>,
) -> anyhow::Result<String> {
    let user = match super::is_root() {
        true => format!("User #{NOBODY}\nGroup #{NOBODY}\n"),
        false => String::new(),
    };
    let sendfile = if options.sendfile { "On" } else { "Off" };
    let task = match (&options.mode, cache) {
        (ApacheMode::Cached(origin), Some(cache)) => caching(*origin, cache)?,
        (ApacheMode::Cached(_), None) => anyhow::bail!("a cache needs a folder"),
        (ApacheMode::Static(root), _) => files(root),
    };
    let folder = folder.display();
    let modules = load(&["mpm_event", "authz_core"])?;
    Ok(format!(
        "{modules}{user}ServerName lab
ServerRoot {folder}
DefaultRuntimeDir {folder}
PidFile {folder}/httpd.pid
ErrorLog {folder}/error.log
LogLevel error
Listen {address}
ListenBacklog 4096
ServerLimit 1
StartServers 1
ThreadLimit 400
ThreadsPerChild 400
MaxRequestWorkers 400
MinSpareThreads 1
MaxSpareThreads 400
AsyncRequestWorkerFactor 40
MaxConnectionsPerChild 0
Timeout 3600
KeepAlive On
KeepAliveTimeout 3600
MaxKeepAliveRequests 0
AcceptFilter http none
EnableSendfile {sendfile}
{task}"
    ))
}

/// Returns the directives of static files. Without `FollowSymLinks`, Apache would check each folder of a path for
/// symbolic links, and with `AllowOverride` for further configuration files.
fn files(root: &Path) -> String {
    format!(
        "DocumentRoot {root}
<Directory />
  Options FollowSymLinks
  AllowOverride None
</Directory>
",
        root = root.display()
    )
}

/// Returns the directives of a proxy with a cache. With `CacheLock`, one request fills the cache, and others for the
/// same URL go to the origin meanwhile, or get a stale response if there is one.
fn caching(origin: SocketAddr, cache: &Path) -> anyhow::Result<String> {
    let modules = load(&["proxy", "proxy_http", "cache", "cache_disk"])?;
    Ok(format!(
        "{modules}ProxyPass / http://{origin}/
ProxyPreserveHost On
CacheEnable disk /
CacheRoot {cache}
CacheDirLevels 2
CacheDirLength 1
CacheMaxFileSize 8589934592
CacheLock on
CacheLockPath {cache}/lock
",
        cache = cache.display()
    ))
}

/// Returns the directives that load these modules.
fn load(names: &[&str]) -> anyhow::Result<String> {
    let mut folders = MODULES.iter().map(Path::new);
    let folder = folders
        .find(|folder| folder.join("mod_mpm_event.so").is_file())
        .context("Apache's modules are not installed")?;
    let line = |name: &&str| {
        let file = folder.join(format!("mod_{name}.so"));
        format!("LoadModule {name}_module {}\n", file.display())
    };
    Ok(names.iter().map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client;
    use crate::rivals::tests::{caches_and_ends, is_missing};

    #[test]
    fn a_cached_response_causes_one_origin_request() {
        if is_missing(&crate::rivals::APACHE) {
            return;
        }
        let start = |origin| ApacheOptions::new(ApacheMode::Cached(origin)).start();
        caches_and_ends(start);
    }

    #[test]
    fn files_are_served() {
        if is_missing(&crate::rivals::APACHE) {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("a"), "content").expect("a file");
        for sendfile in [true, false] {
            let mode = ApacheMode::Static(folder.path().to_owned());
            let options = ApacheOptions {
                sendfile,
                ..ApacheOptions::new(mode)
            };
            let apache = options.start().expect("Apache starts");
            let reply = client::get(apache.addr(), "/a", &[]).expect("a response");
            assert_eq!((reply.status, &reply.body[..]), (200, &b"content"[..]));
        }
    }
}
