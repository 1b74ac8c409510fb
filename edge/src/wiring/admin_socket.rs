//! The socket of the admin API: bound, and handed to its thread.

use std::sync::Arc;

use super::edge::Edge;
use super::listeners::cannot_listen;
use crate::admin::{Admin, AdminSocket};
use crate::config::Plan;
use crate::http::Scheme;
use crate::sys::ListenAddress;
use crate::sys::listener::{bind_one, bind_private};
use crate::sys::socket_file::SocketFile;
use crate::sys::user::ProcessUser;

/// The name of the address in errors.
const WHAT: &str = "the admin address ";

/// The socket of the admin API, as far as it is bound.
pub(super) struct Bound {
    address: ListenAddress,
    scheme: Scheme,
    /// A Unix socket, which is bound before the privileges are dropped, with its file.
    unix: Option<(AdminSocket, SocketFile)>,
}

/// The running admin API.
pub(super) struct RunningAdmin {
    /// Scheme of the requests.
    pub(super) scheme: Scheme,
    /// The address on which the API listens.
    pub(super) address: ListenAddress,
    // The thread ends before the file is removed.
    _thread: Admin,
    _file: Option<SocketFile>,
}

/// Binds the admin address if it is a Unix socket. Such a socket belongs to the user to which the process switches.
pub(super) fn bind(plan: &Plan) -> anyhow::Result<Option<Bound>> {
    let Some(address) = plan.admin.clone() else {
        return Ok(None);
    };
    let unix = match &address {
        ListenAddress::Ip(_) => None,
        ListenAddress::Unix(path) => {
            let user = plan.privileges.user.as_ref();
            let owner = user.map(|user| ProcessUser::find(&user.name, user.group.as_deref()));
            let owner = owner.transpose().map_err(anyhow::Error::msg)?;
            let bound = bind_private(path, owner.map(|user| user.ids()));
            let (listener, file) = bound.map_err(|error| cannot_listen(WHAT, &address, &error))?;
            Some((AdminSocket::Unix(listener), file))
        }
    };
    let scheme = match plan.admin_tls {
        Some(_) => Scheme::Https,
        None => Scheme::Http,
    };
    Ok(Some(Bound {
        address,
        scheme,
        unix,
    }))
}

impl Bound {
    /// Binds the admin address if it is a TCP port, and starts the thread of the admin API.
    pub(super) fn start(self, edge: &Arc<Edge>) -> anyhow::Result<RunningAdmin> {
        let Bound {
            address,
            scheme,
            unix,
        } = self;
        let started = match (&address, unix) {
            (_, Some((socket, file))) => Ok((socket, Some(file))),
            (ListenAddress::Ip(ip), None) => bind_one(*ip).map(|tcp| (AdminSocket::Tcp(tcp), None)),
            // `bind` has bound each Unix socket.
            (ListenAddress::Unix(_), None) => Err(std::io::ErrorKind::NotFound.into()),
        };
        let started = started.and_then(|(socket, file)| {
            let thread = Admin::start(socket, edge.clone())?;
            Ok((thread, file))
        });
        let (thread, file) = started.map_err(|error| cannot_listen(WHAT, &address, &error))?;
        Ok(RunningAdmin {
            scheme,
            address: thread.address().map_or(address, ListenAddress::Ip),
            _thread: thread,
            _file: file,
        })
    }
}
