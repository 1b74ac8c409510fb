//! How the real program behaves on real sockets, between the lab's client and the lab's origin.
//!
//! Each test has an origin and an edge of its own, on ports that the kernel chooses, and begins with the
//! sentence that it proves. Nothing sleeps: the origin's gates hold what is to be held, and what
//! can only be looked at is looked at until a deadline.

mod admin;
mod bodies;
mod budget;
mod cache;
mod changes;
mod churn;
mod codings;
mod crowds;
mod desync;
mod drain;
mod fence;
mod framing;
mod freshness;
mod gaps;
mod harness;
mod keepalive;
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
mod pressure;
mod ranges;
mod refusals;
mod reload;
mod resume;
mod retries;
mod sharing;
mod sites;
mod slices;
mod statuses;
mod storm;
mod storms;
mod streaming;
mod upgrade;
mod upstream;
mod versions;
mod weak;
mod workers;
