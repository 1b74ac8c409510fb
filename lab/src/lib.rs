//! The harness: what Sluice is tried with.
