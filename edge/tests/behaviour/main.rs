//! How the real program behaves on real sockets, between the lab's client and the lab's origin.
//!
//! Each test has an origin and an edge of its own, on ports that the kernel chooses, and begins with the
//! sentence that it proves. Nothing sleeps: the origin's gates hold what is to be held, and what
//! can only be looked at is looked at until a deadline.

mod admin;
mod admission;
mod aging;
mod bodies;
mod budget;
mod cache;
mod changes;
mod churn;
mod codings;
mod collapse;
mod compress;
mod crowds;
mod damage;
mod desync;
mod directives;
mod disks;
mod drain;
mod failing;
mod fence;
mod files;
mod framing;
mod freshness;
mod gaps;
mod grace;
mod harness;
mod invalidation;
mod keepalive;
mod keys;
mod languages;
mod lasting;
mod limits;
mod locked;
mod log;
mod malformed;
mod odd;
mod origins;
mod partial;
mod parting;
mod passing;
mod patience;
mod pieces;
mod placement;
mod posting;
mod pressure;
mod purge;
mod ranges;
mod refusals;
mod reload;
mod restart;
mod resume;
mod retries;
mod settings;
mod sharing;
mod shield;
mod sites;
mod sizes;
mod slices;
#[cfg(feature = "lab")]
mod slow;
mod spending;
mod statuses;
mod storing;
mod storm;
mod storms;
mod streaming;
mod upgrade;
mod upstream;
mod validation;
mod versions;
mod volumes;
mod weak;
mod workers;
