//! One health check of a server, over the same transports and protocols as requests.

use std::fmt;
use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Poll, ready};

use super::balancing::Balancing;
use super::connection::Stream;
use super::health_options::Health;
use super::inbound::Step;
use super::lease::{Opened, Opening};
use super::options::{Limits, Options};
use super::outbound::Outbound;
use super::permit::{Gauges, InProgress, Permit, PermitOwner};
use super::route_headers::RouteHeaders;
use super::state::{ServerState, UpstreamState};
use super::upload::Upload;
use crate::handler::{Fault, Frame, Head, Peer};
use crate::http::{Scheme, Status};
use crate::reason::Reason;
use crate::sign::{self, Signer};
use crate::sys::Clock;
use crate::telemetry::Counters;

/// Most bytes of content in which the configured text is looked for.
const CONTENT_MAX: usize = 64 << 10;

/// The parts of the checks of one upstream.
pub(super) struct Checker {
    pub(super) health: Health,
    limits: Limits,
    host: Option<String>,
    balancing: Rc<Balancing>,
    counters: Arc<Counters>,
    peer: Peer,
    route: RouteHeaders,
    /// Signs the requests, if the options have credentials.
    signer: Option<Signer>,
    clock: Clock,
}

/// Reason for which a check failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unhealthy {
    Fault(Reason),
    Status(Status),
    Content,
    Timeout,
}

impl Unhealthy {
    /// Whether the check says nothing about the server, since this machine could not open a
    /// connection.
    pub(super) fn is_local(&self) -> bool {
        matches!(self, Unhealthy::Fault(reason) if reason.is_local_connect())
    }
}

impl fmt::Display for Unhealthy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unhealthy::Fault(reason) => f.write_str(reason.text()),
            Unhealthy::Status(status) => write!(f, "status {status}"),
            Unhealthy::Content => f.write_str("the text is not in the content"),
            Unhealthy::Timeout => f.write_str("no complete response in time"),
        }
    }
}

/// The owner of a check's connection, which needs none.
struct Nobody;

impl PermitOwner for Nobody {
    fn released(self: Rc<Self>, _server: usize) {}
}

impl Checker {
    /// Returns the parts of the checks, if the upstream has health checks.
    pub(super) fn new(
        options: &Options,
        state: &Arc<UpstreamState>,
        clock: &Clock,
    ) -> Option<Checker> {
        let health = options.health.clone()?;
        // A check is no request: its outcome ejects no server, and its connection is not kept.
        let of_checks = Options {
            eject: None,
            keepalive: 0,
            connect_timeout: health.timeout,
            read_timeout: health.timeout,
            send_timeout: health.timeout,
            balance: Default::default(),
            ..options.clone()
        };
        let nowhere = (Ipv4Addr::LOCALHOST, 0);
        let limits = Limits {
            port: health.port,
            own_address: true,
            ..Limits::new(&of_checks)
        };
        Some(Checker {
            health,
            limits,
            host: options.host.clone(),
            balancing: Rc::new(Balancing::new(&of_checks, clock.clone(), state)),
            counters: Arc::default(),
            peer: Peer {
                address: nowhere.into(),
                client: IpAddr::V4(nowhere.0),
                local: nowhere.into(),
                scheme: Scheme::Http,
                tls: None,
                shared: true,
            },
            route: RouteHeaders::default(),
            signer: options.sign.clone().map(Signer::new),
            clock: clock.clone(),
        })
    }

    /// Checks a server.
    pub(super) async fn check(&self, server: &Arc<ServerState>) -> Result<(), Unhealthy> {
        let checked = tokio::time::timeout(self.health.timeout, self.exchange(server));
        checked.await.unwrap_or(Err(Unhealthy::Timeout))
    }

    async fn exchange(&self, server: &Arc<ServerState>) -> Result<(), Unhealthy> {
        let fault = |fault: Fault| Unhealthy::Fault(fault.reason);
        let gauges = Rc::new(Gauges {
            worker: self.counters.clone(),
            server: server.worker(),
            recorder: None,
        });
        let permit = Permit::new(Weak::<Nobody>::new(), gauges.clone(), 0);
        let exchange = InProgress::begin(&self.balancing, &gauges, 0);
        let opening = Opening::new(exchange, permit);
        let Opened { mut lease, .. } = opening.connect(&self.limits).await.map_err(fault)?;
        let (head, upload) = (self.head(server), Upload::default());
        let outbound = Outbound {
            head: &head,
            target: &head.target,
            peer: &self.peer,
            host: &head.authority,
            forwarded_host: &head.authority,
            route: &self.route,
            via: false,
            x_real_ip: false,
            upload: &upload,
            signature: self.signer.as_ref().map(|signer| {
                let request = sign::Request {
                    method: head.method.as_str(),
                    target: &head.target,
                    host: &head.authority,
                    has_content: false,
                };
                signer.sign(&request, self.clock.unix_ms() / 1000)
            }),
        };
        let sent = lease.send(&outbound, &self.limits, |_| {}).await;
        let received = sent.map_err(|failure| fault(failure.fault))?;
        let statuses = &self.health.statuses;
        if !statuses
            .iter()
            .any(|range| range.contains(&received.status))
        {
            return Err(Unhealthy::Status(received.status));
        }
        let Some(text) = &self.health.body else {
            return Ok(());
        };
        let content = content(&mut lease.stream).await.map_err(fault)?;
        match memchr::memmem::find(&content, text.as_bytes()) {
            Some(_) => Ok(()),
            None => Err(Unhealthy::Content),
        }
    }

    fn head(&self, server: &ServerState) -> Head {
        let mut head = Head::new();
        head.method = self.health.method.clone();
        head.target.push_str(&self.health.path);
        match &self.host {
            Some(host) => head.authority.push_str(host),
            None => head.authority.push_str(&server.server().authority()),
        }
        head.fields.append("user-agent", "sluice-health");
        for (name, value) in &self.health.headers {
            head.fields.append(name, value);
        }
        head
    }
}

/// Receives the beginning of the content.
async fn content(stream: &mut Stream) -> Result<Vec<u8>, Fault> {
    let mut content = Vec::new();
    poll_fn(|cx| {
        loop {
            match stream.step() {
                Ok(Step::Frame(Frame::Data(bytes))) => {
                    let room = CONTENT_MAX - content.len();
                    content.extend_from_slice(&bytes[..bytes.len().min(room)]);
                    if content.len() >= CONTENT_MAX {
                        return Poll::Ready(Ok(()));
                    }
                    continue;
                }
                Ok(Step::Frame(_)) => continue,
                Ok(Step::End) => return Poll::Ready(Ok(())),
                Ok(Step::More) => {}
                Err(fault) => return Poll::Ready(Err(fault)),
            }
            if stream.has_ended() {
                return Poll::Ready(Ok(()));
            }
            if ready!(stream.poll_content(cx, None))? == 0 {
                return Poll::Ready(stream.end_of_connection());
            }
        }
    })
    .await?;
    Ok(content)
}
