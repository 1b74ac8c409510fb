//! Host and path to site and route.
