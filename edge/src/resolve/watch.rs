//! Resolves names again and again, in one thread.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::LazyLock;
use std::time::Duration;

use hickory_resolver::system_conf::read_system_conf;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::dns::Dns;
use super::hosts::{Failure, Hosts};
use super::lookup::{self, Answer, Found, Name};

/// Time after which a name that did not resolve is resolved again. A name of which a part did not resolve is resolved
/// again after the same time, then after twice the time, and so on up to the time to live of the answer: some name
/// servers never answer questions about IPv6 addresses.
const RETRY: Duration = Duration::from_secs(1);
/// Number of times after which the time no longer doubles.
const DOUBLINGS_MAX: u32 = 16;

/// Port of name servers.
const DNS_PORT: u16 = 53;
/// Time without a first answer after which `Event::Waiting` occurs.
const LATE: Duration = Duration::from_secs(1);

/// An event in the resolution of a name.
pub enum Event {
    /// There was no first answer for a second. Contains the addresses of the name servers.
    Waiting(Vec<SocketAddr>),
    /// An answer, or the reason why there is none.
    Answered(Result<Answer, Failure>),
}

/// Called with each event. Returns whether further ones are wanted.
type Listener = Box<dyn FnMut(Event) -> bool + Send>;

/// A name that is resolved again and again.
struct Watch {
    /// Addresses of the name servers; the system's if there are none.
    servers: Vec<SocketAddr>,
    name: Name,
    /// The hosts of the last answer.
    last: Hosts,
    listener: Listener,
}

/// The thread that resolves names, for the whole process. Started for the first name.
static THREAD: LazyLock<Option<UnboundedSender<Watch>>> = LazyLock::new(start);

/// Resolves a name now, and again whenever the answer expires, until `listener` returns false. `servers` are the name
/// servers; if there are none, the system's are used (`/etc/resolv.conf`). `last` are the hosts of the last answer about
/// the name, if there was one before. `listener` is called in the thread of the resolver, and must not wait.
pub fn watch(
    servers: &[SocketAddr],
    name: Name,
    last: Hosts,
    listener: impl FnMut(Event) -> bool + Send + 'static,
) {
    let watch = Watch {
        servers: servers.to_vec(),
        name,
        last,
        listener: Box::new(listener),
    };
    let unsent = match &*THREAD {
        Some(thread) => thread.send(watch).err().map(|error| error.0),
        None => Some(watch),
    };
    if let Some(mut watch) = unsent {
        let failure = "the thread that resolves names has ended".to_owned();
        (watch.listener)(Event::Answered(Err(failure)));
    }
}

/// Starts the thread. Returns `None` if there can't be another one.
fn start() -> Option<UnboundedSender<Watch>> {
    let (sender, receiver) = unbounded_channel();
    let started = std::thread::Builder::new()
        .name("resolver".to_owned())
        .spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            match runtime {
                Ok(runtime) => runtime.block_on(serve(receiver)),
                Err(error) => tracing::error!(%error, "names can't be resolved"),
            }
        });
    started.ok().map(|_| sender)
}

async fn serve(mut watches: UnboundedReceiver<Watch>) {
    while let Some(watch) = watches.recv().await {
        tokio::spawn(repeat(watch));
    }
}

/// Resolves a name again and again.
async fn repeat(mut watch: Watch) {
    let mut partial = 0;
    let Some(mut found) = first(&mut watch).await else {
        return;
    };
    loop {
        let pause = pause(&found, &mut partial);
        let answer = found.map(|found| found.answer);
        if let Ok(answer) = &answer {
            watch.last = answer.hosts.clone();
        }
        if !(watch.listener)(Event::Answered(answer)) {
            return;
        }
        tokio::time::sleep(pause).await;
        found = find(&watch.servers, &watch.name, &watch.last).await;
    }
}

/// Returns the first answer, and reports if it is late. Returns `None` if it is no longer wanted.
async fn first(watch: &mut Watch) -> Option<Result<Found, Failure>> {
    let mut first = pin!(find(&watch.servers, &watch.name, &watch.last));
    if let Ok(found) = tokio::time::timeout(LATE, first.as_mut()).await {
        return Some(found);
    }
    let is_wanted = (watch.listener)(Event::Waiting(name_servers(&watch.servers)));
    match is_wanted {
        true => Some(first.await),
        false => None,
    }
}

/// Resolves a name. The system's files are read each time, since they may have changed.
async fn find(servers: &[SocketAddr], name: &Name, last: &Hosts) -> Result<Found, Failure> {
    let dns = Dns::open(servers)?;
    lookup::lookup(&dns, name, last).await
}

/// Returns the addresses of the name servers that are asked: these, or the system's if there are none.
fn name_servers(servers: &[SocketAddr]) -> Vec<SocketAddr> {
    if !servers.is_empty() {
        return servers.to_vec();
    }
    let Ok((config, _)) = read_system_conf() else {
        return vec![(Ipv4Addr::LOCALHOST, DNS_PORT).into()];
    };
    let servers = config.name_servers().iter();
    let addresses = servers.map(|server| {
        let port = server.connections.first().map(|one| one.port);
        SocketAddr::new(server.ip, port.unwrap_or(DNS_PORT))
    });
    addresses.collect()
}

/// Returns the time until the name is resolved again. `partial` counts the partial answers since the last complete one.
fn pause(found: &Result<Found, Failure>, partial: &mut u32) -> Duration {
    match found {
        Err(_) => RETRY,
        Ok(found) if found.is_partial => {
            let soon = RETRY * (1 << (*partial).min(DOUBLINGS_MAX));
            *partial = partial.saturating_add(1);
            found.ttl.min(soon)
        }
        Ok(found) => {
            *partial = 0;
            found.ttl
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(is_partial: bool) -> Result<Found, Failure> {
        let answer = Answer {
            targets: Vec::new(),
            hosts: Hosts::default(),
            kept: None,
        };
        let ttl = Duration::from_secs(10);
        Ok(Found {
            answer,
            ttl,
            is_partial,
        })
    }

    #[test]
    fn partial_answers_are_followed_by_others_soon_and_then_less_often() {
        let mut partial = 0;
        let mut secs = |found| pause(&found, &mut partial).as_secs();
        let pauses = |secs: &mut dyn FnMut(_) -> u64| [(); 6].map(|()| secs(found(true)));
        assert_eq!(secs(found(false)), 10);
        assert_eq!(pauses(&mut secs), [1, 2, 4, 8, 10, 10]);
        assert_eq!(secs(Err("a failure".to_owned())), 1);
        assert_eq!(secs(found(true)), 10);
        assert_eq!(secs(found(false)), 10);
        assert_eq!(pauses(&mut secs), [1, 2, 4, 8, 10, 10]);
        let (mut many, partly) = (u32::MAX, found(true));
        assert_eq!(pause(&partly, &mut many), Duration::from_secs(10));
    }
}
