//! Sorted byte ranges: union, gaps, what of a want is there.
