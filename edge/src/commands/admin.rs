//! The options by which a command finds the running Sluice, and its requests to the admin address.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use sluice_lab::client::{self, Reply};

use crate::config;

/// Options that say how a command finds the running Sluice.
#[derive(Debug, Args)]
pub struct AdminArgs {
    /// Admin address of the running Sluice [default: 127.0.0.1:9901]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config", value_parser = admin_address)]
    admin: Option<SocketAddr>,
    /// Configuration file of the running Sluice, from which the admin address is read
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

fn admin_address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| format!("write an IP address and a port, as in {}", config::ADMIN))
}

impl AdminArgs {
    fn address(&self) -> anyhow::Result<SocketAddr> {
        match (&self.admin, &self.config) {
            (Some(address), _) => Ok(*address),
            (None, Some(path)) => config::load(path)?
                .plan
                .admin
                .context("the configuration file sets no admin address"),
            (None, None) => Ok(config::ADMIN.parse()?),
        }
    }

    /// Sends a request to the admin address and returns the reply with any status.
    pub(super) fn request(&self, method: &str, target: &str) -> anyhow::Result<Reply> {
        self.send(method, target, b"")
    }

    /// Sends a request with a body to the admin address and returns the reply with any status.
    pub(super) fn send(&self, method: &str, target: &str, body: &[u8]) -> anyhow::Result<Reply> {
        let address = self.address()?;
        let host = address.to_string();
        let headers = [("host", host.as_str()), ("x-sluice", "1")];
        client::once(address, method, target, &headers, body).map_err(|error| {
            anyhow::anyhow!(
                "no Sluice answers at {address}: {error}\n(--admin ADDRESS selects another address)"
            )
        })
    }
}
