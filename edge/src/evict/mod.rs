//! One file per eviction policy, behind one trait that speaks only ids.
