//! Records of what clients of the admin API change, and who they are.

use std::sync::Arc;

use parking_lot::Mutex;

/// Longest description of a change, in bytes. The rest is left out.
const WHAT_MAX: usize = 2000;

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

/// Writes a change into the log of messages, as an event with this target.
macro_rules! log {
    ($change:ident, $target:literal) => {{
        let Change {
            action,
            what,
            who,
            client,
            status,
        } = $change;
        tracing::info!(target: $target, %who, %client, status, "{action}: {what}")
    }};
}

impl Change {
    /// Writes the change into the log of messages. A change is one event: of its own kind if it was made and its result is
    /// known by then, else of the kind `change`.
    pub fn log(&self) {
        let is_made = self.status.is_some_and(|status| status < 300);
        match &*self.action {
            "purge" if is_made => log!(self, "sluice::event::purge::purged"),
            "servers" if is_made => log!(self, "sluice::event::order::set"),
            _ => log!(self, "sluice::event::change::ordered"),
        }
    }
}

/// The description of a change, which the handler of its request fills in. Clones share it.
#[derive(Clone, Default)]
pub struct ChangeNote(Arc<Mutex<Option<String>>>);

impl ChangeNote {
    /// Describes the change. To be called before the change is made, since the client may leave meanwhile.
    pub fn describe(&self, mut what: String) {
        what.truncate(what.floor_char_boundary(WHAT_MAX));
        *self.0.lock() = Some(what);
    }

    /// Returns the description, if there is one, and forgets it.
    pub(super) fn take(&self) -> Option<String> {
        self.0.lock().take()
    }
}
