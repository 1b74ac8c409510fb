//! Resolves names again and again, in one thread.

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::lookup::{self, Answer, Name};

/// Time after which a name that did not resolve is resolved again.
const RETRY: Duration = Duration::from_secs(1);

/// The reason for which a name could not be resolved.
pub type Failure = String;

/// Called with each answer. Returns whether further ones are wanted.
type Listener = Box<dyn FnMut(Result<Answer, Failure>) -> bool + Send>;

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
    listener: impl FnMut(Result<Answer, Failure>) -> bool + Send + 'static,
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
        (watch.listener)(Err("the thread that resolves names has ended".to_owned()));
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

/// Resolves a name again and again. The system's files are read each time, since they may have changed.
async fn repeat(mut watch: Watch) {
    loop {
        let answer = match lookup::resolver(&watch.servers) {
            Ok(resolver) => lookup::lookup(&resolver, &watch.name).await,
            Err(error) => Err(error),
        };
        let pause = answer.as_ref().map_or(RETRY, |answer| answer.ttl);
        if !(watch.listener)(answer) {
            return;
        }
        tokio::time::sleep(pause).await;
    }
}
