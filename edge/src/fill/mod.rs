//! Fill policies: which ranges to fetch now.
