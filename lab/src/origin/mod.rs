//! A test origin on real sockets that serves a programmable table of resources, misbehaves on command, and records all
//! that it was asked and sent.
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
mod gate;
mod listen;
mod range;
mod record;
mod resource;
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

pub use fault::{BadChunk, BrokenHead, Ending, Fault};
pub use gate::Gate;
pub use record::{BODY_KEPT, Connection, Outcome, RECEIVED_KEPT, Record, Seen};
pub use resource::{Framing, Modified, Resource, Tag};

use listen::Door;
use record::{Recorder, path_of};

/// How an origin is started.
#[derive(Debug, Clone)]
pub struct OriginOptions {
    /// Where it listens; port 0 takes a free one.
    pub address: SocketAddr,
    /// How connections are treated; can be changed later.
    pub rules: ConnectionRules,
    /// Size of each connection's send buffer in the kernel, so that back-pressure shows early.
    pub send_buffer: Option<usize>,
    /// Size of each connection's receive buffer in the kernel.
    pub receive_buffer: Option<usize>,
    /// Whether requests and connections that have ended are dropped from the record, which then holds only sums: for
    /// runs of any length.
    pub forget: bool,
}

impl Default for OriginOptions {
    fn default() -> Self {
        OriginOptions {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            rules: ConnectionRules::default(),
            send_buffer: None,
            receive_buffer: None,
            forget: false,
        }
    }
}

/// How connections are treated.
#[derive(Debug, Clone)]
pub struct ConnectionRules {
    /// What happens to a connection that was accepted.
    pub accept: Accept,
    /// Whether connections stay open after an answer.
    pub keepalive: bool,
    /// An idle connection is closed after this time.
    pub idle_timeout: Option<Duration>,
    /// A connection is closed, with `Connection: close`, after so many requests.
    pub max_requests: Option<u64>,
    /// As `max_requests`, but the close comes without notice.
    pub max_requests_silent: Option<u64>,
}

impl Default for ConnectionRules {
    fn default() -> Self {
        ConnectionRules {
            accept: Accept::Serve,
            keepalive: true,
            idle_timeout: None,
            max_requests: None,
            max_requests_silent: None,
        }
    }
}

/// What happens to a connection that was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accept {
    /// Its requests are answered.
    Serve,
    /// It is held open; nothing is read and nothing answered.
    Ignore,
    /// It is ended at once.
    End(Ending),
}

/// A running origin. Dropping it closes everything.
#[derive(Debug)]
pub struct Origin {
    shared: Arc<Shared>,
    door: Mutex<Door>,
    address: SocketAddr,
    handle: runtime::Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What the origin's connections share with its owner.
#[derive(Debug)]
struct Shared {
    table: Mutex<Table>,
    rules: Mutex<ConnectionRules>,
    recorder: Recorder,
    next_connection: AtomicU64,
    open: Mutex<HashMap<u64, AbortHandle>>,
    send_buffer: Option<usize>,
    receive_buffer: Option<usize>,
}

#[derive(Debug, Default)]
struct Table {
    resources: HashMap<String, Resource>,
    fallback: Option<Resource>,
}

impl Origin {
    /// Starts an origin on a thread of its own.
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

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Serves `resource` at `path`. A path with a query counts before the path alone. Paths that are not in the table
    /// and read `/offset/<bytes>` serve an offset body of that size, all others 404.
    pub fn serve(&self, path: &str, resource: Resource) {
        let mut table = self.shared.table.lock();
        table.resources.insert(path.to_owned(), resource);
    }

    /// Serves `resource` at every path that is not in the table.
    pub fn serve_rest(&self, resource: Resource) {
        self.shared.table.lock().fallback = Some(resource);
    }

    /// Changes what is served at `path`; false if nothing was. Answers in progress go on as they began.
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

    /// Changes the version of what is served at `path`: bytes, entity tag and date; false if nothing was served there.
    pub fn set_version(&self, path: &str, version: u32) -> bool {
        self.update(path, |resource| resource.version(version))
    }

    /// Changes how connections are treated, from the next accept, request or idle time on.
    pub fn set_rules(&self, change: impl FnOnce(&mut ConnectionRules)) {
        change(&mut self.shared.rules.lock());
    }

    /// Stops listening, so that connections are refused. The port stays reserved, open connections stay.
    pub fn refuse(&self) -> anyhow::Result<()> {
        self.door.lock().close(&self.handle)
    }

    /// Listens again on the same port.
    pub fn reopen(&self) -> anyhow::Result<()> {
        let shared = self.shared.clone();
        self.door.lock().reopen(&self.handle, shared)
    }

    /// Cuts all open connections.
    pub fn drop_connections(&self) {
        for connection in self.shared.open.lock().values() {
            connection.abort();
        }
    }

    /// All that was recorded.
    pub fn record(&self) -> Record {
        self.shared.recorder.snapshot()
    }

    /// All requests.
    pub fn requests(&self) -> Vec<Seen> {
        self.read_record(|record| record.requests.clone())
    }

    /// All connections.
    pub fn connections(&self) -> Vec<Connection> {
        self.read_record(|record| record.connections.clone())
    }

    /// Looks at the record without copying it.
    pub fn read_record<T>(&self, read: impl FnOnce(&Record) -> T) -> T {
        self.shared.recorder.read(read)
    }

    /// Forgets all that was recorded, except for open connections.
    pub fn reset_record(&self) {
        self.shared.recorder.reset();
    }

    /// Waits until the record fulfils `holds`; false if it did not within `timeout`.
    pub fn wait_for(&self, holds: impl FnMut(&Record) -> bool, timeout: Duration) -> bool {
        self.shared.recorder.wait_for(holds, timeout)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic on the origin's thread has been printed there.
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
