//! The TLS of an upstream, whose files a reload reads again.

use std::sync::Arc;

use parking_lot::Mutex;

use super::options::Options;
use crate::tls::{Client, OpenError};

/// The TLS of an upstream, which all workers share.
pub(super) struct UpstreamTls(Mutex<Arc<Client>>);

impl UpstreamTls {
    /// Opens the TLS of an upstream, if it has a server with TLS.
    ///
    /// # Errors
    ///
    /// A file can't be used.
    pub(super) fn open(options: &Options) -> Result<Option<Arc<UpstreamTls>>, OpenError> {
        if !options.uses_tls() {
            return Ok(None);
        }
        let client = Arc::new(Client::open(&options.tls)?);
        Ok(Some(Arc::new(UpstreamTls(Mutex::new(client)))))
    }

    /// Reads the files again, for connections that are opened from now on.
    ///
    /// # Errors
    ///
    /// A file can't be used. Nothing has changed then.
    pub(super) fn renew(&self, options: &Options) -> Result<(), OpenError> {
        let client = Arc::new(Client::open(&options.tls)?);
        *self.0.lock() = client;
        Ok(())
    }

    /// Returns the TLS for a new connection.
    pub(super) fn client(&self) -> Arc<Client> {
        self.0.lock().clone()
    }
}
