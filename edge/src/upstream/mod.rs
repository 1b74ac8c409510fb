//! Exchanges with origin servers.
