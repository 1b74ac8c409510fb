//! Which server of an upstream is asked next.
