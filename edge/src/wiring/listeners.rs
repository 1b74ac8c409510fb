//! Binds the listeners of a plan for all workers.

use std::io;
use std::sync::Arc;

use crate::config::{self, ListenerPlan, Plan, Report};
use crate::downstream::ConnectionSetup;
use crate::sys::listener::Listener;
use crate::sys::port;
use crate::sys::socket_file::SocketFile;
use crate::sys::{ListenAddress, limits};

/// One worker's socket of one listener, and the setup of its connections.
pub(super) type WorkerListener = (Listener, Arc<ConnectionSetup>);

/// The listeners of a plan, bound for all workers.
pub(super) struct Listeners {
    /// Each worker's sockets.
    pub(super) sockets: Vec<Vec<WorkerListener>>,
    /// The addresses, in the order of the configuration.
    pub(super) addresses: Vec<ListenAddress>,
    /// The files of Unix sockets.
    pub(super) files: Vec<SocketFile>,
}

/// Binds one socket per worker and listener.
pub(super) fn bind(plan: &Plan, workers: usize) -> anyhow::Result<Listeners> {
    let mut all = Listeners {
        sockets: (0..workers).map(|_| Vec::new()).collect(),
        addresses: Vec::new(),
        files: Vec::new(),
    };
    for listener in &plan.listeners {
        warn_of_backlog(listener);
        let bound = Listener::bind(&listener.address, &listener.listening, workers)
            .map_err(|error| cannot_listen("", &listener.address, &error))?;
        let setup = Arc::new(listener.setup.clone());
        for (of_worker, socket) in all.sockets.iter_mut().zip(bound.sockets) {
            of_worker.push((socket, setup.clone()));
        }
        all.addresses.push(bound.address);
        all.files.extend(bound.file);
    }
    Ok(all)
}

/// Returns the error for an address that can't be bound, with advice. `what` describes the address.
pub(super) fn cannot_listen(
    what: &str,
    address: &ListenAddress,
    error: &io::Error,
) -> anyhow::Error {
    let port = address.ip().map_or(0, |ip| ip.port());
    let help = match error.kind() {
        io::ErrorKind::AddrInUse if port != 0 => Some(in_use(port)),
        io::ErrorKind::AddrNotAvailable => Some(format!(
            "no network interface of this machine has this address; \":{port}\" means all addresses"
        )),
        io::ErrorKind::PermissionDenied if (1..1024).contains(&port) => {
            Some(config::PRIVILEGE.to_owned())
        }
        _ => None,
    };
    let title = format!("can't listen on {what}{address}: {error}");
    Report::without_file(title, help).into()
}

/// Returns advice for a port on which another process listens.
fn in_use(port: u16) -> String {
    match port::owner(port) {
        Some(owner) if owner.pid == std::process::id() => {
            format!("another address of this configuration uses port {port}: remove one of the two")
        }
        Some(owner) => format!(
            "process {} ({}) listens on port {port}: stop it, or use another port",
            owner.pid, owner.name
        ),
        None => format!(
            "another program listens there; `ss -lntp sport = :{port}` as root shows which one"
        ),
    }
}

/// Warns of a configured backlog that is above the kernel's limit, since the kernel reduces it
/// silently.
fn warn_of_backlog(listener: &ListenerPlan) {
    let (wanted, most) = (listener.listening.backlog, limits::somaxconn());
    if let (Some(wanted), Some(most)) = (wanted, most)
        && wanted > most
    {
        tracing::warn!(
            "{}: net.core.somaxconn limits a backlog of {wanted} to {most} \
             (`sluice check --system` says how to raise it)",
            listener.address
        );
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_port_that_this_process_uses_already_is_of_another_address() -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let help = in_use(listener.local_addr()?.port());
        assert!(
            help.starts_with("another address of this configuration"),
            "{help}"
        );
        Ok(())
    }
}
