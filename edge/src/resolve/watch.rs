//! Resolves names again and again, in one thread.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::LazyLock;
use std::time::Duration;

use hickory_resolver::system_conf::read_system_conf;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::lookup::{self, Answer, Name};

/// Time after which a name that did not resolve is resolved again.
const RETRY: Duration = Duration::from_secs(1);

/// The reason for which a name could not be resolved.
pub type Failure = String;

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
    listener: Listener,
}

/// The thread that resolves names, for the whole process. Started for the first name.
static THREAD: LazyLock<Option<UnboundedSender<Watch>>> = LazyLock::new(start);

/// Resolves a name now, and again whenever the answer expires, until `listener` returns false. `servers` are the name
/// servers; if there are none, the system's are used (`/etc/resolv.conf`). `listener` is called in the thread of the
/// resolver, and must not wait.
pub fn watch(
    servers: &[SocketAddr],
    name: Name,
    listener: impl FnMut(Event) -> bool + Send + 'static,
) {
    let watch = Watch {
        servers: servers.to_vec(),
        name,
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
    let mut first = pin!(answer(&watch.servers, &watch.name));
    let in_time = tokio::time::timeout(LATE, first.as_mut()).await;
    let mut answered = match in_time {
        Ok(answer) => answer,
        Err(_) => {
            if !(watch.listener)(Event::Waiting(name_servers(&watch.servers))) {
                return;
            }
            first.await
        }
    };
    loop {
        let pause = answered.as_ref().map_or(RETRY, |answer| answer.ttl);
        if !(watch.listener)(Event::Answered(answered)) {
            return;
        }
        tokio::time::sleep(pause).await;
        answered = answer(&watch.servers, &watch.name).await;
    }
}

/// Resolves a name. The system's files are read each time, since they may have changed.
async fn answer(servers: &[SocketAddr], name: &Name) -> Result<Answer, Failure> {
    let resolver = lookup::resolver(servers)?;
    lookup::lookup(&resolver, name).await
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
