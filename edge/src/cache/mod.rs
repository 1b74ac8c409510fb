//! The cache: decide, fly, serve.
