//! The admin address.
