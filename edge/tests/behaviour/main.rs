//! How the real program behaves on real sockets, between the lab's client and the lab's origin.
//!
//! Each test has an origin and an edge of its own, on ports that the kernel chooses, and begins with the
//! sentence that it proves. Nothing sleeps: the origin's gates hold what is to be held, and what
//! can only be looked at is looked at until a deadline.

mod admin;
mod bodies;
mod cache;
mod churn;
mod desync;
mod drain;
mod framing;
mod freshness;
mod harness;
mod keepalive;
mod limits;
mod log;
mod malformed;
mod odd;
mod origins;
mod passing;
mod patience;
mod pressure;
mod ranges;
mod reload;
mod sharing;
mod sites;
mod storm;
mod streaming;
mod upgrade;
mod upstream;
mod versions;
mod workers;
