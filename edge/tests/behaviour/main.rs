//! Tests of the real program on real sockets, between the lab's client and the lab's origin.
//!
//! Each test has its own origin and edge, on ports that the kernel chooses. The name of a test
//! states the behaviour that it proves. Tests don't sleep: gates of the origin hold responses back,
//! and tests poll for other states until a deadline.

mod access;
mod access_log;
mod admin;
mod admission;
mod background_revalidation;
mod bodies;
mod cache;
mod cache_status;
mod caching_rules;
mod changing_files;
mod client_budget;
mod collapse;
mod compress;
mod connections;
mod content_codings;
mod damaged_volumes;
mod desync;
mod directives;
mod disks;
mod durable_purge;
mod edited_heads;
mod error_pages;
#[cfg(feature = "lab")]
mod failing_disks;
mod fence;
mod file_changes;
mod files;
mod fill_lock;
mod framing;
mod freshness;
mod gap_fetches;
mod grace;
mod harness;
#[cfg(feature = "lab")]
mod index_loading;
mod invalidation;
mod isolation;
mod keepalive;
mod keys;
mod languages;
mod lifetimes;
mod limits;
mod log_formats;
mod malformed;
mod not_modified;
mod one_cold_object;
mod origin_cost;
mod origins;
mod partial;
mod partial_objects;
mod placement;
mod post_responses;
mod privileges;
mod proxy_protocol;
mod purge;
mod purge_log;
mod random_load;
mod random_ranges;
mod range_sharing;
mod ranges;
mod ranges_of_errors;
mod reload;
mod resource_limits;
mod restart;
mod resume;
mod retries;
mod rule_precedence;
mod sharing;
mod shutdown;
mod sites;
mod slices;
mod slow_clients;
#[cfg(feature = "lab")]
mod slow_disk;
#[cfg(feature = "lab")]
mod slow_disks;
mod storing;
mod streaming;
mod transfer_timeouts;
mod uncacheable;
mod unusable_volumes;
mod unusual_requests;
mod upgrade;
mod upstream;
mod validation;
mod versions;
mod viewers;
mod volume_passes;
mod volume_reload;
mod volume_size;
mod volumes;
mod weak_validators;
mod workers;
