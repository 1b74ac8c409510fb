//! What was typed, and what will happen.
