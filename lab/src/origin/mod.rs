//! A test origin on real sockets, which serves a programmable table of resources, misbehaves on command, and records
//! everything that it receives and sends. It speaks HTTP/1.1, and HTTP/2 with clients that begin with its preface.
//!
//! ```no_run
//! use sluice_lab::origin::{Origin, OriginOptions, Resource};
//! # fn main() -> anyhow::Result<()> {
//! let origin = Origin::start(OriginOptions::default())?;
//! origin.serve("/film.mp4", Resource::offset(10 << 20).rate(1 << 20).vary("Accept-Encoding"));
//! println!("{}", origin.url("/film.mp4"));
//! # Ok(())
//! # }
//! ```

mod answer;
mod broken;
mod date;
mod exchange;
mod fault;
mod http2;
mod latch;
mod listen;
mod range;
mod record;
mod resource;
mod stream;
mod wire;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

pub use fault::{BadChunk, Break, BrokenHead, Ending, Fault};
pub use latch::Latch;
pub use record::{BODY_KEPT, Connection, Outcome, RECEIVED_KEPT, Record, Seen};
pub use resource::{Framing, Modified, Resource, Tag};

use crate::pauses;
use listen::Door;
use record::{Recorder, path_of};

/// Options of an origin.
#[derive(Debug, Clone)]
pub struct OriginOptions {
    /// Address on which the origin listens. Port 0 selects a free port.
    pub address: SocketAddr,
    /// Initial rules for connections. They can be changed while the origin runs.
    pub rules: ConnectionRules,
    /// Size in bytes of each connection's send buffer in the kernel. With a small buffer, the origin soon has to wait
    /// for the client.
    pub send_buffer: Option<usize>,
    /// Size in bytes of each connection's receive buffer in the kernel.
    pub receive_buffer: Option<usize>,
    /// Number of connections that may wait until the origin accepts them; `None`: 4096. The kernel ignores attempts to
    /// connect beyond that, so that clients try again after a second.
    pub backlog: Option<u32>,
    /// Whether the origin's record keeps only sums, and drops completed requests and connections. Meant for long runs.
    pub forget: bool,
}

impl Default for OriginOptions {
    fn default() -> Self {
        OriginOptions {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            rules: ConnectionRules::default(),
            send_buffer: None,
            receive_buffer: None,
            backlog: None,
            forget: false,
        }
    }
}

/// Rules by which the test origin treats its connections.
#[derive(Debug, Clone)]
pub struct ConnectionRules {
    /// Treatment of newly accepted connections.
    pub accept: Accept,
    /// Time that the origin spends on each new connection before it accepts further ones.
    pub accept_time: Duration,
    /// Mean number of new connections that the origin accepts one after the other before it spends that time on all of
    /// them. The numbers are random, so that the times at which it accepts are in step with no client.
    pub accepts_at_once: u64,
    /// Whether connections stay open after a response.
    pub keepalive: bool,
    /// Time after which an idle connection is closed.
    pub idle_timeout: Option<Duration>,
    /// Number of requests after which a connection is closed, with `Connection: close`.
    pub max_requests: Option<u64>,
    /// Number of requests after which a connection is closed without `Connection: close`.
    pub max_requests_silent: Option<u64>,
    /// Most concurrent streams of a connection with HTTP/2.
    pub max_streams: u32,
}

impl Default for ConnectionRules {
    fn default() -> Self {
        ConnectionRules {
            accept: Accept::Serve,
            accept_time: Duration::ZERO,
            accepts_at_once: 1,
            keepalive: true,
            idle_timeout: None,
            max_requests: None,
            max_requests_silent: None,
            max_streams: 100,
        }
    }
}

/// Treatment of a newly accepted connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accept {
    /// Serve requests on the connection.
    Serve,
    /// Keep the connection open without reading or writing.
    Ignore,
    /// Close the connection at once.
    End(Ending),
}

/// A running test origin. Dropping the value closes all of its sockets.
#[derive(Debug)]
pub struct Origin {
    shared: Arc<Shared>,
    door: Mutex<Door>,
    address: SocketAddr,
    handle: runtime::Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// State that the connections and the owner of the origin share.
#[derive(Debug)]
struct Shared {
    table: Mutex<Table>,
    rules: Mutex<ConnectionRules>,
    recorder: Recorder,
    next_connection: AtomicU64,
    open: Mutex<HashMap<u64, AbortHandle>>,
    send_buffer: Option<usize>,
    receive_buffer: Option<usize>,
    backlog: Option<u32>,
}

#[derive(Debug, Default)]
struct Table {
    resources: HashMap<String, Resource>,
    fallback: Option<Resource>,
}

impl Origin {
    /// Starts an origin, which runs on a thread of its own.
    pub fn start(options: OriginOptions) -> anyhow::Result<Origin> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("starting the origin's runtime")?;
        let shared = Arc::new(Shared {
            table: Mutex::default(),
            rules: Mutex::new(options.rules),
            recorder: Recorder::new(options.forget),
            next_connection: AtomicU64::new(0),
            open: Mutex::default(),
            send_buffer: options.send_buffer,
            receive_buffer: options.receive_buffer,
            backlog: options.backlog,
        });
        let handle = runtime.handle().clone();
        let door = Door::open(options.address, &handle, shared.clone())
            .with_context(|| format!("the origin can't listen on {}", options.address))?;
        let address = door.address();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("origin".to_owned())
            .spawn(move || {
                let _ = runtime.block_on(stopped);
            })
            .context("starting the origin's thread")?;
        Ok(Origin {
            shared,
            door: Mutex::new(door),
            address,
            handle,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Returns the address on which the origin listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of a path on this origin.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Serves `resource` at `path`. A path with a query takes precedence over the path alone. If no resource is set for
    /// a path, `/offset/<bytes>` is an offset body (see [`crate::offset`]) of that size, and other paths are 404.
    pub fn serve(&self, path: &str, resource: Resource) {
        pauses::point();
        let mut table = self.shared.table.lock();
        table.resources.insert(path.to_owned(), resource);
    }

    /// Serves `resource` at every path for which no other resource is set.
    pub fn serve_rest(&self, resource: Resource) {
        self.shared.table.lock().fallback = Some(resource);
    }

    /// Changes the resource at `path`. Responses in progress are not affected. Returns false if there is no such
    /// resource.
    pub fn update(&self, path: &str, change: impl FnOnce(Resource) -> Resource) -> bool {
        let mut table = self.shared.table.lock();
        match table.resources.get_mut(path) {
            Some(resource) => {
                *resource = change(resource.clone());
                true
            }
            None => false,
        }
    }

    /// Changes the version of the resource at `path`, and with it the content, the ETag and the date. Returns false if
    /// there is no such resource.
    pub fn set_version(&self, path: &str, version: u32) -> bool {
        self.update(path, |resource| resource.version(version))
    }

    /// Changes the rules for connections. Open connections follow the new rules from their next request or idle time
    /// on.
    pub fn set_rules(&self, change: impl FnOnce(&mut ConnectionRules)) {
        change(&mut self.shared.rules.lock());
    }

    /// Closes the listening socket, so that connections are refused. The port stays reserved, and open connections stay
    /// open.
    pub fn refuse(&self) -> anyhow::Result<()> {
        self.door.lock().close(&self.handle)
    }

    /// Listens for connections again, on the port used before [`Origin::refuse`].
    pub fn reopen(&self) -> anyhow::Result<()> {
        let shared = self.shared.clone();
        self.door.lock().reopen(&self.handle, shared)
    }

    /// Aborts all open connections of the origin.
    pub fn drop_connections(&self) {
        for connection in self.shared.open.lock().values() {
            connection.abort();
        }
    }

    /// Returns a copy of the origin's record of requests and connections.
    pub fn record(&self) -> Record {
        self.shared.recorder.snapshot()
    }

    /// Returns copies of all recorded requests.
    pub fn requests(&self) -> Vec<Seen> {
        self.read_record(|record| record.requests.clone())
    }

    /// Returns copies of all recorded connections.
    pub fn connections(&self) -> Vec<Connection> {
        self.read_record(|record| record.connections.clone())
    }

    /// Calls `read` with the origin's record, which is not copied.
    pub fn read_record<T>(&self, read: impl FnOnce(&Record) -> T) -> T {
        self.shared.recorder.read(read)
    }

    /// Clears the record except for open connections.
    pub fn reset_record(&self) {
        self.shared.recorder.reset();
    }

    /// Waits until `holds` returns true for the record. Returns false after `timeout`.
    pub fn wait_for(&self, holds: impl FnMut(&Record) -> bool, timeout: Duration) -> bool {
        pauses::point();
        self.shared.recorder.wait_for(holds, timeout)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The result is ignored: if the thread panicked, the message is printed already.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn find(&self, target: &str) -> Resource {
        let table = self.table.lock();
        let path = path_of(target);
        let found = table
            .resources
            .get(target)
            .or_else(|| table.resources.get(path))
            .or(table.fallback.as_ref());
        match found {
            Some(resource) => resource.clone(),
            None => match path.strip_prefix("/offset/").map(str::parse) {
                Some(Ok(length)) => Resource::offset(length).cache_control("max-age=3600"),
                _ => Resource::status(404),
            },
        }
    }

    fn number_connection(&self) -> u64 {
        self.next_connection.fetch_add(1, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
