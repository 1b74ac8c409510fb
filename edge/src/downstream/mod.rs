//! Listeners and connections.
