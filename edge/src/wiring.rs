//! Plan to running server.
