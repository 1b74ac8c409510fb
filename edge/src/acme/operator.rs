//! The orders of an operator about certificates: to renew one now, or to revoke one.

use tokio::sync::oneshot;

use super::manager::Manager;
use super::record::Record;
use super::revocation::{Reason, Revocation};
use super::state::State;

/// The reason why an order about a certificate is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No certificate is obtained for this name.
    Unknown,
    /// An attempt to obtain or revoke the certificate is in progress.
    Busy,
    /// There is no certificate that could be revoked.
    Missing,
}

impl Manager {
    /// Has the certificate of a name obtained now, whatever its validity and the waiting time after failures. The limit
    /// of orders applies.
    ///
    /// # Errors
    ///
    /// There is no such certificate, or an attempt is in progress.
    pub fn renew(&self, name: &str) -> Result<(), Refused> {
        self.change(name, |state| {
            state.next_unix_s = 0;
            Ok(())
        })?;
        self.wake();
        Ok(())
    }

    /// Has the certificate of a name revoked. Then the certificate is not used any more, and a new one with a new key is
    /// obtained. Returns the receiver of the result.
    ///
    /// # Errors
    ///
    /// There is no such certificate, or an attempt is in progress.
    pub fn revoke(
        &self,
        name: &str,
        reason: Reason,
    ) -> Result<oneshot::Receiver<Result<(), String>>, Refused> {
        let names = self.change(name, |state| {
            if state.issuer.is_none() {
                return Err(Refused::Missing);
            }
            state.is_busy = true;
            Ok(())
        })?;
        let (done, result) = oneshot::channel();
        self.shared.revocations.lock().push(Revocation {
            names,
            reason,
            done,
        });
        self.wake();
        Ok(result)
    }

    /// Changes the state of the certificate of a name, unless it is busy. Returns its names.
    fn change(
        &self,
        name: &str,
        change: impl FnOnce(&mut State) -> Result<(), Refused>,
    ) -> Result<Vec<String>, Refused> {
        let mut entries = self.shared.entries.lock();
        let mut states = entries.values_mut().map(|entry| &mut entry.state);
        let is_it = |state: &&mut State| {
            Record::id(&state.names) == name || state.names.iter().any(|one| one == name)
        };
        let state = states.find(is_it).ok_or(Refused::Unknown)?;
        if state.is_busy {
            return Err(Refused::Busy);
        }
        change(state)?;
        Ok(state.names.clone())
    }

    /// Makes the thread look for work.
    fn wake(&self) {
        self.shared.wanted.send_modify(|_| {});
    }
}
