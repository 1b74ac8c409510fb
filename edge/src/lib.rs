//! Sluice: a content-delivery edge.
