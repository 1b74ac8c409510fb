//! Records of what clients of the admin API change, and who they are.

use std::sync::Arc;

use parking_lot::Mutex;

/// A change that a client of the admin API, or a signal, has asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The kind of change, as in `purge`: the first part of the path.
    pub action: String,
    /// Describes the change. Values in URLs that may be secrets are masked. May contain text of the client.
    pub what: String,
    /// Name of the client's token, `local` without one, or the name of a signal.
    pub who: String,
    /// The client's address.
    pub client: String,
    /// Status of the response; `None` if the client left before the response, or there was none.
    pub status: Option<u16>,
}

impl Change {
    /// Writes the change into the log of messages.
    pub fn log(&self) {
        let Change {
            action,
            what,
            who,
            client,
            status,
        } = self;
        match status {
            Some(status) => {
                tracing::info!(target: "sluice::event::change::ordered", %who, %client, status, "{action}: {what}");
            }
            None => {
                tracing::info!(target: "sluice::event::change::ordered", %who, %client, "{action}: {what}")
            }
        }
    }
}

/// The description of a change, which the handler of its request fills in. Clones share it.
#[derive(Clone, Default)]
pub struct ChangeNote(Arc<Mutex<Option<String>>>);

impl ChangeNote {
    /// Describes the change. To be called before the change is made, since the client may leave meanwhile.
    pub fn describe(&self, what: String) {
        *self.0.lock() = Some(what);
    }

    /// Returns the description, if there is one, and forgets it.
    pub(super) fn take(&self) -> Option<String> {
        self.0.lock().take()
    }
}
