//! Plan to running server.

use std::net::SocketAddr;

use crate::config::Plan;

/// A running edge.
pub struct Running {
    /// Where it listens.
    pub listeners: Vec<SocketAddr>,
    /// Where its admin API is.
    pub admin: Option<SocketAddr>,
}

/// Starts it.
///
/// # Errors
/// Always: the parts are put together elsewhere.
pub fn start(
    _plan: Plan,
    _reload: Option<Box<dyn Fn() -> Result<Plan, String> + Send + Sync>>,
) -> anyhow::Result<Running> {
    anyhow::bail!("not put together yet")
}

impl Running {
    /// Runs until a signal.
    ///
    /// # Errors
    /// When signals can't be waited for.
    pub fn wait_for_signals(self) -> anyhow::Result<()> {
        Ok(())
    }

    /// Ends it.
    pub fn stop(self) {}
}
