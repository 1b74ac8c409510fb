//! Loss of power at every write.
